/* TLS over the loop, on every back end: the server's end is ours, the client's is OpenSSL, whose bytes pass through the test's hands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "sys/tls_inside.h"
#include "sys/tls_stream.h"
#include "sys/tls_world.h"

#define TURNS_MAX 400000

static struct tls_world world;

struct probe {
	struct op op;
	int count, last;
};

static void on_probe(struct loop *loop UNUSED, struct op *op, int result)
{
	struct probe *probe = op->owner;
	probe->count++;
	probe->last = result;
}

static struct op *armed(struct probe *probe)
{
	*probe = (struct probe){ .op = { .done = on_probe, .owner = probe } };
	return &probe->op;
}

/* One connection. */
struct link {
	struct loop *loop;
	struct stream stream;
	int fd;   /* the client's end */
	int step; /* bytes that pass at a time, each way */
	SSL *ssl;
	BIO *to, *from;
	bool is_dead; /* the client's TLS broke */
	struct probe recv, send;
};

static SSL_CTX *client_context(const char *name, int version)
{
	char path[128], file[64];
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());

	assert_non_null(context);
	SSL_CTX_set_security_level(context, 0);
	if (version != 0) {
		SSL_CTX_set_min_proto_version(context, version);
		SSL_CTX_set_max_proto_version(context, version);
	}
	assert_int_equal(SSL_CTX_load_verify_locations(context, tls_world_path(&world, "ca.pem", path), NULL), 1);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	if (name) {
		snprintf(file, sizeof(file), "%s.pem", name);
		assert_int_equal(
			SSL_CTX_use_certificate_file(context, tls_world_path(&world, file, path), SSL_FILETYPE_PEM), 1);
		snprintf(file, sizeof(file), "%s.key", name);
		assert_int_equal(
			SSL_CTX_use_PrivateKey_file(context, tls_world_path(&world, file, path), SSL_FILETYPE_PEM), 1);
	}
	return context;
}

static void link_init(struct link *link, enum loop_backend backend, struct tls *tls, SSL_CTX *client)
{
	int fds[2];
	struct err err = ERR_INIT;

	*link = (struct link){ .step = 1 << 20 };
	if (loop_new(backend, &link->loop, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	stream_tls_init(&link->stream, link->loop, fds[0], tls);
	link->fd = fds[1];
	link->ssl = SSL_new(client);
	link->to = BIO_new(BIO_s_mem());
	link->from = BIO_new(BIO_s_mem());
	SSL_set_bio(link->ssl, link->from, link->to);
	SSL_set_connect_state(link->ssl);
}

static void link_fini(struct link *link)
{
	if (link->stream.state)
		stream_close(&link->stream);
	SSL_free(link->ssl);
	if (link->fd >= 0)
		(void)close(link->fd);
	loop_free(&link->loop);
}

/* What the client has to say goes, what the server has said comes, at most `step` bytes of each; a turn of the loop. */
static void link_turn(struct link *link)
{
	static char bytes[1 << 20];
	char *data;
	long waiting = BIO_get_mem_data(link->to, &data);

	if (link->fd >= 0 && waiting > 0) {
		ssize_t sent = send(link->fd, data, min_size((size_t)waiting, (size_t)link->step),
				    MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent > 0)
			assert_int_equal(BIO_read(link->to, bytes, (int)sent), sent);
	}
	loop_turn(link->loop, 0);
	ssize_t got = link->fd >= 0 ? recv(link->fd, bytes, (size_t)link->step, MSG_DONTWAIT) : 0;
	if (got > 0)
		assert_int_equal(BIO_write(link->from, bytes, (int)got), got);
}

static void client_shake(struct link *link)
{
	ERR_clear_error();
	int result = link->is_dead ? 1 : SSL_do_handshake(link->ssl);
	if (result != 1 && SSL_get_error(link->ssl, result) != SSL_ERROR_WANT_READ)
		link->is_dead = true;
}

static void turn_until(struct link *link, const struct probe *probe)
{
	for (int i = 0; i < TURNS_MAX && probe->count == 0; i++) {
		client_shake(link);
		link_turn(link);
	}
	assert_int_equal(probe->count, 1);
}

/* The client says the text; the server hears it. */
static void client_says(struct link *link, const char *text)
{
	char heard[256];
	int size = (int)strlen(text);

	stream_recv(&link->stream, armed(&link->recv), heard, sizeof(heard));
	for (int i = 0; i < TURNS_MAX && !SSL_is_init_finished(link->ssl) && !link->is_dead; i++) {
		client_shake(link);
		link_turn(link);
	}
	assert_int_equal(SSL_write(link->ssl, text, size), size);
	turn_until(link, &link->recv);
	assert_int_equal(link->recv.last, size);
	assert_memory_equal(heard, text, (size_t)size);
}

static void server_says(struct link *link, const char *text)
{
	char heard[256];
	int size = (int)strlen(text), got = -1;

	stream_send(&link->stream, armed(&link->send), text, (size_t)size);
	for (int i = 0; i < TURNS_MAX && got <= 0; i++) {
		link_turn(link);
		got = SSL_read(link->ssl, heard, sizeof(heard));
	}
	turn_until(link, &link->send);
	assert_int_equal(link->send.last, size);
	assert_int_equal(got, size);
	assert_memory_equal(heard, text, (size_t)size);
}

static const enum loop_backend backends[] = { LOOP_URING, LOOP_EPOLL };

/* --- tests --- */

static void test_a_talk(void **state)
{
	static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION }, steps[] = { 1, 7, 1 << 20 };
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	(void)state;
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		for (size_t v = 0; v < COUNT_OF(versions); v++) {
			for (size_t s = 0; s < COUNT_OF(steps); s++) {
				SSL_CTX *client = client_context(NULL, versions[v]);
				struct link link;
				link_init(&link, backends[b], tls, client);
				link.step = steps[s];
				client_says(&link, "a question");
				server_says(&link, "an answer");
				client_says(&link, "another");
				assert_null(stream_tls_peer(&link.stream));
				link_fini(&link);
				SSL_CTX_free(client);
			}
		}
	}
	tls_free(&tls);
}

