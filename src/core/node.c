#include "core/node.h"

void node_view_init(struct node_view *view, const char *id, uint32_t weight_milli, enum member_state state,
		    int64_t now_us)
{
	*view = (struct node_view){
		.weight_milli = weight_milli,
		.report_us = -1,
		.p99_smooth_us = -1,
		.write_failure_ppm = -1,
		.writes = -1,
		.write_failures = -1,
		.joined_us = -1,
		.is_told_to_leave = state == MEMBER_LEAVING,
		.score_before_ppm = -1,
	};
	MUST(str_copy(str_from(id), view->id, sizeof(view->id)));
	health_init(&view->health);
	member_init(&view->member, state, now_us);
	report_init(&view->report);
}

void node_view_join(struct node_view *view, bool is_new, int64_t now_us)
{
	view->joined_us = is_new ? now_us : -1;
	if (is_new)
		view->was_ever_verified = false;
}

/* --- from words to the state --- */

/* Gossip tells of changes alone; the others' good words age when no more come. */
static bool is_good_now(const struct node_view *view, enum health_source source, int64_t limit_us, int64_t now_us)
{
	const struct health_view *word = &view->health.views[source];

	if (word->word != HEALTH_GOOD)
		return false;
	return source == HEALTH_GOSSIP || limit_us == 0 || now_us - word->heard_us <= limit_us;
}

static bool is_refuted(const struct node_view *view, enum health_source good_source)
{
	for (unsigned i = 0; i < HEALTH_SOURCES; i++) {
		if (i != (unsigned)good_source && i != HEALTH_TRAFFIC && view->health.views[i].word == HEALTH_FAILED)
			return true;
	}
	return false;
}

/* Back, or another process under its name: what was said of the requests of the former one is no word about this one. */
static void node_joined(struct node_view *view, int64_t now_us)
{
	view->joined_us = now_us;
	health_forget(&view->health, HEALTH_TRAFFIC, now_us);
}

static void node_step(struct node_view *view, const struct member_rules *rules, enum member_event event, int64_t now_us)
{
	enum member_state before = view->member.state;

	if (!member_step(&view->member, rules, event, now_us) || before != MEMBER_UNREACHABLE ||
	    view->member.state == MEMBER_REMOVED)
		return;
	node_joined(view, now_us);
}

/* Suspicion ends by itself. */
static void suspect_settle(struct node_view *view, const struct member_rules *rules, int64_t now_us)
{
	int64_t limit_us = rules->suspicion_limit_us;
	bool is_served = is_good_now(view, HEALTH_PROBE, limit_us, now_us) ||
			 is_good_now(view, HEALTH_TRAFFIC, limit_us, now_us);
	bool is_alive = is_served || is_good_now(view, HEALTH_HEARTBEAT, limit_us, now_us) ||
			is_good_now(view, HEALTH_GOSSIP, limit_us, now_us);

	if (view->member.state != MEMBER_SUSPECT)
		return;
	if (view->health.views[HEALTH_GOSSIP].word == HEALTH_FAILED && !is_served)
		node_step(view, rules, MEMBER_GOSSIP_FAILED, now_us);
	else if (limit_us > 0 && now_us - view->member.since_us > limit_us && !is_alive)
		node_step(view, rules, MEMBER_SUSPICION_EXPIRED, now_us);
}

static void source_good(struct node_view *view, const struct member_rules *rules, enum health_source source,
			int64_t now_us)
{
	health_good(&view->health, source, now_us);
	if (!is_refuted(view, source))
		node_step(view, rules, MEMBER_PROBE_GOOD, now_us);
}

/* The machine counts the misses it is given; here the count that matters is the source's. */
static void source_missed(struct node_view *view, const struct member_rules *rules, enum health_source source,
			  int64_t now_us)
{
	unsigned missed_count;

	health_missed(&view->health, source, rules->missed_limit_count, now_us);
	missed_count = view->health.views[source].missed_count;
	if (missed_count >= rules->missed_limit_count) {
		view->member.missed_count = missed_count - 1;
		node_step(view, rules, MEMBER_PROBE_MISSED, now_us);
		return;
	}
	/* Too few to leave by, but the way back is good words in a row. */
	view->member.good_count = 0;
	if (view->member.missed_count < missed_count)
		view->member.missed_count = missed_count;
}

