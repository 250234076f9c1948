#include "app/declog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/fs.h"

#define BLOCK_BYTES ((size_t)256 * 1024)

struct declog_file {
	char *name;
	int fd;
	dev_t device;
	ino_t inode;
};
struct declog {
	struct declog_file files[1 + DECLOG_FILES_MAX]; /* the oldest first */
	size_t file_count, file_index;
	struct buf buf;
	size_t line_start, scanned_size;  /* in buf */
	bool is_skipping;                 /* the rest of a line that is too long */
	uint64_t line_number, line_count; /* of the file, of all */
	char where[512];
};

static int file_open(struct declog *log, const char *path, bool may_lack, struct err *err)
{
	struct declog_file *file = &log->files[log->file_count];
	bool is_stdin = strcmp(path, "-") == 0;
	int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;

	if (fd < 0 && may_lack && errno == ENOENT)
		return 0;
	if (fd < 0) {
		err_sys(err, ERR_USAGE, errno, "cannot open the decision log %s", path);
		err_hint(err, "the scheduler keeps its own at <state_dir>/decisions.jsonl");
		return -ERR_USAGE;
	}
	*file = (struct declog_file){ .name = must_strdup(is_stdin ? "standard input" : path), .fd = fd };
	log->file_count++;
	if (fstat(fd, &status) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot look at %s", path);
	file->device = status.st_dev;
	file->inode = status.st_ino;
	/* The writer may rotate between two of our opens; then the file that we have is here again under its next name. */
	if (log->file_count > 1 && file->device == file[-1].device && file->inode == file[-1].inode) {
		close(fd);
		free(file->name);
		log->file_count--;
	}
	return 1;
}

static void files_turn(struct declog *log)
{
	for (size_t i = 0; i < log->file_count / 2; i++) {
		struct declog_file file = log->files[i];

		log->files[i] = log->files[log->file_count - 1 - i];
		log->files[log->file_count - 1 - i] = file;
	}
}

int declog_open(const char *path, bool with_rotated, struct declog **ret_log, struct err *err)
{
	struct declog *log = must_zalloc(1, sizeof(*log));
	int result;

	log->buf = BUF_INIT(2 * (DECIDE_LINE_MAX + BLOCK_BYTES));
	result = file_open(log, path, false, err);
	for (size_t i = 1; with_rotated && result > 0 && i <= DECLOG_FILES_MAX; i++) {
		char name[4096 + 8];

		(void)snprintf(name, sizeof(name), "%s.%zu", path, i);
		result = file_open(log, name, true, err);
	}
	if (result < 0) {
		declog_close(&log);
		return result;
	}
	files_turn(log);
	*ret_log = log;
	return 0;
}

void declog_close(struct declog **log)
{
	if (!*log)
		return;
	for (size_t i = 0; i < (*log)->file_count; i++) {
		if ((*log)->files[i].fd != STDIN_FILENO)
			close((*log)->files[i].fd);
		free((*log)->files[i].name);
	}
	buf_fini(&(*log)->buf);
	free(*log);
	*log = NULL;
}

/* 1: more bytes; 0: the file's end. */
static int fill(struct declog *log, struct err *err)
{
	const struct declog_file *file = &log->files[log->file_index];
	ssize_t size;

	buf_consume(&log->buf, log->line_start);
	log->scanned_size -= log->line_start;
	log->line_start = 0;
	if (!buf_reserve(&log->buf, BLOCK_BYTES))
		return err_set(err, ERR_NO_MEMORY, "no memory for a line of %s", file->name);
	do
		size = read(file->fd, log->buf.data + log->buf.size, BLOCK_BYTES);
	while (size < 0 && errno == EINTR);
	if (size < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot read %s", file->name);
	log->buf.size += (size_t)size;
	return size > 0;
}

/* A line's size with its newline, 0 while that is not in the buffer. */
static size_t line_size(struct declog *log)
{
	const char *newline = NULL;

	if (log->buf.size > log->scanned_size)
		newline = memchr(log->buf.data + log->scanned_size, '\n', log->buf.size - log->scanned_size);
	log->scanned_size = newline ? (size_t)(newline - log->buf.data) + 1 : log->buf.size;
	return newline ? log->scanned_size - log->line_start : 0;
}

static int line_take(struct declog *log, size_t size, bool has_newline, struct str *ret_line)
{
	*ret_line = (struct str){ log->buf.data + log->line_start, has_newline ? size - 1 : size };
	log->line_start += size;
	log->line_number++;
	log->line_count++;
	return 1;
}

static void file_next(struct declog *log)
{
	log->file_index++;
	log->line_number = 0;
	log->line_start = log->scanned_size = 0;
	log->is_skipping = false;
	buf_clear(&log->buf);
}

int declog_next(struct declog *log, struct str *ret_line, struct err *err)
{
	while (log->file_index < log->file_count) {
		size_t size = line_size(log), rest;
		int result;

		if (size > 0 && log->is_skipping) {
			log->is_skipping = false;
			log->line_start += size;
			continue;
		}
		if (size > 0)
			return line_take(log, size, true, ret_line);
		rest = log->buf.size - log->line_start;
		if (log->is_skipping) {
			log->line_start = log->buf.size;
		} else if (rest > DECIDE_LINE_MAX) {
			log->is_skipping = true;
			return line_take(log, rest, false, ret_line);
		}
		result = fill(log, err);
		if (result < 0)
			return result;
		if (result > 0)
			continue;
		if (rest > 0 && !log->is_skipping)
			return line_take(log, rest, false, ret_line);
		if (log->file_index + 1 == log->file_count)
			return 0;
		file_next(log);
	}
	return 0;
}

const char *declog_where(struct declog *log)
{
	if (log->file_count == 1)
		(void)snprintf(log->where, sizeof(log->where), "line %" PRIu64, log->line_number);
	else
		(void)snprintf(log->where, sizeof(log->where), "%s line %" PRIu64, log->files[log->file_index].name,
			       log->line_number);
	return log->where;
}

uint64_t declog_line_count(const struct declog *log) { return log->line_count; }

/* --- what readers are asked in --- */

/* Days since 1970 of a date of the proleptic Gregorian calendar (Hinnant's days_from_civil). */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	int64_t era, year_of_era, day_of_year;

	year -= month <= 2;
	era = (year >= 0 ? year : year - 399) / 400;
	year_of_era = year - era * 400;
	day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

/* Takes `count` digits and what must follow them from the front. */
static bool take_digits(struct str *text, size_t count, char follower, int64_t most, int64_t *ret)
{
	uint64_t value;

	if (text->size < count + (follower != 0) || !str_to_u64((struct str){ text->data, count }, &value) ||
	    value > (uint64_t)most || (follower && text->data[count] != follower))
		return false;
	*ret = (int64_t)value;
	count += follower != 0;
	*text = (struct str){ text->data + count, text->size - count };
	return true;
}

static bool take_fraction(struct str *text, int64_t *ret_us)
{
	int64_t unit_us = SEC_US / 10;

	*ret_us = 0;
	if (text->size == 0 || text->data[0] != '.')
		return true;
	*text = (struct str){ text->data + 1, text->size - 1 };
	if (text->size == 0 || text->data[0] < '0' || text->data[0] > '9')
		return false;
	while (text->size > 0 && text->data[0] >= '0' && text->data[0] <= '9') {
		*ret_us += (text->data[0] - '0') * unit_us;
		unit_us /= 10;
		*text = (struct str){ text->data + 1, text->size - 1 };
	}
	return true;
}

static bool take_zone(struct str text, int64_t *ret_s)
{
	int64_t hours, minutes;
	bool is_west = text.size > 0 && text.data[0] == '-';

	*ret_s = 0;
	if (str_eq(text, STR("Z")) || str_eq(text, STR("z")))
		return true;
	if (text.size != 6 || (text.data[0] != '+' && !is_west))
		return false;
	text = (struct str){ text.data + 1, text.size - 1 };
	if (!take_digits(&text, 2, ':', 23, &hours) || !take_digits(&text, 2, 0, 59, &minutes))
		return false;
	*ret_s = (is_west ? -1 : 1) * (hours * 3600 + minutes * 60);
	return true;
}

bool declog_time(struct str text, int64_t *ret_wall_us)
{
	int64_t year, month, day, hour, minute, second, fraction_us, zone_s;

	if (text.size > 1 && text.data[0] == '@')
		return str_to_i64((struct str){ text.data + 1, text.size - 1 }, ret_wall_us);
	if (!take_digits(&text, 4, '-', 9999, &year) || !take_digits(&text, 2, '-', 12, &month) || month == 0 ||
	    !take_digits(&text, 2, 0, 31, &day) || day == 0)
		return false;
	if (text.size == 0 || (text.data[0] != 'T' && text.data[0] != 't' && text.data[0] != ' '))
		return false;
	text = (struct str){ text.data + 1, text.size - 1 };
	if (!take_digits(&text, 2, ':', 23, &hour) || !take_digits(&text, 2, ':', 59, &minute) ||
	    !take_digits(&text, 2, 0, 60, &second) || !take_fraction(&text, &fraction_us) || !take_zone(text, &zone_s))
		return false;
	/* The 30th of February is no day: the month of its number of days is another. */
	if (day > days_of(year + month / 12, month % 12 + 1, 1) - days_of(year, month, 1))
		return false;
	*ret_wall_us = (days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - zone_s) * SEC_US +
		       fraction_us;
	return true;
}

int declog_profile(const char *path, struct profile *ret_profile, struct err *err)
{
	struct buf text = BUF_INIT(PROFILE_TEXT_MAX);
	int result = fs_read_file(path, PROFILE_TEXT_MAX, &text, err);

	if (result >= 0)
		result = profile_parse(path, buf_str(&text), ret_profile, err);
	buf_fini(&text);
	return result < 0 ? result : 0;
}

const char *declog_share(int64_t share_ppm, char *target, size_t target_size)
{
	int64_t milli = (share_ppm + 500) / 1000;

	if (share_ppm < 0)
		(void)snprintf(target, target_size, "-");
	else
		(void)snprintf(target, target_size, "%" PRId64 ".%03d", milli / 1000, (int)(milli % 1000));
	return target;
}
