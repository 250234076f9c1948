#include "core/decide_impl.h"

/* Far above what a thread ever has in flight, and low enough that the strategies' products cannot overflow. */
#define FLIGHT_MAX ((int64_t)1 << 24)
#define COST_MAX   ((int64_t)1 << 50)

static const struct decide_field HEAD_FIELDS[] = {
	{ "version", DECIDE_U64, offsetof(struct decide_pick, version), 0, 0, DECIDE_ALWAYS },
	{ "now_us", DECIDE_I64, offsetof(struct decide_pick, call.now_us), 0, DECIDE_TIME_MAX_US, DECIDE_ALWAYS },
	{ "key", DECIDE_HEX, offsetof(struct decide_pick, call.key_hash), 0, 0, DECIDE_ALWAYS },
	{ "tau_us", DECIDE_I64, offsetof(struct decide_pick, tau_us), 1, DECIDE_TIME_MAX_US, DECIDE_ALWAYS },
	{ "node_count", DECIDE_U32, offsetof(struct decide_pick, node_count), 0, UINT16_MAX + 1, DECIDE_ALWAYS },
	{ "picks", DECIDE_U64, offsetof(struct decide_pick, picks), 0, 0, 0 },
	{ "cursor", DECIDE_U32, offsetof(struct decide_pick, cursor), 0, UINT32_MAX, 0 },
	{ "usual_ns", DECIDE_I64, offsetof(struct decide_pick, usual_ns), -1, COST_MAX, 0 },
	{ "usual_us", DECIDE_I64, offsetof(struct decide_pick, usual_us), 0, DECIDE_TIME_MAX_US, 0 },
	{ "band", DECIDE_U32, offsetof(struct decide_pick, band_count), 0, SCORE_SET_MAX, DECIDE_ALWAYS },
	{ .name = NULL },
};
/* Of a row, in wide types: the route's own are narrow. */
struct row {
	uint32_t node_index, weight_milli, standing_milli, start_ppm;
	int64_t score_ppm, in_flight, fails_in_row, cost_ns, stamp_us, answered_us, current;
	int64_t robust_ns, robust_us, stalled_us, peers_ns;
	uint64_t last;
};
static const struct decide_field ROW_FIELDS[] = {
	{ "index", DECIDE_U32, offsetof(struct row, node_index), 0, UINT16_MAX, DECIDE_ALWAYS },
	{ "weight_milli", DECIDE_U32, offsetof(struct row, weight_milli), 0, UINT32_MAX, DECIDE_ALWAYS },
	{ "standing_milli", DECIDE_U32, offsetof(struct row, standing_milli), 0, UINT32_MAX, DECIDE_ALWAYS },
	{ "start_ppm", DECIDE_U32, offsetof(struct row, start_ppm), 0, PPM, PPM },
	{ "score_ppm", DECIDE_I64, offsetof(struct row, score_ppm), 0, INT32_MAX, DECIDE_ALWAYS },
	{ "in_flight", DECIDE_I64, offsetof(struct row, in_flight), 0, FLIGHT_MAX, DECIDE_ALWAYS },
	{ "fails_in_row", DECIDE_I64, offsetof(struct row, fails_in_row), 0, UINT32_MAX, 0 },
	{ "cost_ns", DECIDE_I64, offsetof(struct row, cost_ns), -1, COST_MAX, -1 },
	{ "stamp_us", DECIDE_I64, offsetof(struct row, stamp_us), 0, DECIDE_TIME_MAX_US, 0 },
	{ "answered_us", DECIDE_I64, offsetof(struct row, answered_us), 0, DECIDE_TIME_MAX_US, 0 },
	{ "robust_ns", DECIDE_I64, offsetof(struct row, robust_ns), -1, COST_MAX, -1 },
	{ "robust_us", DECIDE_I64, offsetof(struct row, robust_us), 0, DECIDE_TIME_MAX_US, 0 },
	{ "stalled_us", DECIDE_I64, offsetof(struct row, stalled_us), 0, DECIDE_TIME_MAX_US, 0 },
	{ "peers_ns", DECIDE_I64, offsetof(struct row, peers_ns), -1, COST_MAX, -1 },
	{ "current", DECIDE_I64, offsetof(struct row, current), -DECIDE_TIME_MAX_US, DECIDE_TIME_MAX_US, 0 },
	{ "last", DECIDE_U64, offsetof(struct row, last), 0, 0, 0 },
	{ .name = NULL },
};
/* Of a ring's node. */
struct place {
	uint32_t weight_milli, domain, offset;
};
static const struct decide_field PLACE_FIELDS[] = {
	{ "weight_milli", DECIDE_U32, offsetof(struct place, weight_milli), 0, UINT32_MAX, DECIDE_ALWAYS },
	{ "domain", DECIDE_U32, offsetof(struct place, domain), 0, UINT16_MAX, DECIDE_ALWAYS },
	/* Of its candidate; left out when it may not serve. */
	{ "candidate", DECIDE_U32, offsetof(struct place, offset), 0, SCORE_SET_MAX - 1, ROUTE_NO_CANDIDATE },
	{ .name = NULL },
};

