#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "sys/fs.h"
#include "sys/logfile.h"

#define LONG_INTERVAL_US (3600 * SEC_US)

static char scratch[64];
static struct buf text;

/* One name has one text for good, so that a configuration may point to it. */
static const char *at(const char *name)
{
	static char paths[80][128];
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", scratch, name);
	for (size_t i = 0; i < COUNT_OF(paths); i++) {
		if (paths[i][0] == '\0')
			memcpy(paths[i], path, sizeof(path));
		if (strcmp(paths[i], path) == 0)
			return paths[i];
	}
	fail_msg("too many names");
	return NULL;
}

static void put(const char *name, const char *content)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	assert_int_equal(close(fd), 0);
}

/* The file's text, until the next call. */
static const char *get(const char *name)
{
	struct err err = ERR_INIT;

	buf_fini(&text);
	if (fs_read_file(at(name), 64 * MIB, &text, &err) < 0)
		fail_msg("%s", err.text);
	return buf_cstr(&text);
}

static bool exists(const char *name)
{
	struct stat info;

	return stat(at(name), &info) == 0;
}

static struct logfile *open_log(const struct logfile_conf *conf)
{
	struct err err = ERR_INIT;
	struct logfile *file;

	if (logfile_open(conf, &file, &err) < 0)
		fail_msg("%s", err.text);
	return file;
}

static void sync_log(struct logfile *file)
{
	struct err err = ERR_INIT;

	if (logfile_sync(file, &err) < 0)
		fail_msg("%s", err.text);
}

static bool say(struct logfile *file, const char *line) { return logfile_write(file, str_from(line)); }

static void head_line(void *owner, struct buf *buf) { buf_printf(buf, "head %u\n", ++*(unsigned *)owner); }

static int setup(void **state)
{
	(void)state;
	(void)snprintf(scratch, sizeof(scratch), "/tmp/heng-t-logfile-XXXXXX");
	return mkdtemp(scratch) == NULL;
}

static int teardown(void **state)
{
	int parent_fd = fs_open_dir("/tmp", NULL);

	(void)state;
	buf_fini(&text);
	/* A test that failed half-way leaves it mounted. */
	(void)umount2(at("tiny"), MNT_DETACH);
	if (parent_fd < 0 || fs_remove_tree(parent_fd, scratch + strlen("/tmp/"), NULL) < 0)
		return 1;
	return close(parent_fd);
}

static void test_append(void **state)
{
	static const struct {
		const char *before, *line, *after;
		bool has_head;
	} rows[] = {
		{ NULL, "a\n", "a\n", false },
		{ NULL, "a\n", "head 1\na\n", true },
		{ NULL, "no end", "no end\n", false },
		{ NULL, "", "", true },
		{ "", "a\n", "head 1\na\n", true },
		{ "old\n", "a\nb\n", "old\na\nb\n", false },
		{ "old\n", "a\n", "old\nhead 1\na\n", true },
		/* A killed writer's last line must not run together with ours. */
		{ "old\n{\"torn\":", "a\n", "old\n{\"torn\":\na\n", false },
		{ "{", "a\n", "{\nhead 1\na\n", true },
		{ "torn", "", "torn\n", false },
		{ "\n", "\n", "\n\n", false },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		unsigned heads = 0;
		struct logfile_conf conf = {
			.path = at("append"),
			.sync_interval_us = LONG_INTERVAL_US,
			.head = rows[i].has_head ? head_line : NULL,
			.owner = &heads,
		};
		struct logfile *file;

		(void)unlink(at("append"));
		if (rows[i].before)
			put("append", rows[i].before);
		file = open_log(&conf);
		assert_true(say(file, rows[i].line));
		sync_log(file);
		assert_string_equal(get("append"), rows[i].after);
		/* Closing adds nothing; what was written before it is there without a sync. */
		assert_true(say(file, "last\n"));
		logfile_close(&file);
		assert_null(file);
		assert_non_null(strstr(get("append"), "last\n"));
		assert_int_equal(heads, rows[i].has_head ? 1 : 0);
	}
}