/* The server speaks first, without having asked for anything. */
static void test_send_shakes_hands_too(void **state)
{
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	SSL_CTX *client = client_context(NULL, 0);
	(void)state;
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		struct link link;
		char heard[16];
		int got = -1;
		link_init(&link, backends[b], tls, client);
		stream_send(&link.stream, armed(&link.send), "busy", 4);
		turn_until(&link, &link.send);
		assert_int_equal(link.send.last, 4);
		for (int i = 0; i < TURNS_MAX && got <= 0; i++) {
			link_turn(&link);
			got = SSL_read(link.ssl, heard, sizeof(heard));
		}
		assert_int_equal(got, 4);
		link_fini(&link);
	}
	SSL_CTX_free(client);
	tls_free(&tls);
}

/* Megabytes both ways at once, and a file; every byte in its place. */
static void test_much(void **state)
{
	enum { SIZE = 3 * 1024 * 1024 + 17 };
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	SSL_CTX *client = client_context(NULL, 0);
	unsigned char *bytes = must_alloc(SIZE), *at_server = must_zalloc(1, SIZE), *at_client = must_zalloc(2, SIZE);
	int file_fd = memfd_create("heng", 0);
	(void)state;
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)((i * 2654435761u) >> 13);
	assert_int_equal(write(file_fd, bytes, SIZE), SIZE);
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		struct link link;
		size_t heard = 0, said = 0, told = 0, back = 0;
		link_init(&link, backends[b], tls, client);
		client_says(&link, "begin");
		stream_recv(&link.stream, armed(&link.recv), at_server, min_size(SIZE, 256 * KIB));
		stream_send(&link.stream, armed(&link.send), bytes, SIZE);
		for (int i = 0; i < TURNS_MAX && (heard < SIZE || back < 2 * SIZE); i++) {
			if (said < SIZE) {
				int r = SSL_write(link.ssl, bytes + said, (int)min_size(SIZE - said, 20000));
				said += r > 0 ? (size_t)r : 0;
			}
			link_turn(&link);
			int r = SSL_read(link.ssl, at_client + back, (int)(2 * SIZE - back));
			back += r > 0 ? (size_t)r : 0;
			if (link.recv.count == 1) {
				assert_true(link.recv.last > 0);
				heard += (size_t)link.recv.last;
				if (heard < SIZE)
					stream_recv(&link.stream, armed(&link.recv), at_server + heard,
						    min_size(SIZE - heard, 256 * KIB));
				else
					link.recv.count = 0;
			}
			if (link.send.count == 1) {
				assert_true(link.send.last > 0);
				told += (size_t)link.send.last;
				if (told < SIZE)
					stream_send(&link.stream, armed(&link.send), bytes + told, SIZE - told);
				else if (told < 2 * SIZE)
					stream_sendfile(&link.stream, armed(&link.send), file_fd,
							(int64_t)(told - SIZE), 2 * SIZE - told);
				else
					link.send.count = 0;
			}
		}
		assert_int_equal(heard, SIZE);
		assert_int_equal(back, 2 * SIZE);
		assert_memory_equal(at_server, bytes, SIZE);
		assert_memory_equal(at_client, bytes, SIZE);
		assert_memory_equal(at_client + SIZE, bytes, SIZE);
		/* Beyond the file's end there is nothing: that is told, and the stream is good. */
		stream_sendfile(&link.stream, armed(&link.send), file_fd, SIZE, 100);
		turn_until(&link, &link.send);
		assert_int_equal(link.send.last, 0);
		server_says(&link, "still here");
		link_fini(&link);
	}
	(void)close(file_fd);
	free(bytes);
	free(at_server);
	free(at_client);
	SSL_CTX_free(client);
	tls_free(&tls);
}

