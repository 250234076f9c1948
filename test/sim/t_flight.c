/* Lists of flights, and what arrives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/demand.h"
#include "sim/flight.h"

/* The list from both ends against a row of digits. */
static void assert_list(const struct flight_list *list, const struct pool *pool, const char *expected)
{
	char found[16] = "", back[16] = "";
	size_t count = 0, back_count = 0;
	for (uint32_t i = list->oldest; i != FLIGHT_NONE && count < 15; i = ((struct flight *)pool_at(pool, i))->newer)
		found[count++] = (char)('0' + i);
	for (uint32_t i = list->newest; i != FLIGHT_NONE && back_count < 15;
	     i = ((struct flight *)pool_at(pool, i))->older)
		back[back_count++] = (char)('0' + i);
	assert_string_equal(found, expected);
	assert_int_equal(back_count, count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(back[i], found[count - 1 - i]);
	assert_true(flight_list_is_empty(list) == (count == 0));
}

static void test_list(void **state)
{
	(void)state;
	/* Digits come, letters go: a is 0. */
	static const struct {
		const char *moves, *left;
	} rows[] = {
		{ "", "" },       { "0", "0" },       { "0a", "" },         { "0a0", "0" },     { "012a", "12" },
		{ "012b", "02" }, { "012c", "01" },   { "012bac", "" },     { "012abc", "" },   { "012cba", "" },
		{ "10a2", "12" }, { "012b1", "021" }, { "012a0c3", "103" }, { "0a1b2c3", "3" },
	};
	struct pool pool = POOL_INIT(struct flight);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pool_take(&pool), i);
	for (size_t row = 0; row < COUNT_OF(rows); row++) {
		struct flight_list list = FLIGHT_LIST_EMPTY;
		for (const char *move = rows[row].moves; *move != '\0'; move++) {
			if (*move >= 'a')
				flight_list_remove(&list, &pool, (uint32_t)(*move - 'a'));
			else
				flight_list_add(&list, &pool, (uint32_t)(*move - '0'));
		}
		assert_list(&list, &pool, rows[row].left);
	}
	pool_fini(&pool);
}

static void parse(const char *text, struct arena *arena, struct scenario *ret_scenario)
{
	struct err err = ERR_INIT;
	if (scenario_parse("test", str_from(text), arena, ret_scenario, &err) < 0)
		fail_msg("%s", err.text);
}

/* Times, keys and work are drawn apart: a change of one leaves the others as they were. */
static void test_demand_apart(void **state)
{
	(void)state;
#define HEAD "name: t\ntitle: t\nnodes: 4\nsets: 3\nrouters: 5\nkeys: 1000\n"
	static const struct {
		const char *text;
		bool is_gap_same, is_work_same, is_key_same;
	} rows[] = {
		{ HEAD, true, true, true },
		{ HEAD "seed: 2\n", false, false, false },
		{ HEAD "load_milli: 900\n", false, true, true },
		{ HEAD "arrivals: bursty\n", false, true, true },
		{ HEAD "service: lognormal\n", true, false, true },
		{ HEAD "zipf_milli: 900\n", true, true, false },
		{ HEAD "timeout: 1s\nqueue: 3\nretry: true\n", true, true, true },
	};
	struct arena arena = ARENA_INIT(MIB);
	for (size_t row = 0; row < COUNT_OF(rows); row++) {
		struct scenario scenarios[2];
		struct demand demands[2];
		bool is_gap_same = true, is_work_same = true, is_key_same = true;
		parse(HEAD, &arena, &scenarios[0]);
		parse(rows[row].text, &arena, &scenarios[1]);
		for (size_t i = 0; i < 2; i++)
			demand_init(&demands[i], &scenarios[i]);
		for (uint64_t number = 0; number < 1000; number++) {
			struct demand_request one, other;
			is_gap_same &= demand_gap_ns(&demands[0]) == demand_gap_ns(&demands[1]);
			/* Who is tried again shifts nobody, and finds the same work each time. */
			int64_t work_ns = demand_retry_work_ns(&demands[1], number);
			assert_true(number % 2 == 0 || demand_retry_work_ns(&demands[1], number) == work_ns);
			is_work_same &= demand_retry_work_ns(&demands[0], number) == work_ns;
			demand_draw(&demands[0], &one);
			demand_draw(&demands[1], &other);
			is_work_same &= one.work_ns == other.work_ns;
			is_key_same &= one.key_hash == other.key_hash && one.set == other.set;
			assert_true(other.router < 5 && other.set < 3);
		}
		assert_int_equal(is_gap_same, rows[row].is_gap_same);
		assert_int_equal(is_work_same, rows[row].is_work_same);
		assert_int_equal(is_key_same, rows[row].is_key_same);
	}
	arena_fini(&arena);
#undef HEAD
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_demand_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
