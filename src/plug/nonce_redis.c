#include "plug/nonce.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sys/fs.h"
#include "sys/sock.h"
#include "wire/resp.h"

#define IDLE_MAX     32u
#define TIMEOUT_US   SEC_US
#define DOWN_MIN_US  (100 * MSEC_US)
#define DOWN_MAX_US  (2 * SEC_US)
#define PASSWORD_MAX 512
#define NONCE_MAX    256
#define REPLY_MAX    (16 * KIB)
#define TOKEN_SIZE   33
#define KEY_PREFIX   "heng:nonce:"

static const struct resp_limits reply_limits = {
	.line_bytes = 4 * KIB, .bulk_bytes = 8 * KIB, .value_bytes = 12 * KIB, .element_count = 64
};

struct redis_conn {
	int fd;
	size_t size; /* of what was read and not yet taken */
	char data[REPLY_MAX];
};

struct nonce_redis {
	struct nonce_store store;
	char *addr_text, *user, *password_file;
	char database[8];
	int64_t timeout_us;
	pthread_mutex_t lock; /* protects the rest */
	struct redis_conn *idle[IDLE_MAX];
	size_t idle_count;
	int64_t down_until_us, down_us; /* after a failure: nobody asks until then */
	char why_down[200];
};

static struct nonce_redis *redis_of(struct nonce_store *store)
{
	return CONTAINER_OF(store, struct nonce_redis, store);
}

static void conn_free(struct redis_conn **conn)
{
	if (!*conn)
		return;
	fs_close(&(*conn)->fd);
	mem_wipe(*conn, sizeof(**conn));
	free(*conn);
	*conn = NULL;
}

/* --- one connection --- */

static int wait_for(int fd, short events, int64_t deadline_us, struct err *err)
{
	struct pollfd poller = { .fd = fd, .events = events };

	for (;;) {
		const int64_t left_us = deadline_us - clock_mono_us();
		const int count = left_us <= 0 ? 0 : poll(&poller, 1, (int)(left_us / MSEC_US) + 1);

		if (count > 0)
			return 0;
		if (count == 0)
			return err_set(err, ERR_NONCES, "Redis did not answer in time");
		if (errno != EINTR)
			return err_sys(err, ERR_NONCES, errno, "waiting for Redis");
	}
}

