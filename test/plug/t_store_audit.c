/* The audit of every store: whatever writes a row links it to the chain; pages, filters, and what is taken out. */
#include "plug/store_world.h"

#include "plug/audit_chain.h"

#define KEPT_MAX 64

struct kept {
	struct audit_hasher *hasher;
	struct audit_point last;
	size_t count, fault_count, stop_at;
	uint64_t ids[KEPT_MAX];
	char outcomes[KEPT_MAX][32];
	struct err err;
};

static int keep(void *owner, const struct audit_row *row)
{
	struct kept *kept = owner;

	assert_true(kept->count < KEPT_MAX);
	kept->ids[kept->count] = row->id;
	(void)snprintf(kept->outcomes[kept->count], sizeof(kept->outcomes[0]), "%.*s",
		       STR_ARG(row->fields[AUDIT_outcome].text));
	kept->count++;
	if (kept->hasher && audit_row_check(kept->hasher, &kept->last, row, &kept->err) < 0)
		kept->fault_count++;
	return kept->count == kept->stop_at;
}

/* All pages of `query`, with `limit` rows each. */
static struct kept read_all(struct world *w, struct audit_query query, size_t limit)
{
	struct kept kept = { .count = 0 };
	bool is_more = true;

	query.limit = limit;
	for (unsigned pages = 0; is_more; pages++) {
		assert_true(pages < 100);
		assert_int_equal(
			w->store->ops->audit_rows(w->store, &query, keep, &kept, &query.after, &is_more, &w->err), 0);
	}
	return kept;
}

/* The whole chain from its anchor on; as many faults as are found, and whether it ends where the store says. */
static size_t chain_faults(struct world *w, size_t *ret_count)
{
	struct audit_head head;
	struct audit_query query = { .limit = 7 };
	struct kept kept = { .hasher = audit_hasher_new() };
	bool is_more = true;

	assert_int_equal(w->store->ops->audit_head(w->store, &head, &w->err), 0);
	kept.last = head.anchor;
	query.after.id = head.anchor.id;
	while (is_more)
		assert_int_equal(
			w->store->ops->audit_rows(w->store, &query, keep, &kept, &query.after, &is_more, &w->err), 0);
	audit_hasher_free(&kept.hasher);
	if (memcmp(&kept.last, &head.last, sizeof(head.last)) != 0)
		kept.fault_count++;
	*ret_count = kept.count;
	return kept.fault_count;
}

static void note(struct world *w, const char *outcome, int64_t at_us)
{
	const struct store_audit row = { .at_wall_us = at_us, .kind = "operator", .user = "root", .outcome = outcome };

	assert_int_equal(w->store->ops->audit(w->store, &row, &w->err), 0);
}

/* A failed part of a transaction and a dropped plan take their rows back, and the chain with them. */
static void test_audit_everything_is_linked(void **state)
{
	struct world *w = *state;
	struct store_transfer t = planned(w, id_a, "q3", 2, 2), other = transfer_make(id_b, "q4", 1, 1);
	struct store_plan *plan = plan_rows(w, &other, 1);
	const struct store_order order = { .node_id = "n1", .order = NODE_ORDER_LOST };
	const struct store_audit row = { .kind = "operator", .node_id = "n1", .outcome = "lost" };
	uint64_t count, next;
	size_t rows;

	w->store->ops->plan_abort(&plan);
	(void)give(w, receipt_make(id_a, 1, 0, digest_1, "n1"));
	(void)give(w, receipt_make(id_none, 1, 0, digest_1, "n1"));
	t.version++;
	assert_int_equal(w->store->ops->transfer_move(w->store, &t, TRANSFER_FAILED, "", false, 9, &w->err),
			 -ERR_VERSION_CONFLICT);
	t.version--;
	assert_int_equal(w->store->ops->revise_begin(w->store, &t, &plan, &next, &w->err), 0);
	assert_int_equal(w->store->ops->revise_row(plan, &row, &w->err), 0);
	w->store->ops->plan_abort(&plan);
	assert_int_equal(w->store->ops->revise_begin(w->store, &t, &plan, &next, &w->err), 0);
	assert_int_equal(w->store->ops->revise_row(plan, &row, &w->err), 0);
	assert_int_equal(w->store->ops->revise_commit(&plan, &t, &w->err), 0);
	assert_int_equal(w->store->ops->order_save(w->store, &order, &row, 9, &count, &w->err), 0);
	note(w, "looked", 10);
	assert_int_equal(chain_faults(w, &rows), 0);
	assert_int_equal(rows, 7);
	reopen(w);
	note(w, "again", 11);
	assert_int_equal(chain_faults(w, &rows), 0);
	assert_int_equal(rows, 8);
}

