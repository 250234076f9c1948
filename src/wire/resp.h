/* RESP2 and RESP3, the protocol of Redis: replies read item by item without copying, and whole values measured, resumable at any byte; commands
 * written. No allocation, no I/O. Everything is bounded by the reader's limits. Streamed strings and aggregates ("$?", "*?"), which no server sends,
 * are refused. */
#ifndef HENG_WIRE_RESP_H
#define HENG_WIRE_RESP_H

#include "base/buf.h"
#include "base/err.h"

#define RESP_DEPTH_MAX 16u

enum resp_type {
	RESP_SIMPLE,     /* +OK */
	RESP_ERROR,      /* -ERR text */
	RESP_INT,        /* :12 */
	RESP_BULK,       /* $3 abc */
	RESP_ARRAY,      /* *2 */
	RESP_NULL,       /* $-1, *-1, _ */
	RESP_BOOL,       /* #t */
	RESP_DOUBLE,     /* ,1.5 */
	RESP_BIG,        /* (123 */
	RESP_BULK_ERROR, /* !3 ERR */
	RESP_VERBATIM,   /* =7 txt:abc */
	RESP_MAP,        /* %1 */
	RESP_SET,        /* ~1 */
	RESP_PUSH,       /* >1 */
	RESP_ATTRIBUTE,  /* |1: stands before a value, and is none */
};

/* One line, or one bulk. `text` lies in the caller's buffer. */
struct resp_item {
	enum resp_type type;
	struct str text;        /* without its framing; of a verbatim with "txt:" */
	int64_t number;         /* INT; BOOL: 0 or 1 */
	uint64_t element_count; /* of an aggregate: the values that follow it; a map of n pairs has 2n */
};

struct resp_limits {
	size_t line_bytes;      /* of simple strings, errors, numbers */
	size_t bulk_bytes;      /* of one bulk */
	size_t value_bytes;     /* of one whole value */
	uint64_t element_count; /* of one whole value: all its items */
};

/* Negative: -ERR_PEER, it is not RESP; -ERR_LIMIT, it is more than the limits allow. */
enum resp_result { RESP_MORE = 0, RESP_DONE = 1 };

/* The item that `data` begins with. DONE: *ret_used bytes are its. */
int resp_item(struct str data, const struct resp_limits *limits, size_t *ret_used, struct resp_item *ret_item);

/* Measures one whole value: an item with all that is below it, and the attributes before. Zeroed to begin. */
struct resp_scan {
	size_t at; /* bytes that are done */
	uint64_t item_count;
	unsigned depth;
	struct {
		uint64_t left; /* values still to come */
		bool is_attribute;
	} open[RESP_DEPTH_MAX];
};
/* `data` begins where the value does, and has at least the bytes it had before. DONE: *ret_size are the value's, and the scan is as new. */
int resp_scan(struct resp_scan *scan, struct str data, const struct resp_limits *limits, size_t *ret_size);

/* A command with its arguments, any bytes. */
bool resp_command(struct buf *target, const struct str *args, size_t count);

#endif