static void test_open_refused(void **state)
{
	char long_path[PATH_MAX + 10];
	struct err err = ERR_INIT;
	struct logfile *file, *second;
	struct logfile_conf conf = { .path = at("no/such/folder") };

	(void)state;
	assert_int_equal(logfile_open(&conf, &file, &err), -ERR_SYSTEM);
	assert_null(file);
	assert_non_null(strstr(err.text, "no/such/folder"));
	assert_non_null(strstr(err.text, strerror(ENOENT)));
	assert_true(err.hint[0] != '\0');
	conf.path = scratch;
	assert_int_equal(logfile_open(&conf, &file, &err), -ERR_SYSTEM);
	assert_non_null(strstr(err.text, strerror(EISDIR)));
	memset(long_path, 'a', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	conf.path = long_path;
	assert_int_equal(logfile_open(&conf, &file, &err), -ERR_CONFIG);
	/* Two writers would rotate each other's lines away. */
	conf.path = at("busy");
	file = open_log(&conf);
	assert_int_equal(logfile_open(&conf, &second, &err), -ERR_BUSY);
	assert_null(second);
	assert_non_null(strstr(err.text, "busy"));
	logfile_close(&file);
	file = open_log(&conf);
	logfile_close(&file);
	logfile_close(&file);
}

/* Checks that the file holds head, then lines first, first+1, ...; returns the number after the last one. */
static unsigned check_run(const char *name, unsigned first)
{
	struct str rest = str_from(get(name)), line;
	char want[64];

	assert_true(str_cut(&rest, '\n', &line));
	assert_true(str_starts(line, STR("head ")));
	while (str_cut(&rest, '\n', &line)) {
		(void)snprintf(want, sizeof(want), "line %06u ..........................", first++);
		if (!str_eq_c(line, want))
			fail_msg("%s: '%.*s' where '%s' belongs", name, STR_ARG(line), want);
	}
	return first;
}

static void write_numbered(struct logfile *file, unsigned first, unsigned end)
{
	char line[64];

	for (unsigned i = first; i < end; i++) {
		(void)snprintf(line, sizeof(line), "line %06u ..........................\n", i);
		assert_true(say(file, line));
	}
}

static void test_rotation(void **state)
{
	unsigned heads = 0, number;
	struct logfile_conf conf = {
		.path = at("rotate"),
		.rotate_bytes = 200,
		.keep_count = 2,
		.sync_interval_us = LONG_INTERVAL_US,
		.head = head_line,
		.owner = &heads,
	};
	struct logfile *file;

	(void)state;
	/* Left behind by a configuration that kept more. */
	put("rotate.2", "old\n");
	put("rotate.3", "old\n");
	put("rotate.4", "old\n");
	file = open_log(&conf);
	/* Line by line and all at once must cut in the same places: 7 (head) + 5 * 39 passes 200. */
	for (unsigned i = 0; i < 12; i++) {
		write_numbered(file, i, i + 1);
		sync_log(file);
	}
	assert_int_equal(check_run("rotate.2", 0), 5);
	assert_int_equal(check_run("rotate.1", 5), 10);
	assert_int_equal(check_run("rotate", 10), 12);
	assert_false(exists("rotate.3"));
	assert_false(exists("rotate.4"));
	write_numbered(file, 12, 1000);
	sync_log(file);
	number = check_run("rotate.2", 985);
	assert_int_equal(number, 990);
	number = check_run("rotate.1", number);
	assert_int_equal(number, 995);
	assert_int_equal(check_run("rotate", number), 1000);
	/* The last one passed the limit with its last line: the next line begins a new file. */
	logfile_close(&file);
	file = open_log(&conf);
	write_numbered(file, 1000, 1001);
	logfile_close(&file);
	assert_int_equal(check_run("rotate", 1000), 1001);
	assert_int_equal(check_run("rotate.1", 995), 1000);
	assert_int_equal(check_run("rotate.2", 990), 995);
}

static void test_rotation_keeps_none(void **state)
{
	struct logfile_conf conf = { .path = at("none"), .rotate_bytes = 10, .sync_interval_us = LONG_INTERVAL_US };
	struct logfile *file;

	(void)state;
	put("none.1", "old\n");
	file = open_log(&conf);
	assert_true(say(file, "aaaaaaaaaa\nbbbbbbbbbb\ncc\n"));
	logfile_close(&file);
	assert_string_equal(get("none"), "cc\n");
	assert_false(exists("none.1"));
}

/* A line longer than the whole limit stands alone; a head longer than it does not keep lines out. */
static void long_head(void *owner, struct buf *buf)
{
	(void)owner;
	buf_append_c(buf, "a head that is longer than the file may be, and has no newline");
}

static void test_rotation_of_long_lines(void **state)
{
	struct logfile_conf conf = {
		.path = at("long"),
		.rotate_bytes = 8,
		.keep_count = 3,
		.sync_interval_us = LONG_INTERVAL_US,
		.head = long_head,
	};
	struct logfile *file = open_log(&conf);

	(void)state;
	assert_true(say(file, "one\ntwo is quite long\nthree\n"));
	logfile_close(&file);
	assert_non_null(strstr(get("long"), "newline\nthree\n"));
	assert_non_null(strstr(get("long.1"), "newline\ntwo is quite long\n"));
	assert_non_null(strstr(get("long.2"), "newline\none\n"));
	assert_false(exists("long.3"));
}

static void test_moved_away(void **state)
{
	struct logfile_conf conf = { .path = at("moved"), .sync_interval_us = LONG_INTERVAL_US };
	struct logfile *file = open_log(&conf);

	(void)state;
	assert_true(say(file, "a\n"));
	sync_log(file);
	assert_int_equal(rename(at("moved"), at("moved.by.hand")), 0);
	assert_true(say(file, "b\n"));
	sync_log(file);
	assert_string_equal(get("moved"), "b\n");
	assert_string_equal(get("moved.by.hand"), "a\n");
	assert_int_equal(unlink(at("moved")), 0);
	assert_true(say(file, "c\n"));
	logfile_close(&file);
	assert_string_equal(get("moved"), "c\n");
}

struct writer {
	struct logfile *file;
	unsigned number;
};

static void *write_many(void *argument)
{
	const struct writer *writer = argument;
	char lines[64];

	for (unsigned i = 0; i < 2000; i++) {
		(void)snprintf(lines, sizeof(lines), "%u %u\n%u again\n", writer->number, i, writer->number);
		if (!say(writer->file, lines))
			return NULL;
		if (i % 500 == 0 && logfile_sync(writer->file, NULL) < 0)
			return NULL;
	}
	return argument;
}

static void test_threads(void **state)
{
	struct logfile_conf conf = {
		.path = at("threads"), .rotate_bytes = 40000, .keep_count = 20, .sync_interval_us = 1000
	};
	struct logfile *file = open_log(&conf);
	struct writer writers[4];
	pthread_t threads[4];
	unsigned next[4] = { 0 };
	char name[16];
	void *result;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		writers[i] = (struct writer){ file, i };
		assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_non_null(result);
	}
	logfile_close(&file);
	/* From the oldest to the newest: each writer's lines in order, none missing, none torn, what was given together is together. */
	unsigned again_of = UINT_MAX;
	for (int i = 20; i >= 0; i--) {
		struct str rest, line;
		(void)snprintf(name, sizeof(name), i > 0 ? "threads.%d" : "threads", i);
		if (!exists(name))
			continue;
		rest = str_from(get(name));
		while (str_cut(&rest, '\n', &line)) {
			unsigned writer, number;
			char copy[32];
			assert_true(str_copy(line, copy, sizeof(copy)));
			if (again_of != UINT_MAX) {
				assert_int_equal(sscanf(copy, "%u again", &writer), 1);
				assert_int_equal(writer, again_of);
				again_of = UINT_MAX;
				continue;
			}
			assert_int_equal(sscanf(copy, "%u %u", &writer, &number), 2);
			assert_true(writer < 4);
			assert_int_equal(number, next[writer]++);
			again_of = writer;
		}
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(next[i], 2000);
}

static void post(void *owner, struct buf *buf)
{
	(void)buf;
	(void)sem_post(owner);
}

/* Nobody asks for a sync: time alone brings the line to the file, and much text does before its time. */
static void test_time_and_size(void **state)
{
	sem_t begun;
	struct logfile_conf conf = { .path = at("time"), .sync_interval_us = 2000, .head = post, .owner = &begun };
	struct logfile *file;
	struct timespec deadline;
	char big[1024];

	(void)state;
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = '\n';
	assert_int_equal(clock_gettime(CLOCK_REALTIME, &deadline), 0);
	deadline.tv_sec += 30;
	assert_int_equal(sem_init(&begun, 0, 0), 0);
	file = open_log(&conf);
	assert_true(say(file, "a\n"));
	assert_int_equal(sem_timedwait(&begun, &deadline), 0);
	logfile_close(&file);
	conf.path = at("size");
	conf.sync_interval_us = LONG_INTERVAL_US;
	file = open_log(&conf);
	for (int i = 0; i < 1100; i++)
		assert_true(logfile_write(file, (struct str){ big, sizeof(big) }));
	assert_int_equal(sem_timedwait(&begun, &deadline), 0);
	logfile_close(&file);
	assert_int_equal(strlen(get("size")), 1100 * sizeof(big));
	assert_int_equal(sem_destroy(&begun), 0);
}

static void test_never_enough_room(void **state)
{
	struct logfile_conf conf = {
		.path = "/dev/full", .sync_interval_us = LONG_INTERVAL_US, .queue_bytes = 30, .rotate_bytes = 1
	};
	struct logfile *file = open_log(&conf);
	struct err err = ERR_INIT;

	(void)state;
	assert_true(say(file, "123456789\n"));
	assert_int_equal(logfile_sync(file, &err), -ERR_SYSTEM);
	assert_non_null(strstr(err.text, strerror(ENOSPC)));
	assert_true(err.hint[0] != '\0');
	/* What could not be written counts against the queue, too. */
	assert_true(say(file, "123456789\n"));
	assert_true(say(file, "123456789\n"));
	assert_false(say(file, "a\nb\n"));
	assert_false(say(file, "c"));
	assert_int_equal(logfile_dropped(file), 3);
	assert_int_equal(logfile_sync(file, NULL), -ERR_SYSTEM);
	assert_false(say(file, "d\n"));
	assert_int_equal(logfile_dropped(file), 4);
	logfile_close(&file);
}

/* Fills the queue while the disk is full, makes room, and checks that what was kept arrives whole and that what was dropped is told. */
static void check_recovery(struct logfile *file, const char *path, void (*make_room)(void))
{
	struct err err = ERR_INIT;
	unsigned taken = 0, dropped = 0, told = 0, number = 0;
	struct str rest, line;
	char copy[128];

	for (unsigned i = 0; i < 4000; i++) {
		(void)snprintf(copy, sizeof(copy), "%06u 0123456789012345678901234567890123456789\n", i);
		if (i == 2000) {
			assert_int_equal(logfile_sync(file, &err), -ERR_SYSTEM);
			assert_non_null(strstr(err.text, "cannot write log file"));
		}
		if (say(file, copy))
			taken++;
		else
			dropped++;
	}
	assert_true(taken > 2000 && dropped > 0);
	assert_false(say(file, "two lines that were given together 01234567890\nare dropped together 0123456789\n"));
	dropped += 2;
	assert_int_equal(logfile_dropped(file), dropped);
	assert_int_equal(logfile_sync(file, NULL), -ERR_SYSTEM);
	make_room();
	sync_log(file);
	assert_true(say(file, "after\n"));
	sync_log(file);
	buf_fini(&text);
	assert_int_equal(fs_read_file(path, MIB, &text, NULL), 0);
	rest = buf_str(&text);
	for (number = 0; number < taken; number++) {
		unsigned seen;
		assert_true(str_cut(&rest, '\n', &line) && line.size == 47 && str_copy(line, copy, sizeof(copy)));
		assert_int_equal(sscanf(copy, "%06u", &seen), 1);
		assert_int_equal(seen, number);
	}
	assert_true(str_cut(&rest, '\n', &line) && str_copy(line, copy, sizeof(copy)));
	assert_int_equal(sscanf(copy, "{\"kind\":\"dropped\",\"lines\":%u,\"wall_us\":", &told), 1);
	assert_int_equal(told, dropped);
	assert_true(str_cut(&rest, '\n', &line) && str_eq_c(line, "after"));
	assert_int_equal(rest.size, 0);
	assert_int_equal(logfile_dropped(file), dropped);
}

static struct rlimit former_limit;

static void lift_limit(void) { assert_int_equal(setrlimit(RLIMIT_FSIZE, &former_limit), 0); }

static void test_file_size_limit(void **state)
{
	struct logfile_conf conf = { .path = at("limit"), .sync_interval_us = LONG_INTERVAL_US, .queue_bytes = 100000 };
	struct logfile *file;
	struct rlimit limit;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &former_limit), 0);
	limit = former_limit;
	/* In the middle of a line, so that the rest has to follow its beginning. */
	limit.rlim_cur = 10007;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	file = open_log(&conf);
	check_recovery(file, conf.path, lift_limit);
	logfile_close(&file);
}

