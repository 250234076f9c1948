#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bucket.h"
#include "base/clock.h"
#include "base/json.h"
#include "sys/fetch_tls.h"
#include "sys/sock.h"

#define CONNECT_TIMEOUT_US  (5 * SEC_US)
#define STALL_TIMEOUT_US    (30 * SEC_US)
#define EXPECT_TIMEOUT_MS   1000L
#define TRANSFER_BUFFER     (512L * 1024)
#define CONNECTIONS_KEPT    64L
#define EASY_KEPT_MAX       64
#define ERROR_BODY_LIMIT    (64 * KIB)
#define RETRY_AFTER_MAX_SEC (24 * 3600)
#define INTERRUPT_LOOK_US   (100 * MSEC_US)
#define FOREVER_US          (3600 * SEC_US)
#define TURNS_PER_SEC       50
#define TURN_MIN_BYTES      ((uint64_t)KIB)

_Static_assert(sizeof(((struct fetch_call *)NULL)->reason) >= CURL_ERROR_SIZE, "room for libcurl's words");

struct fetch {
	CURLM *multi;
	struct tls *tls; /* NULL: none */
	struct fetch_call *running;
	struct fetch_call *stillborn; /* could not be started: done is called in the next step */
	size_t running_count;         /* of both */
	CURL *easy_kept[EASY_KEPT_MAX];
	size_t easy_kept_count;
	bool is_limited;
	struct bucket bucket; /* the rest only with a limit */
	uint64_t turn_bytes;
	struct fetch_call *queue_head, **queue_tail; /* calls that have used up their turn, paused in libcurl */
};

static CURLcode global_result;
static void init_global(void) { global_result = curl_global_init(CURL_GLOBAL_DEFAULT); }

int fetch_new(struct fetch **ret_fetch, struct err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	*ret_fetch = NULL;
	(void)pthread_once(&once, init_global);
	if (global_result != CURLE_OK)
		return err_set(err, ERR_SYSTEM, "cannot set up libcurl: %s", curl_easy_strerror(global_result));
	CURLM *multi = curl_multi_init();
	if (!multi)
		return err_set(err, ERR_NO_MEMORY, "cannot set up libcurl: no memory");
	(void)curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_KEPT);
	(void)curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	*ret_fetch = must_zalloc(1, sizeof(**ret_fetch));
	(*ret_fetch)->multi = multi;
	(*ret_fetch)->queue_tail = &(*ret_fetch)->queue_head;
	return 0;
}

void fetch_use_tls(struct fetch *fetch, struct tls *tls)
{
	MUST(fetch->running_count == 0);
	fetch->tls = tls;
}

/* --- the limit of the rate: calls take turns, so that a slow rate starves none of them --- */

void fetch_limit_rate(struct fetch *fetch, uint64_t rate_bytes)
{
	MUST(fetch->running_count == 0);
	fetch->is_limited = rate_bytes > 0;
	if (!fetch->is_limited)
		return;
	bucket_init(&fetch->bucket, rate_bytes, clock_mono_us());
	fetch->turn_bytes = fetch->bucket.rate_bytes / TURNS_PER_SEC;
	if (fetch->turn_bytes < TURN_MIN_BYTES)
		fetch->turn_bytes = TURN_MIN_BYTES;
}

static void queue_add(struct fetch_call *call)
{
	struct fetch *fetch = call->fetch;

	if (call->is_queued)
		return;
	call->is_queued = true;
	call->queue_next = NULL;
	*fetch->queue_tail = call;
	fetch->queue_tail = &call->queue_next;
}

static void queue_remove(struct fetch *fetch, struct fetch_call *call)
{
	struct fetch_call **at = &fetch->queue_head;

	if (!call->is_queued)
		return;
	while (*at != call)
		at = &(*at)->queue_next;
	*at = call->queue_next;
	if (fetch->queue_tail == &call->queue_next)
		fetch->queue_tail = at;
	call->is_queued = false;
}

static int64_t body_size(const struct fetch_call *call)
{
	return call->body_fd_size >= 0 ? call->body_fd_size : (int64_t)call->body.size;
}

static uint64_t turn_of(const struct fetch *fetch, const struct fetch_call *call)
{
	uint64_t left = (uint64_t)max_i64(1, body_size(call) - call->body_read);

	return left < fetch->turn_bytes ? left : fetch->turn_bytes;
}

