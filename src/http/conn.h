/* One connection of the HTTP server and the request it is serving: private to the http room. Everything here is touched on the loop's thread
 * only, except that the head of a running request may be read by a pool thread (nothing writes to it until the reply).
 *
 * Life: a connection is freed in conn_leave when it is CLOSING, no operation is pending, and no handler still owes a reply. Every entry
 * (completion, timer, call by a handler) is therefore bracketed by conn_enter and conn_leave, and nothing is freed in between. */
#ifndef HENG_HTTP_CONN_H
#define HENG_HTTP_CONN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/rng.h"
#include "http/server.h"
#include "sys/tls_stream.h"
#include "wire/http1.h"

#define CONN_HEAD_FIRST_BYTES (4 * KIB)
#define CONN_DRAIN_MAX_BYTES  (64 * KIB) /* a rest of a body that is read away to keep the connection */
#define CONN_LINGER_MAX_BYTES \
	(4 * MIB) /* read away after the last answer, so that the peer sees it instead of a reset */
#define CONN_LINGER_US       SEC_US
#define CONN_RATE_GRACE_US   (10 * SEC_US)
#define CONN_REFUSED_MAX     128        /* per thread: connections over the limit that are being told so */
#define CONN_JOIN_MAX_BYTES  (16 * KIB) /* a body up to this size is copied behind its head: one send instead of two */
#define CALL_PARAMS_MAX      8
#define CALL_SEGMENTS_MAX    32
#define CALL_ID_SIZE         17
#define THREAD_SPARE_BUFFERS 8

struct http_thread {
	struct http_server *server;
	struct loop *loop;
	pthread_t thread;
	bool is_started, is_accepting, is_stopping;
	int listen_fd;
	struct op accept_op;
	struct timer accept_timer; /* back-off after a failed accept */
	struct timer grace_timer;
	struct post stop_post;
	int64_t grace_us;
	struct http_conn *conns;
	size_t refused_count;
	struct rng rng;
	char *spare_buffers
		[THREAD_SPARE_BUFFERS]; /* body buffers between uses: a fresh one costs a page fault per 4 KiB */
	unsigned spare_count;
};

struct http_server {
	struct http_options options;
	struct sock_addr addr;
	const struct http_route *routes;
	void *app;
	_Atomic size_t connection_count;
	struct http_thread *threads;
	unsigned thread_count;
};

struct call_param {
	const char *name;
	size_t name_size;
	struct str value;
};

struct http_call {
	const struct http_route *route;
	void *state;
	struct http_task *task;
	const struct tls_peer *peer; /* the stream's, or conn->kept_peer */
	char id[CALL_ID_SIZE];
	char *path_text; /* the decoded segments, which params point into */
	struct call_param params[CALL_PARAMS_MAX];
	unsigned param_count;
	struct buf reply_headers;
	bool has_retry_after;
};

enum conn_state {
	CONN_HEAD,    /* reading a request's head (or idle between requests) */
	CONN_CALL,    /* a handler has the request; its body may be flowing */
	CONN_REPLY,   /* the answer is being sent */
	CONN_DRAIN,   /* answered; a small rest of the body is read away */
	CONN_LINGER,  /* answered for the last time; what still comes is thrown away */
	CONN_CLOSING, /* waits for pending operations and for a reply that is still owed */
};

enum conn_part { PART_INTERIM, PART_HEAD, PART_BODY, PART_FILE };

struct http_conn {
	struct http_thread *thread;
	struct http_conn *prev, *next;
	struct stream stream;
	struct op recv_op, send_op;
	struct timer timer;
	struct sock_addr peer;
	enum conn_state state;
	unsigned depth;
	bool is_receiving, is_sending, is_closed, is_eof;
	struct tls_peer *kept_peer; /* of a stream that is closed, for a call that still runs */
	bool is_refused;            /* counted as refused, not as a connection */

	/* What was received: input[begin..size) is the head being read or served and what came along with it; body_buffer[begin..size) is
	 * what came later while a body flowed. */
	char *input;
	size_t input_begin, input_size, input_capacity;
	char *body_buffer;
	size_t body_begin, body_size;
	struct http1_head parse;
	struct http1_body body;
	bool is_request;    /* parse holds a whole head */
	bool is_head_timed; /* head_timeout_us is running; else we are idle between requests */

	struct http_call call;
	bool has_call; /* the handler owes a reply (or will be told that the request is gone) */
	bool is_in_begin;
	const struct http_sink *sink;
	bool is_body_done; /* framing reached its end */
	bool is_in_data, is_piece_used, is_resumed;
	bool is_gone_pending; /* gone_err is told when the piece comes back */
	struct err gone_err;
	uint64_t body_count_bytes;
	int64_t body_start_us, piece_start_us, piece_wait_us;

	/* The answer. */
	bool is_replied, is_keep;
	struct str interim; /* the rest of "100 Continue" */
	struct buf out, out_body;
	size_t out_at, out_body_at;
	int file_fd;
	int64_t file_offset;
	uint64_t file_left;
	enum conn_part sending_part;
	uint64_t linger_bytes;
};

/* server.c: counts the connection out and unlinks it. */
void thread_forget(struct http_conn *conn);
char *thread_take_buffer(struct http_thread *thread);
void thread_give_buffer(struct http_thread *thread, char *buffer);

/* conn.c */
void conn_new(struct http_thread *thread, int fd, bool is_refused);
void conn_enter(struct http_conn *conn);
void conn_leave(struct http_conn *conn); /* may free it */
/* No more answers: closes when pending operations have ended. A sink is told by gone. */
void conn_abort(struct http_conn *conn, enum err_code code, const char *why);
bool conn_is_idle(const struct http_conn *conn);
void conn_send(struct http_conn *conn); /* sends what is next, or goes on when all has been sent */
void conn_recv_body(struct http_conn *conn);
void conn_set_timer(struct http_conn *conn, int64_t delay_us);

/* body.c */
void body_pump(struct http_conn *conn);
void body_gone(struct http_conn *conn, const struct err *err);
/* Gives the sink its bad news and answers the client. */
void body_broken(struct http_conn *conn, enum err_code code, const char *why);
void body_received(struct http_conn *conn);
/* Reads the rest of an answered request away; true once it has all come. False: more is needed (or it broke, and the connection ends). */
bool body_drain(struct http_conn *conn);

/* call.c */
void call_begin(struct http_conn *conn); /* the head is complete: route it */
void call_fini(struct http_call *call);
/* The server's own answer to something that no handler sees. Clear parse.is_keep_alive before, if what follows cannot be trusted. */
void call_answer_err(struct http_conn *conn, const struct err *err);

/* router.c: fills route and params. 0; -ERR_NO_ROUTE; -ERR_METHOD with the allowed methods in ret_allow; -ERR_BAD_REQUEST. */
int router_find(const struct http_route *routes, struct http_call *call, struct str method, struct str path,
		struct buf *ret_allow, struct err *err);

/* task.c */
void task_free(struct http_task **task);

static inline struct http_conn *call_conn(const struct http_call *call)
{
	return CONTAINER_OF(call, struct http_conn, call);
}
static inline const char *conn_head_data(const struct http_conn *conn) { return conn->input + conn->input_begin; }

#endif