static void test_goodbyes(void **state)
{
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	SSL_CTX *client = client_context(NULL, 0);
	char heard[16];
	(void)state;
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		struct link link;
		/* Half closed: the answer still comes, and then our goodbye. */
		link_init(&link, backends[b], tls, client);
		client_says(&link, "last question");
		assert_true(SSL_shutdown(link.ssl) >= 0);
		stream_recv(&link.stream, armed(&link.recv), heard, sizeof(heard));
		turn_until(&link, &link.recv);
		assert_int_equal(link.recv.last, 0);
		server_says(&link, "last answer");
		stream_shut(&link.stream);
		link_turn(&link);
		int r = SSL_read(link.ssl, heard, sizeof(heard));
		assert_int_equal(SSL_get_error(link.ssl, r), SSL_ERROR_ZERO_RETURN);
		link_fini(&link);
		/* Cut: not the same as an end. */
		link_init(&link, backends[b], tls, client);
		client_says(&link, "half a");
		(void)close(link.fd);
		link.fd = -1;
		stream_recv(&link.stream, armed(&link.recv), heard, sizeof(heard));
		turn_until(&link, &link.recv);
		assert_true(link.recv.last == -ECONNABORTED || link.recv.last == -ECONNRESET);
		stream_send(&link.stream, armed(&link.send), "x", 1);
		turn_until(&link, &link.send);
		assert_true(link.send.last < 0);
		link_fini(&link);
	}
	SSL_CTX_free(client);
	tls_free(&tls);
}

static void test_garbage(void **state)
{
	static const char *const rows[] = {
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"\x16\x03\x01\xff\xff\x01garbage that is longer than a record's head",
		"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
		"\x80\x2e\x01\x03\x01 an ancient hello and whatever follows it here, to make up its length",
		"\x17\x03\x03\x00\x10no handshake yet",
	};
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	SSL_CTX *client = client_context(NULL, 0);
	char heard[64];
	(void)state;
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		for (size_t i = 0; i < COUNT_OF(rows); i++) {
			struct link link;
			size_t size = i == 2 ? 10 : strlen(rows[i]);
			link_init(&link, backends[b], tls, client);
			link.is_dead = true;
			assert_int_equal(send(link.fd, rows[i], size, MSG_NOSIGNAL), size);
			(void)shutdown(link.fd, SHUT_WR);
			stream_recv(&link.stream, armed(&link.recv), heard, sizeof(heard));
			turn_until(&link, &link.recv);
			if (link.recv.last != -EPROTO && link.recv.last != -ECONNABORTED)
				fail_msg("row %zu: %d", i, link.recv.last);
			link_fini(&link);
		}
	}
	SSL_CTX_free(client);
	tls_free(&tls);
}