/* A file that is torn beyond its limit is not left before its last line is whole. */
static void test_torn_at_the_limit(void **state)
{
	unsigned heads = 0;
	struct logfile_conf conf = {
		.path = at("tornlimit"),
		.rotate_bytes = 170,
		.keep_count = 2,
		.sync_interval_us = LONG_INTERVAL_US,
		.head = head_line,
		.owner = &heads,
	};
	struct logfile *file;
	struct rlimit limit;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &former_limit), 0);
	limit = former_limit;
	limit.rlim_cur = 190;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	file = open_log(&conf);
	write_numbered(file, 0, 8);
	assert_int_equal(logfile_sync(file, NULL), -ERR_SYSTEM);
	assert_int_equal(strlen(get("tornlimit")), 190);
	lift_limit();
	logfile_close(&file);
	assert_int_equal(check_run("tornlimit.1", 0), 5);
	assert_int_equal(check_run("tornlimit", 5), 8);
}

/* Somebody takes the file away in the middle of a line: its rest would be garbage in the new one, so it is dropped and told. */
static void test_moved_while_torn(void **state)
{
	struct logfile_conf conf = { .path = at("tornmove"), .sync_interval_us = LONG_INTERVAL_US };
	struct logfile *file;
	struct rlimit limit;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &former_limit), 0);
	limit = former_limit;
	limit.rlim_cur = 5;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	file = open_log(&conf);
	assert_true(say(file, "aaa\nbbb\nccc\n"));
	assert_int_equal(logfile_sync(file, NULL), -ERR_SYSTEM);
	lift_limit();
	assert_int_equal(rename(at("tornmove"), at("tornmove.by.hand")), 0);
	sync_log(file);
	assert_string_equal(get("tornmove.by.hand"), "aaa\nb");
	assert_true(str_starts(str_from(get("tornmove")), STR("ccc\n{\"kind\":\"dropped\",\"lines\":1,\"wall_us\":")));
	assert_int_equal(logfile_dropped(file), 1);
	logfile_close(&file);
}

