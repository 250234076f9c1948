/* The error value: filled once at the fault, wrapped with context on the way up, reported once by whoever handles it. */
#ifndef HENG_BASE_ERR_H
#define HENG_BASE_ERR_H

#include "base/base.h"

enum err_code {
	ERR_NONE = 0,
#define ERR(name, number, retry, http, word) ERR_##name = number,
#include "base/err_list.h"
#undef ERR
};

enum err_retry { ERR_RETRY_NO, ERR_RETRY_SAME, ERR_RETRY_OTHER };

/* What a failure means to whoever asked for something: exit codes of the commands, results of the library. */
enum err_exit {
	ERR_EXIT_DONE = 0,
	ERR_EXIT_FAULT = 1, /* heng itself is wrong: please report */
	ERR_EXIT_USAGE = 2,
	ERR_EXIT_REFUSED = 3,
	ERR_EXIT_INCOMPLETE = 4, /* but resumable: the same again continues */
	ERR_EXIT_INTEGRITY = 5,
};

/* Fixed size, so that failing never allocates. `text` is one line for people; `hint` says what to do, or is empty. */
struct err {
	enum err_code code;
	int sys_errno;
	char text[640];
	char hint[256];
};

#define ERR_INIT ((struct err){ .code = ERR_NONE })

/* Each of these returns the negative code, so that a failing function ends with `return err_set(...)`. err may be NULL.
 * err_set replaces what was there; err_sys also appends ": <strerror>" for errno value `sys_errno`;
 * err_wrap puts "<context>: " before the text that is there (use: while <doing what>, to what). */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) PRINTF(3, 4);
int err_sys(struct err *err, enum err_code code, int sys_errno, const char *fmt, ...) PRINTF(4, 5);
int err_wrap(struct err *err, const char *fmt, ...) PRINTF(2, 3);
void err_hint(struct err *err, const char *fmt, ...) PRINTF(2, 3);

/* Facts of a code, from err_list.h. An unknown number reads as INTERNAL. */
const char *err_word(enum err_code code);
enum err_retry err_retry(enum err_code code);
int err_http_status(enum err_code code);
/* The one place where error codes become exit codes. */
enum err_exit err_exit(enum err_code code);
/* ERR_INTERNAL when no row has this word. */
enum err_code err_from_word(const char *word, size_t size);

#endif
