#include "base/err.h"

#include <stdarg.h>

static const struct err_row {
	enum err_code code;
	enum err_retry retry;
	int http_status;
	const char *word;
} ROWS[] = {
#define ERR(name, number, retry, http, word) { ERR_##name, ERR_RETRY_##retry, http, word },
#include "base/err_list.h"
#undef ERR
};

static const struct err_row *row_of(enum err_code code)
{
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		if (ROWS[i].code == code)
			return &ROWS[i];
	}
	return &ROWS[0];
}

const char *err_word(enum err_code code) { return row_of(code)->word; }

enum err_retry err_retry(enum err_code code) { return row_of(code)->retry; }

int err_http_status(enum err_code code) { return row_of(code)->http_status; }

enum err_exit err_exit(enum err_code code)
{
	static const struct {
		enum err_code code;
		enum err_exit exit;
	} rows[] = {
		{ ERR_NONE, ERR_EXIT_DONE },
		{ ERR_INTERNAL, ERR_EXIT_FAULT },
		{ ERR_USAGE, ERR_EXIT_USAGE },
		{ ERR_CONFIG, ERR_EXIT_USAGE },
		{ ERR_INTEGRITY, ERR_EXIT_INTEGRITY },
		{ ERR_AUDIT_BROKEN, ERR_EXIT_INTEGRITY },
		/* What time, a repair or a second try may cure. */
		{ ERR_NO_MEMORY, ERR_EXIT_INCOMPLETE },
		{ ERR_SYSTEM, ERR_EXIT_INCOMPLETE },
		{ ERR_TIMEOUT, ERR_EXIT_INCOMPLETE },
		{ ERR_CLOSED, ERR_EXIT_INCOMPLETE },
		{ ERR_BUSY, ERR_EXIT_INCOMPLETE },
		{ ERR_TRUNCATED, ERR_EXIT_INCOMPLETE },
		{ ERR_SLOW, ERR_EXIT_INCOMPLETE },
		{ ERR_PEER, ERR_EXIT_INCOMPLETE },
		{ ERR_CONNECT, ERR_EXIT_INCOMPLETE },
		{ ERR_NO_NODES, ERR_EXIT_INCOMPLETE },
		{ ERR_VERSION_CONFLICT, ERR_EXIT_INCOMPLETE },
		{ ERR_INCOMPLETE, ERR_EXIT_INCOMPLETE },
		{ ERR_DIGEST_MISMATCH, ERR_EXIT_INCOMPLETE },
		{ ERR_DISK_LOW, ERR_EXIT_INCOMPLETE },
		{ ERR_DISK, ERR_EXIT_INCOMPLETE },
		{ ERR_SCHEDULER_DOWN, ERR_EXIT_INCOMPLETE },
		{ ERR_SOURCE_CHANGED, ERR_EXIT_INCOMPLETE },
		{ ERR_WAITING, ERR_EXIT_INCOMPLETE },
		{ ERR_STORE, ERR_EXIT_INCOMPLETE },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (rows[i].code == code)
			return rows[i].exit;
	}
	/* Everything else is a no that the same will meet again. */
	return ERR_EXIT_REFUSED;
}

enum err_code err_from_word(const char *word, size_t size)
{
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		if (strlen(ROWS[i].word) == size && memcmp(ROWS[i].word, word, size) == 0)
			return ROWS[i].code;
	}
	return ERR_INTERNAL;
}

/* Ends text that did not fit with "...", at a whole character. wanted_size is what printf answered. */
static void mark_cut(char *text, size_t text_size, int wanted_size)
{
	size_t end = text_size - sizeof("...");

	if (wanted_size < 0) {
		text[0] = '\0';
		return;
	}
	if ((size_t)wanted_size < text_size)
		return;
	while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
		end--;
	memcpy(text + end, "...", sizeof("..."));
}

/* The message is made beside the error first, as the caller may pass the error's own text as an argument. */
static void set_text(struct err *err, enum err_code code, int sys_errno, const char *text)
{
	err->code = code;
	err->sys_errno = sys_errno;
	memcpy(err->text, text, strlen(text) + 1);
	err->hint[0] = '\0';
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
	char text[sizeof(err->text)];
	va_list args;

	if (!err)
		return -(int)code;
	va_start(args, fmt);
	mark_cut(text, sizeof(text), vsnprintf(text, sizeof(text), fmt, args));
	va_end(args);
	set_text(err, code, 0, text);
	return -(int)code;
}

int err_sys(struct err *err, enum err_code code, int sys_errno, const char *fmt, ...)
{
	char text[sizeof(err->text)];
	char reason_room[128];
	const char *reason;
	size_t room, size;
	va_list args;

	if (!err)
		return -(int)code;
	/* However long the message, the system's word must be seen. */
	reason = strerror_r(sys_errno, reason_room, sizeof(reason_room));
	room = sizeof(text) - min_size(strlen(reason), sizeof(text) / 2) - strlen(": ");
	va_start(args, fmt);
	mark_cut(text, room, vsnprintf(text, room, fmt, args));
	va_end(args);
	size = strlen(text);
	mark_cut(text + size, sizeof(text) - size, snprintf(text + size, sizeof(text) - size, ": %s", reason));
	set_text(err, code, sys_errno, text);
	return -(int)code;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
	char text[sizeof(err->text)];
	size_t size;
	va_list args;

	if (!err)
		return -ERR_INTERNAL;
	if (err->code == ERR_NONE)
		err->code = ERR_INTERNAL;
	/* The context may not push out the whole cause. */
	va_start(args, fmt);
	mark_cut(text, sizeof(text) / 2, vsnprintf(text, sizeof(text) / 2, fmt, args));
	va_end(args);
	size = strlen(text);
	mark_cut(text + size, sizeof(text) - size, snprintf(text + size, sizeof(text) - size, ": %s", err->text));
	memcpy(err->text, text, strlen(text) + 1);
	return -(int)err->code;
}

void err_hint(struct err *err, const char *fmt, ...)
{
	char hint[sizeof(err->hint)];
	va_list args;

	if (!err)
		return;
	va_start(args, fmt);
	mark_cut(hint, sizeof(hint), vsnprintf(hint, sizeof(hint), fmt, args));
	va_end(args);
	memcpy(err->hint, hint, strlen(hint) + 1);
}