/* Somebody asks about a transfer whose id is no text, and that is in the audit. */
static void test_audit_bytes_that_are_no_text(void **state)
{
	struct world *w = *state;
	const struct store_audit row = {
		.kind = "audit", .transfer_id = "\xff\xfe", .request_id = "\xc3", .outcome = "\x80"
	};
	size_t count;

	assert_int_equal(w->store->ops->audit(w->store, &row, &w->err), 0);
	note(w, "x", 1);
	assert_int_equal(chain_faults(w, &count), 0);
	assert_int_equal(count, 2);
}

static void test_audit_pages_and_filters(void **state)
{
	struct world *w = *state;
	struct kept kept;

	(void)planned(w, id_a, "q3", 2, 3);
	(void)planned(w, id_b, "q4", 1, 1);
	(void)give(w, receipt_make(id_a, 2, 1, digest_1, "n2"));
	(void)give(w, receipt_make(id_a, 1, 2, digest_1, "n1"));
	(void)give(w, receipt_make(id_b, 1, 0, digest_1, "n1"));
	(void)give(w, receipt_make(id_a, 1, 0, digest_1, "n1"));
	(void)give(w, receipt_make(id_a, 1, 2, digest_1, "n2"));
	note(w, "early", 5);
	note(w, "late", 9);
	{
		const struct {
			struct audit_query query;
			size_t count;
			uint64_t ids[8];
		} cases[] = {
			{ { .to_id = 0 }, 9, { 1, 2, 3, 4, 5, 6, 7, 8 } },
			{ { .to_id = 3 }, 3, { 1, 2, 3 } },
			{ { .after = { .id = 7 } }, 2, { 8, 9 } },
			{ { .after = { .id = 9 } }, 0, { 0 } },
			{ { .kind = "operator" }, 2, { 8, 9 } },
			{ { .kind = "oper" }, 0, { 0 } },
			{ { .user = "clerk" }, 2, { 1, 2 } },
			{ { .node_id = "n2" }, 2, { 3, 7 } },
			{ { .outcome = "stored", .node_id = "n1" }, 3, { 4, 5, 6 } },
			{ { .kind = "operator", .from_wall_us = 6 }, 1, { 9 } },
			{ { .kind = "operator", .to_wall_us = 5 }, 1, { 8 } },
			{ { .transfer_id = id_a }, 5, { 1, 6, 4, 7, 3 } },
			{ { .transfer_id = id_a, .to_id = 6 }, 4, { 1, 6, 4, 3 } },
			{ { .transfer_id = id_a, .node_id = "n2" }, 2, { 7, 3 } },
			{ { .transfer_id = id_a, .has_file = true }, 1, { 1 } },
			{ { .transfer_id = id_a, .has_file = true, .file_id = 1, .last_chunk = 9 }, 3, { 6, 4, 7 } },
			{ { .transfer_id = id_a, .has_file = true, .file_id = 1, .first_chunk = 1, .last_chunk = 2 },
			  2,
			  { 4, 7 } },
			{ { .transfer_id = id_a, .has_file = true, .file_id = 1, .first_chunk = 1, .last_chunk = 1 },
			  0,
			  { 0 } },
			{ { .transfer_id = id_none }, 0, { 0 } },
		};

		for (size_t i = 0; i < COUNT_OF(cases); i++) {
			for (size_t limit = 1; limit < 12; limit++) {
				kept = read_all(w, cases[i].query, limit);
				if (kept.count != cases[i].count ||
				    memcmp(kept.ids, cases[i].ids,
					   (kept.count < 8 ? kept.count : 8) * sizeof(uint64_t)) != 0)
					fail_msg("case %zu, limit %zu: %zu rows, the first is %llu", i, limit,
						 kept.count, (unsigned long long)kept.ids[0]);
			}
		}
	}
}

