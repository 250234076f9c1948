#include "http/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void recv_head(struct http_conn *conn);
static void linger(struct http_conn *conn);

/* --- life --- */

void conn_enter(struct http_conn *conn) { conn->depth++; }

static void free_conn(struct http_conn *conn)
{
	struct http_thread *thread = conn->thread;
	call_fini(&conn->call);
	thread_give_buffer(thread, conn->body_buffer);
	free(conn->input);
	free(conn->kept_peer);
	buf_fini(&conn->out);
	buf_fini(&conn->out_body);
	if (conn->file_fd >= 0)
		close(conn->file_fd);
	thread_forget(conn);
	free(conn);
}

void conn_leave(struct http_conn *conn)
{
	if (--conn->depth > 0 || conn->state != CONN_CLOSING)
		return;
	if (!conn->is_closed) {
		conn_set_timer(conn, 0);
		/* The memory of pending operations is the kernel's until they have called back. */
		if (conn->is_receiving)
			stream_cancel(&conn->stream, &conn->recv_op);
		if (conn->is_sending)
			stream_cancel(&conn->stream, &conn->send_op);
		if (conn->is_receiving || conn->is_sending)
			return;
		conn->kept_peer = stream_tls_take_peer(&conn->stream);
		stream_close(&conn->stream);
		conn->is_closed = true;
	}
	if (!conn->has_call)
		free_conn(conn);
}

void conn_abort(struct http_conn *conn, enum err_code code, const char *why)
{
	struct err err;
	if (conn->state == CONN_CLOSING)
		return;
	conn_enter(conn);
	conn->state = CONN_CLOSING;
	err_set(&err, code, "%s", why);
	body_gone(conn, &err);
	conn_leave(conn);
}

bool conn_is_idle(const struct http_conn *conn)
{
	return conn->state == CONN_HEAD && conn->input_begin == conn->input_size;
}

void conn_set_timer(struct http_conn *conn, int64_t delay_us)
{
	if (delay_us > 0)
		loop_timer_set(conn->thread->loop, &conn->timer, delay_us);
	else
		loop_timer_stop(conn->thread->loop, &conn->timer);
}

static void on_timer(struct timer *timer, int64_t now_us)
{
	struct http_conn *conn = timer->owner;
	(void)now_us;
	conn_enter(conn);
	switch (conn->state) {
	case CONN_HEAD:
		if (conn_is_idle(conn)) {
			conn->state = CONN_CLOSING;
		} else {
			struct err err;
			err_set(&err, ERR_SLOW, "the head of the request did not arrive in time");
			conn->parse.is_keep_alive = false;
			call_answer_err(conn, &err);
		}
		break;
	case CONN_CALL:
		body_broken(conn, ERR_SLOW, "the body stopped coming");
		break;
	case CONN_REPLY:
		conn_abort(conn, ERR_SLOW, "the answer is not being read");
		break;
	case CONN_DRAIN:
	case CONN_LINGER:
	case CONN_CLOSING:
		conn->state = CONN_CLOSING;
		break;
	}
	conn_leave(conn);
}

/* --- reading --- */

static void parse_head(struct http_conn *conn)
{
	const struct http_options *options = &conn->thread->server->options;
	int result = http1_head_parse(&conn->parse, conn_head_data(conn), conn->input_size - conn->input_begin);
	if (result == HTTP1_DONE) {
		conn->is_request = true;
		conn_set_timer(conn, 0);
		call_begin(conn);
		return;
	}
	if (result == HTTP1_MORE) {
		/* The time runs from the first byte; what follows does not extend it, or a byte a second would hold us for hours. */
		if (!conn->is_head_timed)
			conn_set_timer(conn, options->head_timeout_us);
		conn->is_head_timed = true;
		recv_head(conn);
		return;
	}
	struct err err;
	err_set(&err, (enum err_code) - result, "%s", conn->parse.fault);
	conn->parse.is_keep_alive = false;
	call_answer_err(conn, &err);
}

static void recv_head(struct http_conn *conn)
{
	if (conn->input_begin > 0) {
		memmove(conn->input, conn->input + conn->input_begin, conn->input_size - conn->input_begin);
		conn->input_size -= conn->input_begin;
		conn->input_begin = 0;
	}
	if (conn->input_size == conn->input_capacity) {
		/* The parser gives up at HTTP1_HEAD_MAX, which is therefore the most that the buffer grows to. */
		conn->input_capacity = min_size(conn->input_capacity * 2, HTTP1_HEAD_MAX);
		MUST(conn->input_capacity > conn->input_size);
		char *larger = must_alloc(conn->input_capacity);
		memcpy(larger, conn->input, conn->input_size);
		free(conn->input);
		conn->input = larger;
	}
	conn->is_receiving = true;
	stream_recv(&conn->stream, &conn->recv_op, conn->input + conn->input_size,
		    conn->input_capacity - conn->input_size);
}

