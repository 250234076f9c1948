#include "core/decide_impl.h"

/* --- writing --- */

void decide_write_plan(struct buf *buf, const char *plan_id, const struct ring_node *nodes, size_t node_count,
		       uint64_t total_bytes, uint32_t epsilon_milli, int64_t wall_us)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "kind", "plan");
	json_i64(&json, "ts_us", wall_us);
	decide_put_text(&json, "plan", str_from(plan_id), JUDGE_SET_SIZE);
	decide_put_u64(&json, "total_bytes", total_bytes);
	json_u64(&json, "epsilon_milli", epsilon_milli);
	json_open_list(&json, "nodes");
	for (size_t i = 0; i < node_count; i++) {
		json_open(&json, NULL);
		decide_put_text(&json, "node", str_from(nodes[i].id), SCORE_ID_SIZE);
		json_u64(&json, "weight_milli", nodes[i].weight_milli);
		if (nodes[i].domain)
			decide_put_text(&json, "domain", str_from(nodes[i].domain), DECIDE_WHAT_SIZE);
		json_close(&json);
	}
	json_close_list(&json);
	json_close(&json);
	buf_append(buf, STR("\n"));
}

void decide_write_place(struct buf *buf, const struct ring *ring, const struct decide_place *place, int64_t wall_us)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "kind", "place");
	json_i64(&json, "ts_us", wall_us);
	decide_put_text(&json, "plan", str_from(place->plan_id), JUDGE_SET_SIZE);
	if (place->number)
		decide_put_u64(&json, "number", place->number);
	decide_put_hex(&json, "key", place->key_hash);
	if (place->what.size)
		decide_put_text(&json, "what", place->what, DECIDE_WHAT_SIZE);
	decide_put_u64(&json, "size_bytes", place->size_bytes);
	json_c(&json, "selected", place->selected < 0 ? NULL : ring_node_id(ring, (size_t)place->selected));
	json_c(&json, "reason", reason_names[place->reason]);
	json_open_list(&json, "candidates");
	for (size_t i = 0; i < place->looked_count; i++) {
		json_open(&json, NULL);
		json_c(&json, "node", ring_node_id(ring, place->looked[i]));
		decide_put_u64(&json, "held_bytes", place->held_bytes[i]);
		decide_put_u64(&json, "cap_bytes", place->cap_bytes[i]);
		json_close(&json);
	}
	json_close_list(&json);
	json_close(&json);
	buf_append(buf, STR("\n"));
}

/* --- the plans that are kept --- */

void decide_plan_drop(struct decide_plan *plan)
{
	ring_batch_free(&plan->batch);
	ring_free(&plan->ring);
	free(plan->held_bytes);
	*plan = (struct decide_plan){ 0 };
}

static struct decide_plan *plan_find(struct decide_replay *replay, const char *id)
{
	for (size_t i = 0; i < DECIDE_PLANS_MAX; i++) {
		if (replay->plans[i].ring && strcmp(replay->plans[i].id, id) == 0)
			return &replay->plans[i];
	}
	return NULL;
}

/* A free place; the plan of the same id, which ends with its new one; else the least recently used one's. All rings together have no more points
 * than one may have alone, so that no log makes us hold more. */
static struct decide_plan *plan_place(struct decide_replay *replay, const char *id, size_t point_count)
{
	struct decide_plan *same = plan_find(replay, id), *oldest, *empty;
	size_t kept_count;

	if (same)
		decide_plan_drop(same);
	for (;;) {
		oldest = empty = NULL;
		kept_count = 0;
		for (size_t i = 0; i < DECIDE_PLANS_MAX; i++) {
			struct decide_plan *plan = &replay->plans[i];

			if (!plan->ring) {
				empty = plan;
				continue;
			}
			kept_count += ring_point_count(plan->ring);
			if (!oldest || plan->used_line < oldest->used_line)
				oldest = plan;
		}
		if (empty && (!oldest || kept_count + point_count <= RING_POINTS_MAX))
			return empty;
		decide_plan_drop(oldest);
		replay->is_plan_forgotten = true;
	}
}

/* --- reading --- */

struct plan_text {
	char id[SCORE_ID_SIZE], domain[DECIDE_WHAT_SIZE];
};

