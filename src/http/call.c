/* A request as handlers see it, and the making of answers. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "http/conn.h"

#define REPLY_HEADERS_MAX_BYTES (16 * KIB)
#define ERR_BODY_MAX_BYTES      (16 * KIB)

/* --- the request --- */

struct str http_method(const struct http_call *call)
{
	const struct http_conn *conn = call_conn(call);
	return http1_text(conn_head_data(conn), conn->parse.method);
}

struct str http_param(const struct http_call *call, const char *name)
{
	struct str wanted = str_from(name);
	for (unsigned i = 0; i < call->param_count; i++) {
		if (str_eq((struct str){ call->params[i].name, call->params[i].name_size }, wanted))
			return call->params[i].value;
	}
	return STR_NONE;
}

bool http_query(const struct http_call *call, const char *name, char *target, size_t target_size, size_t *ret_size)
{
	const struct http_conn *conn = call_conn(call);
	struct str rest = http1_text(conn_head_data(conn), conn->parse.query), pair, key;
	size_t size = 0;
	MUST(target_size > 0);
	target[0] = '\0';
	while (str_cut(&rest, '&', &pair)) {
		struct str value = pair;
		if (!str_cut(&value, '=', &key) || !str_eq_c(key, name))
			continue;
		if (value.size > 0 && !percent_decode(value, target, target_size - 1, &size)) {
			target[0] = '\0';
			return false;
		}
		target[size] = '\0';
		if (ret_size)
			*ret_size = size;
		return true;
	}
	return false;
}

bool http_query_has(const struct http_call *call, const char *name)
{
	const struct http_conn *conn = call_conn(call);
	struct str rest = http1_text(conn_head_data(conn), conn->parse.query), pair, key;

	while (str_cut(&rest, '&', &pair)) {
		if (str_cut(&pair, '=', &key) && str_eq_c(key, name))
			return true;
	}
	return false;
}

struct str http_header(const struct http_call *call, const char *name)
{
	const struct http_conn *conn = call_conn(call);
	return http1_header_get(&conn->parse, conn_head_data(conn), str_from(name));
}

int64_t http_body_size(const struct http_call *call)
{
	const struct http1_head *head = &call_conn(call)->parse;
	if (head->framing == HTTP1_CHUNKED)
		return -1;
	return head->framing == HTTP1_LENGTH ? (int64_t)head->content_length : 0;
}

const struct sock_addr *http_peer(const struct http_call *call) { return &call_conn(call)->peer; }
const struct tls_peer *http_peer_cert(const struct http_call *call) { return call->peer; }
bool http_is_tls(const struct http_call *call) { return call_conn(call)->thread->server->options.tls != NULL; }
const char *http_request_id(const struct http_call *call) { return call->id; }
struct loop *http_loop(const struct http_call *call) { return call_conn(call)->thread->loop; }
void *http_app(const struct http_call *call) { return call_conn(call)->thread->server->app; }
void http_set_state(struct http_call *call, void *state) { call->state = state; }
void *http_state(const struct http_call *call) { return call->state; }

void call_fini(struct http_call *call)
{
	task_free(&call->task);
	free(call->path_text);
	buf_fini(&call->reply_headers);
	*call = (struct http_call){ 0 };
}

static void give_id(struct http_conn *conn)
{
	uint64_t number = rng_u64(&conn->thread->rng);
	hex_encode(&number, sizeof(number), conn->call.id);
	conn->call.reply_headers.limit = REPLY_HEADERS_MAX_BYTES;
}

/* --- the answer --- */

static const char *reason_of(int status)
{
	static const struct {
		int status;
		const char *reason;
	} rows[] = {
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 206, "Partial Content" },
		{ 301, "Moved Permanently" },
		{ 302, "Found" },
		{ 304, "Not Modified" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 411, "Length Required" },
		{ 413, "Content Too Large" },
		{ 416, "Range Not Satisfiable" },
		{ 417, "Expectation Failed" },
		{ 422, "Unprocessable Content" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
		{ 507, "Insufficient Storage" },
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (rows[i].status == status)
			return rows[i].reason;
	}
	return "";
}

