#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"

/* stderr goes to a file without a name while a test speaks. */
static int kept_stderr = -1, capture = -1;

static int begin_capture(void **state UNUSED)
{
	char path[] = "/tmp/heng-t-log-XXXXXX";

	capture = mkostemp(path, O_APPEND);
	if (capture < 0)
		return -1;
	unlink(path);
	kept_stderr = dup(STDERR_FILENO);
	return dup2(capture, STDERR_FILENO) < 0 ? -1 : 0;
}

static int end_capture(void **state UNUSED)
{
	dup2(kept_stderr, STDERR_FILENO);
	close(kept_stderr);
	close(capture);
	return 0;
}

/* What was said since the start. */
static char *captured(void)
{
	static char text[256 * 1024];
	ssize_t size = pread(capture, text, sizeof(text) - 1, 0);

	assert_true(size >= 0);
	text[size] = '\0';
	return text;
}

static void test_line(void **state UNUSED)
{
	char *text;

	log_setup("node n1", LOG_INFO, false);
	errno = EXDEV;
	log_say(LOG_DEBUG, "not heard");
	log_say(LOG_WARN, "disk '%s' is %d %% full", "d1", 95);
	assert_int_equal(errno, EXDEV);
	text = captured();
	assert_int_equal(strlen(text), strlen("2026-01-31T08:00:00.123Z warn node n1: disk 'd1' is 95 % full\n"));
	assert_string_equal(text + 24, " warn node n1: disk 'd1' is 95 % full\n");
	assert_int_equal(text[10], 'T');
	assert_int_equal(text[23], 'Z');
}

static void test_error_line(void **state UNUSED)
{
	struct err err = ERR_INIT;

	log_setup("heng", LOG_DEBUG, false);
	err_sys(&err, ERR_DISK, EIO, "cannot sync 'f'");
	log_err(LOG_ERROR, &err, "chunk %d", 7);
	assert_non_null(strstr(captured(), " error heng: chunk 7: cannot sync 'f': Input/output error [HENG-2107]\n"));
	err_hint(&err, "check the disk");
	log_err(LOG_ERROR, &err, "chunk %d", 8);
	assert_non_null(strstr(captured(),
			       "chunk 8: cannot sync 'f': Input/output error (hint: check the disk) [HENG-2107]\n"));
}

static void test_forged_lines_stay_in_theirs(void **state UNUSED)
{
	char *text;

	log_setup("heng", LOG_INFO, false);
	log_say(LOG_INFO, "file '%s'", "x\n2026 error heng: forged\x1B[2J\xFF");
	text = captured();
	assert_non_null(strstr(text, "'x\\x0a2026 error heng: forged\\x1b[2J\\xff'\n"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void test_json_line(void **state UNUSED)
{
	struct err err = ERR_INIT;
	json_t *root;
	char *text;

	log_setup("scheduler", LOG_INFO, true);
	err_set(&err, ERR_BUSY, "full");
	log_err(LOG_WARN, &err, "transfer \"%s\"\n", "q3");
	text = captured();
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	root = json_loads(text, 0, NULL);
	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "level")), "warn");
	assert_string_equal(json_string_value(json_object_get(root, "name")), "scheduler");
	assert_string_equal(json_string_value(json_object_get(root, "message")), "transfer \"q3\"\n");
	assert_string_equal(json_string_value(json_object_get(root, "error")), "busy");
	assert_string_equal(json_string_value(json_object_get(root, "detail")), "full");
	assert_int_equal(json_integer_value(json_object_get(root, "code")), 1007);
	json_decref(root);
}

static void test_long_text_is_cut(void **state UNUSED)
{
	char long_text[10000];
	json_t *root;

	memset(long_text, '\x01', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	log_setup("heng", LOG_INFO, false);
	log_say(LOG_INFO, "%s", long_text);
	assert_true(strlen(captured()) < 4096);
	assert_int_equal(captured()[strlen(captured()) - 1], '\n');
	assert_int_equal(ftruncate(capture, 0), 0);
	log_setup("heng", LOG_INFO, true);
	log_say(LOG_INFO, "%s", long_text);
	root = json_loads(captured(), 0, NULL);
	assert_non_null(root);
	json_decref(root);
}

#define THREADS 4
#define LINES   200

static void *speak(void *text)
{
	for (int i = 0; i < LINES; i++)
		log_say(LOG_INFO, "%s", (const char *)text);
	return NULL;
}

static void test_threads_do_not_mix(void **state UNUSED)
{
	char texts[THREADS][121];
	pthread_t threads[THREADS];
	unsigned counts[THREADS] = { 0 };
	struct str rest, line;

	log_setup("heng", LOG_INFO, false);
	for (size_t i = 0; i < THREADS; i++) {
		memset(texts[i], 'a' + (int)i, sizeof(texts[i]) - 1);
		texts[i][sizeof(texts[i]) - 1] = '\0';
		assert_int_equal(pthread_create(&threads[i], NULL, speak, texts[i]), 0);
	}
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	rest = str_from(captured());
	while (str_cut(&rest, '\n', &line)) {
		const char *text = line.data + strlen("2026-01-31T08:00:00.123Z info heng: ");

		assert_int_equal(line.size, 36 + 120);
		assert_memory_equal(text, texts[text[0] - 'a'], 120);
		counts[text[0] - 'a']++;
	}
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(counts[i], LINES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_line, begin_capture, end_capture),
		cmocka_unit_test_setup_teardown(test_error_line, begin_capture, end_capture),
		cmocka_unit_test_setup_teardown(test_forged_lines_stay_in_theirs, begin_capture, end_capture),
		cmocka_unit_test_setup_teardown(test_json_line, begin_capture, end_capture),
		cmocka_unit_test_setup_teardown(test_long_text_is_cut, begin_capture, end_capture),
		cmocka_unit_test_setup_teardown(test_threads_do_not_mix, begin_capture, end_capture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
