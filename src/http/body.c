/* The flow of a request's body from the connection to the handler's sink. */
#include <errno.h>
#include <stdlib.h>

#include "http/conn.h"

/* What has come and has not been looked at: first what came along with the head. */
static struct str unread(struct http_conn *conn)
{
	if (conn->input_begin + conn->parse.head_size < conn->input_size) {
		size_t begin = conn->input_begin + conn->parse.head_size;
		return (struct str){ conn->input + begin, conn->input_size - begin };
	}
	return (struct str){ conn->body_buffer + conn->body_begin, conn->body_size - conn->body_begin };
}

/* Input that belongs to the head's buffer is used up by letting the head grow over it: the head itself, which the handler may be reading, stays
 * where it is. */
static void use(struct http_conn *conn, size_t count_bytes)
{
	if (conn->input_begin + conn->parse.head_size < conn->input_size)
		conn->parse.head_size += (uint32_t)count_bytes;
	else
		conn->body_begin += count_bytes;
}

void body_gone(struct http_conn *conn, const struct err *err)
{
	if (!conn->has_call || !conn->sink || conn->is_body_done)
		return;
	if (conn->is_piece_used || conn->is_in_data) {
		if (!conn->is_gone_pending)
			conn->gone_err = *err;
		conn->is_gone_pending = true;
		return;
	}
	conn->has_call = false;
	conn->sink->gone(&conn->call, err);
}

void body_broken(struct http_conn *conn, enum err_code code, const char *why)
{
	struct err err;
	err_set(&err, code, "%s", why);
	conn->parse.is_keep_alive = false;
	body_gone(conn, &err);
	call_answer_err(conn, &err);
}

static bool is_over_limit(struct http_conn *conn)
{
	return conn->body_count_bytes > conn->thread->server->options.body_limit_bytes;
}

/* Gives the sink a piece. True when the next one may be looked for. */
static bool deliver(struct http_conn *conn, struct str piece)
{
	conn->body_count_bytes += piece.size;
	if (is_over_limit(conn)) {
		body_broken(conn, ERR_LIMIT, "the body is larger than this server takes");
		return false;
	}
	conn->is_in_data = true;
	conn->is_resumed = false;
	conn->piece_start_us = loop_now_us(conn->thread->loop);
	int result = conn->sink->data(&conn->call, piece);
	conn->is_in_data = false;
	if (!conn->has_call)
		return false;
	if (result < 0) {
		struct err err;
		err_set(&err, ERR_INTERNAL, "the request was given up without a reason");
		http_reply_err(&conn->call, &err);
		return false;
	}
	if (result == HTTP_BODY_WAIT && !conn->is_resumed) {
		conn->is_piece_used = true;
		conn_set_timer(conn, 0);
		return false;
	}
	if (conn->is_gone_pending) {
		conn->is_gone_pending = false;
		body_gone(conn, &conn->gone_err);
		return false;
	}
	return true;
}

static void body_end(struct http_conn *conn)
{
	conn->is_body_done = true;
	conn_set_timer(conn, 0);
	if (conn->body_buffer && conn->body_begin == conn->body_size) {
		thread_give_buffer(conn->thread, conn->body_buffer);
		conn->body_buffer = NULL;
		conn->body_begin = conn->body_size = 0;
	}
	conn->sink->end(&conn->call);
}

void body_pump(struct http_conn *conn)
{
	while (conn->state == CONN_CALL && conn->has_call && conn->sink && !conn->is_body_done &&
	       !conn->is_piece_used) {
		struct str input = unread(conn), piece;
		size_t used;
		size_t size = min_size(input.size, conn->thread->server->options.body_buffer_bytes);
		int result = http1_body_step(&conn->body, input.data, size, &used, &piece);
		if (result < 0) {
			body_broken(conn, (enum err_code) - result, conn->body.fault);
			return;
		}
		use(conn, used);
		if (piece.size > 0 && !deliver(conn, piece))
			return;
		if (result == HTTP1_DONE) {
			body_end(conn);
			return;
		}
		if (used == size && unread(conn).size == 0) {
			if (conn->is_eof)
				body_broken(conn, ERR_TRUNCATED,
					    "the connection was closed before the whole body had come");
			else
				conn_recv_body(conn);
			return;
		}
	}
}

/* New bytes are in the body buffer (or the peer's end has come). */
void body_received(struct http_conn *conn)
{
	const struct http_options *options = &conn->thread->server->options;
	int64_t taken_us = loop_now_us(conn->thread->loop) - conn->body_start_us - conn->piece_wait_us;
	/* Only the time that the peer could send in counts: while the sink held a piece, it could not. */
	if (options->body_rate_min_bps > 0 && taken_us > CONN_RATE_GRACE_US) {
		uint64_t taken_ms = (uint64_t)(taken_us / MSEC_US);
		if (conn->body_count_bytes + conn->body_size < options->body_rate_min_bps * taken_ms / 1000) {
			body_broken(conn, ERR_SLOW, "the body comes too slowly");
			return;
		}
	}
	body_pump(conn);
}

bool body_drain(struct http_conn *conn)
{
	for (;;) {
		struct str input = unread(conn), piece;
		size_t used;
		int result = http1_body_step(&conn->body, input.data, input.size, &used, &piece);
		if (result < 0 || (result == HTTP1_MORE && used == input.size && conn->is_eof)) {
			conn->state = CONN_CLOSING;
			return false;
		}
		use(conn, used);
		if (result == HTTP1_DONE) {
			conn->is_body_done = true;
			return true;
		}
		if (unread(conn).size == 0) {
			conn_recv_body(conn);
			return false;
		}
	}
}

void http_take_body(struct http_call *call, const struct http_sink *sink)
{
	struct http_conn *conn = call_conn(call);
	MUST(conn->has_call && !conn->sink);
	conn_enter(conn);
	conn->sink = sink;
	conn->body_start_us = loop_now_us(conn->thread->loop);
	if (conn->state == CONN_CLOSING) {
		struct err err;
		err_set(&err, ERR_CLOSED, "the connection has been closed");
		body_gone(conn, &err);
	} else {
		/* A client that has begun to send does not wait to be told so (RFC 9110 10.1.1). */
		if (conn->parse.is_expect_continue && unread(conn).size == 0 && conn->body.framing != HTTP1_NO_BODY) {
			conn->interim = STR("HTTP/1.1 100 Continue\r\n\r\n");
			conn_send(conn);
		}
		conn->parse.is_expect_continue = false;
		/* In begin the handler may still be setting itself up: its first piece waits until begin has returned. */
		if (!conn->is_in_begin)
			body_pump(conn);
	}
	conn_leave(conn);
}

void http_body_resume(struct http_call *call)
{
	struct http_conn *conn = call_conn(call);
	conn_enter(conn);
	if (conn->is_in_data) {
		conn->is_resumed = true;
	} else if (conn->is_piece_used) {
		conn->is_piece_used = false;
		conn->piece_wait_us += loop_now_us(conn->thread->loop) - conn->piece_start_us;
		if (conn->is_gone_pending) {
			conn->is_gone_pending = false;
			body_gone(conn, &conn->gone_err);
		} else {
			body_pump(conn);
		}
	}
	conn_leave(conn);
}
