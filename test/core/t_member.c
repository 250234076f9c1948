#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/member.h"

static const struct member_rules rules_suspect = { .missed_limit_count = 2,
						   .missed_state = MEMBER_SUSPECT,
						   .good_limit_count = 1 };

static enum member_event event_of(char letter)
{
	switch (letter) {
	case 'g':
		return MEMBER_PROBE_GOOD;
	case 'm':
		return MEMBER_PROBE_MISSED;
	case 'l':
		return MEMBER_LEAVE;
	case 'd':
		return MEMBER_DRAINED;
	case 's':
		return MEMBER_STAY;
	case 'c':
		return MEMBER_GOSSIP_FAILED;
	case 'e':
		return MEMBER_SUSPICION_EXPIRED;
	case 't':
		return MEMBER_TRAFFIC_FAILED;
	default:
		fail_msg("no event '%c'", letter);
		return MEMBER_STAY;
	}
}

/* Events: g good, m missed, c confirmed by gossip, e suspicion expired, t traffic failed, l leave, d drained, s stay. Below each, the first letter of the state that follows. */
static void test_stories(void **state)
{
	static const struct {
		const char *why;
		const struct member_rules *rules;
		enum member_state from;
		const char *events, *states;
	} rows[] = {
		{ "three misses in a row", &member_rules_folder, MEMBER_HEALTHY, "mmmmm", "hhuuu" },
		{ "a good probe between starts the count again", &member_rules_folder, MEMBER_HEALTHY, "mmgmmgmmm",
		  "hhhhhhhhu" },
		{ "two good ones to come back", &member_rules_folder, MEMBER_UNREACHABLE, "gg", "uh" },
		{ "in a row", &member_rules_folder, MEMBER_UNREACHABLE, "gmgmgg", "uuuuuh" },
		{ "back, and three more misses", &member_rules_folder, MEMBER_UNREACHABLE, "mmmmggmmm", "uuuuuhhhu" },
		{ "leaving, drained", &member_rules_folder, MEMBER_HEALTHY, "lgd", "llr" },
		{ "drained without having been told to leave", &member_rules_folder, MEMBER_HEALTHY, "dg", "hh" },
		{ "drained, and suspect or gone by then", &member_rules_kv, MEMBER_LEAVING, "mmmd", "llsr" },
		{ "the same, gone", &member_rules_folder, MEMBER_LEAVING, "mmmd", "llur" },
		{ "suspect and gone, but not told to leave", &member_rules_kv, MEMBER_HEALTHY, "mmmded", "hhssuu" },
		{ "stays after all", &member_rules_folder, MEMBER_HEALTHY, "lsd", "lhh" },
		{ "leaving and gone", &member_rules_folder, MEMBER_LEAVING, "mmm", "llu" },
		{ "and comes back to leave", &member_rules_folder, MEMBER_LEAVING, "mmmggd", "lluulr" },
		{ "told to leave while unreachable", &member_rules_folder, MEMBER_UNREACHABLE, "lgg", "uul" },
		{ "told to stay while unreachable", &member_rules_folder, MEMBER_LEAVING, "mmmsgg", "lluuuh" },
		{ "suspect: one good report", &member_rules_folder, MEMBER_SUSPECT, "g", "h" },
		{ "suspect: goes on missing", &member_rules_folder, MEMBER_SUSPECT, "mmm", "ssu" },
		{ "suspect: told to leave", &member_rules_folder, MEMBER_SUSPECT, "l", "l" },
		{ "removed is the end", &member_rules_folder, MEMBER_REMOVED, "gglsdmmmggcet", "rrrrrrrrrrrrr" },
		{ "kv: three misses are a suspicion, however many follow", &member_rules_kv, MEMBER_HEALTHY, "mmmmmmm",
		  "hhsssss" },
		{ "kv: one good report", &member_rules_kv, MEMBER_SUSPECT, "g", "h" },
		{ "kv: gossip confirms", &member_rules_kv, MEMBER_HEALTHY, "mmmcgg", "hhsuuh" },
		{ "kv: suspicion expires", &member_rules_kv, MEMBER_HEALTHY, "mmmegg", "hhsuuh" },
		{ "kv: gossip alone is no reason, nor is a suspicion that is none", &member_rules_kv, MEMBER_HEALTHY,
		  "cege", "hhhh" },
		{ "kv: leaving, doubtful, leaving again", &member_rules_kv, MEMBER_LEAVING, "mmmgd", "llslr" },
		{ "kv: leaving and gone, back to leave", &member_rules_kv, MEMBER_LEAVING, "mmmcggd", "llsuulr" },
		{ "kv: doubtful, and may stay", &member_rules_kv, MEMBER_LEAVING, "mmmsg", "llssh" },
		{ "gateway: three misses", &member_rules_gateway, MEMBER_HEALTHY, "mmmgg", "hhuuh" },
		{ "gateway: traffic, at once", &member_rules_gateway, MEMBER_HEALTHY, "tgg", "uuh" },
		{ "the good words before are no way back", &member_rules_gateway, MEMBER_HEALTHY, "gggggtgg",
		  "hhhhhuuh" },
		{ "gateway: traffic again on the way back", &member_rules_gateway, MEMBER_UNREACHABLE, "gtgg", "uuuh" },
		{ "traffic of a suspect", &member_rules_kv, MEMBER_SUSPECT, "t", "u" },
		{ "traffic of a leaving one", &member_rules_gateway, MEMBER_LEAVING, "tggd", "uulr" },
		{ "unreachable stays so", &member_rules_kv, MEMBER_UNREACHABLE, "cetgcg", "uuuuuu" },
		{ "other rules: suspect after two", &rules_suspect, MEMBER_HEALTHY, "mmmgm", "hsshh" },
	};
	static const char letters[] = "hsLur";

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct member member;

		assert_int_equal(strlen(rows[i].events), strlen(rows[i].states));
		member_init(&member, rows[i].from, 100);
		for (size_t j = 0; rows[i].events[j]; j++) {
			enum member_state before = member.state;
			int64_t now_us = 101 + (int64_t)j, since_us = member.since_us;
			bool is_changed = member_step(&member, rows[i].rules, event_of(rows[i].events[j]), now_us);
			char is = letters[member.state] == 'L' ? 'l' : letters[member.state];

			if (is != rows[i].states[j])
				fail_msg("%s: after '%.*s' %s", rows[i].why, (int)j + 1, rows[i].events,
					 member_state_name(member.state));
			assert_int_equal(is_changed, before != member.state);
			assert_int_equal(member.since_us, is_changed ? now_us : since_us);
		}
	}
}