/* A talk of which one byte is another: the first that the client sends after the handshake. */
static void test_a_record_changed_on_its_way(void **state)
{
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	SSL_CTX *client = client_context(NULL, 0);
	char heard[64], bytes[256];
	(void)state;
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		struct link link;
		link_init(&link, backends[b], tls, client);
		client_says(&link, "good");
		assert_int_equal(SSL_write(link.ssl, "evil", 4), 4);
		int size = BIO_read(link.to, bytes, sizeof(bytes));
		assert_true(size > 10);
		bytes[size - 1] ^= 1;
		assert_int_equal(BIO_write(link.to, bytes, size), size);
		stream_recv(&link.stream, armed(&link.recv), heard, sizeof(heard));
		turn_until(&link, &link.recv);
		assert_int_equal(link.recv.last, -EPROTO);
		link_fini(&link);
	}
	SSL_CTX_free(client);
	tls_free(&tls);
}

/* What the client ends up with: an established session, or none. */
static bool can_talk(struct tls *tls, SSL_CTX *client, struct tls_peer *ret_peer, bool *ret_is_resumed,
		     SSL_SESSION **session)
{
	struct link link;
	char heard[64];

	link_init(&link, LOOP_EPOLL, tls, client);
	if (session && *session)
		assert_int_equal(SSL_set_session(link.ssl, *session), 1);
	stream_recv(&link.stream, armed(&link.recv), heard, sizeof(heard));
	for (int i = 0; i < 1000 && link.recv.count == 0 && !link.is_dead; i++) {
		client_shake(&link);
		if (SSL_is_init_finished(link.ssl) && i < 500)
			i = SSL_write(link.ssl, "x", 1) == 1 ? 500 : i;
		link_turn(&link);
	}
	bool is_good = link.recv.count == 1 && link.recv.last == 1;
	if (!is_good)
		assert_true(link.is_dead || link.recv.last < 0);
	if (link.recv.count == 0) {
		stream_cancel(&link.stream, &link.recv.op);
		turn_until(&link, &link.recv);
	}
	if (is_good) {
		server_says(&link, "y");
		if (ret_is_resumed)
			*ret_is_resumed = SSL_session_reused(link.ssl) == 1;
		if (session && !*session)
			*session = SSL_get1_session(link.ssl);
		/* OpenSSL forgets the session of a connection that was cut. */
		(void)SSL_shutdown(link.ssl);
		const struct tls_peer *peer = stream_tls_peer(&link.stream);
		if (ret_peer && peer) {
			*ret_peer = *peer;
			ret_peer->name_count = tls_peer_has_name(peer, "uri", "heng:node:n7") +
					       2u * tls_peer_has_name(peer, "dns", "N7.Example");
		}
	}
	link_fini(&link);
	return is_good;
}

static void test_old_protocols_and_suites(void **state)
{
	static const struct {
		int version;
		const char *suites;
		bool is_good;
	} rows[] = {
		{ TLS1_VERSION, NULL, false },
		{ TLS1_1_VERSION, NULL, false },
		{ TLS1_2_VERSION, NULL, true },
		{ TLS1_3_VERSION, NULL, true },
		{ TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA", false },
		{ TLS1_2_VERSION, "ECDHE-ECDSA-AES256-SHA384", false },
		{ TLS1_2_VERSION, "AES128-GCM-SHA256", false },
		{ TLS1_2_VERSION, "aNULL:eNULL", false },
		{ TLS1_2_VERSION, "ECDHE-ECDSA-AES128-GCM-SHA256", true },
		{ TLS1_2_VERSION, "ECDHE-ECDSA-CHACHA20-POLY1305", true },
	};
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		SSL_CTX *client = client_context(NULL, rows[i].version);
		if (rows[i].suites)
			assert_int_equal(SSL_CTX_set_cipher_list(client, rows[i].suites), 1);
		if (can_talk(tls, client, NULL, NULL, NULL) != rows[i].is_good)
			fail_msg("row %zu", i);
		SSL_CTX_free(client);
	}
	tls_free(&tls);
}

