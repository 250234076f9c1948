#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/health.h"

/* Events of one source with a limit of three: g good, m missed, f failed, x forget. Below each, the first letter of the word that follows. */
static void test_words_of_one_source(void **state)
{
	static const struct {
		const char *why, *events, *words;
	} rows[] = {
		{ "three misses in a row", "mmmm", "ddff" },
		{ "a good one between starts the count again", "mmgmmgmmm", "ddgddgddf" },
		{ "good is good", "ggg", "ggg" },
		{ "confirmed without a count", "gf", "gf" },
		{ "a miss is no way out of failed", "fmg", "ffg" },
		{ "forgotten", "mmxmmm", "dduddf" },
		{ "failed, forgotten, doubtful", "fxm", "fud" },
	};
	static const char letters[] = "ugdf";

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct health health;

		health_init(&health);
		assert_int_equal(strlen(rows[i].events), strlen(rows[i].words));
		for (size_t j = 0; rows[i].events[j]; j++) {
			struct health_view *view = &health.views[HEALTH_PROBE];
			struct health_view before = *view;
			int64_t now_us = 100 + (int64_t)j;
			bool is_changed = false;

			switch (rows[i].events[j]) {
			case 'g':
				is_changed = health_good(&health, HEALTH_PROBE, now_us);
				break;
			case 'm':
				is_changed = health_missed(&health, HEALTH_PROBE, 3, now_us);
				break;
			case 'f':
				is_changed = health_failed(&health, HEALTH_PROBE, now_us);
				break;
			case 'x':
				is_changed = health_forget(&health, HEALTH_PROBE, now_us);
				break;
			default:
				fail();
			}
			if (letters[view->word] != rows[i].words[j])
				fail_msg("%s: after '%.*s' %s", rows[i].why, (int)j + 1, rows[i].events,
					 health_word_name(view->word));
			assert_int_equal(is_changed, before.word != view->word);
			assert_int_equal(view->since_us, is_changed ? now_us : before.since_us);
			assert_int_equal(view->heard_us, rows[i].events[j] == 'g' ? now_us : before.heard_us);
		}
		/* One source's word is no other's. */
		for (unsigned j = HEALTH_HEARTBEAT; j < HEALTH_SOURCES; j++)
			assert_int_equal(health.views[j].word, HEALTH_UNKNOWN);
	}
}

static void test_counts(void **state)
{
	struct health health;
	struct health_view *view = &health.views[HEALTH_TRAFFIC];

	(void)state;
	health_init(&health);
	health_good(&health, HEALTH_TRAFFIC, 1);
	health_good(&health, HEALTH_TRAFFIC, 2);
	assert_int_equal(view->good_count, 2);
	health_missed(&health, HEALTH_TRAFFIC, 3, 3);
	health_missed(&health, HEALTH_TRAFFIC, 3, 4);
	assert_int_equal(view->good_count, 0);
	assert_int_equal(view->missed_count, 2);
	assert_int_equal(view->heard_us, 2);
	health_good(&health, HEALTH_TRAFFIC, 5);
	assert_int_equal(view->missed_count, 0);
	assert_int_equal(view->good_count, 1);
	health_failed(&health, HEALTH_TRAFFIC, 6);
	assert_int_equal(view->good_count, 0);
	/* Counts stand at their end. */
	view->missed_count = UINT32_MAX;
	health_missed(&health, HEALTH_TRAFFIC, 3, 7);
	assert_int_equal(view->missed_count, UINT32_MAX);
	view->good_count = UINT32_MAX;
	health_good(&health, HEALTH_TRAFFIC, 8);
	assert_int_equal(view->good_count, UINT32_MAX);
	/* A limit of nought or one fails at the first miss. */
	health_missed(&health, HEALTH_PROBE, 0, 9);
	health_missed(&health, HEALTH_GOSSIP, 1, 9);
	assert_int_equal(health.views[HEALTH_PROBE].word, HEALTH_FAILED);
	assert_int_equal(health.views[HEALTH_GOSSIP].word, HEALTH_FAILED);
}

static void test_any(void **state)
{
	struct health health;

	(void)state;
	health_init(&health);
	assert_false(health_any(&health, HEALTH_GOOD, HEALTH_SOURCES));
	assert_true(health_any(&health, HEALTH_UNKNOWN, HEALTH_SOURCES));
	health_good(&health, HEALTH_GOSSIP, 1);
	health_failed(&health, HEALTH_PROBE, 1);
	assert_true(health_any(&health, HEALTH_GOOD, HEALTH_SOURCES));
	assert_true(health_any(&health, HEALTH_GOOD, HEALTH_PROBE));
	assert_false(health_any(&health, HEALTH_GOOD, HEALTH_GOSSIP));
	assert_true(health_any(&health, HEALTH_FAILED, HEALTH_GOSSIP));
	assert_false(health_any(&health, HEALTH_FAILED, HEALTH_PROBE));
	assert_false(health_any(&health, HEALTH_DOUBTFUL, HEALTH_SOURCES));
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(health_source_name(HEALTH_PROBE), "probe");
	assert_string_equal(health_source_name(HEALTH_HEARTBEAT), "heartbeat");
	assert_string_equal(health_source_name(HEALTH_GOSSIP), "gossip");
	assert_string_equal(health_source_name(HEALTH_TRAFFIC), "traffic");
	assert_string_equal(health_word_name(HEALTH_UNKNOWN), "unknown");
	assert_string_equal(health_word_name(HEALTH_GOOD), "good");
	assert_string_equal(health_word_name(HEALTH_DOUBTFUL), "doubtful");
	assert_string_equal(health_word_name(HEALTH_FAILED), "failed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_of_one_source),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_any),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
