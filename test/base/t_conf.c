#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/conf.h"

struct user {
	const char *name;
	int role;
};

struct target {
	const char *host;
	int64_t port;
	uint64_t chunk_bytes;
	int64_t timeout_us;
	int64_t free_count;
	bool is_open;
	int format;
	struct conf_list users, words;
};

static const struct conf_row user_rows[] = {
	{ .name = "name", .type = CONF_TEXT, .offset = offsetof(struct user, name) },
	{ .name = "role",
	  .type = CONF_CHOICE,
	  .offset = offsetof(struct user, role),
	  .choices = "uploader|operator|auditor",
	  .fallback = "operator" },
	{ 0 },
};

static const struct conf_row rows[] = {
	{ .name = "host", .type = CONF_TEXT, .offset = offsetof(struct target, host) },
	{ .name = "port",
	  .type = CONF_INT,
	  .offset = offsetof(struct target, port),
	  .min = 1,
	  .max = 65535,
	  .fallback = "7080" },
	{ .name = "chunk_size",
	  .type = CONF_SIZE,
	  .offset = offsetof(struct target, chunk_bytes),
	  .min = 64 * 1024,
	  .max = 1 << 30,
	  .fallback = "8MiB" },
	{ .name = "timeout",
	  .type = CONF_DURATION,
	  .offset = offsetof(struct target, timeout_us),
	  .min = 1000,
	  .max = 3600000000,
	  .fallback = "3s" },
	{ .name = "any_number", .type = CONF_INT, .offset = offsetof(struct target, free_count), .fallback = "-1" },
	{ .name = "open", .type = CONF_BOOL, .offset = offsetof(struct target, is_open), .fallback = "true" },
	{ .name = "format",
	  .type = CONF_CHOICE,
	  .offset = offsetof(struct target, format),
	  .choices = "text|json",
	  .fallback = "text" },
	{ .name = "users",
	  .type = CONF_LIST,
	  .offset = offsetof(struct target, users),
	  .item_rows = user_rows,
	  .item_size = sizeof(struct user) },
	{ .name = "words", .type = CONF_WORDS, .offset = offsetof(struct target, words) },
	{ 0 },
};

static int parse(struct str text, struct target *target, struct arena *arena, struct err *err)
{
	/* What was there before must not shine through. */
	memset(target, 0xA5, sizeof(*target));
	return conf_parse("heng.yaml", text, rows, target, sizeof(*target), arena, err);
}

static void test_defaults(void **state UNUSED)
{
	struct arena arena = ARENA_INIT(0);
	struct err err = ERR_INIT;
	struct target target;

	assert_int_equal(parse(STR("host: h\n"), &target, &arena, &err), 0);
	assert_string_equal(target.host, "h");
	assert_int_equal(target.port, 7080);
	assert_int_equal(target.chunk_bytes, 8 * MIB);
	assert_int_equal(target.timeout_us, 3 * SEC_US);
	assert_int_equal(target.free_count, -1);
	assert_true(target.is_open);
	assert_int_equal(target.format, 0);
	assert_int_equal(target.users.count, 0);
	assert_null(target.users.items);
	arena_fini(&arena);
}

static void test_every_type(void **state UNUSED)
{
	static const char TEXT[] = "# a comment\n"
				   "host: \"a: b # c\"\n"
				   "port: 65535\n"
				   "chunk_size: 64k\n"
				   "timeout: 250ms\n"
				   "any_number: -9223372036854775808\n"
				   "open: false\n"
				   "format: json\n"
				   "users:\n"
				   "  - name: \xE4\xBD\xA0\n"
				   "    role: auditor\n"
				   "  - { name: 'null' }\n";
	struct arena arena = ARENA_INIT(0);
	struct err err = ERR_INIT;
	struct target target;
	const struct user *users;

	assert_int_equal(parse(str_from(TEXT), &target, &arena, &err), 0);
	assert_string_equal(target.host, "a: b # c");
	assert_int_equal(target.port, 65535);
	assert_int_equal(target.chunk_bytes, 65536);
	assert_int_equal(target.timeout_us, 250000);
	assert_true(target.free_count == INT64_MIN);
	assert_false(target.is_open);
	assert_int_equal(target.format, 1);
	assert_int_equal(target.users.count, 2);
	users = target.users.items;
	assert_string_equal(users[0].name, "\xE4\xBD\xA0");
	assert_int_equal(users[0].role, 2);
	assert_string_equal(users[1].name, "null");
	assert_int_equal(users[1].role, 1);
	arena_fini(&arena);
}

