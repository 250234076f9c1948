/* An HTTP/1.1 server on the loop: N threads, each with its own loop and its own listening socket (SO_REUSEPORT), a router table,
 * bodies streamed to a sink. Limits on everything: head size and time, body rate, idle time, connections. */
#ifndef HENG_HTTP_SERVER_H
#define HENG_HTTP_SERVER_H

#include "base/buf.h"
#include "base/err.h"
#include "sys/loop.h"
#include "sys/sock.h"
#include "sys/tls.h"
#include "sys/work.h"

struct http_server;
struct http_call; /* one request; touched on its loop's thread only, except where said */

/* begin: the head has arrived. It must either answer (http_reply*), or take the body (http_take_body), or keep the call to answer later
 * (then any body is discarded). */
struct http_route {
	const char *method; /* a GET route serves HEAD too; the first row that fits wins */
	const char *
		pattern; /* "/api/v1/upload/chunk/:transfer/:file/:chunk"; a ":name" takes one non-empty segment, percent-decoded */
	void (*begin)(struct http_call *call, void *app);
};

struct http_options {
	unsigned thread_count; /* 0: one per core */
	enum loop_backend backend;
	size_t connection_limit_count; /* per server; beyond it: 503 and close */
	uint64_t body_limit_bytes;     /* larger Content-Length: 413 at once; chunked: when passed */
	int64_t head_timeout_us;       /* whole head, from its first byte (or from accept) */
	int64_t idle_timeout_us;       /* between requests */
	int64_t body_stall_timeout_us; /* no byte for that long: 408 and close */
	uint64_t body_rate_min_bps; /* bytes per second, average after the first 10 s; slower: 408 and close; 0: off */
	int64_t send_stall_timeout_us;
	size_t body_buffer_bytes;            /* a piece given to the sink is at most this; 256 KiB */
	struct tls *tls;                     /* NULL: none. Has a certificate; outlives the server */
	int64_t (*wall_us)(const void *app); /* the time told in answers to failures; NULL: this machine's */
	/* Hears of each failure that a handler answers (http_reply_err, http_run_task), on the loop's thread, before the answer. NULL: nobody does. */
	void (*refused)(void *app, const struct http_call *call, const struct err *err);
};
extern const struct http_options http_options_default;

/* Binds (port 0 picks a free port: http_server_addr), does not serve yet. routes ends with a NULL method and outlives the server. */
int http_server_new(const struct http_options *options, const struct sock_addr *listen_addr,
		    const struct http_route *routes, void *app, struct http_server **ret_server, struct err *err);
const struct sock_addr *http_server_addr(const struct http_server *server);
int http_server_start(struct http_server *server, struct err *err); /* starts its threads */
/* Stops accepting, closes idle connections, lets running calls finish for grace_us, then cuts them; joins. */
void http_server_stop(struct http_server *server,
		      int64_t grace_us); /* also waits for every reply that a handler still owes */
/* After the pools whose jobs come home to its loops have been freed: a pool thread may still be waking a loop whose job is already done. */
void http_server_free(struct http_server **server);

/* --- the request --- slices are valid until the reply is given */
struct str http_method(const struct http_call *call);
struct str http_param(const struct http_call *call,
		      const char *name); /* of the pattern, decoded; STR_NONE when absent */
bool http_query(const struct http_call *call, const char *name, char *target, size_t target_size,
		size_t *ret_size); /* percent-decoded ('+' stays) */
/* It is there, be it one that http_query cannot give: too long, or badly encoded. */
bool http_query_has(const struct http_call *call, const char *name);
struct str http_header(const struct http_call *call, const char *name);
int64_t http_body_size(const struct http_call *call); /* Content-Length, 0 without a body, -1 for chunked */
const struct sock_addr *http_peer(const struct http_call *call);
/* The certificate that the caller has shown and proved to hold, of an authority that the server believes; NULL: it has shown none, or there is no
 * TLS. Lives as long as the call. */
const struct tls_peer *http_peer_cert(const struct http_call *call);
bool http_is_tls(const struct http_call *call);
const char *http_request_id(const struct http_call *call); /* made by the server, also sent as X-Request-Id */
struct loop *http_loop(const struct http_call *call);
void *http_app(const struct http_call *call);
/* For the handler's own state of this call. */
void http_set_state(struct http_call *call, void *state);
void *http_state(const struct http_call *call);

/* --- the body --- */
enum { HTTP_BODY_WAIT = 1 };
struct http_sink {
	/* The next piece, on the loop's thread. 0: go on. HTTP_BODY_WAIT: the piece is still in use; its memory stays valid and nothing more is
	 * read until http_body_resume. Negative: the handler has replied; the rest is not read and the connection closes. */
	int (*data)(struct http_call *call, struct str piece);
	/* The whole body has come. The handler replies, now or later. */
	void (*end)(struct http_call *call);
	/* Instead of end: the peer vanished, was too slow, or broke the framing (err says which). The server itself answers where an answer is
	 * still possible. Free the state; never reply. Not called while a piece is in use: it is delayed until http_body_resume. */
	void (*gone)(struct http_call *call, const struct err *err);
};
/* Sends "100 Continue" when the client waits for it. sink must be static. From begin: the sink is first called after begin has returned. Later
 * (the body waits meanwhile): the sink may be called before this returns, so set the state first; http_body_resume is the same. */
void http_take_body(struct http_call *call, const struct http_sink *sink);
void http_body_resume(struct http_call *call);

/* --- the answer --- exactly one of these per call, on the loop's thread; safe (and dropped) when the peer has gone meanwhile. If the request's
 * body has not been read, the connection closes after the answer (with a bounded, lingering discard so that the client sees it). */
/* Before the reply; copied. Left out when the name is not a token or the value could break the line. */
void http_reply_header(struct http_call *call, const char *name, const char *value);
void http_reply(struct http_call *call, int status, const char *type,
		struct str body);                                           /* copied; type NULL without a body */
void http_reply_json(struct http_call *call, int status, struct buf *body); /* takes the buffer's memory */
void http_reply_err(struct http_call *call,
		    const struct err *err); /* status and JSON from err_list; Retry-After for SAME/503/507 */
/* size bytes of file_fd from offset; takes the descriptor. */
void http_reply_file(struct http_call *call, int status, const char *type, int file_fd, int64_t offset, uint64_t size);

/* --- small calls --- the whole body (<= limit) collected, then run on a pool thread, which fills reply fields, then answered: for handlers that
 * touch a database or a disk. */
struct http_task {
	struct http_call *call; /* head fields may be read in run */
	struct buf body;        /* the request's */
	int status;             /* set by run, 200 by default */
	struct buf answer;      /* JSON text; may stay empty */
	int result;             /* run's: negative: err is answered instead */
	struct err err;
	int64_t retry_after_us;
	void *app;
	int (*run)(struct http_task *task);
	struct job job;
};
/* From begin: collects the body, runs, replies. Pool full: 503 busy. */
void http_run_task(struct http_call *call, struct work *work, size_t body_limit_bytes, size_t answer_limit_bytes,
		   int (*run)(struct http_task *task));

#endif