static void test_client_certificates(void **state)
{
	static const char *const names[] = { "uri:heng:node:n7", "dns:n7.example", "dns:other", "ip:10.0.0.7", NULL };
	static const struct {
		const char *client, *ca, *client_ca;
		bool is_good, is_known, is_cluster;
	} rows[] = {
		{ NULL, "ca.pem", NULL, true, false, false },
		{ "node", "ca.pem", NULL, true, true, true },
		{ "node", NULL, NULL, true, false, false }, /* nobody asked for it */
		{ "stranger", "ca.pem", NULL, false, false, false },
		{ "stranger", "ca.pem", "other-ca.pem", true, true, false },
		{ "node", "ca.pem", "other-ca.pem", true, true, true },
		{ "node", NULL, "other-ca.pem", false, false, false },
		{ "old", "ca.pem", NULL, false, false, false },
	};
	(void)state;
	tls_world_make(&world, "node", false, names, -DAY_US, DAY_US);
	tls_world_make(&world, "stranger", true, names, -DAY_US, DAY_US);
	tls_world_make(&world, "old", false, names, -3 * DAY_US, -DAY_US);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct tls *tls = tls_world_open(&world, "server", rows[i].ca, rows[i].client_ca);
		for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
			SSL_CTX *client = client_context(rows[i].client, version);
			struct tls_peer peer = { .name_count = 0 };
			if (can_talk(tls, client, &peer, NULL, NULL) != rows[i].is_good)
				fail_msg("row %zu: %s", i, rows[i].is_good ? "refused" : "taken");
			assert_int_equal(peer.sha256[0] != '\0', rows[i].is_known);
			if (rows[i].is_known) {
				assert_int_equal(strlen(peer.sha256), 64);
				assert_string_equal(peer.subject, rows[i].client[0] == 'n' ? "CN=node" : "CN=stranger");
				assert_int_equal(peer.name_count, 3);
				assert_int_equal(peer.is_cluster, rows[i].is_cluster);
			}
			SSL_CTX_free(client);
		}
		tls_free(&tls);
	}
}

/* Tickets: a session goes on where no certificate was shown; keys go with the files. */
static void test_resuming(void **state)
{
	struct err err = ERR_INIT;
	(void)state;
	tls_world_make(&world, "node", false, NULL, -DAY_US, DAY_US);
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		for (int is_shown = 0; is_shown < 2; is_shown++) {
			struct tls *tls = tls_world_open(&world, "server", "ca.pem", NULL);
			SSL_CTX *client = client_context(is_shown ? "node" : NULL, version);
			SSL_SESSION *session = NULL;
			bool is_resumed = true;
			assert_true(can_talk(tls, client, NULL, &is_resumed, &session));
			assert_false(is_resumed);
			assert_true(can_talk(tls, client, NULL, &is_resumed, &session));
			if (is_resumed != !is_shown)
				fail_msg("version %x, shown %d", version, is_shown);
			assert_int_equal(tls_reload(tls, true, &err), 1);
			assert_true(can_talk(tls, client, NULL, &is_resumed, &session));
			assert_false(is_resumed);
			SSL_SESSION_free(session);
			SSL_CTX_free(client);
			tls_free(&tls);
		}
	}
}