static void test_words(void **state UNUSED)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{ "host: h\nwords: /bin/true\n", "'words' must be a list of words" },
		{ "host: h\nwords: {a: b}\n", "'words' must be a list of words" },
		{ "host: h\nwords: [a, [b]]\n", "each entry of 'words' must be one word" },
		{ "host: h\nwords: [a, \"b\\0c\"]\n", "each entry of 'words' must be one word" },
		{ "host: h\nwords: [a]\nwords: [b]\n", "given twice" },
		{ "host: h\nwords: [0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,"
		  "0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4]\n",
		  "too many entries (64)" },
	};
	struct arena arena = ARENA_INIT(0);
	struct err err = ERR_INIT;
	struct target target;

	assert_int_equal(parse(STR("host: h\nwords: [/bin/echo, \"a b\", '']\n"), &target, &arena, &err), 0);
	assert_int_equal(target.words.count, 3);
	const char *const *words = target.words.items;
	assert_string_equal(words[0], "/bin/echo");
	assert_string_equal(words[1], "a b");
	assert_string_equal(words[2], "");
	assert_int_equal(parse(STR("host: h\nwords:\n"), &target, &arena, &err), 0);
	assert_int_equal(target.words.count, 0);
	for (size_t i = 0; i < COUNT_OF(wrong); i++) {
		assert_int_equal(parse(str_from(wrong[i].text), &target, &arena, &err), -(int)ERR_CONFIG);
		assert_non_null(strstr(err.text, wrong[i].says));
	}
	arena_fini(&arena);
}

static void test_long_list(void **state UNUSED)
{
	struct buf buf = BUF_INIT(100000);
	struct arena arena = ARENA_INIT(0), small = ARENA_INIT(4096);
	struct err err = ERR_INIT;
	struct target target;
	char name[16];

	buf_append_c(&buf, "host: h\nusers:\n");
	for (int i = 0; i < 1000; i++)
		buf_printf(&buf, "- name: u%d\n", i);
	assert_int_equal(parse(buf_str(&buf), &target, &arena, &err), 0);
	assert_int_equal(target.users.count, 1000);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "u%d", i);
		assert_string_equal(((const struct user *)target.users.items)[i].name, name);
	}
	/* An arena that is too small is a fault like others, not a crash. */
	assert_int_equal(parse(buf_str(&buf), &target, &small, &err), -ERR_CONFIG);
	arena_fini(&arena);
	arena_fini(&small);
	buf_fini(&buf);
}

