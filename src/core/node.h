/* A node as one process sees it: who it is, what each source says of it, its last report, where it stands. Events go in with their time; out
 * comes the input of the scorer. Pure; the owner serialises. */
#ifndef HENG_CORE_NODE_H
#define HENG_CORE_NODE_H

#include "core/member.h"
#include "core/report.h"
#include "core/score.h"

/* P99 moves as an EWMA over this time, so that one pause does not (seed 004 §5.3). */
#define NODE_P99_TAU_US (60 * SEC_US)
/* How long a share of failed writes speaks: a node that gets no more writes because of it would never be heard to write well again. */
#define NODE_WRITES_LIFE_US (60 * SEC_US)
/* Two processes of a node whose start times differ by no more count as one: the wall clock they are told by may be set meanwhile. */
#define NODE_START_SLACK_US (2 * SEC_US)

struct node_view {
	char id[SCORE_ID_SIZE];
	uint32_t weight_milli; /* as configured */
	struct health health;
	struct member member;
	struct report report;
	uint64_t report_sequence;
	int64_t report_us;              /* when it came; -1: never */
	int64_t p99_smooth_us;          /* -1: unknown */
	int64_t p99_told_us;            /* when the last report with a p99 came */
	int64_t write_failure_ppm;      /* between the last two reports that tell of writes; -1: unknown */
	int64_t write_told_us;          /* when that was */
	int64_t writes, write_failures; /* counters of the last report that had them; -1: none yet */
	/* When it came (back) into service: warm-up and slow start count from here; -1: it was there before us. */
	int64_t joined_us;
	bool was_ever_verified;
	/* By whom it was told to leave: the node may take its own word back, not the operator's. */
	bool is_told_to_leave, is_leaving_itself;
	bool is_barred; /* the door's word: no new work whatever the score */
	char bar_reason[64];
	/* Of the scorer, kept from tick to tick. */
	uint32_t rules_on;
	int64_t score_before_ppm; /* -1: none */
};

void node_view_init(struct node_view *view, const char *id, uint32_t weight_milli, enum member_state state,
		    int64_t now_us);
/* is_new: the node joined while this process watched and has no data yet, so it warms up; else it is taken as established. */
void node_view_join(struct node_view *view, bool is_new, int64_t now_us);

/* Each returns true when the member's state changed, so that the table is made anew at once. A node that comes back from Unreachable joins anew
 * (joined_us = now); so does one whose process was started again.
 *
 * A good probe or report leads back only while no other source says failed; of live traffic that is not asked, as none flows to an unreachable
 * node: its word is forgotten when the node is back. A source's misses count by themselves and matter from the limit on. A Suspect becomes
 * Unreachable when gossip confirms, unless a probe or traffic says good (the agent died, the worker answers), and when suspicion expires, unless
 * any source says good. Good words of probes, reports and traffic are as old as the last of them: beyond the suspicion limit they do not count.
 *
 * A report older than the last one is dropped: one of the same process (started_wall_us) whose sequence is not greater, or one of a process
 * that was started before, unless nothing has come for three intervals. The first report of another process is a join, whether or not the node was
 * missed: it warms up and starts slowly. `leaving` of a report is the event; when it ends, and nobody else told
 * the node to leave, it stays. */
bool node_view_report(struct node_view *view, const struct member_rules *rules, const struct report *report,
		      uint64_t sequence, int64_t now_us);
bool node_view_probe(struct node_view *view, const struct member_rules *rules, bool is_good, int64_t now_us);
bool node_view_gossip(struct node_view *view, const struct member_rules *rules, enum health_word word, int64_t now_us);
bool node_view_traffic(struct node_view *view, const struct member_rules *rules, bool is_good, int64_t now_us);
bool node_view_tell(struct node_view *view, const struct member_rules *rules, enum member_event event,
		    int64_t now_us); /* leave, stay, drained; no other */
/* Time alone: a report that did not come within its interval is a miss of the heartbeat (only once one was ever heard), suspicion expires. Call
 * once a tick. */
bool node_view_step(struct node_view *view, const struct member_rules *rules, int64_t now_us);

/* What the scorer takes, as of now. `in_flight`, `rt_mean_us` are the caller's own (-1: unknown). */
void node_view_input(const struct node_view *view, int64_t in_flight, int64_t rt_mean_us, int64_t now_us,
		     struct score_input *ret_input);
/* Keeps what the next tick needs of this one's result. */
void node_view_keep(struct node_view *view, const struct score_output *output);

#endif
