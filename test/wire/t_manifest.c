#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire/manifest.h"
#include "base/hash.h"

#define HEAD "heng-manifest 1\n"
#define ROOT "D 755 0 .\n"

struct seen {
	struct buf text; /* the entries, written again */
	uint64_t count;
	uint64_t stop_at;
};

static int gather(void *owner, const struct manifest_entry *entry, struct err *err)
{
	struct seen *seen = owner;

	assert_int_equal(entry->seq, seen->count);
	if (seen->stop_at && seen->count == seen->stop_at)
		return err_set(err, ERR_NO_SPACE, "the owner says stop");
	seen->count++;
	manifest_write(&seen->text, entry);
	return 0;
}

/* Feeds the text in pieces of `step`; returns the result of the feed or the end. */
static int parse(struct str text, size_t step, const struct manifest_limits *limits, struct seen *seen, struct err *err)
{
	struct manifest_parser *parser = manifest_parser_new(limits, gather, seen);
	int r = 0;

	*err = ERR_INIT;
	for (size_t at = 0; r == 0 && at < text.size; at += step)
		r = manifest_feed(parser, (struct str){ text.data + at, min_size(step, text.size - at) }, err);
	if (r == 0)
		r = manifest_end(parser, err);
	if (r == 0)
		assert_int_equal(manifest_crc32c(parser), crc32c(0, text.data, text.size));
	else
		assert_int_equal(manifest_feed(parser, STR("x"), err), r);
	manifest_parser_free(&parser);
	assert_null(parser);
	return r;
}

static struct seen seen_new(void) { return (struct seen){ .text = BUF_INIT(64 * MIB) }; }

static const char good[] = HEAD "D 755 1700000000123456789 .\n"
				"F 644 -1 0 empty\n"
				"D 1777 0 dir\n"
				"F 600 9223372036854775807 1099511627776 dir/big%20file%0A%FF\n"
				"D 700 0 dir/empty\n"
				"L 777 5 ../..//etc/passwd dir/link\n"
				"F 7777 0 3 dir.x\n"
				"F 0 0 1 %E5%87%AD%E8%AF%81/not-encoded\n";

static void t_good(void **state UNUSED)
{
	struct seen seen = seen_new();
	struct buf text = BUF_INIT(MIB);
	struct err err;
	const size_t entries_end = strlen(good) - strlen("F 0 0 1 %E5%87%AD%E8%AF%81/not-encoded\n");

	buf_append(&text, (struct str){ good, entries_end });
	manifest_write_end(&text, 7, 1099511627779);
	for (size_t step = 1; step <= text.size; step += step < 40 ? 1 : 97) {
		buf_clear(&seen.text);
		seen.count = 0;
		manifest_write_head(&seen.text);
		assert_int_equal(parse(buf_str(&text), step, &manifest_limits_default, &seen, &err), 0);
		assert_int_equal(seen.count, 7);
		manifest_write_end(&seen.text, 7, 1099511627779);
		/* What was read is written again byte for byte. */
		assert_true(str_eq(buf_str(&seen.text), buf_str(&text)));
	}
	buf_fini(&text);
	buf_fini(&seen.text);
}