/* --- recording --- */

static struct decide_pick *pick_new(size_t row_count, size_t place_count)
{
	struct decide_pick *copy = must_zalloc(1, sizeof(*copy));

	copy->rows = must_zalloc(row_count + 1, sizeof(*copy->rows));
	copy->places = must_zalloc(place_count + 1, sizeof(*copy->places));
	copy->row_count = row_count;
	copy->place_count = place_count;
	return copy;
}

void decide_pick_free(struct decide_pick **before)
{
	if (!*before)
		return;
	free((*before)->rows);
	free((*before)->places);
	free(*before);
	*before = NULL;
}

struct decide_pick *decide_pick_before(const struct pick *pick, const struct route *route, size_t set_index,
				       const struct pick_call *call)
{
	const struct route_set *set = &route->sets[set_index];
	const struct pick_turns *turns = pick->turns ? &pick->turns[set_index] : NULL;
	struct decide_pick *copy = pick_new(set->serving_count, set->ring ? ring_node_count(set->ring) : 0);

	copy->strategy = pick->strategy;
	copy->version = route->version;
	copy->call = *call;
	copy->tau_us = pick->tau_us;
	copy->node_count = (uint32_t)pick->node_count;
	copy->rng = pick->rng;
	copy->picks = turns ? turns->picks : 0;
	copy->cursor = turns ? turns->cursor : 0;
	copy->usual_ns = turns ? turns->usual_ns : 0;
	copy->usual_us = turns ? turns->usual_us : 0;
	copy->route_reason = set->reason;
	copy->band_count = set->band_count;
	for (size_t i = 0; i < copy->row_count; i++) {
		struct decide_pick_row *row = &copy->rows[i];
		uint16_t index;

		row->candidate = route->candidates[set->first + i];
		index = row->candidate.node_index;
		row->load = pick->loads[index];
		row->current = turns && turns->current ? turns->current[index] : 0;
		row->last = turns && turns->last ? turns->last[index] : 0;
	}
	for (size_t i = 0; i < copy->place_count; i++) {
		struct decide_pick_place *place = &copy->places[i];

		(void)str_copy(str_from(ring_node_id(set->ring, i)), place->id, sizeof(place->id));
		place->weight_milli = ring_node_weight_milli(set->ring, i);
		place->domain = ring_node_domain(set->ring, i);
		place->offset = route->ring_candidates[set->ring_first + i];
	}
	return copy;
}

static void put_rows(struct json *json, const struct decide_pick *pick)
{
	json_open_list(json, "candidates");
	for (size_t i = 0; i < pick->row_count; i++) {
		const struct decide_pick_row *from = &pick->rows[i];
		const struct row row = {
			.node_index = from->candidate.node_index,
			.weight_milli = from->candidate.weight_milli,
			.standing_milli = from->candidate.standing_milli,
			.start_ppm = from->candidate.start_ppm,
			.score_ppm = from->candidate.score_ppm,
			.in_flight = from->load.in_flight,
			.fails_in_row = from->load.fails_in_row,
			.cost_ns = from->load.peak.cost_ns,
			.stamp_us = from->load.peak.stamp_us,
			.answered_us = from->load.answered_us,
			.robust_ns = from->load.robust.estimate_ns,
			.robust_us = from->load.robust.stamp_us,
			.stalled_us = from->load.robust.stalled_us,
			.peers_ns = from->load.peers_ns,
			.current = from->current,
			.last = from->last,
		};

		json_open(json, NULL);
		decide_put_text(json, "node", str_from(from->id), sizeof(from->id));
		decide_put_fields(json, ROW_FIELDS, &row);
		json_close(json);
	}
	json_close_list(json);
}

