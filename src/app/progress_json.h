/* How a push or a pull is told to programs while it runs (--progress json): one JSON object a line, without the line's end. Each says by "event" what it is. */
#ifndef HENG_APP_PROGRESS_JSON_H
#define HENG_APP_PROGRESS_JSON_H

#include "base/buf.h"
#include "folder/push.h"

/* rate_bytes: a second; 0: not known yet. */
void progress_json(struct buf *buf, const struct push_progress *progress, uint64_t rate_bytes);
void progress_json_notice(struct buf *buf, const char *text);
void progress_json_problem(struct buf *buf, struct str path, const char *reason);

#endif