static int read_node(const json_t *item, struct plan_text *text, struct ring_node *node, struct err *err)
{
	int64_t weight_milli = 0;
	int result = decide_get_text(item, "node", false, text->id, sizeof(text->id), err);

	if (result == 0)
		result = decide_get_i64(item, "weight_milli", 0, UINT32_MAX, &weight_milli, err);
	if (result == 0)
		result = decide_get_text(item, "domain", true, text->domain, sizeof(text->domain), err);
	*node = (struct ring_node){
		.id = text->id,
		.weight_milli = (uint32_t)weight_milli,
		.domain = json_object_get(item, "domain") ? text->domain : NULL,
	};
	return result;
}

static int read_ring(const json_t *list, struct ring **ret_ring, struct err *err)
{
	size_t count = json_array_size(list);
	struct ring_node *nodes = must_zalloc(count + 1, sizeof(*nodes));
	struct plan_text *texts = must_zalloc(count + 1, sizeof(*texts));
	int result = 0;

	for (size_t i = 0; i < count && result == 0; i++) {
		result = read_node(json_array_get(list, i), &texts[i], &nodes[i], err);
		if (result < 0)
			err_wrap(err, "nodes[%zu]", i);
	}
	if (result == 0 && ring_build(nodes, count, ret_ring, err) < 0) {
		err_wrap(err, "'nodes'");
		err->code = ERR_BAD_REQUEST;
		result = -ERR_BAD_REQUEST;
	}
	free(texts);
	free(nodes);
	return result;
}

int decide_plan_read(struct decide_replay *replay, struct err *err)
{
	struct decide_record *record = &replay->record;
	static const struct decide_field fields[] = {
		{ "total_bytes", DECIDE_U64, offsetof(struct decide_place, size_bytes), 0, 0, DECIDE_ALWAYS },
		{ .name = NULL },
	};
	struct ring *ring = NULL;
	struct decide_place total = { 0 };
	struct decide_plan *plan;
	const json_t *list;
	int64_t epsilon_milli;
	int result = decide_get_text(replay->root, "plan", false, record->set, sizeof(record->set), err);

	if (result == 0)
		result = decide_get_fields(replay->root, fields, &total, err);
	if (result == 0)
		result = decide_get_i64(replay->root, "epsilon_milli", 0, UINT32_MAX, &epsilon_milli, err);
	if (result == 0)
		result = decide_get_list(replay->root, "nodes", false, RING_NODES_MAX, &list, err);
	if (result == 0)
		result = read_ring(list, &ring, err);
	if (result < 0)
		return result;
	plan = plan_place(replay, record->set, ring_point_count(ring));
	*plan = (struct decide_plan){
		.ring = ring,
		.batch = ring_batch_new(ring, total.size_bytes, (uint32_t)epsilon_milli),
		.held_bytes = must_zalloc(ring_node_count(ring) + 1, sizeof(*plan->held_bytes)),
		.next_number = 1,
		.is_whole = true,
		.used_line = replay->line_count,
	};
	(void)str_copy(str_from(record->set), plan->id, sizeof(plan->id));
	record->ring = ring;
	return 0;
}

struct place_load {
	uint64_t held_bytes, cap_bytes;
};

static int read_looked(struct decide_replay *replay, const json_t *list, struct err *err)
{
	static const struct decide_field fields[] = {
		{ "held_bytes", DECIDE_U64, offsetof(struct place_load, held_bytes), 0, 0, DECIDE_ALWAYS },
		{ "cap_bytes", DECIDE_U64, offsetof(struct place_load, cap_bytes), 0, 0, DECIDE_ALWAYS },
		{ .name = NULL },
	};

	for (size_t i = 0; i < json_array_size(list); i++) {
		struct place_load load;
		int result = decide_get_fields(json_array_get(list, i), fields, &load, err);

		if (result < 0)
			return err_wrap(err, "candidates[%zu]", i);
		replay->held_bytes[i] = load.held_bytes;
		replay->cap_bytes[i] = load.cap_bytes;
	}
	return 0;
}

