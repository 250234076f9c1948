/* Names that some file system would not tell apart. The folding is forced: what a file system does is asked in one test alone. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder/fold.h"
#include "sys/fs.h"

#define E_ONE   "\xc3\xa9"     /* é */
#define E_TWO   "e\xcc\x81"    /* e and an accent */
#define E_LARGE "\xc3\x89"     /* É */
#define ZH_A    "\xe5\x87\xad" /* 凭 */

static const struct fold no_fold, case_fold = { .is_case = true }, form_fold = { .is_form = true },
				  both_fold = { .is_case = true, .is_form = true };

static bool is_one(const struct fold *fold, const char *a, const char *b)
{
	AUTO(buf_fini) struct buf left = BUF_INIT(KIB), right = BUF_INIT(KIB);

	fold_path(fold, str_from(a), &left);
	fold_path(fold, str_from(b), &right);
	return str_eq(buf_str(&left), buf_str(&right));
}

static void test_names(void **state)
{
	static const struct {
		const char *a, *b;
		bool by_case, by_form, by_both;
	} rows[] = {
		{ "a", "b", false, false, false },
		{ "a", "a", true, true, true },
		{ "Readme", "README", true, false, true },
		{ "dir/A", "DIR/a", true, false, true },
		{ E_ONE, E_TWO, false, true, true },
		{ E_ONE, E_LARGE, true, false, true },
		{ E_TWO, E_LARGE, false, false, true },
		{ "stra\xc3\x9f"
		  "e",
		  "STRASSE", true, false, true },
		{ "\xce\xa3", "\xcf\x82", true, false, true },    /* Sigma and its last form */
		{ "\xe2\x84\xab", "\xc3\x85", true, true, true }, /* Angstrom and A with a ring */
		{ "\xef\xbc\xa1", "A", false, false, false },     /* full-width A: another letter */
		{ ZH_A "A", ZH_A "a", true, false, true },
		/* Not UTF-8: letters alone. */
		{ "\xff"
		  "A",
		  "\xff"
		  "a",
		  true, false, true },
		{ "\xe9", "\xc9", false, false, false },
		{ "", "", true, true, true },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_int_equal(is_one(&no_fold, rows[i].a, rows[i].b), strcmp(rows[i].a, rows[i].b) == 0);
		assert_int_equal(is_one(&case_fold, rows[i].a, rows[i].b),
				 rows[i].by_case || strcmp(rows[i].a, rows[i].b) == 0);
		assert_int_equal(is_one(&form_fold, rows[i].a, rows[i].b), rows[i].by_form);
		assert_int_equal(is_one(&both_fold, rows[i].a, rows[i].b), rows[i].by_both);
	}
}

/* A manifest of empty files with these names, up to a NULL, in a spool file. */
static int spool(const char *const *names)
{
	struct buf text = BUF_INIT(16 * MIB);
	struct manifest_entry entry = { .type = MANIFEST_DIR, .mode = 0755, .path = STR(".") };
	uint64_t count = 1;
	char path[] = "/tmp/heng-t_fold-XXXXXX";
	const int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	manifest_write_head(&text);
	manifest_write(&text, &entry);
	for (; *names; names++, count++) {
		const size_t size = strlen(*names);
		const bool is_dir = (*names)[size - 1] == '/';

		entry = (struct manifest_entry){ .type = is_dir ? MANIFEST_DIR : MANIFEST_FILE,
						 .mode = 0644,
						 .path = { *names, size - is_dir } };
		manifest_write(&text, &entry);
	}
	manifest_write_end(&text, count, 0);
	assert_int_equal(fs_write_all(fd, text.data, text.size, 0, NULL), 0);
	buf_fini(&text);
	return fd;
}

static int check(const struct fold *fold, const char *const *names, struct err *err)
{
	AUTO(fs_close) int fd = spool(names);

	*err = ERR_INIT;
	return fold_check(fd, fold, err);
}

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_manifests(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(check(&both_fold, NAMES("a", "b", "d/", "d/a", "d/b"), &err), 0);
	assert_int_equal(check(&form_fold, NAMES("a", "A"), &err), 0);
	assert_int_equal(check(&no_fold, NAMES("a", "A"), &err), 0);

	assert_int_equal(check(&case_fold, NAMES("other", "d/", "d/Readme", "d/README"), &err), -ERR_ENTRY_REFUSED);
	assert_non_null(strstr(
		err.text, "upper and lower case apart, and 1 entry would overwrite others: 'd/Readme' and 'd/README'"));
	assert_null(strstr(err.text, "..."));
	assert_non_null(strstr(err.hint, "rename"));

	assert_int_equal(check(&form_fold, NAMES(E_ONE, E_TWO), &err), -ERR_ENTRY_REFUSED);
	assert_non_null(strstr(err.text, "Unicode forms apart"));

	/* A folder and a file; and what is in two folders that are one, which is the folders' fault first. */
	assert_int_equal(check(&case_fold, NAMES("X/", "X/f", "x"), &err), -ERR_ENTRY_REFUSED);
	assert_non_null(strstr(err.text, "'X' and 'x'"));
	assert_int_equal(check(&case_fold, NAMES("D/", "D/f", "d/", "d/F", "d/g"), &err), -ERR_ENTRY_REFUSED);
	assert_non_null(strstr(err.text, "2 entries would overwrite others: 'D' and 'd', 'D/f' and 'd/F'"));

	/* Three of one name are two that overwrite. */
	assert_int_equal(check(&case_fold, NAMES("ab", "aB", "AB"), &err), -ERR_ENTRY_REFUSED);
	assert_non_null(strstr(err.text, "2 entries would overwrite others: 'ab' and 'aB', 'ab' and 'AB'"));
}

/* However many there are and however long, the words stay bounded, and the first of the manifest are shown. */
static void test_many(void **state)
{
	enum { COUNT = 3000 };
	static char texts[2 * COUNT][260];
	static const char *names[2 * COUNT + 1];
	struct err err;

	(void)state;
	for (int i = 0; i < COUNT; i++) {
		snprintf(texts[2 * i], sizeof(texts[0]), "name%05d-%.*s", i, i % 2 ? 240 : 0,
			 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			 "xxxxxxxxxxxxxxxxx"
			 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			 "xxxxxxxxxxxxxxxxx");
		memcpy(texts[2 * i + 1], texts[2 * i], sizeof(texts[0]));
		texts[2 * i + 1][0] = 'N';
	}
	for (int i = 0; i < 2 * COUNT; i++)
		names[i] = texts[i];
	names[2 * COUNT] = NULL;
	assert_int_equal(check(&case_fold, names, &err), -ERR_ENTRY_REFUSED);
	assert_non_null(
		strstr(err.text, "3000 entries would overwrite others: 'name00000-' and 'Name00000-', 'name00001-x"));
	assert_non_null(strstr(err.text, ", ..."));
}

static void test_probe(void **state)
{
	char dir[] = "/tmp/heng-t_fold-XXXXXX";
	struct fold fold = both_fold;
	struct err err = ERR_INIT;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(fold_probe(dir, &fold, &err), 0);
	assert_false(fold_is_any(&fold));
	/* It leaves nothing. */
	assert_int_equal(rmdir(dir), 0);
	assert_true(fold_probe(dir, &fold, &err) < 0);
	assert_non_null(strstr(err.text, dir));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_manifests),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_probe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