/* Wakes those whose turn it is. Returns how long until it is the next one's, or -1 when none waits. */
static int64_t pace(struct fetch *fetch)
{
	struct fetch_call *call;

	while ((call = fetch->queue_head) != NULL) {
		int64_t now_us = clock_mono_us();
		uint64_t turn_bytes = turn_of(fetch, call);
		int64_t wait_us = bucket_wait_us(&fetch->bucket, turn_bytes, now_us);

		if (wait_us > 0)
			return wait_us;
		queue_remove(fetch, call);
		call->grant_bytes = bucket_take(&fetch->bucket, turn_bytes, now_us);
		(void)curl_easy_pause(call->easy, CURLPAUSE_CONT);
	}
	return -1;
}

static void link_call(struct fetch *fetch, struct fetch_call **list, struct fetch_call *call)
{
	call->next = *list;
	call->link = list;
	if (call->next)
		call->next->link = &call->next;
	*list = call;
	call->is_running = true;
	fetch->running_count++;
}

/* Takes the call out of its list and gives back what it holds of libcurl's. */
static void release(struct fetch *fetch, struct fetch_call *call)
{
	*call->link = call->next;
	if (call->next)
		call->next->link = call->link;
	call->next = NULL;
	call->link = NULL;
	call->is_running = false;
	queue_remove(fetch, call);
	if (call->grant_bytes > 0)
		bucket_give_back(&fetch->bucket, call->grant_bytes);
	call->grant_bytes = 0;
	fetch->running_count--;
	if (call->easy) {
		(void)curl_multi_remove_handle(fetch->multi, call->easy);
		if (fetch->easy_kept_count < EASY_KEPT_MAX) {
			curl_easy_reset(call->easy);
			fetch->easy_kept[fetch->easy_kept_count++] = call->easy;
		} else {
			curl_easy_cleanup(call->easy);
		}
		call->easy = NULL;
	}
	curl_slist_free_all(call->header_list);
	call->header_list = NULL;
	tls_context_drop(&call->tls);
}

void fetch_free(struct fetch **fetch_ptr)
{
	struct fetch *fetch = *fetch_ptr;

	if (!fetch)
		return;
	while (fetch->running)
		release(fetch, fetch->running);
	while (fetch->stillborn)
		release(fetch, fetch->stillborn);
	while (fetch->easy_kept_count > 0)
		curl_easy_cleanup(fetch->easy_kept[--fetch->easy_kept_count]);
	(void)curl_multi_cleanup(fetch->multi);
	free(fetch);
	*fetch_ptr = NULL;
}

/* Here the peer is known before the connection is made, so that its first window is paced right already. */
static curl_socket_t on_open_socket(void *owner UNUSED, curlsocktype purpose UNUSED, struct curl_sockaddr *address)
{
	struct sock_addr peer = { .size = address->addrlen };
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	if (fd < 0)
		return CURL_SOCKET_BAD;
	/* libcurl's address is addrlen bytes long, whatever the type of the member says. */
	memcpy(&peer.storage, (const char *)address + offsetof(struct curl_sockaddr, addr),
	       min_size(address->addrlen, sizeof(peer.storage)));
	sock_tune_for_peer(fd, &peer);
	return fd;
}

static size_t read_done(struct fetch_call *call, size_t size)
{
	call->body_read += (int64_t)size;
	if (call->fetch->is_limited)
		call->grant_bytes -= size;
	return size;
}

static size_t on_read(char *target, size_t size, size_t count, void *owner)
{
	struct fetch_call *call = owner;
	size_t want = min_size(size * count, (size_t)max_i64(0, body_size(call) - call->body_read));
	ssize_t got;

	if (want == 0)
		return 0;
	if (call->fetch->is_limited && call->grant_bytes == 0) {
		queue_add(call);
		return CURL_READFUNC_PAUSE;
	}
	if (call->fetch->is_limited)
		want = min_size(want, (size_t)call->grant_bytes);
	if (call->body_fd_size < 0) {
		memcpy(target, call->body.data + call->body_read, want);
		return read_done(call, want);
	}
	do {
		got = pread(call->body_fd, target, want, call->body_fd_offset + call->body_read);
	} while (got < 0 && errno == EINTR);
	if (got < 0) {
		err_sys(&call->err, ERR_SOURCE, errno, "cannot read the file that is being sent");
		return CURL_READFUNC_ABORT;
	}
	if (got == 0) {
		err_set(&call->err, ERR_SOURCE_CHANGED, "the file became shorter while it was being sent");
		return CURL_READFUNC_ABORT;
	}
	return read_done(call, (size_t)got);
}

