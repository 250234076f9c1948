#include "folder/pool_judge.h"

#include <stdlib.h>
#include <string.h>

#include "core/decide.h"

/* Whose table it is, in the decision log. */
#define POOL_ROUTER "scheduler"

void pool_judge_init(struct pool_judge *judge, const struct profile *profile)
{
	*judge = (struct pool_judge){ .profile = *profile };
}

void pool_judge_fini(struct pool_judge *judge)
{
	free(judge->inputs);
	free(judge->refs);
	free(judge->outputs);
	*judge = (struct pool_judge){ .capacity = 0 };
}

int64_t pool_judge_due_us(const struct pool_judge *judge)
{
	return judge->ticked_us == 0 ? 0 : judge->ticked_us + JUDGE_TICK_US;
}

static void judge_reserve(struct pool_judge *judge, size_t count)
{
	if (count <= judge->capacity)
		return;
	free(judge->inputs);
	free(judge->refs);
	free(judge->outputs);
	judge->capacity = max_size(16, min_size(2 * count, SCORE_SET_MAX));
	judge->inputs = must_zalloc(judge->capacity, sizeof(*judge->inputs));
	judge->refs = must_zalloc(judge->capacity, sizeof(*judge->refs));
	judge->outputs = must_zalloc(judge->capacity, sizeof(*judge->outputs));
}

/* --- in --- */

static void member_pass_time(struct pool_judge *judge, struct pool_member *const *members, size_t count, int64_t now_us)
{
	if (judge->ticked_us != 0 && now_us - judge->ticked_us < JUDGE_TICK_US)
		return;
	judge->ticked_us = now_us;
	for (size_t i = 0; i < count; i++)
		node_view_step(&members[i]->view, &member_rules_folder, now_us);
}

static void member_bar(struct pool_member *member)
{
	struct node_view *view = &member->view;
	const char *bar = member->bar;

	/* Its chunks are wanted elsewhere by the time it has gone. */
	if (!bar && (view->member.state == MEMBER_LEAVING || view->member.is_leaving))
		bar = "it is leaving";
	if (!bar && view->weight_milli == 0)
		bar = "its weight is 0";
	view->is_barred = bar != NULL;
	snprintf(view->bar_reason, sizeof(view->bar_reason), "%s", bar ? bar : "");
}

/* A node that never gave a report is judged by its probes alone: nothing of it has gone stale. */
static void member_input(const struct pool_member *member, int64_t now_us, struct score_input *input)
{
	const struct health_view *probe = &member->view.health.views[HEALTH_PROBE];

	node_view_input(&member->view, REPORT_UNKNOWN, REPORT_UNKNOWN, now_us, input);
	if (input->age_us < 0 && probe->heard_us != 0)
		input->age_us = 0;
}

/* --- out --- */

static bool is_ring_stale(const struct pool_member *member, uint32_t weight_milli)
{
	int64_t moved = llabs((int64_t)weight_milli - (int64_t)member->ring_milli);

	if ((weight_milli == 0) != (member->ring_milli == 0))
		return true;
	if (weight_milli == 0)
		return false;
	return member->ring_base_milli != member->view.weight_milli ||
	       strcmp(member->ring_domain, member->domain) != 0 ||
	       moved * PPM >= (int64_t)member->view.weight_milli * POOL_WEIGHT_STEP_PPM;
}

static uint32_t member_weight(const struct pool_member *member)
{
	return member->takes_work ? member->output.weight_milli : 0;
}

static void members_to_ring(struct pool_member *const *members, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct pool_member *member = members[i];

		member->ring_milli = member_weight(member);
		member->ring_base_milli = member->view.weight_milli;
		memcpy(member->ring_domain, member->domain, sizeof(member->ring_domain));
	}
}

/* --- the log --- */

static bool is_news(const struct pool_member *member)
{
	int64_t score = member->output.score_ppm, moved = llabs(score - member->logged_ppm);

	if (!member->was_logged || member->logged_state != member->view.member.state ||
	    member->logged_takes_work != member->takes_work)
		return true;
	return moved != 0 && moved * PPM >= max_i64(score, member->logged_ppm) * POOL_LOG_STEP_PPM;
}

static const char *selected_id(const struct pool_judge *judge)
{
	return judge->decision.selected < 0 ? "" : judge->inputs[judge->decision.selected].id;
}

static bool is_table_new(const struct pool_judge *judge, struct pool_member *const *members, size_t count,
			 int64_t now_us)
{
	if (judge->logged_us == 0 || now_us - judge->logged_us >= POOL_LOG_SILENCE_US ||
	    strcmp(judge->logged_selected, selected_id(judge)) != 0)
		return true;
	for (size_t i = 0; i < count; i++) {
		if (is_news(members[i]))
			return true;
	}
	return false;
}

static void note_logged(struct pool_judge *judge, struct pool_member *const *members, size_t count, int64_t now_us)
{
	judge->logged_us = now_us;
	snprintf(judge->logged_selected, sizeof(judge->logged_selected), "%s", selected_id(judge));
	for (size_t i = 0; i < count; i++) {
		struct pool_member *member = members[i];

		member->was_logged = true;
		member->logged_ppm = member->output.score_ppm;
		member->logged_state = member->view.member.state;
		member->logged_takes_work = member->takes_work;
	}
}

static void write_table(const struct pool_judge *judge, const struct judge_memory *before, size_t count,
			int64_t elapsed_us, int64_t now_wall_us, struct buf *lines)
{
	struct decide_table table = {
		.set = POOL_SET_NAME,
		.router = POOL_ROUTER,
		.wall_us = now_wall_us,
		.version = judge->version,
		.elapsed_us = elapsed_us,
		.before = *before,
		.count = count,
		.inputs = judge->refs,
		.outputs = judge->outputs,
		.decision = &judge->decision,
	};

	decide_write_table(lines, &judge->profile, &table);
}

/* --- the step --- */

bool pool_judge_step(struct pool_judge *judge, struct pool_member *const *members, size_t count, int64_t now_us,
		     int64_t now_wall_us, struct buf *lines)
{
	int64_t elapsed_us = judge->judged_us == 0 ? 0 : max_i64(0, now_us - judge->judged_us);
	struct judge_memory before = judge->memory;
	bool is_stale = false;

	MUST(count <= SCORE_SET_MAX);
	judge_reserve(judge, count);
	member_pass_time(judge, members, count, now_us);
	for (size_t i = 0; i < count; i++) {
		member_bar(members[i]);
		member_input(members[i], now_us, &judge->inputs[i]);
		judge->refs[i] = &judge->inputs[i];
	}
	score_set(&judge->profile, judge->refs, count, judge->outputs);
	judge_set(&judge->profile, &judge->memory, elapsed_us, judge->refs, judge->outputs, count, &judge->decision);
	judge->judged_us = now_us;
	for (size_t i = 0; i < count; i++) {
		struct pool_member *member = members[i];

		member->output = judge->outputs[i];
		member->takes_work = member->output.may_serve && member->output.weight_milli > 0;
		node_view_keep(&member->view, &member->output);
		is_stale |= is_ring_stale(member, member_weight(member));
	}
	if (is_stale)
		members_to_ring(members, count);
	if (!is_table_new(judge, members, count, now_us))
		return is_stale;
	judge->version++;
	if (lines)
		write_table(judge, &before, count, elapsed_us, now_wall_us, lines);
	note_logged(judge, members, count, now_us);
	return is_stale;
}