static void test_names_and_work(void **state)
{
	static const struct {
		enum member_state state;
		const char *name;
		int64_t health_ppm;
	} rows[] = {
		{ MEMBER_HEALTHY, "healthy", 1000000 }, { MEMBER_SUSPECT, "suspect", 300000 },
		{ MEMBER_LEAVING, "leaving", 150000 },  { MEMBER_UNREACHABLE, "unreachable", 0 },
		{ MEMBER_REMOVED, "removed", 0 },
	};

	enum member_state found = MEMBER_REMOVED;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_int_equal(member_health_ppm(rows[i].state), rows[i].health_ppm);
		assert_true(member_state_find(rows[i].name, &found));
		assert_int_equal(found, rows[i].state);
		assert_string_equal(member_state_name(rows[i].state), rows[i].name);
	}
	found = MEMBER_SUSPECT;
	assert_false(member_state_find("", &found));
	assert_false(member_state_find("Healthy", &found));
	assert_int_equal(found, MEMBER_SUSPECT);
}

static void test_rules(void **state)
{
	const struct {
		const struct member_rules *rules;
		struct member_rules expected;
	} rows[] = {
		{ &member_rules_folder, { 3, MEMBER_UNREACHABLE, 2, 0, 0 } },
		{ &member_rules_kv, { 3, MEMBER_SUSPECT, 2, 0, 30 * SEC_US } },
		{ &member_rules_gateway, { 3, MEMBER_UNREACHABLE, 2, 3, 0 } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct member_rules *is = rows[i].rules, *must = &rows[i].expected;

		assert_int_equal(is->missed_limit_count, must->missed_limit_count);
		assert_int_equal(is->missed_state, must->missed_state);
		assert_int_equal(is->good_limit_count, must->good_limit_count);
		assert_int_equal(is->traffic_limit_count, must->traffic_limit_count);
		assert_int_equal(is->suspicion_limit_us, must->suspicion_limit_us);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stories),
		cmocka_unit_test(test_names_and_work),
		cmocka_unit_test(test_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
