#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder/keyring.h"
#include "sys/fs.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static char path[64];

static int load(struct keyring *keyring, const char *text)
{
	struct err err = ERR_INIT;

	assert_int_equal(fs_replace_file(path, str_from(text), 0600, NULL), 0);
	return keyring_load(keyring, path, &err);
}

static int set_up(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/heng-t_keyring-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static struct str shown(const char *header) { return str_from(header + sizeof("X-Internal-Key: ") - 1); }

/* The documented order: the new key last, then first, then the old one away. At each step those who are a step behind are understood. */
static void test_a_rotation_step_by_step(void **state)
{
	struct keyring ahead, behind;
	char ids[32];

	(void)state;
	keyring_init(&ahead);
	keyring_init(&behind);
	assert_false(keyring_is_internal(&ahead, STR("")));
	assert_int_equal(load(&ahead, "1 " A "\n"), 0);
	assert_int_equal(load(&behind, "1 " A "\n"), 0);
	const char *first = internal_key_header(&ahead.internal);
	static const char *const steps[] = { "1 " A "\n2 " B "\n", "2 " B "\n1 " A "\n", "2 " B "\n" };

	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		assert_int_equal(load(&ahead, steps[i]), 0);
		assert_true(keyring_is_internal(&behind, shown(internal_key_header(&ahead.internal))));
		assert_true(keyring_is_internal(&ahead, shown(internal_key_header(&behind.internal))));
		assert_int_equal(load(&behind, steps[i]), 0);
		assert_string_equal(internal_key_header(&ahead.internal), internal_key_header(&behind.internal));
	}
	/* A call that was begun before still has its text; the key in it is worth nothing any more. */
	assert_false(keyring_is_internal(&ahead, shown(first)));
	assert_int_equal(strlen(first), KEYRING_HEADER_SIZE - 1);
	keyring_ids(&ahead, ids, sizeof(ids));
	assert_string_equal(ids, "2");
	keyring_fini(&ahead);
	keyring_fini(&behind);
}

static void test_a_broken_file_changes_nothing(void **state)
{
	static const char *const broken[] = { "", "# none\n", "1 " A "\n1 " B "\n", "x " A "\n", "1 abc\n", "1\n" };
	struct keyring keyring;
	struct ticket_keys before, after;
	char ids[32];

	(void)state;
	keyring_init(&keyring);
	assert_int_equal(load(&keyring, "2 " B "\n1 " A "\n"), 0);
	keyring_get(&keyring, &before);
	const char *header = internal_key_header(&keyring.internal);
	for (size_t i = 0; i < COUNT_OF(broken); i++) {
		assert_int_equal(load(&keyring, broken[i]), -ERR_CONFIG);
		keyring_get(&keyring, &after);
		assert_memory_equal(&before, &after, sizeof(before));
		assert_ptr_equal(internal_key_header(&keyring.internal), header);
	}
	unlink(path);
	assert_true(keyring_load(&keyring, path, NULL) < 0);
	keyring_ids(&keyring, ids, sizeof(ids));
	assert_string_equal(ids, "2, 1");
	keyring_fini(&keyring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_rotation_step_by_step, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_broken_file_changes_nothing, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