static bool is_body_finished(const struct http_conn *conn)
{
	return conn->is_body_done || conn->body.framing == HTTP1_NO_BODY ||
	       (conn->body.framing == HTTP1_LENGTH && conn->body.left_bytes == 0);
}

/* May the connection serve another request after this answer? */
static bool can_keep(const struct http_conn *conn)
{
	if (!conn->is_request || !conn->parse.is_keep_alive || conn->thread->is_stopping)
		return false;
	if (is_body_finished(conn))
		return true;
	/* A client that was never told to continue may or may not send its body: what comes next could be read as either. */
	if (conn->parse.is_expect_continue)
		return false;
	return conn->body.framing == HTTP1_LENGTH && conn->body.left_bytes <= CONN_DRAIN_MAX_BYTES;
}

static bool is_head_method(const struct http_conn *conn)
{
	return conn->is_request && str_eq(http_method(&conn->call), STR("HEAD"));
}

/* Writes the answer's head to conn->out. False when there is nobody left to answer. */
static bool begin_reply(struct http_conn *conn, int status, const char *type, uint64_t size_bytes)
{
	conn->has_call = false;
	conn->sink = NULL;
	conn->is_piece_used = false;
	conn->is_gone_pending = false;
	if (conn->state == CONN_CLOSING)
		return false;
	MUST(!conn->is_replied);
	conn->state = CONN_REPLY;
	conn->is_replied = true;
	conn->is_keep = can_keep(conn);
	struct buf *out = &conn->out;
	buf_printf(out, "HTTP/1.1 %d %s\r\nX-Request-Id: %s\r\n", status, reason_of(status), conn->call.id);
	if (type)
		buf_printf(out, "Content-Type: %s\r\n", type);
	/* RFC 9110 8.6: not with 204; with 304 it would speak of the body that is left out. */
	if (status != 204 && status != 304)
		buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)size_bytes);
	if (!conn->is_keep)
		buf_append_c(out, "Connection: close\r\n");
	else if (conn->parse.minor_version == 0)
		buf_append_c(out, "Connection: keep-alive\r\n");
	if (conn->call.reply_headers.size > 0)
		buf_append(out, buf_str(&conn->call.reply_headers));
	buf_append_c(out, "\r\n");
	return true;
}

static bool has_no_body(const struct http_conn *conn, int status)
{
	return status == 204 || status == 304 || is_head_method(conn);
}

static void send_reply(struct http_conn *conn)
{
	if (conn->out.is_failed)
		conn_abort(conn, ERR_NO_MEMORY, "no memory for the answer");
	else
		conn_send(conn);
}

static struct http_conn *owed(struct http_call *call)
{
	struct http_conn *conn = call_conn(call);
	/* One answer for each call: a second one would be read as the answer to another request. */
	MUST(conn->has_call);
	conn_enter(conn);
	return conn;
}

void http_reply_header(struct http_call *call, const char *name, const char *value)
{
	/* Values may carry what a client sent: nothing may end the line early. */
	if (!http1_is_token(str_from(name)) || !http1_is_field_value(str_from(value)))
		return;
	buf_printf(&call->reply_headers, "%s: %s\r\n", name, value);
	if (str_eq_nocase(str_from(name), STR("Retry-After")))
		call->has_retry_after = true;
}

void http_reply(struct http_call *call, int status, const char *type, struct str body)
{
	struct http_conn *conn = owed(call);
	if (begin_reply(conn, status, type, body.size)) {
		if (body.size > 0 && !has_no_body(conn, status))
			buf_append(&conn->out, body);
		send_reply(conn);
	}
	conn_leave(conn);
}