static void test_faults(void **state UNUSED)
{
	static const struct {
		const char *text, *fault;
	} ROWS[] = {
		{ "", "heng.yaml:1:1: 'host' is missing: text" },
		{ "# only a comment\n", "'host' is missing" },
		{ "---\n", "'host' is missing" },
		{ "---\n---\nhost: h\n", "heng.yaml:2:1: a second document is not allowed" },
		{ "host: h\n---\nhost: i\n", "heng.yaml:2:1: a second document is not allowed" },
		{ "~", "'host' is missing" },
		{ "host", "heng.yaml:1:1: the file must be a mapping (key: value)" },
		{ "- host: h\n", "heng.yaml:1:1: the file must be a mapping" },
		{ "host:\n", "'host' has no value: text" },
		{ "host: ~\n", "heng.yaml:1:7: 'host' has no value" },
		{ "host: [h]\n", "heng.yaml:1:7: 'host' must be one value, not a list" },
		{ "host: {a: {b: [c]}}\nport: x\n",
		  "heng.yaml:1:7: 'host' must be one value, not a mapping; heng.yaml:2:7: 'port' must be" },
		{ "host: \"a\\0b\"\n", "heng.yaml:1:7: 'host' must be text, not 'a\\x00b'" },
		{ "host: h\nport: 0\n", "heng.yaml:2:7: 'port' must be a whole number, 1 to 65535, not '0'" },
		{ "host: h\nport: 65536\n", "not '65536'" },
		{ "host: h\nport: 99999999999999999999\n", "not '99999999999999999999'" },
		{ "host: h\nport: 8.0\n", "not '8.0'" },
		{ "host: h\nport: 0x50\n", "not '0x50'" },
		{ "host: h\nchunk_size: 1k\n", "'chunk_size' must be a size such as 8MiB, 64KiB to 1GiB, not '1k'" },
		{ "host: h\nchunk_size: 18446744073709551615\n", "'chunk_size' must be" },
		{ "host: h\ntimeout: 3\n",
		  "'timeout' must be a time with its unit such as 3s or 250ms, 1ms to 1h, not '3'" },
		{ "host: h\nopen: yes\n", "heng.yaml:2:7: 'open' must be true or false, not 'yes'" },
		{ "host: h\nformat: xml\n", "heng.yaml:2:9: 'format' must be one of text, json, not 'xml'" },
		{ "host: h\nformat: text|json\n", "'format' must be one of" },
		{ "host: h\nprot: 1\n", "heng.yaml:2:1: unknown key 'prot' (did you mean 'port'?)" },
		{ "host: h\nchunksize: 1\n", "(did you mean 'chunk_size'?)" },
		{ "host: h\nzebra: {a: [1, {b: 2}]}\nport: 0\n",
		  "heng.yaml:2:1: unknown key 'zebra'; heng.yaml:3:7: 'port' must" },
		{ "host: h\n<<: {port: 1}\n", "unknown key '<<'" },
		{ "host: h\n? [a, b]\n: c\nport: 0\n", "heng.yaml:2:3: a key must be one word; heng.yaml:4:7: 'port'" },
		{ "host: h\nport: 1\n\nhost: i\n", "heng.yaml:4:1: 'host' is given twice (first on line 1)" },
		{ "host: h\nusers: x\n", "heng.yaml:2:8: 'users' must be a list" },
		{ "host: h\nusers: {name: x}\n", "'users' must be a list" },
		{ "host: h\nusers: [x, [y]]\n",
		  "heng.yaml:2:9: each entry of 'users' must be a mapping (- key: value); heng.yaml:2:12: each entry" },
		{ "host: h\nusers:\n - role: king\n",
		  "heng.yaml:3:10: 'role' must be one of uploader, operator, auditor, not 'king'; "
		  "heng.yaml:3:4: 'name' is missing: text" },
		{ "host: &a h\n", "heng.yaml:1:7: anchors and aliases (& and *) are not allowed here" },
		{ "host: *a\n", "heng.yaml:1:7: anchors and aliases" },
		{ "users: &a [*a]\n", "heng.yaml:1:8: anchors and aliases" },
		{ "&a host: h\n", "heng.yaml:1:1: anchors and aliases" },
		{ "host: !!str h\n", "heng.yaml:1:7: tags (!) are not allowed here" },
		{ "host: !x {a: b}\n", "tags (!) are not allowed here" },
		{ "host: \"open\n", "this is not YAML: found unexpected end of stream" },
		{ "host: h\n\tport: 1\n", "heng.yaml:2:1: this is not YAML" },
		{ "host: [\n", "this is not YAML" },
		{ "host: a: b\n", "heng.yaml:1:8: this is not YAML" },
		{ "host: h\nx: \xE4\xBD\xA0\xFF\n", "heng.yaml:2:5: this is not UTF-8 text" },
		{ "host: h\x01\n", "this is not YAML: control characters are not allowed" },
		{ "zebra\x1B[2J: 1\nhost: h\n", "not YAML: control" },
	};
	struct err err;
	struct target target;

	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		struct arena arena = ARENA_INIT(0);

		err = ERR_INIT;
		if (parse(str_from(ROWS[i].text), &target, &arena, &err) != -ERR_CONFIG)
			fail_msg("taken for good: %s", ROWS[i].text);
		if (!strstr(err.text, ROWS[i].fault))
			fail_msg("%s\nsays: %s", ROWS[i].text, err.text);
		assert_int_equal(err.code, ERR_CONFIG);
		assert_true(err.hint[0] != '\0');
		arena_fini(&arena);
	}
}

static void test_all_faults_at_once(void **state UNUSED)
{
	static const char TEXT[] = "port: 0\nchunk_size: x\nopen: maybe\nzebra: 1\n";
	struct arena arena = ARENA_INIT(0);
	struct err err = ERR_INIT;
	struct target target;

	assert_int_equal(parse(str_from(TEXT), &target, &arena, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "heng.yaml:1:7: 'port'"));
	assert_non_null(strstr(err.text, "heng.yaml:2:13: 'chunk_size'"));
	assert_non_null(strstr(err.text, "heng.yaml:3:7: 'open'"));
	assert_non_null(strstr(err.text, "heng.yaml:4:1: unknown key 'zebra'"));
	assert_non_null(strstr(err.text, "'host' is missing"));
	arena_fini(&arena);
}

