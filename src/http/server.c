#include "http/server.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/conn.h"

#define ACCEPT_RETRY_US (100 * MSEC_US)
#define THREADS_MAX     256

const struct http_options http_options_default = {
	.thread_count = 0,
	.backend = LOOP_AUTO,
	.connection_limit_count = 10000,
	.body_limit_bytes = 64 * GIB,
	.head_timeout_us = 10 * SEC_US,
	.idle_timeout_us = 60 * SEC_US,
	.body_stall_timeout_us = 30 * SEC_US,
	.body_rate_min_bps = 500,
	.send_stall_timeout_us = 30 * SEC_US,
	.body_buffer_bytes = 256 * KIB,
};

/* --- what connections need of their thread --- */

char *thread_take_buffer(struct http_thread *thread)
{
	if (thread->spare_count > 0)
		return thread->spare_buffers[--thread->spare_count];
	return must_alloc(thread->server->options.body_buffer_bytes);
}

void thread_give_buffer(struct http_thread *thread, char *buffer)
{
	if (buffer && thread->spare_count < THREAD_SPARE_BUFFERS)
		thread->spare_buffers[thread->spare_count++] = buffer;
	else
		free(buffer);
}

void thread_forget(struct http_conn *conn)
{
	struct http_thread *thread = conn->thread;
	if (conn->prev)
		conn->prev->next = conn->next;
	else
		thread->conns = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
	if (conn->is_refused)
		thread->refused_count--;
	else
		atomic_fetch_sub(&thread->server->connection_count, 1);
}

/* --- accepting --- */

static void start_accept(struct http_thread *thread)
{
	thread->is_accepting = true;
	loop_accept(thread->loop, &thread->accept_op, thread->listen_fd);
}

static void on_accept_retry(struct timer *timer, int64_t now_us)
{
	(void)now_us;
	start_accept(timer->owner);
}

static void on_accept(struct loop *loop, struct op *op, int result)
{
	struct http_thread *thread = op->owner;
	struct http_server *server = thread->server;
	if (result < 0) {
		/* Most likely out of descriptors. The connection waits in the kernel's queue; asking again at once would only burn the
		 * processor, so wait until some may have been closed. */
		thread->is_accepting = false;
		if (!thread->is_stopping)
			loop_timer_set(loop, &thread->accept_timer, ACCEPT_RETRY_US);
		return;
	}
	if (thread->is_stopping) {
		close(result);
		return;
	}
	if (atomic_fetch_add(&server->connection_count, 1) < server->options.connection_limit_count) {
		conn_new(thread, result, false);
		return;
	}
	atomic_fetch_sub(&server->connection_count, 1);
	if (thread->refused_count >= CONN_REFUSED_MAX) {
		close(result);
		return;
	}
	thread->refused_count++;
	conn_new(thread, result, true);
}

/* --- the threads --- */

/* Calls fn for every connection. It may end this one and, by way of a handler, any other: so the next one is held while this one is served. */
static void for_each_conn(struct http_thread *thread, void (*fn)(struct http_conn *conn))
{
	struct http_conn *conn = thread->conns;
	if (conn)
		conn_enter(conn);
	while (conn) {
		fn(conn);
		struct http_conn *next = conn->next;
		if (next)
			conn_enter(next);
		conn_leave(conn);
		conn = next;
	}
}

static void close_if_idle(struct http_conn *conn)
{
	if (conn_is_idle(conn))
		conn->state = CONN_CLOSING;
}

static void cut(struct http_conn *conn) { conn_abort(conn, ERR_CLOSED, "the server is being stopped"); }

static void on_grace_over(struct timer *timer, int64_t now_us)
{
	(void)now_us;
	for_each_conn(timer->owner, cut);
}

static void on_stop(struct loop *loop, struct post *post)
{
	struct http_thread *thread = post->owner;
	thread->is_stopping = true;
	loop_timer_stop(loop, &thread->accept_timer);
	if (thread->is_accepting)
		loop_cancel(loop, &thread->accept_op);
	for_each_conn(thread, close_if_idle);
	if (thread->grace_us > 0)
		loop_timer_set(loop, &thread->grace_timer, thread->grace_us);
	else
		for_each_conn(thread, cut);
}

static void *thread_main(void *arg)
{
	struct http_thread *thread = arg;
	start_accept(thread);
	while (!thread->is_stopping || thread->is_accepting || thread->conns)
		loop_turn(thread->loop, -1);
	loop_timer_stop(thread->loop, &thread->grace_timer);
	return NULL;
}