static void reply_buf(struct http_conn *conn, int status, const char *type, struct buf *body)
{
	if (body->is_failed || !begin_reply(conn, status, type, body->size)) {
		/* A body that did not fit its buffer would be sent cut short as if it were whole. */
		if (body->is_failed && conn->state != CONN_CLOSING) {
			struct err err;
			err_set(&err, ERR_INTERNAL, "the answer would be larger than %zu bytes", body->limit);
			call_answer_err(conn, &err);
		}
		conn->has_call = false;
		buf_fini(body);
		return;
	}
	if (has_no_body(conn, status)) {
		buf_fini(body);
	} else if (body->size <= CONN_JOIN_MAX_BYTES) {
		if (body->size > 0)
			buf_append(&conn->out, buf_str(body));
		buf_fini(body);
	} else {
		conn->out_body = *body;
		*body = BUF_INIT(body->limit);
	}
	send_reply(conn);
}

void http_reply_json(struct http_call *call, int status, struct buf *body)
{
	struct http_conn *conn = owed(call);
	reply_buf(conn, status, "application/json", body);
	conn_leave(conn);
}

void call_answer_err(struct http_conn *conn, const struct err *err)
{
	const struct http_server *server = conn->thread->server;
	struct buf body = BUF_INIT(ERR_BODY_MAX_BYTES);
	int status = err_http_status(err->code);
	if (conn->call.id[0] == '\0')
		give_id(conn);
	if (!conn->call.has_retry_after && (err_retry(err->code) == ERR_RETRY_SAME || status == 503 || status == 507))
		http_reply_header(&conn->call, "Retry-After", "1");
	json_err(&body, err, server->options.wall_us ? server->options.wall_us(server->app) : clock_wall_us(),
		 conn->call.id);
	reply_buf(conn, status, "application/json", &body);
}

void http_reply_err(struct http_call *call, const struct err *err)
{
	struct http_conn *conn = owed(call);
	const struct http_server *server = conn->thread->server;
	if (server->options.refused)
		server->options.refused(server->app, call, err);
	call_answer_err(conn, err);
	conn_leave(conn);
}

void http_reply_file(struct http_call *call, int status, const char *type, int file_fd, int64_t offset, uint64_t size)
{
	struct http_conn *conn = owed(call);
	if (begin_reply(conn, status, type, size) && !has_no_body(conn, status) && size > 0) {
		conn->file_fd = file_fd;
		conn->file_offset = offset;
		conn->file_left = size;
	} else {
		close(file_fd);
	}
	if (conn->is_replied && conn->state == CONN_REPLY)
		send_reply(conn);
	conn_leave(conn);
}

/* --- from head to handler --- */

static int admit(struct http_conn *conn, struct buf *allowed, struct err *err)
{
	const struct http_server *server = conn->thread->server;
	const struct http1_head *head = &conn->parse;
	const char *data = conn_head_data(conn);
	if (head->is_expect_unknown)
		return err_set(err, ERR_EXPECT, "the only expectation that is met here is 100-continue");
	if (head->form == HTTP1_AUTHORITY)
		return err_set(err, ERR_NOT_IMPLEMENTED, "this server is not a proxy: it does not take CONNECT");
	if (head->framing == HTTP1_LENGTH && head->content_length > server->options.body_limit_bytes)
		return err_set(err, ERR_LIMIT, "the body has %llu bytes, this server takes at most %llu",
			       (unsigned long long)head->content_length,
			       (unsigned long long)server->options.body_limit_bytes);
	struct str path = http1_text(data, head->path);
	if (path.size == 0)
		path = STR("/");
	return router_find(server->routes, &conn->call, http1_text(data, head->method), path, allowed, err);
}

void call_begin(struct http_conn *conn)
{
	struct buf allowed = BUF_INIT(KIB);
	struct err err = ERR_INIT;
	give_id(conn);
	conn->call.peer = stream_tls_peer(&conn->stream);
	http1_body_init(&conn->body, &conn->parse);
	if (admit(conn, &allowed, &err) < 0) {
		if (err.code == ERR_METHOD)
			http_reply_header(&conn->call, "Allow", buf_cstr(&allowed));
		call_answer_err(conn, &err);
	} else {
		conn->state = CONN_CALL;
		conn->has_call = true;
		conn->is_in_begin = true;
		conn->call.route->begin(&conn->call, conn->thread->server->app);
		conn->is_in_begin = false;
		body_pump(conn);
	}
	buf_fini(&allowed);
}
