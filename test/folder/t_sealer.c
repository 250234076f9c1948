#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder/key_file.h"
#include "folder/sealer.h"
#include "sys/fs.h"
#include "wire/unseal.h"

#define T "01ARZ3NDEKTSV4RRFFQ69G5FAV"
static const struct str path = { "a/b", 3 };
static const uint8_t key[SEAL_KEY_SIZE] = { 1, 2, 3 };

/* --- a file as it is stored --- */

static int file_of(size_t size)
{
	struct err err = ERR_INIT;
	int fd = fs_temp_file(&err);

	assert_true(fd >= 0);
	for (size_t at = 0; at < size; at++) {
		const uint8_t byte = (uint8_t)(at * 31 + at / 97);
		if (at % 4096 == 0 || at + 1 == size)
			assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	}
	return fd;
}

static int keep(void *owner, const void *plain, size_t size, struct err *err)
{
	int *fd = owner;

	return fs_write_all(*fd, plain, size, -1, err);
}

/* Read in pieces of any size, from any place, it is always the same file, and opens. */
static void test_any_bytes(void **state UNUSED)
{
	static const size_t SIZES[] = { 0, 1, SEAL_SEGMENT_BYTES - 56, 2 * SEAL_SEGMENT_BYTES + 9 };

	for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
		const size_t size = SIZES[i], stored_size = seal_stored_size(SEAL_AES, size);
		AUTO(fs_close) int fd = file_of(size);
		struct sealer *sealer = sealer_new(SEAL_AES, key);
		struct err err = ERR_INIT;
		char *whole = must_alloc(stored_size), *again = must_alloc(stored_size);

		assert_int_equal(sealer_open(sealer, fd, T, path, size, NULL, &err), 0);
		assert_int_equal(sealer_read(sealer, 0, whole, stored_size, &err), 0);
		/* From the end to the front, in pieces that fit nothing. */
		assert_int_equal(sealer_open(sealer, fd, T, path, size, NULL, &err), 0);
		for (size_t left = stored_size; left > 0;) {
			const size_t piece = min_size(left, 700001);
			left -= piece;
			assert_int_equal(sealer_read(sealer, left, again + left, piece, &err), 0);
		}
		assert_memory_equal(whole, again, stored_size);
		sealer_free(&sealer);

		AUTO(fs_close) int opened = fs_temp_file(&err);
		struct unseal *unseal = unseal_new(key, keep, &opened);
		unseal_begin(unseal, path, stored_size);
		assert_int_equal(unseal_feed(unseal, whole, stored_size, &err), 0);
		assert_int_equal(unseal_end(unseal, &err), 0);
		unseal_free(&unseal);
		char *plain = must_zalloc(2, size + 1);
		size_t got = 0;
		assert_int_equal(fs_read_all(fd, plain, size + 1, 0, &got, &err), 0);
		assert_int_equal(got, size);
		assert_int_equal(fs_read_all(opened, plain + size + 1, size + 1, 0, &got, &err), 0);
		assert_int_equal(got, size);
		assert_memory_equal(plain, plain + size + 1, size);
		free(plain);
		free(whole);
		free(again);
	}
}

/* What is not the content of when it was opened is never encrypted; what is, still is. */
static void test_changes(void **state UNUSED)
{
	const size_t size = 2 * SEAL_SEGMENT_BYTES, stored_size = seal_stored_size(SEAL_AES, size);
	struct sealer *sealer = sealer_new(SEAL_AES, key);
	struct err err = ERR_INIT;
	atomic_bool is_over = true;
	char *stored = must_alloc(stored_size), byte;
	AUTO(fs_close) int fd = file_of(size);

	assert_int_equal(sealer_open(sealer, fd, T, path, size + 1, NULL, &err), -ERR_SOURCE_CHANGED);
	assert_int_equal(sealer_open(sealer, fd, T, path, size, &is_over, &err), -ERR_WAITING);
	assert_int_equal(sealer_open(sealer, fd, T, path, size, NULL, &err), 0);
	assert_int_equal(sealer_read(sealer, 0, stored, 10, &err), 0);
	assert_int_equal(pread(fd, &byte, 1, SEAL_SEGMENT_BYTES + 5), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, SEAL_SEGMENT_BYTES + 5), 1);
	assert_int_equal(sealer_read(sealer, 0, stored, stored_size, &err), -ERR_SOURCE_CHANGED);
	assert_int_equal(sealer_read(sealer, 0, stored, SEAL_SEGMENT_BYTES, &err), 0);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, SEAL_SEGMENT_BYTES + 5), 1);
	assert_int_equal(sealer_read(sealer, 0, stored, stored_size, &err), 0);
	assert_int_equal(ftruncate(fd, SEAL_SEGMENT_BYTES), 0);
	assert_int_equal(sealer_read(sealer, 0, stored, stored_size, &err), -ERR_SOURCE_CHANGED);
	free(stored);
	sealer_free(&sealer);
}

/* --- key files --- */

static void test_key_files(void **state UNUSED)
{
	char folder[] = "/tmp/t_sealer.XXXXXX", name[64], other[64], id[SEAL_ID_SIZE];
	struct err err = ERR_INIT;
	struct key_file *file = NULL;
	struct stat st;

	assert_non_null(mkdtemp(folder));
	snprintf(name, sizeof(name), "%s/k", folder);
	snprintf(other, sizeof(other), "%s/l", folder);
	assert_int_equal(key_file_make(name, id, &err), 0);
	assert_int_equal(stat(name, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(key_file_load(name, &file, &err), 0);
	assert_string_equal(file->id, id);
	key_file_free(&file);
	assert_null(file);
	key_file_free(&file);
	assert_int_equal(key_file_make(name, id, &err), -ERR_REFUSED);
	/* Through a link it is the file that counts. */
	assert_int_equal(symlink(name, other), 0);
	assert_int_equal(key_file_load(other, &file, &err), 0);
	key_file_free(&file);
	static const mode_t MODES[] = { 0640, 0604, 0610, 0620 };
	for (size_t i = 0; i < COUNT_OF(MODES); i++) {
		assert_int_equal(chmod(name, MODES[i]), 0);
		assert_int_equal(key_file_load(other, &file, &err), -ERR_USAGE);
		assert_null(file);
	}
	assert_int_equal(chmod(name, 0400), 0);
	assert_int_equal(key_file_load(name, &file, &err), 0);
	key_file_free(&file);
	assert_int_equal(key_file_load(folder, &file, &err), -ERR_USAGE);
	assert_int_equal(unlink(other), 0);
	assert_int_equal(key_file_load(other, &file, &err), -ERR_USAGE);
	assert_int_equal(mkfifo(other, 0600), 0);
	assert_int_equal(key_file_load(other, &file, &err), -ERR_USAGE);
	assert_int_equal(unlink(other), 0);
	const int fd = open(other, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(key_file_load(other, &file, &err), -ERR_USAGE);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(key_file_load(other, &file, &err), -ERR_USAGE);
	assert_non_null(strstr(err.text, "too large"));
	close(fd);
	assert_int_equal(unlink(other), 0);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_key_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