/* libcurl starts anew on another connection when the kept one turns out dead. */
static int on_seek(void *owner, curl_off_t offset, int origin)
{
	struct fetch_call *call = owner;

	if (origin != SEEK_SET || offset < 0 || offset > body_size(call))
		return CURL_SEEKFUNC_FAIL;
	call->body_read = offset;
	return CURL_SEEKFUNC_OK;
}

static size_t on_write(char *data, size_t size, size_t count, void *owner)
{
	struct fetch_call *call = owner;
	struct str piece = { data, size * count };
	long status = 0;

	(void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	call->is_expecting_error_body = status >= 400;
	if (call->sink && !call->is_expecting_error_body)
		return call->sink(call, piece) ? piece.size : 0;
	/* However short an answer the caller expects, an error may take its own room. */
	if (call->is_expecting_error_body)
		call->answer.limit = max_size(call->answer.limit, ERROR_BODY_LIMIT);
	if (buf_append(&call->answer, piece) || call->is_expecting_error_body)
		return piece.size; /* of an error body, what fits is enough to tell by */
	call->is_answer_full = true;
	return 0;
}

static size_t on_header(char *data, size_t size, size_t count, void *owner)
{
	struct fetch_call *call = owner;
	struct str line = { data, size * count }, name;

	if (memchr(line.data, ':', line.size) && str_cut(&line, ':', &name)) {
		while (line.size > 0 && (line.data[line.size - 1] == '\n' || line.data[line.size - 1] == '\r'))
			line.size--;
		call->header(call, name, str_trim(line));
	}
	return size * count;
}

static int on_progress(void *owner, curl_off_t down_total UNUSED, curl_off_t down UNUSED, curl_off_t up_total UNUSED,
		       curl_off_t up)
{
	((struct fetch_call *)owner)->bytes_sent = up;
	return 0;
}

/* The caller's headers; -code when one would break the message. */
static int add_headers(struct fetch_call *call)
{
	struct curl_slist *list = NULL, *longer;
	bool has_type = false;

	for (size_t i = 0; i < FETCH_HEADERS_MAX && call->headers[i]; i++) {
		const char *header = call->headers[i];
		if (strpbrk(header, "\r\n") || !strchr(header, ':')) {
			curl_slist_free_all(list);
			return err_set(&call->err, ERR_USAGE, "a header to be sent is malformed");
		}
		has_type = has_type || strncasecmp(header, "Content-Type:", 13) == 0;
		longer = curl_slist_append(list, header);
		MUST(longer);
		list = longer;
	}
	/* libcurl would call every POST a web form. */
	if (!has_type) {
		longer = curl_slist_append(list, "Content-Type:");
		MUST(longer);
		list = longer;
	}
	call->header_list = list;
	(void)curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, list);
	return 0;
}

