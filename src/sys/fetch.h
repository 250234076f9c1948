/* Outgoing HTTP by libcurl's multi interface: one struct fetch per thread, connections kept alive and reused. Used by the client and for
 * control calls. Results come as callbacks from within fetch_step. */
#ifndef HENG_SYS_FETCH_H
#define HENG_SYS_FETCH_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"
#include "sys/tls.h"

struct fetch;
struct fetch_call;

#define FETCH_HEADERS_MAX 16

struct fetch_call {
	/* Asked: filled by the caller, kept alive until done. */
	const char *method; /* "GET", "PUT", ... */
	const char *url;
	const char *headers[FETCH_HEADERS_MAX]; /* "Name: value", NULL ends */
	struct str body;                        /* in memory, or: */
	int body_fd; /* used when body_fd_size >= 0 (set it to -1 otherwise): a file read from offset body_fd_offset */
	int64_t body_fd_offset, body_fd_size;
	int64_t connect_timeout_us;        /* 0: 5 s */
	int64_t timeout_us;                /* the whole call; 0: none */
	int64_t stall_timeout_us;          /* less than 1 byte/s for this long ends it; 0: 30 s */
	bool is_anonymous;                 /* shows no certificate of our own: who is called has no business with it */
	const atomic_bool *is_interrupted; /* of fetch_do: NULL, or set from anywhere: the call ends with ERR_WAITING */
	/* The answer's body: pieces go to sink (return false to stop the call, with err filled if there is something to
	 * say); without a sink they are collected in answer (set its limit). */
	bool (*sink)(struct fetch_call *call, struct str piece);
	struct buf answer; /* caller frees */
	/* Each header of the answer, as it comes: NULL, or what wants to see them. */
	void (*header)(struct fetch_call *call, struct str name, struct str value);
	/* Called once, from fetch_step (or fetch_do). */
	void (*done)(struct fetch *fetch, struct fetch_call *call);
	void *owner;
	/* Answered. */
	int status; /* HTTP status, 0 when none came */
	struct err
		err; /* transport failure (ERR_CONNECT, ERR_TIMEOUT, ERR_CLOSED, ERR_PEER, ERR_TLS), or, for status >= 400, the server's own
				    error read by json_err_read from `answer` (a sink is not fed then: the body of an error goes to answer) */
	bool is_request_sent;   /* some of the request may have reached the server */
	int64_t retry_after_us; /* from Retry-After, or 0 */
	int64_t bytes_sent;     /* body bytes so far, updated while the call runs */
	/* The rest belongs to fetch. */
	void *easy, *header_list;
	struct tls_context *tls;
	bool is_running, is_expecting_error_body, is_answer_full, is_queued;
	struct fetch *fetch;
	struct fetch_call *queue_next;
	uint64_t grant_bytes; /* may be sent before it queues again; with a limit only */
	int64_t body_read;
	char reason[256]; /* libcurl's own words */
	struct fetch_call *next, **link;
};

int fetch_new(struct fetch **ret_fetch, struct err *err);
void fetch_free(struct fetch **fetch); /* running calls are dropped without a callback */
/* Bodies of all calls together go at this rate from now on, in turns of about 20 ms each (see base/bucket.h for the limits); 0: as fast as they can.
 * Bytes that a broken connection makes go twice count twice. Not while calls run. */
void fetch_limit_rate(struct fetch *fetch, uint64_t rate_bytes);
/* For https: who is believed (its `ca`; without one, the authorities of this system) and what is shown to who asks (its certificate). What its files
 * hold when a connection is made counts for that connection. tls: NULL, or outlives the fetch. Not while calls run. */
void fetch_use_tls(struct fetch *fetch, struct tls *tls);
/* Makes the call, new or used, a POST of the body with these two headers ("Name: value"): nothing of a former use is left. Limits, answer, done and
 * owner are the caller's to fill. */
void fetch_call_post(struct fetch_call *call, const char *url, const char *key_header, const char *type_header,
		     struct str body);
/* body_fd_size must be -1 when unused. The call must be zeroed and filled anew before it is started again; answer is cleared. */
void fetch_start(struct fetch *fetch, struct fetch_call *call);
void fetch_cancel(struct fetch *fetch,
		  struct fetch_call *call); /* no callback; not from within a sink (return false there) */
size_t fetch_running_count(const struct fetch *fetch);
/* Moves transfers on, waits at most timeout_us for something to happen, runs callbacks. */
void fetch_step(struct fetch *fetch, int64_t timeout_us);
void fetch_wake(struct fetch *fetch); /* from any thread: ends a wait */
/* Start and step to the end. 0 for a 2xx answer, else -code and call->err (copied to err). done may be NULL. */
int fetch_do(struct fetch *fetch, struct fetch_call *call, struct err *err);

#define FETCH_CALL_INIT \
	((struct fetch_call){ .method = "GET", .body_fd = -1, .body_fd_size = -1, .answer = BUF_INIT(MIB) })

#endif
