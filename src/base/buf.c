#include "base/buf.h"

#include <stdarg.h>

#define FIRST_CAPACITY 256

void buf_fini(struct buf *buf)
{
	free(buf->data);
	*buf = BUF_INIT(buf->limit);
}

void buf_clear(struct buf *buf)
{
	buf->size = 0;
	buf->is_failed = false;
}

bool buf_reserve(struct buf *buf, size_t more_bytes)
{
	size_t capacity;
	char *data;

	if (buf->is_failed)
		return false;
	if (buf->data && more_bytes <= buf->capacity - buf->size)
		return true;
	if (buf->size > buf->limit || more_bytes > buf->limit - buf->size) {
		buf->is_failed = true;
		return false;
	}
	capacity = max_size(buf->size + more_bytes, FIRST_CAPACITY);
	if (buf->capacity <= SIZE_MAX / 2)
		capacity = max_size(capacity, buf->capacity * 2);
	capacity = min_size(capacity, buf->limit);
	/* One byte past the capacity, so that buf_cstr always has room for its NUL. */
	data = capacity < SIZE_MAX ? realloc(buf->data, capacity + 1) : NULL;
	if (!data) {
		buf->is_failed = true;
		return false;
	}
	buf->data = data;
	buf->capacity = capacity;
	return true;
}

bool buf_append(struct buf *buf, struct str s)
{
	if (!buf_reserve(buf, s.size))
		return false;
	if (s.size > 0)
		memcpy(buf->data + buf->size, s.data, s.size);
	buf->size += s.size;
	return true;
}

bool buf_append_c(struct buf *buf, const char *text) { return buf_append(buf, str_from(text)); }

bool buf_printf(struct buf *buf, const char *fmt, ...)
{
	va_list args;
	size_t room;
	int size;

	if (!buf_reserve(buf, 0))
		return false;
	/* The byte past the capacity takes the NUL that printf insists on. */
	room = buf->capacity - buf->size + 1;
	va_start(args, fmt);
	size = vsnprintf(buf->data + buf->size, room, fmt, args);
	va_end(args);
	if (size < 0) {
		buf->is_failed = true;
		return false;
	}
	if ((size_t)size >= room) {
		if (!buf_reserve(buf, (size_t)size))
			return false;
		va_start(args, fmt);
		size = vsnprintf(buf->data + buf->size, (size_t)size + 1, fmt, args);
		va_end(args);
		if (size < 0) {
			buf->is_failed = true;
			return false;
		}
	}
	buf->size += (size_t)size;
	return true;
}

void buf_consume(struct buf *buf, size_t count_bytes)
{
	MUST(count_bytes <= buf->size);
	if (count_bytes == 0)
		return;
	buf->size -= count_bytes;
	memmove(buf->data, buf->data + count_bytes, buf->size);
}

const char *buf_cstr(struct buf *buf)
{
	if (buf->is_failed || buf->size == 0)
		return "";
	buf->data[buf->size] = '\0';
	return buf->data;
}