/* New certificates while connections live: those go on, new ones see the new certificate. */
static void test_renewal_while_connected(void **state)
{
	static const char *const names[] = { "dns:renewed", NULL };
	struct err err = ERR_INIT;
	(void)state;
	tls_world_make(&world, "former", false, NULL, -DAY_US, DAY_US);
	struct tls *tls = tls_world_open(&world, "former", NULL, NULL);
	SSL_CTX *client = client_context(NULL, 0);
	struct link old, new;
	link_init(&old, LOOP_EPOLL, tls, client);
	client_says(&old, "before");
	tls_world_make(&world, "former", false, names, -DAY_US, 2 * DAY_US);
	assert_int_equal(tls_reload(tls, false, &err), 1);
	client_says(&old, "after");
	server_says(&old, "yes");
	link_init(&new, LOOP_EPOLL, tls, client);
	client_says(&new, "hello");
	X509 *shown[] = { SSL_get1_peer_certificate(old.ssl), SSL_get1_peer_certificate(new.ssl) };
	assert_int_not_equal(X509_cmp(shown[0], shown[1]), 0);
	assert_int_equal(X509_check_host(shown[1], "renewed", 0, 0, NULL), 1);
	X509_free(shown[0]);
	X509_free(shown[1]);
	link_fini(&old);
	link_fini(&new);
	SSL_CTX_free(client);
	tls_free(&tls);
}

static void test_a_change_of_keys(void **state)
{
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	SSL_CTX *client = client_context(NULL, TLS1_3_VERSION);
	char heard[16];
	(void)state;
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		struct link link;
		link_init(&link, backends[b], tls, client);
		client_says(&link, "one");
		for (int i = 0; i < 20; i++) {
			assert_int_equal(SSL_key_update(link.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
			client_says(&link, "two");
		}
		/* With nothing behind it: the server only answers the change. */
		assert_int_equal(SSL_key_update(link.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
		assert_int_equal(SSL_do_handshake(link.ssl), 1);
		stream_recv(&link.stream, armed(&link.recv), heard, sizeof(heard));
		for (int i = 0; i < 50; i++) {
			link_turn(&link);
			(void)SSL_read(link.ssl, heard, 0);
		}
		assert_int_equal(link.recv.count, 0);
		server_says(&link, "three");
		assert_int_equal(SSL_write(link.ssl, "4", 1), 1);
		turn_until(&link, &link.recv);
		assert_int_equal(link.recv.last, 1);
		link_fini(&link);
	}
	SSL_CTX_free(client);
	tls_free(&tls);
}

/* Whoever gives up (a time limit, say) gets both operations back, whatever the connection is doing. */
static void test_cancel(void **state)
{
	struct tls *tls = tls_world_open(&world, "server", NULL, NULL);
	SSL_CTX *client = client_context(NULL, 0);
	static char much[4 << 20];
	char heard[16];
	(void)state;
	for (size_t b = 0; b < COUNT_OF(backends); b++) {
		for (int turns = 0; turns < 40; turns++) {
			struct link link;
			link_init(&link, backends[b], tls, client);
			stream_recv(&link.stream, armed(&link.recv), heard, sizeof(heard));
			stream_send(&link.stream, armed(&link.send), much, sizeof(much));
			for (int i = 0; i < turns; i++) {
				if (turns % 2 == 1)
					client_shake(&link);
				link_turn(&link);
			}
			if (link.recv.count == 0)
				stream_cancel(&link.stream, &link.recv.op);
			if (link.send.count == 0)
				stream_cancel(&link.stream, &link.send.op);
			link.is_dead = true;
			turn_until(&link, &link.recv);
			turn_until(&link, &link.send);
			assert_int_equal(link.recv.last, -ECANCELED);
			link_fini(&link);
		}
	}
	SSL_CTX_free(client);
	tls_free(&tls);
}

static int set_up(void **state)
{
	(void)state;
	tls_world_init(&world);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	tls_world_fini(&world);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_talk),
		cmocka_unit_test(test_send_shakes_hands_too),
		cmocka_unit_test(test_much),
		cmocka_unit_test(test_goodbyes),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_a_record_changed_on_its_way),
		cmocka_unit_test(test_old_protocols_and_suites),
		cmocka_unit_test(test_client_certificates),
		cmocka_unit_test(test_resuming),
		cmocka_unit_test(test_renewal_while_connected),
		cmocka_unit_test(test_a_change_of_keys),
		cmocka_unit_test(test_cancel),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