void conn_recv_body(struct http_conn *conn)
{
	const struct http_options *options = &conn->thread->server->options;
	/* A handler that answers early leaves a recv behind, whose bytes come to whatever state is next. */
	if (conn->is_receiving)
		return;
	size_t size = options->body_buffer_bytes;
	/* Never past the end of a body whose end is known: what follows belongs in the head's buffer. */
	if (conn->body.framing == HTTP1_LENGTH && conn->body.left_bytes < size)
		size = (size_t)conn->body.left_bytes;
	if (!conn->body_buffer)
		conn->body_buffer = thread_take_buffer(conn->thread);
	conn->body_begin = conn->body_size = 0;
	conn->is_receiving = true;
	if (conn->state == CONN_CALL)
		conn_set_timer(conn, options->body_stall_timeout_us);
	stream_recv(&conn->stream, &conn->recv_op, conn->body_buffer, size);
}

static void head_received(struct http_conn *conn, int result)
{
	if (result > 0) {
		conn->input_size += (size_t)result;
		parse_head(conn);
		return;
	}
	if (result < 0 || conn_is_idle(conn)) {
		conn->state = CONN_CLOSING;
		return;
	}
	struct err err;
	err_set(&err, ERR_TRUNCATED, "the connection was closed before the whole head had come");
	conn->parse.is_keep_alive = false;
	call_answer_err(conn, &err);
}

/* The next request, of which some bytes may have come already. */
static void next_request(struct http_conn *conn)
{
	MUST(!conn->is_receiving);
	call_fini(&conn->call);
	conn->input_begin += conn->parse.head_size;
	if (conn->body_begin < conn->body_size) {
		/* Only behind a chunked body: its end was not known when the bytes were asked for. The head's buffer is used up by then. */
		size_t size = conn->body_size - conn->body_begin;
		conn->input_begin = 0;
		conn->input_size = size;
		if (conn->input_capacity < size) {
			free(conn->input);
			conn->input = must_alloc(size);
			conn->input_capacity = size;
		}
		memcpy(conn->input, conn->body_buffer + conn->body_begin, size);
	}
	thread_give_buffer(conn->thread, conn->body_buffer);
	conn->body_buffer = NULL;
	conn->body_begin = conn->body_size = 0;
	if (conn->input_begin == conn->input_size) {
		conn->input_begin = conn->input_size = 0;
		if (conn->input_capacity > CONN_HEAD_FIRST_BYTES) {
			free(conn->input);
			conn->input = must_alloc(CONN_HEAD_FIRST_BYTES);
			conn->input_capacity = CONN_HEAD_FIRST_BYTES;
		}
	}
	http1_head_init(&conn->parse, HTTP1_REQUEST);
	conn->is_request = conn->is_body_done = conn->is_replied = conn->is_head_timed = false;
	conn->body_count_bytes = 0;
	conn->piece_wait_us = 0;
	conn->state = CONN_HEAD;
	if (conn->input_begin < conn->input_size) {
		parse_head(conn);
	} else if (conn->thread->is_stopping || conn->is_eof) {
		conn->state = CONN_CLOSING;
	} else {
		conn_set_timer(conn, conn->thread->server->options.idle_timeout_us);
		recv_head(conn);
	}
}

static void drain(struct http_conn *conn)
{
	if (body_drain(conn)) {
		conn_set_timer(conn, 0);
		next_request(conn);
	}
}

static void linger(struct http_conn *conn)
{
	if (conn->is_receiving)
		return;
	/* What came with the last request is of no more use, so any buffer will do to throw bytes away in. */
	char *target = conn->body_buffer ? conn->body_buffer : conn->input;
	size_t size = conn->body_buffer ? conn->thread->server->options.body_buffer_bytes : conn->input_capacity;
	conn->is_receiving = true;
	stream_recv(&conn->stream, &conn->recv_op, target, size);
}

static void on_recv(struct loop *loop, struct op *op, int result)
{
	struct http_conn *conn = op->owner;
	(void)loop;
	conn_enter(conn);
	conn->is_receiving = false;
	if (conn->state == CONN_HEAD) {
		head_received(conn, result);
		conn_leave(conn);
		return;
	}
	if (result > 0)
		conn->body_size = (size_t)result;
	else
		conn->is_eof = true;
	switch (conn->state) {
	case CONN_CALL:
		conn_set_timer(conn, 0);
		if (result < 0)
			conn_abort(conn, ERR_CLOSED, "the connection broke while the body was coming");
		else
			body_received(conn);
		break;
	case CONN_DRAIN:
		drain(conn);
		break;
	case CONN_LINGER:
		conn->linger_bytes += result > 0 ? (uint64_t)result : 0;
		if (result <= 0 || conn->linger_bytes > CONN_LINGER_MAX_BYTES)
			conn->state = CONN_CLOSING;
		else
			linger(conn);
		break;
	case CONN_HEAD:
	case CONN_REPLY: /* kept for what comes after the reply */
	case CONN_CLOSING:
		break;
	}
	conn_leave(conn);
}

/* --- sending --- */

