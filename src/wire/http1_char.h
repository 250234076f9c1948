/* Classes of bytes in HTTP/1 messages. Private to the http1 files. */
#ifndef HENG_WIRE_HTTP1_CHAR_H
#define HENG_WIRE_HTTP1_CHAR_H

#include "wire/http1.h"

enum {
	CHAR_TOKEN = 1,  /* RFC 9110 5.6.2 tchar */
	CHAR_FIELD = 2,  /* field-vchar, space, tab, obs-text: no other control character */
	CHAR_TARGET = 4, /* visible ASCII without '#', which never belongs on the wire */
	CHAR_HOST = 8,   /* RFC 3986 host and port; no ',' as that would be two hosts merged by somebody */
	CHAR_HEX = 16,
};
extern const uint8_t http1_char[256];

static inline bool http1_char_is(char byte, unsigned classes) { return (http1_char[(uint8_t)byte] & classes) != 0; }
static inline bool http1_char_is_digit(char byte) { return byte >= '0' && byte <= '9'; }
/* The end of the run of bytes of this class that begins at `at`. */
static inline uint32_t http1_char_run(const char *data, uint32_t at, uint32_t end, unsigned classes)
{
	while (at < end && http1_char_is(data[at], classes))
		at++;
	return at;
}

/* http1_meaning.c: the head is whole; find out what it means (target, framing, connection) or which rule it breaks. DONE or negative. */
int http1_meaning(struct http1_head *head, const char *data);
/* Remembers the failure; returns its negative code: the one given for requests, ERR_PEER (or HEADER_LIMIT) for responses. */
int http1_fail(struct http1_head *head, enum err_code code, const char *fault);

#endif