static void put_places(struct json *json, const struct decide_pick *pick)
{
	json_open_list(json, "ring");
	for (size_t i = 0; i < pick->place_count; i++) {
		const struct decide_pick_place *from = &pick->places[i];
		const struct place place = { from->weight_milli, from->domain, from->offset };

		json_open(json, NULL);
		decide_put_text(json, "node", str_from(from->id), sizeof(from->id));
		decide_put_fields(json, PLACE_FIELDS, &place);
		json_close(json);
	}
	json_close_list(json);
}

static void put_pick(struct buf *buf, const struct decide_pick *pick, const char *set, int64_t wall_us)
{
	struct json json;

	json_init(&json, buf);
	json_open(&json, NULL);
	json_c(&json, "kind", "pick");
	json_i64(&json, "ts_us", wall_us);
	decide_put_text(&json, "set", str_from(set), JUDGE_SET_SIZE);
	json_c(&json, "strategy", pick_names[pick->strategy]);
	json_c(&json, "selected", pick->chosen < 0 ? NULL : pick->rows[pick->chosen].id);
	json_c(&json, "reason", reason_names[pick->reason]);
	json_c(&json, "table_reason", reason_names[pick->route_reason]);
	decide_put_fields(&json, HEAD_FIELDS, pick);
	json_open_list(&json, "rng");
	for (size_t i = 0; i < COUNT_OF(pick->rng.state); i++)
		decide_put_hex(&json, NULL, pick->rng.state[i]);
	json_close_list(&json);
	if (pick->call.tried_count) {
		json_open_list(&json, "tried");
		for (size_t i = 0; i < pick->call.tried_count; i++)
			json_u64(&json, NULL, pick->call.tried[i]);
		json_close_list(&json);
	}
	put_rows(&json, pick);
	if (pick->place_count)
		put_places(&json, pick);
	json_close(&json);
	buf_append(buf, STR("\n"));
}

void decide_write_pick(struct buf *buf, struct decide_pick **before, const char *set, const char *const *node_ids,
		       int chosen, enum reason reason, int64_t wall_us)
{
	struct decide_pick *pick = *before;

	for (size_t i = 0; i < pick->row_count; i++)
		(void)str_copy(str_from(node_ids[pick->rows[i].candidate.node_index]), pick->rows[i].id,
			       sizeof(pick->rows[i].id));
	pick->chosen = chosen;
	pick->reason = reason;
	put_pick(buf, pick, set, wall_us);
	decide_pick_free(before);
}

/* --- reading --- */

static int read_row(const json_t *item, const struct decide_pick *pick, uint8_t *seen, struct decide_pick_row *to,
		    struct err *err)
{
	struct row row;
	int result = decide_get_text(item, "node", false, to->id, sizeof(to->id), err);

	if (result == 0)
		result = decide_get_fields(item, ROW_FIELDS, &row, err);
	if (result < 0)
		return result;
	if (row.node_index >= pick->node_count)
		return err_set(err, ERR_BAD_REQUEST, "its 'index' is not below 'node_count'");
	if (seen[row.node_index])
		return err_set(err, ERR_BAD_REQUEST, "its 'index' is another candidate's too");
	seen[row.node_index] = 1;
	to->candidate = (struct route_candidate){
		.node_index = (uint16_t)row.node_index,
		.weight_milli = row.weight_milli,
		.standing_milli = row.standing_milli,
		.start_ppm = row.start_ppm,
		.score_ppm = (int32_t)row.score_ppm,
	};
	to->load = (struct pick_load){
		.in_flight = (uint32_t)row.in_flight,
		.fails_in_row = (uint32_t)row.fails_in_row,
		.peak = { .cost_ns = row.cost_ns, .stamp_us = row.stamp_us },
		.answered_us = row.answered_us,
		.robust = { .estimate_ns = row.robust_ns, .stamp_us = row.robust_us, .stalled_us = row.stalled_us },
		.peers_ns = row.peers_ns,
	};
	to->current = row.current;
	to->last = row.last;
	return 0;
}