/* Nobody who follows the chain meets a row below its first one, so nobody is shown it. */
static void test_audit_row_below_the_first_is_none(void **state)
{
	struct world *w = *state;
	char text[256];

	(void)planned(w, id_a, "q3", 1, 1);
	(void)give(w, receipt_make(id_a, 1, 0, digest_1, "n1"));
	if (w->driver->is_server) {
		(void)snprintf(text, sizeof(text),
			       "INSERT INTO \"%s\".audit (id, at_us, kind, transfer_id, file_id, chunk_index)"
			       " VALUES (-5, 1, 'chunk', '%s', 1, 0)",
			       w->space, id_a);
		(void)pg_ask_number(pg_server(), text);
	}
	assert_int_equal(read_all(w, (struct audit_query){ .transfer_id = id_a }, 10).count, 2);
	assert_int_equal(read_all(w, (struct audit_query){ .to_id = 0 }, 10).count, 2);
}

/* The place where a callback stopped is where the next page begins. */
static void test_audit_page_stops_when_told(void **state)
{
	struct world *w = *state;
	struct audit_query query = { .limit = 10 };
	struct kept kept = { .stop_at = 2 };
	bool is_more = false;

	for (int i = 0; i < 3; i++)
		note(w, "x", 1);
	assert_int_equal(w->store->ops->audit_rows(w->store, &query, keep, &kept, &query.after, &is_more, &w->err), 0);
	assert_true(is_more);
	assert_int_equal(query.after.id, 2);
	assert_int_equal(w->store->ops->audit_rows(w->store, &query, keep, &kept, &query.after, &is_more, &w->err), 0);
	assert_false(is_more);
	assert_int_equal(kept.ids[2], 3);
}

static int point_keep(void *owner, const struct audit_row *row)
{
	struct audit_point *points = owner;

	points[row->id].id = row->id;
	memcpy(points[row->id].hash, row->hash, sizeof(row->hash));
	return 0;
}

static void test_audit_cut_keeps_the_chain(void **state)
{
	struct world *w = *state;
	struct audit_point points[16] = { 0 }, wrong;
	const struct store_audit row = { .kind = "operator", .outcome = "archived" };
	const struct audit_query query = { .limit = 16 };
	const struct store_ops *ops = w->store->ops;
	struct audit_place place;
	struct audit_head head;
	bool is_more;
	size_t count;

	for (int i = 0; i < 6; i++)
		note(w, "x", 1);
	assert_int_equal(ops->audit_rows(w->store, &query, point_keep, points, &place, &is_more, &w->err), 0);
	wrong = points[3];
	wrong.hash[31] ^= 1;
	assert_int_equal(ops->audit_cut(w->store, &points[0], &wrong, &row, &w->err), -ERR_VERSION_CONFLICT);
	assert_int_equal(ops->audit_cut(w->store, &points[1], &points[3], &row, &w->err), -ERR_VERSION_CONFLICT);
	assert_int_equal(ops->audit_cut(w->store, &points[0], &points[0], &row, &w->err), -ERR_VERSION_CONFLICT);
	/* The newest row stays. */
	assert_int_equal(ops->audit_cut(w->store, &points[0], &points[6], &row, &w->err), -ERR_VERSION_CONFLICT);
	assert_int_equal(chain_faults(w, &count), 0);
	assert_int_equal(count, 6);
	assert_int_equal(ops->audit_cut(w->store, &points[0], &points[3], &row, &w->err), 0);
	assert_int_equal(ops->audit_head(w->store, &head, &w->err), 0);
	assert_int_equal(head.anchor.id, 3);
	assert_memory_equal(head.anchor.hash, points[3].hash, AUDIT_HASH_SIZE);
	assert_int_equal(head.last.id, 7);
	assert_int_equal(chain_faults(w, &count), 0);
	assert_int_equal(count, 4);
	assert_int_equal(ops->audit_cut(w->store, &points[0], &points[5], &row, &w->err), -ERR_VERSION_CONFLICT);
	assert_int_equal(ops->audit_cut(w->store, &points[3], &points[5], &row, &w->err), 0);
	reopen(w);
	note(w, "x", 1);
	assert_int_equal(chain_faults(w, &count), 0);
	assert_int_equal(count, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_audit_everything_is_linked), CASE(test_audit_bytes_that_are_no_text),
		CASE(test_audit_pages_and_filters),    CASE(test_audit_row_below_the_first_is_none),
		CASE(test_audit_page_stops_when_told), CASE(test_audit_cut_keeps_the_chain),
	};

	return drivers_run(tests, COUNT_OF(tests));
}
