#include "base/log.h"
#include "base/clock.h"
#include "base/json.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

/* A line below PIPE_BUF, so that a write to a pipe that several processes share is not torn either. */
#define LINE_SIZE 4000
#define TEXT_SIZE 1600

static const char *const LEVEL_WORDS[] = {
	[LOG_DEBUG] = "debug",
	[LOG_INFO] = "info",
	[LOG_WARN] = "warn",
	[LOG_ERROR] = "error",
};

/* Written by log_setup before threads start, read-only afterwards. */
static struct {
	char name[64];
	enum log_level level;
	bool is_json;
} setup = { .name = "heng", .level = LOG_INFO };

void log_setup(const char *name, enum log_level level, bool is_json)
{
	str_display(str_from(name), setup.name, sizeof(setup.name));
	setup.level = level;
	setup.is_json = is_json;
}

/* One write for one line: other threads cannot get in between. A line that cannot be written can be complained of nowhere. */
static void write_line(const char *line, size_t size)
{
	ssize_t written;

	do {
		written = write(STDERR_FILENO, line, size);
	} while (written < 0 && errno == EINTR);
}

static void say_plain(enum log_level level, const char *time, const char *text, const struct err *err)
{
	char clean[LINE_SIZE], line[LINE_SIZE];
	int size;

	if (!err)
		size = snprintf(line, sizeof(line), "%s %s %s: %s", time, LEVEL_WORDS[level], setup.name, text);
	else
		size = snprintf(line, sizeof(line), "%s %s %s: %s: %s%s%s%s [HENG-%d]", time, LEVEL_WORDS[level],
				setup.name, text, err->text, err->hint[0] ? " (hint: " : "", err->hint,
				err->hint[0] ? ")" : "", (int)err->code);
	if (size < 0)
		return;
	/* Names of files and peers end up here: a line feed or an escape sequence among them must not forge a line. */
	str_display(str_from(line), clean, sizeof(clean) - 1);
	size = (int)strlen(clean);
	clean[size] = '\n';
	write_line(clean, (size_t)size + 1);
}

static void say_json(enum log_level level, const char *time, const char *text, const struct err *err)
{
	/* Escapes may make text six times as long; the ceiling is far above that. */
	struct buf buf = BUF_INIT(64 * KIB);
	struct json json;

	json_init(&json, &buf);
	json_open(&json, NULL);
	json_c(&json, "time", time);
	json_c(&json, "level", LEVEL_WORDS[level]);
	json_c(&json, "name", setup.name);
	json_c(&json, "message", text);
	if (err) {
		json_c(&json, "error", err_word(err->code));
		json_i64(&json, "code", err->code);
		json_c(&json, "detail", err->text);
		json_c(&json, "hint", err->hint);
	}
	json_close(&json);
	buf_append(&buf, STR("\n"));
	if (!buf.is_failed)
		write_line(buf.data, buf.size);
	buf_fini(&buf);
}

static void say(enum log_level level, const struct err *err, const char *fmt, va_list args)
{
	int kept_errno = errno;
	char time[CLOCK_TEXT_SIZE], text[TEXT_SIZE];

	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	clock_text(clock_wall_us(), time);
	if (setup.is_json)
		say_json(level, time, text, err);
	else
		say_plain(level, time, text, err);
	errno = kept_errno;
}

void log_say(enum log_level level, const char *fmt, ...)
{
	va_list args;

	if (level < setup.level)
		return;
	va_start(args, fmt);
	say(level, NULL, fmt, args);
	va_end(args);
}

void log_err(enum log_level level, const struct err *err, const char *fmt, ...)
{
	va_list args;

	if (level < setup.level)
		return;
	va_start(args, fmt);
	say(level, err, fmt, args);
	va_end(args);
}