static void t_bad(void **state UNUSED)
{
	static const struct {
		const char *text;
		int want;
		const char *word; /* in the error's text */
	} rows[] = {
		/* form */
		{ "", -ERR_MANIFEST_BAD, "ends after line 0" },
		{ "heng-manifest 2\n", -ERR_MANIFEST_BAD, "line 1" },
		{ HEAD, -ERR_MANIFEST_BAD, "before its end" },
		{ HEAD "end 0 0\n", -ERR_MANIFEST_BAD, "line 2" },
		{ HEAD ROOT "end 1 0", -ERR_MANIFEST_BAD, "before its end" },
		{ HEAD ROOT "end 0 0\n", -ERR_MANIFEST_BAD, "says 0 entries" },
		{ HEAD ROOT "F 644 0 5 a\nend 2 4\n", -ERR_MANIFEST_BAD, "4 bytes" },
		{ HEAD ROOT "end 1 0\n\n", -ERR_MANIFEST_BAD, "follows the end" },
		{ HEAD ROOT "end 1 0 \n", -ERR_MANIFEST_BAD, "last line" },
		{ HEAD "D 755 0 a\n", -ERR_MANIFEST_BAD, "root" },
		{ HEAD "F 755 0 0 .\n", -ERR_MANIFEST_BAD, "root" },
		{ HEAD ROOT "X 755 0 a\n", -ERR_MANIFEST_BAD, "line 3" },
		{ HEAD ROOT "\n", -ERR_MANIFEST_BAD, "line 3" },
		{ HEAD ROOT "D 10000 0 a\n", -ERR_MANIFEST_BAD, "mode" },
		{ HEAD ROOT "D 8 0 a\n", -ERR_MANIFEST_BAD, "mode" },
		{ HEAD ROOT "D 755 1.5 a\n", -ERR_MANIFEST_BAD, "time" },
		{ HEAD ROOT "D 755 9223372036854775808 a\n", -ERR_MANIFEST_BAD, "time" },
		{ HEAD ROOT "F 644 0 -1 a\n", -ERR_MANIFEST_BAD, "size" },
		{ HEAD ROOT "F 644 0 18446744073709551616 a\n", -ERR_MANIFEST_BAD, "size" },
		{ HEAD ROOT "F 644 0 1 a b\n", -ERR_MANIFEST_BAD, "percent-encoded" },
		{ HEAD ROOT "F 644 0 1 a\tb\n", -ERR_MANIFEST_BAD, "percent-encoded" },
		{ HEAD ROOT "F 644 0 1 \xe5\x87\xad\n", -ERR_MANIFEST_BAD, "percent-encoded" },
		{ HEAD ROOT "F 644 0 1 a%2\n", -ERR_MANIFEST_BAD, "percent-encoded" },
		{ HEAD ROOT "F 644 0 1 a%zz\n", -ERR_MANIFEST_BAD, "percent-encoded" },
		/* entries */
		{ HEAD ROOT "F 644 0 1 /a\n", -ERR_ENTRY_REFUSED, "absolute" },
		{ HEAD ROOT "F 644 0 1 %2Fa\n", -ERR_ENTRY_REFUSED, "absolute" },
		{ HEAD ROOT "F 644 0 1 \n", -ERR_ENTRY_REFUSED, "empty path" },
		{ HEAD ROOT "D 644 0 .\n", -ERR_ENTRY_REFUSED, "'.'" },
		{ HEAD ROOT "D 644 0 a\nF 644 0 1 a/./b\n", -ERR_ENTRY_REFUSED, "'.'" },
		{ HEAD ROOT "D 644 0 ..\n", -ERR_ENTRY_REFUSED, "'..'" },
		{ HEAD ROOT "F 644 0 1 %2e%2E/etc\n", -ERR_ENTRY_REFUSED, "'..'" },
		{ HEAD ROOT "D 644 0 a\nF 644 0 1 a/..%2fb\n", -ERR_ENTRY_REFUSED, "'..'" },
		{ HEAD ROOT "D 644 0 a//b\n", -ERR_ENTRY_REFUSED, "empty component" },
		{ HEAD ROOT "D 644 0 a/\n", -ERR_ENTRY_REFUSED, "empty component" },
		{ HEAD ROOT "F 644 0 1 a%00b\n", -ERR_ENTRY_REFUSED, "NUL" },
		{ HEAD ROOT "F 644 0 1 a\nF 644 0 1 a\n", -ERR_ENTRY_REFUSED, "twice" },
		{ HEAD ROOT "D 644 0 a\nF 644 0 1 %61\n", -ERR_ENTRY_REFUSED, "twice" },
		{ HEAD ROOT "F 644 0 1 a\nF 644 0 1 a/b\n", -ERR_ENTRY_REFUSED, "not a folder" },
		{ HEAD ROOT "L 644 0 / a\nF 644 0 1 a/b\n", -ERR_ENTRY_REFUSED, "not a folder" },
		{ HEAD ROOT "F 644 0 1 a/b\nD 755 0 a\n", -ERR_ENTRY_REFUSED, "before the folder" },
		{ HEAD ROOT "D 755 0 a\nF 644 0 1 ab/b\n", -ERR_ENTRY_REFUSED, "before the folder" },
		{ HEAD ROOT "L 777 0  a\n", -ERR_ENTRY_REFUSED, "target" },
		{ HEAD ROOT "L 777 0 x%00y a\n", -ERR_ENTRY_REFUSED, "target" },
		{ HEAD ROOT "F 644 0 17592186044417 a\n", -ERR_ENTRY_REFUSED, "larger than a file" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		for (size_t step = 1; step < 100; step += 49) {
			struct seen seen = seen_new();
			struct err err;
			const int r = parse(str_from(rows[i].text), step, &manifest_limits_default, &seen, &err);

			if (r != rows[i].want || !strstr(err.text, rows[i].word))
				fail_msg("row %zu: %d, '%s'", i, r, err.text);
			buf_fini(&seen.text);
		}
	}
}

static void t_lengths(void **state UNUSED)
{
	static const struct {
		size_t name,
			depth; /* a path of `depth` components of `name` bytes, 0x01 each: three bytes a byte when encoded */
		const char *word; /* NULL: fine */
	} rows[] = {
		{ 255, 1, NULL },  { 256, 1, "255" },   { 255, 16, NULL },
		{ 1, 2048, NULL }, { 255, 17, "4096" }, { 1, 2049, "4096" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct seen seen = seen_new();
		struct buf text = BUF_INIT(64 * MIB);
		char path[8192];
		size_t size = 0;
		struct err err;

		manifest_write_head(&text);
		buf_append_c(&text, ROOT);
		for (size_t depth = 0; depth < rows[i].depth; depth++) {
			if (size > 0)
				path[size++] = '/';
			memset(path + size, 1, rows[i].name);
			size += rows[i].name;
			manifest_write(&text, &(struct manifest_entry){
						      .type = MANIFEST_DIR, .mode = 0755, .path = { path, size } });
		}
		manifest_write_end(&text, rows[i].depth + 1, 0);
		assert_false(text.is_failed);
		const int r = parse(buf_str(&text), 4096, &manifest_limits_default, &seen, &err);
		if (rows[i].word) {
			assert_true(r == -ERR_ENTRY_REFUSED || r == -ERR_MANIFEST_BAD);
			assert_non_null(strstr(err.text, rows[i].word));
		} else {
			assert_int_equal(r, 0);
		}
		buf_fini(&text);
		buf_fini(&seen.text);
	}
	/* A line without end is refused long before memory is. */
	struct manifest_parser *parser = manifest_parser_new(&manifest_limits_default, gather, NULL);
	struct err err = ERR_INIT;
	static const char filler[4096] = { 'a' };
	int r = 0;
	size_t fed = 0;
	for (; r == 0 && fed < MIB; fed += sizeof(filler))
		r = manifest_feed(parser, (struct str){ filler, sizeof(filler) }, &err);
	assert_int_equal(r, -ERR_MANIFEST_BAD);
	assert_true(fed <= MANIFEST_LINE_MAX + 2 * sizeof(filler));
	manifest_parser_free(&parser);
}

static void t_limits(void **state UNUSED)
{
	static const struct manifest_limits limits = { .entry_count_max = 3,
						       .file_bytes_max = 10,
						       .total_bytes_max = 15 };
	static const struct {
		const char *text;
		const char *word;
	} rows[] = {
		{ HEAD ROOT "F 6 0 10 a\nF 6 0 5 b\nend 3 15\n", NULL },
		{ HEAD ROOT "F 6 0 0 a\nF 6 0 0 b\nF 6 0 0 c\n", "entry 'c'" },
		{ HEAD ROOT "F 6 0 11 a\n", "entry 'a'" },
		{ HEAD ROOT "F 6 0 10 a\nF 6 0 6 b\n", "entry 'b'" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct seen seen = seen_new();
		struct err err;
		const int r = parse(str_from(rows[i].text), 1000, &limits, &seen, &err);

		assert_int_equal(r, rows[i].word ? -ERR_ENTRY_REFUSED : 0);
		if (rows[i].word)
			assert_non_null(strstr(err.text, rows[i].word));
		buf_fini(&seen.text);
	}
}

static void t_owner_stops(void **state UNUSED)
{
	struct seen seen = seen_new();
	struct err err;

	seen.stop_at = 2;
	assert_int_equal(parse(str_from(good), 10, &manifest_limits_default, &seen, &err), -ERR_NO_SPACE);
	assert_int_equal(seen.count, 2);
	buf_fini(&seen.text);
}

/* Many entries, with duplicates and missing parents among them, against a plain list. */
static void t_many(void **state UNUSED)
{
	enum { COUNT = 20000 };
	struct seen seen = seen_new();
	struct buf text = BUF_INIT(64 * MIB);
	struct err err;
	uint64_t entries = 1;
	char last_dir[32] = "";

	manifest_write_head(&text);
	buf_append_c(&text, ROOT);
	for (int i = 0; i < COUNT; i++, entries++) {
		char path[64];

		if (i % 100 == 0) {
			snprintf(last_dir, sizeof(last_dir), "d%d", i);
			manifest_write(&text, &(struct manifest_entry){
						      .type = MANIFEST_DIR, .mode = 0755, .path = str_from(last_dir) });
			continue;
		}
		snprintf(path, sizeof(path), "%s/f%d", last_dir, i);
		manifest_write(&text, &(struct manifest_entry){
					      .type = MANIFEST_FILE, .size_bytes = 1, .path = str_from(path) });
	}
	const size_t before_end = text.size;
	manifest_write_end(&text, entries, COUNT - COUNT / 100);
	assert_int_equal(parse(buf_str(&text), 65536, &manifest_limits_default, &seen, &err), 0);
	assert_int_equal(seen.count, entries);
	/* Each of some of them, once more at the end, is found. */
	for (int i = 1; i < COUNT; i += 997) {
		text.size = before_end;
		seen.count = 0;
		buf_clear(&seen.text);
		buf_printf(&text, "F 644 0 1 d%d/f%d\n", i / 100 * 100, i);
		assert_int_equal(parse(buf_str(&text), 65536, &manifest_limits_default, &seen, &err),
				 i % 100 ? -ERR_ENTRY_REFUSED : -ERR_MANIFEST_BAD);
	}
	buf_fini(&text);
	buf_fini(&seen.text);
}

static void t_digest(void **state UNUSED)
{
	static const char text[] = HEAD ROOT "end 1 0\n";
	char whole[33], pieces[33], other[33];
	struct manifest_parser *parser = manifest_parser_new(&manifest_limits_default, NULL, NULL);
	struct err err = ERR_INIT;

	assert_int_equal(manifest_feed(parser, str_from(text), &err), 0);
	assert_int_equal(manifest_end(parser, &err), 0);
	manifest_digest(parser, whole);
	manifest_parser_free(&parser);
	parser = manifest_parser_new(&manifest_limits_default, NULL, NULL);
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		manifest_digest(parser, other);
		assert_int_equal(manifest_feed(parser, (struct str){ text + i, 1 }, &err), 0);
		manifest_digest(parser, pieces);
		assert_string_not_equal(other, pieces);
	}
	manifest_parser_free(&parser);
	assert_string_equal(whole, pieces);
	assert_int_equal(strlen(whole), 32);
	const struct hash128 hash = hash128(text, sizeof(text) - 1);
	char want[33];
	snprintf(want, sizeof(want), "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
	assert_string_equal(whole, want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_good),   cmocka_unit_test(t_bad),         cmocka_unit_test(t_lengths),
		cmocka_unit_test(t_limits), cmocka_unit_test(t_owner_stops), cmocka_unit_test(t_many),
		cmocka_unit_test(t_digest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