bool node_view_probe(struct node_view *view, const struct member_rules *rules, bool is_good, int64_t now_us)
{
	enum member_state before = view->member.state;

	if (is_good)
		source_good(view, rules, HEALTH_PROBE, now_us);
	else
		source_missed(view, rules, HEALTH_PROBE, now_us);
	suspect_settle(view, rules, now_us);
	return view->member.state != before;
}

bool node_view_gossip(struct node_view *view, const struct member_rules *rules, enum health_word word, int64_t now_us)
{
	enum member_state before = view->member.state;

	switch (word) {
	case HEALTH_UNKNOWN:
		health_forget(&view->health, HEALTH_GOSSIP, now_us);
		break;
	case HEALTH_GOOD:
		health_good(&view->health, HEALTH_GOSSIP, now_us);
		break;
	case HEALTH_DOUBTFUL:
		/* Peers confirm; however often they doubt, it is no confirmation. */
		health_missed(&view->health, HEALTH_GOSSIP, UINT32_MAX, now_us);
		break;
	case HEALTH_FAILED:
		health_failed(&view->health, HEALTH_GOSSIP, now_us);
		break;
	}
	suspect_settle(view, rules, now_us);
	return view->member.state != before;
}

bool node_view_traffic(struct node_view *view, const struct member_rules *rules, bool is_good, int64_t now_us)
{
	unsigned limit_count = rules->traffic_limit_count > 0 ? rules->traffic_limit_count : UINT32_MAX;
	enum member_state before = view->member.state;

	if (is_good) {
		/* An answer that was still on its way when the node was given up is no way back. */
		if (before != MEMBER_UNREACHABLE)
			health_good(&view->health, HEALTH_TRAFFIC, now_us);
	} else {
		health_missed(&view->health, HEALTH_TRAFFIC, limit_count, now_us);
		if (view->health.views[HEALTH_TRAFFIC].word == HEALTH_FAILED && before != MEMBER_UNREACHABLE)
			node_step(view, rules, MEMBER_TRAFFIC_FAILED, now_us);
	}
	suspect_settle(view, rules, now_us);
	return view->member.state != before;
}

bool node_view_tell(struct node_view *view, const struct member_rules *rules, enum member_event event, int64_t now_us)
{
	enum member_state before = view->member.state;

	MUST(event == MEMBER_LEAVE || event == MEMBER_STAY || event == MEMBER_DRAINED);
	if (event != MEMBER_DRAINED)
		view->is_told_to_leave = event == MEMBER_LEAVE;
	node_step(view, rules, event, now_us);
	return view->member.state != before;
}

bool node_view_step(struct node_view *view, const struct member_rules *rules, int64_t now_us)
{
	enum member_state before = view->member.state;
	const struct health_view *heartbeat = &view->health.views[HEALTH_HEARTBEAT];
	int64_t due_count = 0;

	/* A report is missed when its interval is over, not when it ends: at nine seconds the third is not late yet. */
	if (view->report_us >= 0 && now_us > view->report_us)
		due_count = (now_us - view->report_us - 1) / REPORT_INTERVAL_US;
	/* After a leap of the clock the misses up to the limit say all there is to say, the rest is counted from tick to tick. */
	for (unsigned i = 0; i <= rules->missed_limit_count && heartbeat->missed_count < due_count; i++)
		source_missed(view, rules, HEALTH_HEARTBEAT, now_us);
	suspect_settle(view, rules, now_us);
	return view->member.state != before;
}

/* --- reports --- */

/* A process is told by when it was started: its sequence begins anew with it. */
static bool report_is_old(const struct node_view *view, const struct report *report, uint64_t sequence, int64_t now_us)
{
	int64_t started_before_us = view->report.started_wall_us, started_us = report->started_wall_us;
	bool is_silent;

	if (view->report_us < 0)
		return false;
	is_silent = now_us - view->report_us > 3 * REPORT_INTERVAL_US;
	if (started_before_us < 0 || started_us < 0)
		return sequence <= view->report_sequence && !is_silent;
	if (started_us > started_before_us + NODE_START_SLACK_US)
		return false;
	if (started_us < started_before_us - NODE_START_SLACK_US)
		return !is_silent;
	return sequence <= view->report_sequence;
}

/* Of a report that is not old. */
static bool report_is_of_new_process(const struct node_view *view, const struct report *report, uint64_t sequence)
{
	int64_t started_before_us = view->report.started_wall_us, started_us = report->started_wall_us;

	if (view->report_us < 0)
		return false;
	if (started_before_us < 0 || started_us < 0)
		return sequence <= view->report_sequence;
	return started_us > started_before_us + NODE_START_SLACK_US ||
	       started_us < started_before_us - NODE_START_SLACK_US;
}