static int read_rows(const json_t *list, struct decide_pick *pick, struct err *err)
{
	uint8_t *seen = must_zalloc((size_t)pick->node_count + 1, 1);
	int result = 0;

	for (size_t i = 0; i < pick->row_count && result == 0; i++) {
		result = read_row(json_array_get(list, i), pick, seen, &pick->rows[i], err);
		if (result < 0)
			err_wrap(err, "candidates[%zu]", i);
	}
	free(seen);
	return result;
}

static int read_places(const json_t *list, struct decide_pick *pick, struct err *err)
{
	for (size_t i = 0; i < pick->place_count; i++) {
		struct decide_pick_place *to = &pick->places[i];
		const json_t *item = json_array_get(list, i);
		struct place place;
		int result = decide_get_text(item, "node", false, to->id, sizeof(to->id), err);

		if (result == 0)
			result = decide_get_fields(item, PLACE_FIELDS, &place, err);
		if (result == 0 && place.offset != ROUTE_NO_CANDIDATE && place.offset >= pick->row_count)
			result = err_set(err, ERR_BAD_REQUEST, "its 'candidate' is not one of the set");
		if (result < 0)
			return err_wrap(err, "ring[%zu]", i);
		to->weight_milli = place.weight_milli;
		to->domain = (uint16_t)place.domain;
		to->offset = (uint16_t)place.offset;
	}
	return 0;
}

/* Placement knows domains apart, not by name. */
static int build_ring(const struct decide_pick *pick, struct ring **ret_ring, struct err *err)
{
	struct ring_node *nodes = must_zalloc(pick->place_count + 1, sizeof(*nodes));
	char(*domains)[8] = must_zalloc(pick->place_count + 1, sizeof(*domains));
	int result;

	for (size_t i = 0; i < pick->place_count; i++) {
		(void)snprintf(domains[i], sizeof(domains[i]), "%u", pick->places[i].domain);
		nodes[i] = (struct ring_node){ pick->places[i].id, pick->places[i].weight_milli, domains[i] };
	}
	result = ring_build(nodes, pick->place_count, ret_ring, err);
	free(domains);
	free(nodes);
	if (result < 0) {
		err_wrap(err, "'ring'");
		err->code = ERR_BAD_REQUEST;
		return -ERR_BAD_REQUEST;
	}
	return 0;
}

static int read_generator(const json_t *root, struct decide_pick *pick, struct err *err)
{
	const json_t *list;
	int result = decide_get_list(root, "rng", false, COUNT_OF(pick->rng.state), &list, err);

	for (size_t i = 0; i < COUNT_OF(pick->rng.state) && result == 0; i++)
		result = decide_get_hex(json_array_get(list, i), "rng", &pick->rng.state[i], err);
	if (result == 0)
		result = decide_get_list(root, "tried", true, PICK_TRIED_MAX, &list, err);
	if (result < 0)
		return result;
	pick->call.tried_count = json_array_size(list);
	for (size_t i = 0; i < pick->call.tried_count; i++) {
		const json_t *value = json_array_get(list, i);

		if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT16_MAX)
			return err_set(err, ERR_BAD_REQUEST, "'tried' has an item that is no node's number");
		pick->call.tried[i] = (uint16_t)json_integer_value(value);
	}
	return 0;
}

static int read_head(const json_t *root, struct decide_pick *pick, struct err *err)
{
	char name[32], shown[64];
	int result = decide_get_text(root, "strategy", false, name, sizeof(name), err);

	if (result < 0)
		return result;
	if (!pick_find(name, &pick->strategy))
		return err_set(err, ERR_BAD_REQUEST, "there is no strategy '%s'",
			       str_display(str_from(name), shown, sizeof(shown)));
	result = decide_get_reason(root, "reason", &pick->reason, err);
	if (result == 0)
		result = decide_get_reason(root, "table_reason", &pick->route_reason, err);
	if (result == 0)
		result = decide_get_fields(root, HEAD_FIELDS, pick, err);
	if (result < 0)
		return result;
	if (pick->band_count > pick->row_count || (pick->row_count > 0 && pick->band_count == 0))
		return err_set(err, ERR_BAD_REQUEST, "'band' is not from 1 to the number of candidates");
	return 0;
}