static void remove_filler(void) { assert_int_equal(unlink(at("tiny/filler")), 0); }

/* What the owner heard; written by the writing thread, read when that is gone. */
struct heard {
	unsigned faults, recoveries;
	uint64_t dropped_count;
	char words[1024];
};

static void hear(void *owner, const struct err *fault, uint64_t dropped_count)
{
	struct heard *heard = owner;

	if (fault)
		(void)snprintf(heard->words, sizeof(heard->words), "%s", fault->text);
	heard->faults += fault != NULL;
	heard->recoveries += fault == NULL;
	heard->dropped_count = dropped_count;
}

static void test_full_disk(void **state)
{
	char path[PATH_MAX], page[4096] = { 1 };
	struct heard heard = { 0 };
	struct logfile_conf conf = {
		.path = path,
		.sync_interval_us = LONG_INTERVAL_US,
		.queue_bytes = 100000,
		.told = hear,
		.owner = &heard,
	};
	struct logfile *file;
	int fd;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/tiny/log", scratch);
	assert_int_equal(mkdir(at("tiny"), 0700), 0);
	if (mount("none", at("tiny"), "tmpfs", 0, "size=256k") < 0) {
		print_message("the full disk is not tried: mounting a tmpfs here: %s\n", strerror(errno));
		skip();
	}
	fd = open(at("tiny/filler"), O_WRONLY | O_CREAT, 0600);
	for (int i = 0; i < 62; i++)
		assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	assert_int_equal(close(fd), 0);
	file = open_log(&conf);
	check_recovery(file, path, remove_filler);
	logfile_close(&file);
	/* However often it failed, the owner hears it once. */
	assert_int_equal(heard.faults, 1);
	assert_int_equal(heard.recoveries, 1);
	assert_true(heard.dropped_count > 0);
	assert_non_null(strstr(heard.words, "cannot write log file"));
	assert_int_equal(umount(at("tiny")), 0);
}