static void set_method(CURL *easy, struct fetch_call *call)
{
	bool is_put = strcmp(call->method, "PUT") == 0, is_post = strcmp(call->method, "POST") == 0;

	if (is_post) {
		(void)curl_easy_setopt(easy, CURLOPT_POST, 1L);
		(void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_size(call));
	} else if (is_put || body_size(call) > 0) {
		(void)curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		(void)curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)body_size(call));
	} else if (strcmp(call->method, "HEAD") == 0) {
		(void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	} else {
		(void)curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
	}
	if (!is_put && !is_post && strcmp(call->method, "GET") != 0 && strcmp(call->method, "HEAD") != 0)
		(void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
}

static void set_callbacks(CURL *easy, struct fetch_call *call)
{
	(void)curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->reason);
	(void)curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
	(void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
	(void)curl_easy_setopt(easy, CURLOPT_READDATA, call);
	(void)curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
	(void)curl_easy_setopt(easy, CURLOPT_SEEKDATA, call);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	if (call->header) {
		(void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
		(void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	}
	(void)curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
	(void)curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
	(void)curl_easy_setopt(easy, CURLOPT_XFERINFODATA, call);
}

static long rounded_up(int64_t value_us, int64_t unit_us)
{
	return (long)min_i64((value_us + unit_us - 1) / unit_us, INT_MAX);
}

static void set_limits(CURL *easy, const struct fetch_call *call)
{
	int64_t connect_us = call->connect_timeout_us > 0 ? call->connect_timeout_us : CONNECT_TIMEOUT_US;
	int64_t stall_us = call->stall_timeout_us > 0 ? call->stall_timeout_us : STALL_TIMEOUT_US;

	(void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, rounded_up(connect_us, MSEC_US));
	(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, rounded_up(max_i64(0, call->timeout_us), MSEC_US));
	(void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, rounded_up(stall_us, SEC_US));
	(void)curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, EXPECT_TIMEOUT_MS);
	(void)curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, TRANSFER_BUFFER);
	(void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, TRANSFER_BUFFER);
}

static void set_behaviour(CURL *easy)
{
	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	(void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_USERAGENT, "heng/" HENG_VERSION);
}

static int prepare(struct fetch *fetch, struct fetch_call *call)
{
	call->easy = fetch->easy_kept_count > 0 ? fetch->easy_kept[--fetch->easy_kept_count] : curl_easy_init();
	if (!call->easy)
		return err_set(&call->err, ERR_NO_MEMORY, "no memory for a call to %s", call->url);
	set_behaviour(call->easy);
	set_limits(call->easy, call);
	set_callbacks(call->easy, call);
	set_method(call->easy, call);
	if (fetch->tls)
		call->tls = tls_take(fetch->tls);
	fetch_tls_set(call->easy, call->tls, call->is_anonymous);
	if (add_headers(call) < 0)
		return -(int)call->err.code;
	/* libcurl copies it; what is wrong with its form shows when the call runs. */
	if (curl_easy_setopt(call->easy, CURLOPT_URL, call->url) != CURLE_OK)
		return err_set(&call->err, ERR_USAGE, "'%.200s' is not a URL", call->url);
	CURLMcode code = curl_multi_add_handle(fetch->multi, call->easy);
	if (code != CURLM_OK)
		return err_set(&call->err, ERR_INTERNAL, "cannot start a call to %.200s: %s", call->url,
			       curl_multi_strerror(code));
	return 0;
}

void fetch_start(struct fetch *fetch, struct fetch_call *call)
{
	MUST(!call->is_running);
	call->err = ERR_INIT;
	call->status = 0;
	call->is_request_sent = call->is_expecting_error_body = call->is_answer_full = false;
	call->retry_after_us = call->bytes_sent = call->body_read = 0;
	call->fetch = fetch;
	call->is_queued = false;
	call->grant_bytes = 0;
	call->reason[0] = '\0';
	if (call->answer.limit == 0)
		call->answer.limit = ERROR_BODY_LIMIT;
	buf_clear(&call->answer);
	link_call(fetch, prepare(fetch, call) < 0 ? &fetch->stillborn : &fetch->running, call);
}

void fetch_cancel(struct fetch *fetch, struct fetch_call *call)
{
	if (call->is_running)
		release(fetch, call);
}

size_t fetch_running_count(const struct fetch *fetch) { return fetch->running_count; }

static enum err_code code_of(CURLcode result, const struct fetch_call *call)
{
	if (fetch_tls_is_refusal(result, call->reason))
		return ERR_TLS;
	switch (result) {
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
		return ERR_CONNECT;
	case CURLE_OPERATION_TIMEDOUT:
		return call->is_request_sent ? ERR_TIMEOUT : ERR_CONNECT;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_SEND_FAIL_REWIND:
		return ERR_CLOSED;
	case CURLE_URL_MALFORMAT:
		return ERR_USAGE;
	case CURLE_UNSUPPORTED_PROTOCOL:
		/* Of a URL that is not HTTP, and of an answer that is not. */
		return call->is_request_sent ? ERR_PEER : ERR_USAGE;
	case CURLE_OUT_OF_MEMORY:
		return ERR_NO_MEMORY;
	default:
		return ERR_PEER;
	}
}

static void explain_failure(struct fetch_call *call, CURLcode result)
{
	if (call->is_answer_full) {
		err_set(&call->err, ERR_LIMIT, "%s %.200s: the answer is larger than %zu bytes", call->method,
			call->url, call->answer.limit);
	} else if (call->err.code != ERR_NONE) {
		/* Said by the callback that stopped it. */
		err_wrap(&call->err, "%s %.200s", call->method, call->url);
	} else if (result == CURLE_WRITE_ERROR) {
		err_set(&call->err, ERR_CLOSED, "%s %.200s: its receiver stopped it", call->method, call->url);
	} else {
		enum err_code code = code_of(result, call);
		err_set(&call->err, code, "%s %.200s: %s", call->method, call->url,
			call->reason[0] ? call->reason : curl_easy_strerror(result));
		if (code == ERR_TLS || result == CURLE_SSL_CONNECT_ERROR)
			fetch_tls_hint(&call->err, result, call->reason);
		else if (code == ERR_CONNECT)
			err_hint(&call->err, "is the server running, and is its address right?");
		else if (code == ERR_PEER && strncmp(call->url, "http:", 5) == 0)
			err_hint(&call->err, "does the server speak TLS? then its URL begins with https://");
	}
}

static void finish(struct fetch *fetch, struct fetch_call *call, CURLcode result)
{
	long status = 0, request_size = 0;
	curl_off_t retry_after = 0;

	(void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	(void)curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &request_size);
	(void)curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &retry_after);
	/* A status of 1xx is no answer yet. */
	call->status = status >= 200 ? (int)status : 0;
	call->is_request_sent = request_size > 0 || status > 0;
	call->retry_after_us = min_i64(max_i64(0, retry_after), RETRY_AFTER_MAX_SEC) * SEC_US;
	/* A server that refuses early may close before all was sent or its answer's end was read: what it said still counts. */
	if (call->status >= 400)
		json_err_read(buf_str(&call->answer), call->status, &call->err);
	else if (result != CURLE_OK)
		explain_failure(call, result);
	else if (call->status < 200 || call->status >= 300)
		err_set(&call->err, ERR_PEER, "%s %.200s: answered with the status %d, which heng never does",
			call->method, call->url, call->status);
	release(fetch, call);
	if (call->done)
		call->done(fetch, call);
}