int decide_pick_read(struct decide_replay *replay, struct err *err)
{
	const json_t *root = replay->root, *rows, *places;
	struct decide_pick *pick;
	int result = decide_get_text(root, "set", false, replay->record.set, sizeof(replay->record.set), err);

	if (result == 0)
		result = decide_get_text(root, "selected", true, replay->recorded_selected,
					 sizeof(replay->recorded_selected), err);
	if (result == 0)
		result = decide_get_list(root, "candidates", false, SCORE_SET_MAX, &rows, err);
	if (result == 0)
		result = decide_get_list(root, "ring", true, RING_NODES_MAX, &places, err);
	if (result < 0)
		return result;
	pick = replay->pick = pick_new(json_array_size(rows), json_array_size(places));
	replay->record.pick = pick;
	result = read_head(root, pick, err);
	if (result == 0)
		result = read_generator(root, pick, err);
	if (result == 0)
		result = read_rows(rows, pick, err);
	if (result == 0)
		result = read_places(places, pick, err);
	if (result == 0 && pick->place_count > 0)
		result = build_ring(pick, &replay->pick_ring, err);
	if (result < 0)
		return result;
	pick->chosen = -1;
	for (size_t i = 0; i < pick->row_count && pick->chosen < 0 && replay->recorded_selected[0]; i++) {
		if (strcmp(pick->rows[i].id, replay->recorded_selected) == 0)
			pick->chosen = (int)i;
	}
	return 0;
}

/* --- computing anew --- */

static struct route *build_route(const struct decide_pick *pick, const struct ring *ring)
{
	struct route_builder *builder = route_builder_new(1, max_size(pick->row_count, pick->place_count));
	struct route_candidate *candidates = must_zalloc(pick->row_count + 1, sizeof(*candidates));
	uint16_t *offsets = must_zalloc(pick->place_count + 1, sizeof(*offsets));

	for (size_t i = 0; i < pick->row_count; i++) {
		candidates[i] = pick->rows[i].candidate;
		candidates[i].input_index = (uint16_t)i;
	}
	for (size_t i = 0; i < pick->place_count; i++)
		offsets[i] = pick->places[i].offset;
	route_builder_add_candidates(builder, candidates, pick->row_count, pick->band_count, pick->route_reason, ring,
				     offsets);
	free(offsets);
	free(candidates);
	return route_builder_end(&builder, pick->version, 0);
}

static void picker_restore(struct pick *picker, const struct decide_pick *from)
{
	pick_init(picker, from->strategy, from->node_count, 1, 0);
	picker->rng = from->rng;
	picker->tau_us = from->tau_us;
	for (size_t i = 0; i < from->row_count; i++) {
		const struct decide_pick_row *row = &from->rows[i];
		uint16_t index = row->candidate.node_index;

		picker->loads[index] = row->load;
		if (picker->turns && picker->turns->current)
			picker->turns->current[index] = row->current;
		if (picker->turns && picker->turns->last)
			picker->turns->last[index] = row->last;
	}
	if (picker->turns) {
		picker->turns->picks = from->picks;
		picker->turns->cursor = from->cursor;
		picker->turns->usual_ns = from->usual_ns;
		picker->turns->usual_us = from->usual_us;
	}
}

void decide_pick_again(struct decide_replay *replay, struct decide_change *change)
{
	struct decide_pick *pick = replay->pick;
	struct route *route = build_route(pick, replay->pick_ring);
	struct pick picker;

	picker_restore(&picker, pick);
	pick->chosen = pick_next(&picker, route, 0, &pick->call, &pick->reason);
	pick_fini(&picker);
	route_free(&route);
	(void)str_copy(str_from(replay->recorded_selected), change->recorded, sizeof(change->recorded));
	if (pick->chosen >= 0)
		(void)str_copy(str_from(pick->rows[pick->chosen].id), change->computed, sizeof(change->computed));
	put_pick(&replay->text, pick, replay->record.set, replay->record.wall_us);
}