static void reply_sent(struct http_conn *conn)
{
	if (conn->out.capacity > CONN_JOIN_MAX_BYTES)
		buf_fini(&conn->out);
	buf_clear(&conn->out);
	buf_fini(&conn->out_body);
	conn->out_at = conn->out_body_at = 0;
	if (conn->file_fd >= 0)
		close(conn->file_fd);
	conn->file_fd = -1;
	conn_set_timer(conn, 0);
	if (conn->is_keep) {
		conn->state = CONN_DRAIN;
		conn_set_timer(conn, CONN_LINGER_US);
		drain(conn);
		return;
	}
	if (conn->is_eof) {
		conn->state = CONN_CLOSING;
		return;
	}
	/* Closing while the peer still sends would make the kernel answer with a reset, which can destroy the reply before it is read. */
	stream_shut(&conn->stream);
	conn->state = CONN_LINGER;
	conn_set_timer(conn, CONN_LINGER_US);
	linger(conn);
}

static void send_part(struct http_conn *conn, enum conn_part part, const char *data, size_t size)
{
	conn->sending_part = part;
	conn->is_sending = true;
	/* While a body flows, its own time limit is running. */
	if (conn->is_replied)
		conn_set_timer(conn, conn->thread->server->options.send_stall_timeout_us);
	if (part == PART_FILE) {
		size_t most = (size_t)1 << 30;
		stream_sendfile(&conn->stream, &conn->send_op, conn->file_fd, conn->file_offset,
				conn->file_left < most ? (size_t)conn->file_left : most);
	} else {
		stream_send(&conn->stream, &conn->send_op, data, size);
	}
}

void conn_send(struct http_conn *conn)
{
	if (conn->is_sending)
		return;
	if (conn->interim.size > 0)
		send_part(conn, PART_INTERIM, conn->interim.data, conn->interim.size);
	else if (!conn->is_replied)
		return;
	else if (conn->out_at < conn->out.size)
		send_part(conn, PART_HEAD, conn->out.data + conn->out_at, conn->out.size - conn->out_at);
	else if (conn->out_body_at < conn->out_body.size)
		send_part(conn, PART_BODY, conn->out_body.data + conn->out_body_at,
			  conn->out_body.size - conn->out_body_at);
	else if (conn->file_left > 0)
		send_part(conn, PART_FILE, NULL, 0);
	else
		reply_sent(conn);
}

static void on_send(struct loop *loop, struct op *op, int result)
{
	struct http_conn *conn = op->owner;
	(void)loop;
	conn_enter(conn);
	conn->is_sending = false;
	if (conn->state == CONN_CLOSING) {
		conn_leave(conn);
		return;
	}
	if (result <= 0) {
		/* A file that has become shorter ends here too: the length has been promised, so the peer must see a broken answer. */
		conn_abort(conn, ERR_CLOSED, "the connection broke while an answer was being sent");
		conn_leave(conn);
		return;
	}
	size_t sent = (size_t)result;
	switch (conn->sending_part) {
	case PART_INTERIM:
		conn->interim.data += sent;
		conn->interim.size -= sent;
		break;
	case PART_HEAD:
		conn->out_at += sent;
		break;
	case PART_BODY:
		conn->out_body_at += sent;
		break;
	case PART_FILE:
		conn->file_offset += (int64_t)sent;
		conn->file_left -= sent;
		break;
	}
	conn_send(conn);
	conn_leave(conn);
}

void conn_new(struct http_thread *thread, int fd, bool is_refused)
{
	struct http_conn *conn = must_zalloc(1, sizeof(*conn));
	conn->thread = thread;
	conn->is_refused = is_refused;
	conn->file_fd = -1;
	conn->out = BUF_INIT(SIZE_MAX / 2);
	if (thread->server->options.tls)
		stream_tls_init(&conn->stream, thread->loop, fd, thread->server->options.tls);
	else
		stream_socket_init(&conn->stream, thread->loop, fd);
	conn->recv_op = (struct op){ .done = on_recv, .owner = conn };
	conn->send_op = (struct op){ .done = on_send, .owner = conn };
	conn->timer = (struct timer){ .fire = on_timer, .owner = conn };
	conn->input_capacity = CONN_HEAD_FIRST_BYTES;
	conn->input = must_alloc(conn->input_capacity);
	conn->next = thread->conns;
	if (conn->next)
		conn->next->prev = conn;
	thread->conns = conn;
	http1_head_init(&conn->parse, HTTP1_REQUEST);
	sock_set_nodelay(fd);
	if (sock_peer(fd, &conn->peer) == 0 && sock_addr_is_loopback(&conn->peer))
		sock_tune_loopback(fd);

	conn_enter(conn);
	if (is_refused) {
		struct err err;
		err_set(&err, ERR_BUSY, "the server has as many connections as it takes");
		err_hint(&err, "try again in a moment");
		call_answer_err(conn, &err);
	} else {
		conn->is_head_timed = true;
		conn_set_timer(conn, thread->server->options.head_timeout_us);
		recv_head(conn);
	}
	conn_leave(conn);
}
