/* Logging: one line an event, to stderr by default. Only app and the doors' top functions log; libraries below return errors. */
#ifndef HENG_BASE_LOG_H
#define HENG_BASE_LOG_H

#include "base/err.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Set once, before threads start. name ("scheduler", "node n1") begins each line; is_json writes JSON lines. */
void log_setup(const char *name, enum log_level level, bool is_json);
/* 2026-01-31T08:00:00.123Z info scheduler: text */
void log_say(enum log_level level, const char *fmt, ...) PRINTF(2, 3);
/* The text, then the error's own text, hint and code. */
void log_err(enum log_level level, const struct err *err, const char *fmt, ...) PRINTF(3, 4);

#endif
