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
	default:
		fail_msg("no event '%c'", letter);
		return MEMBER_STAY;
	}
}

/* Events: g good, m missed, l leave, d drained, s stay. Below each, the first letter of the state that follows. */
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
		{ "stays after all", &member_rules_folder, MEMBER_HEALTHY, "lsd", "lhh" },
		{ "leaving and gone", &member_rules_folder, MEMBER_LEAVING, "mmm", "llu" },
		{ "and comes back to leave", &member_rules_folder, MEMBER_LEAVING, "mmmggd", "lluulr" },
		{ "told to leave while unreachable", &member_rules_folder, MEMBER_UNREACHABLE, "lgg", "uul" },
		{ "told to stay while unreachable", &member_rules_folder, MEMBER_LEAVING, "mmmsgg", "lluuuh" },
		{ "suspect: one good report", &member_rules_folder, MEMBER_SUSPECT, "g", "h" },
		{ "suspect: goes on missing", &member_rules_folder, MEMBER_SUSPECT, "mmm", "ssu" },
		{ "suspect: told to leave", &member_rules_folder, MEMBER_SUSPECT, "l", "l" },
		{ "removed is the end", &member_rules_folder, MEMBER_REMOVED, "gglsdmmmgg", "rrrrrrrrrr" },
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
		bool takes_work;
	} rows[] = {
		{ MEMBER_HEALTHY, "healthy", true },  { MEMBER_SUSPECT, "suspect", true },
		{ MEMBER_LEAVING, "leaving", false }, { MEMBER_UNREACHABLE, "unreachable", false },
		{ MEMBER_REMOVED, "removed", false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_string_equal(member_state_name(rows[i].state), rows[i].name);
		assert_int_equal(member_takes_work(rows[i].state), rows[i].takes_work);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stories),
		cmocka_unit_test(test_names_and_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
