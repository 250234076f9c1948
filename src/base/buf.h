/* A growing byte buffer with a ceiling. Failure is sticky: append freely, ask once at the end. */
#ifndef HENG_BASE_BUF_H
#define HENG_BASE_BUF_H

#include "base/str.h"

struct buf {
	char *data; /* NULL until the first append; not NUL-terminated unless buf_cstr was called */
	size_t size;
	size_t capacity;
	size_t limit;   /* the ceiling in bytes */
	bool is_failed; /* an append would have passed the ceiling, or memory ran out */
};

#define BUF_INIT(limit_bytes) ((struct buf){ .limit = (limit_bytes) })

void buf_fini(struct buf *buf);                       /* frees, leaves an empty buffer with the same limit */
void buf_clear(struct buf *buf);                      /* keeps the memory */
bool buf_reserve(struct buf *buf, size_t more_bytes); /* room for that many more at data+size */
bool buf_append(struct buf *buf, struct str s);
bool buf_append_c(struct buf *buf, const char *text);
bool buf_printf(struct buf *buf, const char *fmt, ...) PRINTF(2, 3);
void buf_consume(struct buf *buf, size_t count_bytes); /* drops from the front */
const char *buf_cstr(struct buf *buf);                 /* "" when empty or failed */
static inline struct str buf_str(const struct buf *buf) { return (struct str){ buf->data, buf->size }; }

#endif