static void test_more_faults_than_room(void **state UNUSED)
{
	struct buf buf = BUF_INIT(100000);
	struct arena arena = ARENA_INIT(0);
	struct err err = ERR_INIT;
	struct target target;
	char name[5000];

	buf_append_c(&buf, "host: h\n");
	for (int i = 0; i < 500; i++)
		buf_printf(&buf, "zebra%d: 1\n", i);
	assert_int_equal(parse(buf_str(&buf), &target, &arena, &err), -ERR_CONFIG);
	assert_memory_equal(err.text, "heng.yaml:2:1: unknown key 'zebra0'; ", 37);
	assert_non_null(strstr(err.text, "; and 4"));
	assert_string_equal(err.text + strlen(err.text) - 5, " more");
	/* A long path must not take the room of the fault. */
	memset(name, 'd', sizeof(name));
	snprintf(name + 4980, 20, "/heng.yaml");
	assert_int_equal(conf_parse(name, STR("port: 0\n"), rows, &target, sizeof(target), &arena, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "d/heng.yaml:1:7: 'port' must be"));
	arena_fini(&arena);
	buf_fini(&buf);
}

static void test_depth_and_size(void **state UNUSED)
{
	struct buf buf = BUF_INIT(3 * MIB);
	struct arena arena = ARENA_INIT(0);
	struct err err = ERR_INIT;
	struct target target;

	/* The root mapping is the first level. */
	assert_int_equal(parse(STR("host: h\nzebra: [[[[[[[[[[[[[[[]]]]]]]]]]]]]]]\n"), &target, &arena, &err),
			 -ERR_CONFIG);
	assert_string_equal(err.text, "heng.yaml:2:1: unknown key 'zebra'");
	assert_int_equal(parse(STR("host: h\nzebra: [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]\n"), &target, &arena, &err),
			 -ERR_CONFIG);
	assert_non_null(strstr(err.text, "heng.yaml:2:23: nested deeper than 16 levels"));
	for (int i = 0; i < 500000; i++)
		buf_append_c(&buf, "[");
	assert_int_equal(parse(buf_str(&buf), &target, &arena, &err), -ERR_CONFIG);
	buf_clear(&buf);
	buf_append_c(&buf, "host: h\n#");
	while (buf.size < MIB)
		buf_append_c(&buf, "x");
	assert_int_equal(parse(buf_str(&buf), &target, &arena, &err), 0);
	buf_append_c(&buf, "x");
	assert_int_equal(parse(buf_str(&buf), &target, &arena, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "at most 1 MiB"));
	arena_fini(&arena);
	buf_fini(&buf);
}

static void test_bytes_cut_anywhere(void **state UNUSED)
{
	static const char TEXT[] = "host: \"h\"\nport: 1\nusers:\n - {name: a, role: auditor}\n - name: b\n";
	struct err err;
	struct target target;

	/* Whatever is left of a file is either good or refused in words. */
	for (size_t size = 0; size < sizeof(TEXT); size++) {
		struct arena arena = ARENA_INIT(0);

		err = ERR_INIT;
		if (parse((struct str){ TEXT, size }, &target, &arena, &err) < 0)
			assert_true(err.text[0] != '\0');
		else
			assert_string_equal(target.host, "h");
		arena_fini(&arena);
	}
}

static void test_file(void **state UNUSED)
{
	char path[] = "/tmp/heng-t-conf-XXXXXX";
	struct arena arena = ARENA_INIT(0);
	struct err err = ERR_INIT;
	struct target target;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "host: from file\n", 16), 16);
	assert_int_equal(conf_load(path, rows, &target, sizeof(target), &arena, &err), 0);
	assert_string_equal(target.host, "from file");
	assert_int_equal(ftruncate(fd, 1 << 21), 0);
	assert_int_equal(conf_load(path, rows, &target, sizeof(target), &arena, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "at most 1 MiB"));
	close(fd);
	unlink(path);
	assert_int_equal(conf_load(path, rows, &target, sizeof(target), &arena, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "No such file or directory"));
	assert_non_null(strstr(err.text, path));
	assert_int_equal(conf_load("/tmp", rows, &target, sizeof(target), &arena, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "Is a directory"));
	arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_every_type),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_long_list),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_all_faults_at_once),
		cmocka_unit_test(test_more_faults_than_room),
		cmocka_unit_test(test_depth_and_size),
		cmocka_unit_test(test_bytes_cut_anywhere),
		cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