static int conn_send(struct redis_conn *conn, struct str text, int64_t deadline_us, struct err *err)
{
	while (text.size > 0) {
		const ssize_t count = send(conn->fd, text.data, text.size, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (count >= 0) {
			text = (struct str){ text.data + count, text.size - (size_t)count };
		} else if (errno == EAGAIN || errno == EINTR) {
			const int r = wait_for(conn->fd, POLLOUT, deadline_us, err);

			if (r < 0)
				return r;
		} else {
			return err_sys(err, ERR_NONCES, errno, "sending to Redis");
		}
	}
	return 0;
}

/* The next reply; its text lies in the connection's buffer until conn_taken. */
static int conn_reply(struct redis_conn *conn, int64_t deadline_us, struct resp_item *ret_item, size_t *ret_size,
		      struct err *err)
{
	struct resp_scan scan = { 0 };
	size_t used;

	for (;;) {
		const int r = resp_scan(&scan, (struct str){ conn->data, conn->size }, &reply_limits, ret_size);

		if (r == RESP_DONE)
			return resp_item((struct str){ conn->data, *ret_size }, &reply_limits, &used, ret_item) ==
					       RESP_DONE
				       ? 0
				       : err_set(err, ERR_NONCES, "what answers is not Redis");
		if (r < 0 || conn->size == sizeof(conn->data))
			return err_set(err, ERR_NONCES, "what answers is not Redis");
		const ssize_t count = recv(conn->fd, conn->data + conn->size, sizeof(conn->data) - conn->size,
					   MSG_DONTWAIT);
		if (count > 0) {
			conn->size += (size_t)count;
		} else if (count == 0) {
			return err_set(err, ERR_NONCES, "Redis closed the connection");
		} else if (errno == EAGAIN || errno == EINTR) {
			const int w = wait_for(conn->fd, POLLIN, deadline_us, err);

			if (w < 0)
				return w;
		} else {
			return err_sys(err, ERR_NONCES, errno, "reading from Redis");
		}
	}
}

static void conn_taken(struct redis_conn *conn, size_t size)
{
	conn->size -= size;
	memmove(conn->data, conn->data + size, conn->size);
}

/* Its refusal in its own words. */
static int refused(const struct resp_item *item, struct err *err)
{
	char shown[160];

	return err_set(err, ERR_NONCES, "Redis refuses: %s", str_display(item->text, shown, sizeof(shown)));
}

/* That of a password by its first word only: a server that does not know AUTH repeats what was sent with it. */
static int refused_password(const struct resp_item *item, struct err *err)
{
	struct str rest = item->text, word = STR_NONE;
	char shown[32];

	(void)str_cut(&rest, ' ', &word);
	word.size = min_size(word.size, 20);
	return err_set(err, ERR_NONCES, "Redis refuses user or password: %s", str_display(word, shown, sizeof(shown)));
}

/* --- connecting --- */

static int read_password(const struct nonce_redis *redis, struct buf *ret_text, struct err *err)
{
	const int r = fs_read_file(redis->password_file, PASSWORD_MAX, ret_text, err);

	if (r < 0)
		return err_set(err, ERR_NONCES, "cannot read the password file of Redis, '%s'", redis->password_file);
	while (ret_text->size > 0 &&
	       (ret_text->data[ret_text->size - 1] == '\n' || ret_text->data[ret_text->size - 1] == '\r'))
		ret_text->size--;
	return 0;
}

/* AUTH and SELECT in one piece, and how many replies they make. */
static int greeting(const struct nonce_redis *redis, struct buf *text, unsigned *ret_count, struct err *err)
{
	struct buf password = BUF_INIT(PASSWORD_MAX);
	int r = 0;

	*ret_count = 0;
	if (redis->password_file[0] != '\0') {
		r = read_password(redis, &password, err);
		const struct str with_user[] = { STR("AUTH"), str_from(redis->user), buf_str(&password) };
		const struct str without[] = { STR("AUTH"), buf_str(&password) };

		if (r == 0)
			redis->user[0] != '\0' ? resp_command(text, with_user, 3) : resp_command(text, without, 2);
		*ret_count += 1;
	}
	if (password.data)
		mem_wipe(password.data, password.capacity);
	buf_fini(&password);
	const struct str select[] = { STR("SELECT"), str_from(redis->database) };
	resp_command(text, select, COUNT_OF(select));
	*ret_count += 1;
	return r;
}

static int greet(const struct nonce_redis *redis, struct redis_conn *conn, int64_t deadline_us, struct err *err)
{
	struct buf text = BUF_INIT(4 * KIB);
	struct resp_item item;
	unsigned count;
	size_t size;
	int r = greeting(redis, &text, &count, err);

	if (r == 0)
		r = conn_send(conn, buf_str(&text), deadline_us, err);
	if (text.data)
		mem_wipe(text.data, text.capacity);
	buf_fini(&text);
	for (unsigned i = 0; r == 0 && i < count; i++) {
		r = conn_reply(conn, deadline_us, &item, &size, err);
		if (r == 0 && item.type != RESP_SIMPLE)
			r = i + 1 < count ? refused_password(&item, err) : refused(&item, err);
		if (r == 0)
			conn_taken(conn, size);
	}
	return r;
}

static int connect_fd(const struct nonce_redis *redis, int64_t deadline_us, int *ret_fd, struct err *err)
{
	struct sock_addr addr;
	int fault = 0;
	socklen_t size = sizeof(fault);

	/* Each time anew: the name may lead to another machine now. */
	if (sock_addr_parse(redis->addr_text, &addr, err) < 0)
		return err_set(err, ERR_NONCES, "Redis's address %s cannot be resolved", redis->addr_text);
	*ret_fd = socket(addr.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*ret_fd < 0)
		return err_sys(err, ERR_NONCES, errno, "making a socket for Redis");
	sock_set_nodelay(*ret_fd);
	if (connect(*ret_fd, (const struct sockaddr *)&addr.storage, addr.size) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return err_sys(err, ERR_NONCES, errno, "connecting to Redis at %s", redis->addr_text);
	const int r = wait_for(*ret_fd, POLLOUT, deadline_us, err);
	if (r < 0)
		return r;
	if (getsockopt(*ret_fd, SOL_SOCKET, SO_ERROR, &fault, &size) < 0 || fault != 0)
		return err_sys(err, ERR_NONCES, fault, "connecting to Redis at %s", redis->addr_text);
	return 0;
}

static int conn_new(const struct nonce_redis *redis, int64_t deadline_us, struct redis_conn **ret_conn, struct err *err)
{
	struct redis_conn *conn = must_zalloc(1, sizeof(*conn));

	conn->fd = -1;
	int r = connect_fd(redis, deadline_us, &conn->fd, err);
	if (r == 0)
		r = greet(redis, conn, deadline_us, err);
	if (r < 0)
		conn_free(&conn);
	*ret_conn = conn;
	return r;
}

/* --- the pool of connections --- */

/* NULL: none waits, one is to be made. -ERR_NONCES: not now. */
static int get(struct nonce_redis *redis, struct redis_conn **ret_conn, struct err *err)
{
	int r = 0;

	*ret_conn = NULL;
	pthread_mutex_lock(&redis->lock);
	if (redis->idle_count > 0)
		*ret_conn = redis->idle[--redis->idle_count];
	else if (clock_mono_us() < redis->down_until_us)
		r = err_set(err, ERR_NONCES, "%s", redis->why_down);
	pthread_mutex_unlock(&redis->lock);
	return r;
}

static void put(struct nonce_redis *redis, struct redis_conn *conn)
{
	pthread_mutex_lock(&redis->lock);
	redis->down_us = redis->down_until_us = 0;
	if (redis->idle_count < IDLE_MAX) {
		redis->idle[redis->idle_count++] = conn;
		conn = NULL;
	}
	pthread_mutex_unlock(&redis->lock);
	conn_free(&conn);
}

/* A connection broke: the others that wait are no better. */
static void drop_idle(struct nonce_redis *redis)
{
	pthread_mutex_lock(&redis->lock);
	while (redis->idle_count > 0)
		conn_free(&redis->idle[--redis->idle_count]);
	pthread_mutex_unlock(&redis->lock);
}

static void note_down(struct nonce_redis *redis, const struct err *err)
{
	pthread_mutex_lock(&redis->lock);
	redis->down_us = redis->down_us == 0 ? DOWN_MIN_US : min_i64(2 * redis->down_us, DOWN_MAX_US);
	redis->down_until_us = clock_mono_us() + redis->down_us;
	snprintf(redis->why_down, sizeof(redis->why_down), "%.199s", err->text);
	pthread_mutex_unlock(&redis->lock);
}

/* --- a nonce --- */

struct question {
	char key[sizeof(KEY_PREFIX) + NONCE_MAX];
	char token[TOKEN_SIZE]; /* this use's own: tells our own SET, whose answer was lost, from another's */
	char life_ms[24];
	bool was_sent;
};

/* 1: it is ours. 0: it is somebody else's. */
static int ask(struct redis_conn *conn, struct question *question, int64_t deadline_us, struct err *err)
{
	const struct str set[] = { STR("SET"), str_from(question->key),    str_from(question->token), STR("NX"),
				   STR("PX"),  str_from(question->life_ms) };
	const struct str get_it[] = { STR("GET"), str_from(question->key) };
	struct buf text = BUF_INIT(2 * KIB);
	struct resp_item item;
	size_t size;
	bool is_ours = false;
	const bool is_again = question->was_sent;

	resp_command(&text, set, COUNT_OF(set));
	if (is_again)
		resp_command(&text, get_it, COUNT_OF(get_it));
	question->was_sent = true;
	int r = conn_send(conn, buf_str(&text), deadline_us, err);
	buf_fini(&text);
	for (int i = 0; r == 0 && i < 1 + is_again; i++) {
		r = conn_reply(conn, deadline_us, &item, &size, err);
		if (r < 0)
			break;
		if (item.type == RESP_SIMPLE)
			is_ours = true;
		else if (item.type == RESP_BULK)
			is_ours |= str_eq_c(item.text, question->token);
		else if (item.type != RESP_NULL)
			r = refused(&item, err);
		if (r == 0)
			conn_taken(conn, size);
	}
	return r < 0 ? r : is_ours;
}

static int try_once(struct nonce_redis *redis, struct question *question, bool *ret_was_kept, struct err *err)
{
	const int64_t deadline_us = clock_mono_us() + redis->timeout_us;
	struct redis_conn *conn;
	int r = get(redis, &conn, err);

	*ret_was_kept = conn != NULL;
	if (r < 0)
		return r;
	if (!conn)
		r = conn_new(redis, deadline_us, &conn, err);
	if (r == 0)
		r = ask(conn, question, deadline_us, err);
	if (r >= 0) {
		put(redis, conn);
		return r;
	}
	conn_free(&conn);
	drop_idle(redis);
	if (!*ret_was_kept)
		note_down(redis, err);
	return r;
}

static int nonce_redis_use(struct nonce_store *store, struct str nonce, int64_t expires_wall_us, int64_t now_wall_us,
			   struct err *err)
{
	struct nonce_redis *redis = redis_of(store);
	struct question question = { .was_sent = false };
	uint8_t token[(TOKEN_SIZE - 1) / 2];
	struct err local = ERR_INIT;
	bool was_kept = false;
	int r;

	err = err ? err : &local;
	if (nonce.size == 0 || nonce.size > NONCE_MAX || memchr(nonce.data, '\0', nonce.size))
		return err_set(err, ERR_BAD_REQUEST, "a nonce has 1 to %d bytes, this one %zu", NONCE_MAX, nonce.size);
	if (expires_wall_us <= now_wall_us)
		return err_set(err, ERR_TICKET_EXPIRED, "this nonce has expired");
	rng_secret(token, sizeof(token));
	hex_encode(token, sizeof(token), question.token);
	snprintf(question.key, sizeof(question.key), KEY_PREFIX "%.*s", STR_ARG(nonce));
	snprintf(question.life_ms, sizeof(question.life_ms), "%" PRId64, (expires_wall_us - now_wall_us) / MSEC_US + 1);
	r = try_once(redis, &question, &was_kept, err);
	/* The connection may have been one of a server that is gone; a new one tells whether it is back. */
	if (r == -ERR_NONCES && was_kept)
		r = try_once(redis, &question, &was_kept, err);
	if (r > 0)
		return 0;
	if (r == 0)
		return err_set(err, ERR_NONCE_REPLAYED, "this nonce was used before");
	err_wrap(err, "whether this request was made before cannot be told");
	err_hint(err, "try again in a moment; the operator sees that Redis at %s runs", redis->addr_text);
	return r;
}

static void nonce_redis_free(struct nonce_store *store)
{
	struct nonce_redis *redis = redis_of(store);

	drop_idle(redis);
	pthread_mutex_destroy(&redis->lock);
	free(redis->addr_text);
	free(redis->user);
	free(redis->password_file);
	free(redis);
}

static const struct nonce_ops nonce_redis_ops = { .name = "redis", .use = nonce_redis_use, .free = nonce_redis_free };

static int read_url(struct nonce_redis *redis, const char *url, struct err *err)
{
	struct str rest = str_from(url), addr, database = STR("0");
	const struct str scheme = STR("redis://");
	uint64_t number = 0;
	char text[300];

	if (!str_starts(rest, scheme))
		goto bad;
	rest = (struct str){ rest.data + scheme.size, rest.size - scheme.size };
	if (!str_cut(&rest, '/', &addr) || addr.size == 0 || memchr(addr.data, '@', addr.size))
		goto bad;
	if (rest.size > 0)
		database = rest;
	if (!str_to_u64(database, &number) || number > 9999)
		goto bad;
	snprintf(redis->database, sizeof(redis->database), "%" PRIu64, number);
	/* 6379 is what everybody takes for granted. */
	const bool has_port = memrchr(addr.data, ':', addr.size) != NULL && addr.data[addr.size - 1] != ']';
	if (snprintf(text, sizeof(text), "%.*s%s", STR_ARG(addr), has_port ? "" : ":6379") >= (int)sizeof(text))
		goto bad;
	redis->addr_text = must_strdup(text);
	return 0;
bad:
	err_set(err, ERR_CONFIG, "nonces: this is not redis://host:port/database");
	err_hint(err, "user and password stand in nonces_user and nonces_password_file, not in the URL");
	return -ERR_CONFIG;
}

int nonce_redis_new(const struct nonce_redis_options *options, struct nonce_store **ret_store, struct err *err)
{
	struct nonce_redis *redis = must_zalloc(1, sizeof(*redis));

	*ret_store = NULL;
	redis->store.ops = &nonce_redis_ops;
	redis->timeout_us = options->timeout_us > 0 ? options->timeout_us : TIMEOUT_US;
	redis->user = must_strdup(options->user ? options->user : "");
	redis->password_file = must_strdup(options->password_file ? options->password_file : "");
	MUST(pthread_mutex_init(&redis->lock, NULL) == 0);
	int r = read_url(redis, options->url, err);
	if (r == 0 && redis->user[0] != '\0' && redis->password_file[0] == '\0')
		r = err_set(err, ERR_CONFIG, "nonces_user without nonces_password_file");
	if (r < 0) {
		nonce_redis_free(&redis->store);
		return r;
	}
	*ret_store = &redis->store;
	return 0;
}
