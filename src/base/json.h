/* An append-only JSON writer over a buffer. No tree: what is written is gone. Commas and nesting are kept by the writer.
 * Parsing small documents is jansson's work, at the callers. */
#ifndef HENG_BASE_JSON_H
#define HENG_BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"

#define JSON_DEPTH_MAX 16

struct json {
	struct buf *buf;
	unsigned depth;
	bool has_item[JSON_DEPTH_MAX + 1];
};

void json_init(struct json *json, struct buf *buf);
/* key is NULL inside arrays and at the root. */
void json_open(struct json *json, const char *key); /* { */
void json_close(struct json *json);                 /* } */
void json_open_list(struct json *json, const char *key);
void json_close_list(struct json *json);
/* Bytes that are not valid UTF-8 are written as \\u00XX of each stray byte, so that the output is always valid JSON. */
void json_str(struct json *json, const char *key, struct str value);
void json_c(struct json *json, const char *key, const char *value); /* NULL writes null */
void json_i64(struct json *json, const char *key, int64_t value);
void json_u64(struct json *json, const char *key, uint64_t value);
void json_bool(struct json *json, const char *key, bool value);
/* value_milli / 1000 with three decimals: seconds from milliseconds, say. */
void json_milli(struct json *json, const char *key, int64_t value_milli);

/* The error as every heng server answers it:
 * {"error":word,"code":number,"message":text,"hint":hint,"retry":"no|same_node|other_node","server_time_us":...} */
void json_err(struct buf *buf, const struct err *err, int64_t server_time_us, const char *request_id);
/* Reads such an answer into err; when the body is something else, err says so with the HTTP status. Always sets err. */
void json_err_read(struct str body, int http_status, struct err *err);

#endif