/* Writes and syncs, says how far, writes on until it is killed. */
static void write_until_killed(const struct logfile_conf *conf, int to_parent)
{
	struct logfile *file;
	unsigned number = 0;
	char line[64];

	if (logfile_open(conf, &file, NULL) < 0)
		_exit(1);
	for (;;) {
		(void)snprintf(line, sizeof(line), "line %06u ..........................\n", number++);
		(void)say(file, line);
		if (number == 5000 && (logfile_sync(file, NULL) < 0 || write(to_parent, "s", 1) != 1))
			_exit(1);
	}
}

static void test_kill(void **state)
{
	struct logfile_conf conf = { .path = at("kill"), .sync_interval_us = 500, .queue_bytes = MIB };
	struct str rest, line;
	struct logfile *file;
	unsigned count = 0, seen, broken = 0;
	int ends[2], status;
	char byte;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		write_until_killed(&conf, ends[1]);
	assert_int_equal(close(ends[1]), 0);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(close(ends[0]), 0);
	/* The dead one's lock is gone with it. */
	file = open_log(&conf);
	assert_true(say(file, "line 000000 after the kill\n"));
	logfile_close(&file);
	rest = str_from(get("kill"));
	while (str_cut(&rest, '\n', &line)) {
		const bool is_whole = line.size == 38 && str_starts(line, STR("line "));
		char copy[64];

		/* Once the writer outruns the disk lines are dropped, which leaves gaps; never among the synced ones. */
		if (is_whole && count < 5000) {
			assert_true(str_copy(line, copy, sizeof(copy)));
			assert_int_equal(sscanf(copy, "line %06u", &seen), 1);
			assert_int_equal(seen, count);
		}
		count += is_whole;
		broken += !is_whole && !str_starts(line, STR("{\"kind\":\"dropped\",")) && rest.size > 0;
	}
	assert_true(count >= 5000);
	assert_true(broken <= 1);
	assert_true(str_eq_c(line, "line 000000 after the kill"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_append),
		cmocka_unit_test(test_open_refused),
		cmocka_unit_test(test_rotation),
		cmocka_unit_test(test_rotation_keeps_none),
		cmocka_unit_test(test_rotation_of_long_lines),
		cmocka_unit_test(test_moved_away),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_time_and_size),
		cmocka_unit_test(test_never_enough_room),
		cmocka_unit_test(test_file_size_limit),
		cmocka_unit_test(test_torn_at_the_limit),
		cmocka_unit_test(test_moved_while_torn),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_kill),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