static int init_thread(struct http_server *server, struct http_thread *thread, struct err *err)
{
	thread->server = server;
	thread->accept_op = (struct op){ .done = on_accept, .owner = thread };
	thread->accept_timer = (struct timer){ .fire = on_accept_retry, .owner = thread };
	thread->grace_timer = (struct timer){ .fire = on_grace_over, .owner = thread };
	thread->stop_post = (struct post){ .run = on_stop, .owner = thread };
	rng_seed_kernel(&thread->rng);
	int result = loop_new(server->options.backend, &thread->loop, err);
	if (result < 0)
		return err_wrap(err, "making the event loop of a server thread");
	thread->listen_fd = sock_listen(&server->addr, server->thread_count > 1, err);
	if (thread->listen_fd < 0)
		return thread->listen_fd;
	/* The first socket settles which port the others share. */
	result = sock_local(thread->listen_fd, &server->addr);
	return result < 0 ? err_set(err, ERR_SYSTEM, "asking for the address that a listening socket got failed") : 0;
}

/* Sockets that share a port may be opened by anybody of the same user, a second heng too, and would then each get a part of the connections.
 * A try at having the port alone tells. */
static int check_port_is_free(const struct sock_addr *addr, struct err *err)
{
	if (sock_port(addr) == 0)
		return 0;
	int fd = sock_listen(addr, false, err);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static unsigned count_cores(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	int count = CPU_COUNT(&set);
	return count > 0 ? (unsigned)count : 1;
}

int http_server_new(const struct http_options *options, const struct sock_addr *listen_addr,
		    const struct http_route *routes, void *app, struct http_server **ret_server, struct err *err)
{
	*ret_server = NULL;
	if (options->thread_count > THREADS_MAX || options->body_buffer_bytes < KIB)
		return err_set(err, ERR_CONFIG, "a server takes at most %d threads, and body buffers from %zu bytes",
			       THREADS_MAX, KIB);
	struct http_server *server = must_zalloc(1, sizeof(*server));
	server->options = *options;
	server->addr = *listen_addr;
	server->routes = routes;
	server->app = app;
	server->thread_count = options->thread_count > 0 ? options->thread_count
							 : (unsigned)min_size(count_cores(), THREADS_MAX);
	server->threads = must_zalloc(server->thread_count, sizeof(*server->threads));
	for (unsigned i = 0; i < server->thread_count; i++)
		server->threads[i].listen_fd = -1;
	int result = check_port_is_free(listen_addr, err);
	for (unsigned i = 0; i < server->thread_count && result >= 0; i++)
		result = init_thread(server, &server->threads[i], err);
	if (result < 0) {
		http_server_free(&server);
		return result;
	}
	*ret_server = server;
	return 0;
}

const struct sock_addr *http_server_addr(const struct http_server *server) { return &server->addr; }

int http_server_start(struct http_server *server, struct err *err)
{
	for (unsigned i = 0; i < server->thread_count; i++) {
		struct http_thread *thread = &server->threads[i];
		int result = pthread_create(&thread->thread, NULL, thread_main, thread);
		if (result != 0) {
			http_server_stop(server, 0);
			return err_sys(err, ERR_SYSTEM, result, "starting server thread %u failed", i);
		}
		thread->is_started = true;
		char name[16];
		snprintf(name, sizeof(name), "http-%u", i);
		pthread_setname_np(thread->thread, name);
	}
	return 0;
}

void http_server_stop(struct http_server *server, int64_t grace_us)
{
	for (unsigned i = 0; i < server->thread_count; i++) {
		struct http_thread *thread = &server->threads[i];
		if (!thread->is_started)
			continue;
		thread->grace_us = grace_us;
		loop_post(thread->loop, &thread->stop_post);
	}
	for (unsigned i = 0; i < server->thread_count; i++) {
		struct http_thread *thread = &server->threads[i];
		if (thread->is_started)
			pthread_join(thread->thread, NULL);
		thread->is_started = false;
	}
}

void http_server_free(struct http_server **server)
{
	struct http_server *s = *server;
	if (!s)
		return;
	http_server_stop(s, 0);
	for (unsigned i = 0; i < s->thread_count; i++) {
		struct http_thread *thread = &s->threads[i];
		while (thread->spare_count > 0)
			free(thread->spare_buffers[--thread->spare_count]);
		if (thread->listen_fd >= 0)
			close(thread->listen_fd);
		if (thread->loop)
			loop_free(&thread->loop);
	}
	free(s->threads);
	free(s);
	*server = NULL;
}
