/* A decision log as its readers see it: line by line, from one file, from all that it was rotated to, or from standard input. */
#ifndef HENG_APP_DECLOG_H
#define HENG_APP_DECLOG_H

#include "base/buf.h"
#include "core/decide.h"

#define DECLOG_FILES_MAX 1000 /* rotated ones: as many as a writer may keep (decision_log_keep) */

struct declog;
/* path "-": standard input. with_rotated: path.N .. path.1, as many as follow one another, come before path. All are opened now, each once, so that
 * a rotation meanwhile repeats and skips nothing. */
int declog_open(const char *path, bool with_rotated, struct declog **ret_log, struct err *err);
void declog_close(struct declog **log);
/* The next line without its newline, valid until the next call; 1, or 0 at the end. Of a line longer than a record may be, only a beginning that is
 * too long as well. */
int declog_next(struct declog *log, struct str *ret_line, struct err *err);
/* Where the last line was: "line 17", with the file's name when there are several. */
const char *declog_where(struct declog *log);
uint64_t declog_line_count(const struct declog *log);

/* A time as people and scripts give it: RFC 3339, or "@" and microseconds since 1970. */
bool declog_time(struct str text, int64_t *ret_wall_us);
/* A score profile from its file. */
int declog_profile(const char *path, struct profile *ret_profile, struct err *err);
/* A share of the whole, "0.812"; negative ones (unknown) "-". target_size >= 24. */
const char *declog_share(int64_t share_ppm, char *target, size_t target_size);

#endif
