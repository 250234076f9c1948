/* Reading a stored manifest: each file gets its digest, and whatever no push could have sent is refused before anybody acts on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "folder/stored.h"
#include "sys/fs.h"

#define SHA_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define MD5_EMPTY "d41d8cd98f00b204e9800998ecf8427e"
#define HEAD      "heng-manifest 1\nD 755 0 .\n"

struct seen {
	uint64_t count, stop_at;
	char text[1024];
};

static int see(void *owner, const struct manifest_entry *entry, const char *digest, struct err *err)
{
	struct seen *seen = owner;
	size_t used = strlen(seen->text);

	if (seen->stop_at > 0 && entry->seq == seen->stop_at)
		return err_set(err, ERR_WAITING, "enough");
	seen->count++;
	snprintf(seen->text + used, sizeof(seen->text) - used, "%llu %c %.*s %.6s|", (unsigned long long)entry->seq,
		 (char)entry->type, STR_ARG(entry->path), digest);
	return 0;
}

static int read_text(enum digest_kind digest, struct str text, struct seen *seen, struct err *err)
{
	struct stored stored = { .manifest_fd = fs_temp_file(err), .digest = digest };

	assert_true(stored.manifest_fd >= 0);
	assert_int_equal(fs_write_all(stored.manifest_fd, text.data, text.size, 0, err), 0);
	int result = stored_each(&stored, see, seen, err);
	stored_close(&stored);
	assert_int_equal(stored.manifest_fd, -1);
	return result;
}

static void files_have_digests(void **state)
{
	static const char text[] = HEAD "D 700 -5 a%0Ab\n"
					"F 644 1 0 a%0Ab/e\n"
					"# 2 " SHA_EMPTY "\n"
					"L 777 1 ../x l\n"
					"F 644 1 3 z\n"
					"# 4 " SHA_EMPTY "\n"
					"end 5 3\n";
	struct seen seen = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(read_text(DIGEST_SHA256, str_from(text), &seen, &err), 0);
	assert_string_equal(seen.text, "0 D . |1 D a\nb |2 F a\nb/e e3b0c4|3 L l |4 F z e3b0c4|");
	seen = (struct seen){ .stop_at = 3 };
	assert_int_equal(read_text(DIGEST_SHA256, str_from(text), &seen, &err), -ERR_WAITING);
	assert_int_equal(seen.count, 3);
}

static void bad_manifests_are_refused(void **state)
{
	static const struct {
		const char *text;
		enum err_code code;
	} rows[] = {
		{ "", ERR_MANIFEST_BAD },
		{ HEAD "end 1 0", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\nend 2 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\nF 644 0 0 g\n# 2 " SHA_EMPTY "\nend 3 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\n# 2 " SHA_EMPTY "\nend 2 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\n# 1 " MD5_EMPTY "\nend 2 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\n# 1 " SHA_EMPTY " \nend 2 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\n# 1 " SHA_EMPTY "\n# 1 " SHA_EMPTY "\nend 2 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\n#1 " SHA_EMPTY "\nend 2 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\n# -1 " SHA_EMPTY "\nend 2 0\n", ERR_MANIFEST_BAD },
		{ "# 0 " SHA_EMPTY "\n" HEAD "end 1 0\n", ERR_MANIFEST_BAD },
		{ HEAD "# 0 " SHA_EMPTY "\nend 1 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 f\n# 1 " SHA_EMPTY "\nend 2 0\n#", ERR_MANIFEST_BAD },
		{ HEAD "# " SHA_EMPTY SHA_EMPTY SHA_EMPTY "\nend 1 0\n", ERR_MANIFEST_BAD },
		{ HEAD "F 644 0 0 ../f\n# 1 " SHA_EMPTY "\nend 2 0\n", ERR_ENTRY_REFUSED },
		{ HEAD "F 644 0 0 /f\n# 1 " SHA_EMPTY "\nend 2 0\n", ERR_ENTRY_REFUSED },
		{ HEAD "L 777 0 / l\nF 644 0 0 l/f\n# 2 " SHA_EMPTY "\nend 3 0\n", ERR_ENTRY_REFUSED },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct seen seen = { 0 };
		struct err err = ERR_INIT;

		if (read_text(DIGEST_SHA256, str_from(rows[i].text), &seen, &err) != -(int)rows[i].code)
			fail_msg("row %zu: %d %s", i, (int)err.code, err.text);
		assert_true(err.text[0] != '\0');
	}
}

/* Lines of all kinds lie across the ends of the blocks in which the file is read. */
static void long_manifests_are_read_in_blocks(void **state)
{
	const uint64_t file_count = 9000;
	struct buf text = BUF_INIT(4 * MIB);
	struct seen seen = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	buf_append_c(&text, HEAD);
	for (uint64_t i = 1; i <= file_count; i++)
		buf_printf(&text, "F 644 %llu 0 file-%0*llu\n# %llu " MD5_EMPTY "\n", (unsigned long long)i,
			   (int)(1 + i % 90), (unsigned long long)i, (unsigned long long)i);
	buf_printf(&text, "end %llu 0\n", (unsigned long long)file_count + 1);
	assert_false(text.is_failed);
	assert_true(text.size > 512 * KIB);
	assert_int_equal(read_text(DIGEST_MD5, buf_str(&text), &seen, &err), 0);
	assert_int_equal(seen.count, file_count + 1);
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_have_digests),
		cmocka_unit_test(bad_manifests_are_refused),
		cmocka_unit_test(long_manifests_are_read_in_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