/* Runs the callbacks of what has ended. True when there was any. */
static bool reap(struct fetch *fetch)
{
	bool is_any = false;
	int left_count;

	size_t stillborn_count = 0;
	for (struct fetch_call *call = fetch->stillborn; call; call = call->next)
		stillborn_count++;
	/* Counted first, as a callback may start the same hopeless call again. */
	for (; stillborn_count > 0 && fetch->stillborn; stillborn_count--, is_any = true) {
		struct fetch_call *call = fetch->stillborn;
		release(fetch, call);
		if (call->done)
			call->done(fetch, call);
	}
	/* The message is gone with its handle, so it is read whole before anything else is done. */
	for (CURLMsg *message; (message = curl_multi_info_read(fetch->multi, &left_count)) != NULL;) {
		char *owner = NULL;
		CURLcode result = message->data.result;
		if (message->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
		finish(fetch, (struct fetch_call *)(void *)owner, result);
		is_any = true;
	}
	return is_any;
}

void fetch_step(struct fetch *fetch, int64_t timeout_us)
{
	int running_count = 0;
	int64_t turn_wait_us;

	(void)pace(fetch);
	(void)curl_multi_perform(fetch->multi, &running_count);
	if (reap(fetch) || timeout_us == 0)
		return;
	if (timeout_us < 0)
		timeout_us = FOREVER_US;
	turn_wait_us = pace(fetch);
	if (turn_wait_us >= 0)
		timeout_us = min_i64(timeout_us, turn_wait_us);
	(void)curl_multi_poll(fetch->multi, NULL, 0, (int)rounded_up(timeout_us, MSEC_US), NULL);
	(void)pace(fetch);
	(void)curl_multi_perform(fetch->multi, &running_count);
	(void)reap(fetch);
}

void fetch_wake(struct fetch *fetch) { (void)curl_multi_wakeup(fetch->multi); }

void fetch_call_post(struct fetch_call *call, const char *url, const char *key_header, const char *type_header,
		     struct str body)
{
	buf_fini(&call->answer);
	*call = FETCH_CALL_INIT;
	call->method = "POST";
	call->url = url;
	call->headers[0] = key_header;
	call->headers[1] = type_header;
	call->body = body;
}

int fetch_do(struct fetch *fetch, struct fetch_call *call, struct err *err)
{
	fetch_start(fetch, call);
	while (call->is_running) {
		fetch_step(fetch, call->is_interrupted ? INTERRUPT_LOOK_US : SEC_US);
		if (!call->is_running || !call->is_interrupted || !atomic_load(call->is_interrupted))
			continue;
		/* What ended meanwhile ended; this one is dropped, so done is not called. */
		fetch_cancel(fetch, call);
		err_set(&call->err, ERR_WAITING, "%s %.200s: interrupted", call->method, call->url);
	}
	if (call->err.code == ERR_NONE)
		return 0;
	if (err)
		*err = call->err;
	return -(int)call->err.code;
}