/* The names of the candidates are not read: the ring gives them, and the comparison of the lines tells of others. */
int decide_place_read(struct decide_replay *replay, struct err *err)
{
	struct decide_record *record = &replay->record;
	struct decide_place *place = &record->place;
	static const struct decide_field fields[] = {
		{ "key", DECIDE_HEX, offsetof(struct decide_place, key_hash), 0, 0, DECIDE_ALWAYS },
		{ "size_bytes", DECIDE_U64, offsetof(struct decide_place, size_bytes), 0, 0, DECIDE_ALWAYS },
		{ "number", DECIDE_U64, offsetof(struct decide_place, number), 0, 0, 0 },
		{ .name = NULL },
	};
	const json_t *list;
	int result = decide_get_text(replay->root, "plan", false, record->set, sizeof(record->set), err);

	if (result == 0)
		result = decide_get_fields(replay->root, fields, place, err);
	if (result == 0)
		result = decide_get_text(replay->root, "what", true, replay->what, sizeof(replay->what), err);
	if (result == 0)
		result = decide_get_text(replay->root, "selected", true, replay->recorded_selected,
					 sizeof(replay->recorded_selected), err);
	if (result == 0)
		result = decide_get_reason(replay->root, "reason", &place->reason, err);
	if (result == 0)
		result = decide_get_list(replay->root, "candidates", false, RING_NODES_MAX, &list, err);
	if (result < 0)
		return result;
	replay->plan = plan_find(replay, record->set);
	/* A plan and all its keys bear the time of the plan, so one that was made after the log began has its line in it. */
	if (!replay->plan)
		return decide_lacks(replay->has_head && !replay->is_plan_forgotten &&
					    record->wall_us >= replay->head_wall_us,
				    "plan", record->set, err);
	replay->plan->used_line = replay->line_count;
	record->ring = replay->plan->ring;
	place->plan_id = record->set;
	place->what = str_from(replay->what);
	place->looked = replay->looked;
	place->held_bytes = replay->held_bytes;
	place->cap_bytes = replay->cap_bytes;
	place->looked_count = ring_candidates(record->ring, place->key_hash, json_array_size(list), replay->looked);
	if (place->looked_count < json_array_size(list))
		return err_set(err, ERR_BAD_REQUEST,
			       "'candidates' has %zu items, but only %zu nodes of the plan take keys",
			       json_array_size(list), place->looked_count);
	place->selected = -1;
	for (size_t i = 0; i < ring_node_count(record->ring) && place->selected < 0; i++) {
		if (strcmp(ring_node_id(record->ring, i), replay->recorded_selected) == 0)
			place->selected = (int)i;
	}
	return read_looked(replay, list, err);
}

/* --- computing anew --- */

/* By the rule of ring_batch_assign: the first that has room; the owner when nobody has. -1 also when nobody of those that were looked at has, but
 * others were not looked at. */
static int place_choose(const struct decide_place *place, const struct ring *ring, enum reason *ret_reason)
{
	uint16_t all[RING_NODES_MAX];

	for (size_t i = 0; i < place->looked_count; i++) {
		if (!ring_batch_fits(place->held_bytes[i], place->cap_bytes[i], place->size_bytes))
			continue;
		*ret_reason = i == 0 ? REASON_hash : REASON_spill;
		return place->looked[i];
	}
	*ret_reason = REASON_none;
	if (ring_candidates(ring, place->key_hash, RING_NODES_MAX, all) > place->looked_count ||
	    place->looked_count == 0)
		return -1;
	*ret_reason = REASON_hash;
	return all[0];
}

/* What each candidate held, and the least that the key's number can be, follow from the lines before. */
static void place_loads(struct decide_replay *replay, struct decide_place *place)
{
	struct decide_plan *plan = replay->plan;

	plan->is_whole = plan->is_whole && place->number == plan->next_number;
	/* Some may be missing; none comes after a later one. */
	if (place->number != 0) {
		if (place->number < plan->next_number)
			place->number = plan->next_number;
		plan->next_number = place->number + 1;
	}
	for (size_t i = 0; i < place->looked_count; i++) {
		uint64_t *known = &plan->held_bytes[place->looked[i]], zero_bytes;

		if (!plan->is_whole && replay->held_bytes[i] > *known)
			*known = replay->held_bytes[i];
		replay->held_bytes[i] = *known;
		ring_batch_load(plan->batch, place->looked[i], &zero_bytes, &replay->cap_bytes[i]);
	}
}

void decide_place_again(struct decide_replay *replay, struct decide_change *change)
{
	struct decide_place place = replay->record.place;
	struct decide_plan *plan = replay->plan;

	place_loads(replay, &place);
	place.selected = place_choose(&place, plan->ring, &place.reason);
	if (place.selected >= 0) {
		uint64_t *held = &plan->held_bytes[place.selected];

		*held = place.size_bytes > UINT64_MAX - *held ? UINT64_MAX : *held + place.size_bytes;
		(void)str_copy(str_from(ring_node_id(plan->ring, (size_t)place.selected)), change->computed,
			       sizeof(change->computed));
	}
	(void)str_copy(str_from(replay->recorded_selected), change->recorded, sizeof(change->recorded));
	decide_write_place(&replay->text, plan->ring, &place, replay->record.wall_us);
}