static void report_writes(struct node_view *view, const struct report *report, int64_t now_us)
{
	int64_t writes = 0, failures = 0;

	if (report->writes < 0 || report->write_failures < 0)
		return;
	if (view->writes >= 0) {
		writes = report->writes - view->writes;
		failures = report->write_failures - view->write_failures;
	}
	/* Counters that went back are those of a new process; without writes nothing is told. */
	if (writes > 0 && failures >= 0) {
		view->write_failure_ppm = (int64_t)((__int128)min_i64(failures, writes) * PPM / writes);
		view->write_told_us = now_us;
	}
	view->writes = report->writes;
	view->write_failures = report->write_failures;
}

static void report_p99(struct node_view *view, const struct report *report, int64_t now_us)
{
	if (report->p99_us < 0)
		return;
	view->p99_smooth_us = curve_ewma(view->p99_smooth_us, report->p99_us, now_us - view->p99_told_us,
					 NODE_P99_TAU_US);
	view->p99_told_us = now_us;
}

static void report_leaving(struct node_view *view, const struct member_rules *rules, const struct report *report,
			   int64_t now_us)
{
	if (report->leaving > 0 && !view->is_leaving_itself) {
		view->is_leaving_itself = true;
		node_step(view, rules, MEMBER_LEAVE, now_us);
	} else if (report->leaving == 0 && view->is_leaving_itself) {
		view->is_leaving_itself = false;
		if (!view->is_told_to_leave)
			node_step(view, rules, MEMBER_STAY, now_us);
	}
}

bool node_view_report(struct node_view *view, const struct member_rules *rules, const struct report *report,
		      uint64_t sequence, int64_t now_us)
{
	enum member_state before = view->member.state;

	if (report_is_old(view, report, sequence, now_us))
		return false;
	/* Nobody need have missed a process that was started again within seconds, but its caches and data are as new as any other's. */
	if (report_is_of_new_process(view, report, sequence)) {
		node_joined(view, now_us);
		/* It counts from 0 again, which its numbers need not show. */
		view->writes = -1;
		view->write_failures = -1;
	}
	report_p99(view, report, now_us);
	report_writes(view, report, now_us);
	view->was_ever_verified |= report->verified > 0;
	view->report = *report;
	view->report_sequence = sequence;
	view->report_us = now_us;
	source_good(view, rules, HEALTH_HEARTBEAT, now_us);
	report_leaving(view, rules, report, now_us);
	suspect_settle(view, rules, now_us);
	return view->member.state != before;
}

/* --- to the scorer and back --- */

static int64_t age_of(int64_t since_us, int64_t now_us) { return since_us < 0 ? -1 : max_i64(now_us - since_us, 0); }

void node_view_input(const struct node_view *view, int64_t in_flight, int64_t rt_mean_us, int64_t now_us,
		     struct score_input *ret_input)
{
	*ret_input = (struct score_input){
		.weight_milli = view->weight_milli,
		.state = view->member.state,
		.report = view->report,
		.age_us = age_of(view->report_us, now_us),
		.p99_smooth_us = view->p99_smooth_us,
		.write_failure_ppm = -1,
		.in_flight = in_flight,
		.rt_mean_us = rt_mean_us,
		.joined_age_us = age_of(view->joined_us, now_us),
		.was_ever_verified = view->was_ever_verified,
		.is_barred = view->is_barred,
		.rules_on = view->rules_on,
		.score_before_ppm = view->score_before_ppm,
	};
	memcpy(ret_input->id, view->id, sizeof(ret_input->id));
	memcpy(ret_input->bar_reason, view->bar_reason, sizeof(ret_input->bar_reason));
	for (unsigned i = 0; i < HEALTH_SOURCES; i++)
		ret_input->words[i] = view->health.views[i].word;
	/* A leaving node that falls under suspicion must not be offered more than before. */
	if (ret_input->state == MEMBER_SUSPECT && view->member.is_leaving)
		ret_input->state = MEMBER_LEAVING;
	if (now_us - view->write_told_us <= NODE_WRITES_LIFE_US)
		ret_input->write_failure_ppm = view->write_failure_ppm;
}

void node_view_keep(struct node_view *view, const struct score_output *output)
{
	view->rules_on = output->rules_on;
	view->score_before_ppm = output->score_ppm;
}
