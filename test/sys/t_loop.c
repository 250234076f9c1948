/* The contract of the loop, over every back end. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "sys/loop.h"
#include "sys/sock.h"
#include "sys/stream.h"

#define TURNS_MAX 20000

struct world {
	enum loop_backend backend;
	struct loop *loop;
};

/* One operation and what came of it. */
struct probe {
	struct op op;
	int count, last;
	bool is_submitting;
};

static void on_probe(struct loop *loop, struct op *op, int result)
{
	struct probe *probe = op->owner;

	(void)loop;
	assert_false(probe->is_submitting);
	probe->count++;
	probe->last = result;
}

static struct op *armed(struct probe *probe)
{
	*probe = (struct probe){ .op = { .done = on_probe, .owner = probe } };
	return &probe->op;
}

/* Turns until the probe has been called `count` times. A turn that waits for ever would hang, so each has an end. */
static void turn_until(struct loop *loop, const struct probe *probe, int count)
{
	for (int i = 0; i < TURNS_MAX && probe->count < count; i++)
		loop_turn(loop, 100 * MSEC_US);
	assert_int_equal(probe->count, count);
}

static void turn_some(struct loop *loop)
{
	for (int i = 0; i < 5; i++)
		loop_turn(loop, 0);
}

static void pair(int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

static int listener(struct sock_addr *ret_addr)
{
	struct err err = ERR_INIT;

	assert_int_equal(sock_addr_parse("127.0.0.1:0", ret_addr, &err), 0);
	int fd = sock_listen(ret_addr, false, &err);
	assert_true(fd >= 0);
	assert_int_equal(sock_local(fd, ret_addr), 0);
	return fd;
}

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

/* Both ends of a TCP connection. */
static void tcp_pair(int fds[2])
{
	struct sock_addr addr;
	int listen_fd = listener(&addr);

	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fds[0], (struct sockaddr *)&addr.storage, addr.size), 0);
	assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
	do {
		fds[1] = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	} while (fds[1] < 0 && errno == EAGAIN);
	assert_true(fds[1] >= 0);
	(void)close(listen_fd);
}

/* Files are read by the loop too; and an operation that somebody else ends comes back like any other, never from within the call. */
static void test_read_and_finish(void **state)
{
	struct world *world = *state;
	struct probe read_probe, finished;
	char path[] = "/tmp/heng-loop-XXXXXX", bytes[8] = "";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	(void)unlink(path);
	assert_int_equal(write(fd, "0123456789", 10), 10);
	loop_read(world->loop, armed(&read_probe), fd, 4, bytes, 4);
	turn_until(world->loop, &read_probe, 1);
	assert_int_equal(read_probe.last, 4);
	assert_memory_equal(bytes, "4567", 4);
	loop_read(world->loop, armed(&read_probe), fd, 10, bytes, 4);
	turn_until(world->loop, &read_probe, 1);
	assert_int_equal(read_probe.last, 0);
	(void)armed(&finished);
	finished.is_submitting = true;
	loop_finish(world->loop, &finished.op, -EPROTO);
	finished.is_submitting = false;
	assert_int_equal(finished.count, 0);
	/* Due at once, however long a turn may wait. */
	loop_turn(world->loop, 60 * SEC_US);
	assert_int_equal(finished.count, 1);
	assert_int_equal(finished.last, -EPROTO);
	(void)close(fd);
}

static void close_pair(const int fds[2])
{
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static int fill(int fd)
{
	static const char junk[4096];
	ssize_t count;
	int sum = 0;

	while ((count = send(fd, junk, sizeof(junk), MSG_DONTWAIT)) > 0)
		sum += (int)count;
	return sum;
}

static void test_backend(void **state)
{
	struct world *world = *state;

	assert_int_equal(loop_backend(world->loop), world->backend);
}

struct acceptor {
	struct op op;
	int want, got, ended, last;
};

static void on_accept(struct loop *loop, struct op *op, int result)
{
	struct acceptor *acceptor = op->owner;

	if (result < 0) {
		acceptor->ended++;
		acceptor->last = result;
		return;
	}
	assert_int_equal(fcntl(result, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(fcntl(result, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	(void)close(result);
	/* Cancelled while more are waiting: none may come after this. */
	if (++acceptor->got == acceptor->want) {
		loop_cancel(loop, op);
		loop_cancel(loop, op);
	}
}

static void test_accept(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct acceptor acceptor = { .op = { .done = on_accept, .owner = &acceptor }, .want = 150 };
	struct sock_addr addr;
	int clients[160], listen_fd = listener(&addr);

	loop_accept(loop, &acceptor.op, listen_fd);
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(clients[i], (struct sockaddr *)&addr.storage, addr.size), 0);
		if (i == 70)
			turn_some(loop);
	}
	for (int i = 0; i < TURNS_MAX && acceptor.ended == 0; i++)
		loop_turn(loop, 100 * MSEC_US);
	turn_some(loop);
	assert_int_equal(acceptor.got, 150);
	assert_int_equal(acceptor.ended, 1);
	assert_int_equal(acceptor.last, -ECANCELED);

	/* The same operation again, cancelled before it was ever looked at, and while it waits. */
	for (int turns = 0; turns < 2; turns++) {
		acceptor = (struct acceptor){ .op = { .done = on_accept, .owner = &acceptor }, .want = 1000 };
		loop_accept(loop, &acceptor.op, listen_fd);
		for (int i = 0; i < turns * 5; i++)
			loop_turn(loop, 0);
		loop_cancel(loop, &acceptor.op);
		assert_int_equal(acceptor.ended, 0);
		turn_some(loop);
		assert_int_equal(acceptor.ended, 1);
		assert_int_equal(acceptor.last, -ECANCELED);
	}
	/* Not a listening socket. */
	acceptor = (struct acceptor){ .op = { .done = on_accept, .owner = &acceptor } };
	loop_accept(loop, &acceptor.op, clients[0]);
	turn_some(loop);
	assert_int_equal(acceptor.ended, 1);
	assert_int_equal(acceptor.last, -EINVAL);
	for (size_t i = 0; i < COUNT_OF(clients); i++)
		(void)close(clients[i]);
	(void)close(listen_fd);
}

static void test_connect(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct probe probe;
	struct sock_addr addr, peer;
	int listen_fd = listener(&addr), fd = tcp_socket();

	loop_connect(loop, armed(&probe), fd, (struct sockaddr *)&addr.storage, addr.size);
	turn_until(loop, &probe, 1);
	assert_int_equal(probe.last, 0);
	assert_int_equal(sock_peer(fd, &peer), 0);
	assert_int_equal(sock_port(&peer), sock_port(&addr));
	(void)close(fd);
	(void)close(listen_fd);

	fd = tcp_socket();
	loop_connect(loop, armed(&probe), fd, (struct sockaddr *)&addr.storage, addr.size);
	turn_until(loop, &probe, 1);
	assert_int_equal(probe.last, -ECONNREFUSED);
	(void)close(fd);
}

static void test_connect_cancelled(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct probe probe;
	struct sock_addr addr;
	int listen_fd = listener(&addr), fds[8], fd = tcp_socket();

	/* A listener whose queue is full answers no more, so that a connection stays under way. */
	assert_int_equal(listen(listen_fd, 0), 0);
	for (size_t i = 0; i < COUNT_OF(fds); i++) {
		fds[i] = tcp_socket();
		(void)connect(fds[i], (struct sockaddr *)&addr.storage, addr.size);
	}
	loop_connect(loop, armed(&probe), fd, (struct sockaddr *)&addr.storage, addr.size);
	turn_some(loop);
	assert_int_equal(probe.count, 0);
	loop_cancel(loop, &probe.op);
	turn_until(loop, &probe, 1);
	turn_some(loop);
	assert_int_equal(probe.count, 1);
	assert_int_equal(probe.last, -ECANCELED);
	for (size_t i = 0; i < COUNT_OF(fds); i++)
		(void)close(fds[i]);
	(void)close(fd);
	(void)close(listen_fd);
}

static void test_recv_and_send(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct probe receiver, sender;
	char text[16];
	int fds[2];

	pair(fds);
	/* Data is there already, yet the callback waits for a turn. */
	assert_int_equal(write(fds[1], "hello", 5), 5);
	(void)armed(&receiver);
	receiver.is_submitting = true;
	loop_recv(loop, &receiver.op, fds[0], text, sizeof(text));
	receiver.is_submitting = false;
	assert_int_equal(receiver.count, 0);
	turn_until(loop, &receiver, 1);
	assert_int_equal(receiver.last, 5);
	assert_memory_equal(text, "hello", 5);

	/* One each way on the same descriptor, the receiving one first and waiting. */
	loop_recv(loop, armed(&receiver), fds[0], text, sizeof(text));
	turn_some(loop);
	assert_int_equal(receiver.count, 0);
	loop_send(loop, armed(&sender), fds[0], "there", 5);
	turn_until(loop, &sender, 1);
	assert_int_equal(sender.last, 5);
	assert_int_equal(receiver.count, 0);
	assert_int_equal(read(fds[1], text, sizeof(text)), 5);
	assert_int_equal(write(fds[1], "x", 1), 1);
	turn_until(loop, &receiver, 1);
	assert_int_equal(receiver.last, 1);

	/* Both wait at once: the sending one on a full socket. */
	loop_recv(loop, armed(&receiver), fds[0], text, sizeof(text));
	(void)fill(fds[0]);
	loop_send(loop, armed(&sender), fds[0], "y", 1);
	turn_some(loop);
	assert_int_equal(receiver.count + sender.count, 0);
	assert_int_equal(write(fds[1], "z", 1), 1);
	turn_until(loop, &receiver, 1);
	assert_int_equal(sender.count, 0);
	char drain[65536];
	while (read(fds[1], drain, sizeof(drain)) > 0)
		;
	turn_until(loop, &sender, 1);
	assert_int_equal(sender.last, 1);
	close_pair(fds);

	loop_recv(loop, armed(&receiver), -1, text, sizeof(text));
	turn_until(loop, &receiver, 1);
	assert_int_equal(receiver.last, -EBADF);
}

static void test_peer_gone(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct probe receiver, sender;
	char text[16];
	int fds[2];

	tcp_pair(fds);
	loop_recv(loop, armed(&receiver), fds[0], text, sizeof(text));
	turn_some(loop);
	(void)close(fds[1]);
	turn_until(loop, &receiver, 1);
	assert_int_equal(receiver.last, 0);
	/* The first send is answered by a reset; sooner or later one says so, and no signal comes. */
	for (int i = 0; i < 10; i++) {
		loop_send(loop, armed(&sender), fds[0], "x", 1);
		turn_until(loop, &sender, 1);
		if (sender.last < 0)
			break;
	}
	assert_true(sender.last == -EPIPE || sender.last == -ECONNRESET);
	(void)close(fds[0]);

	/* A reset while waiting. */
	const struct linger now = { .l_onoff = 1 };
	tcp_pair(fds);
	loop_recv(loop, armed(&receiver), fds[0], text, sizeof(text));
	turn_some(loop);
	assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	(void)close(fds[1]);
	turn_until(loop, &receiver, 1);
	assert_int_equal(receiver.last, -ECONNRESET);
	(void)close(fds[0]);
}

static void test_cancel(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct probe receiver, sender;
	char text[16];
	int fds[2];

	pair(fds);
	(void)fill(fds[0]);
	for (int turns = 0; turns < 2; turns++) {
		loop_recv(loop, armed(&receiver), fds[0], text, sizeof(text));
		loop_send(loop, armed(&sender), fds[0], "x", 1);
		for (int i = 0; i < turns * 5; i++)
			loop_turn(loop, 0);
		loop_cancel(loop, &receiver.op);
		loop_cancel(loop, &receiver.op);
		loop_cancel(loop, &sender.op);
		assert_int_equal(receiver.count + sender.count, 0);
		turn_some(loop);
		assert_int_equal(receiver.count, 1);
		assert_int_equal(receiver.last, -ECANCELED);
		assert_int_equal(sender.count, 1);
		assert_int_equal(sender.last, -ECANCELED);
	}
	/* Done before the request came through: the bytes must not be lost. */
	loop_recv(loop, armed(&receiver), fds[0], text, sizeof(text));
	turn_some(loop);
	assert_int_equal(write(fds[1], "abc", 3), 3);
	loop_cancel(loop, &receiver.op);
	turn_until(loop, &receiver, 1);
	if (receiver.last == -ECANCELED) {
		loop_recv(loop, armed(&receiver), fds[0], text, sizeof(text));
		turn_until(loop, &receiver, 1);
	}
	assert_int_equal(receiver.last, 3);
	loop_cancel(loop, &receiver.op);
	turn_some(loop);
	assert_int_equal(receiver.count, 1);
	close_pair(fds);
}

struct reuser {
	struct op op;
	int fd, other_fd, round;
	char byte;
};

static void on_reuse(struct loop *loop, struct op *op, int result)
{
	struct reuser *reuser = op->owner;
	int fds[2];

	assert_int_equal(result, reuser->round % 2);
	if (++reuser->round == 50)
		return;
	/* Closed right in the callback; the next pair gets the same number for another socket. */
	(void)close(reuser->fd);
	if (reuser->other_fd >= 0)
		(void)close(reuser->other_fd);
	pair(fds);
	assert_int_equal(fds[0], reuser->fd);
	reuser->other_fd = fds[1];
	loop_recv(loop, op, reuser->fd, &reuser->byte, 1);
	if (reuser->round % 2 == 1) {
		assert_int_equal(write(fds[1], "x", 1), 1);
	} else {
		(void)close(fds[1]);
		reuser->other_fd = -1;
	}
}

static void test_descriptor_reuse(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct reuser reuser = { .op = { .done = on_reuse, .owner = &reuser } };
	int fds[2];

	pair(fds);
	reuser.fd = fds[0];
	reuser.other_fd = -1;
	loop_recv(loop, &reuser.op, fds[0], &reuser.byte, 1);
	turn_some(loop);
	(void)close(fds[1]);
	for (int i = 0; i < TURNS_MAX && reuser.round < 50; i++)
		loop_turn(loop, 100 * MSEC_US);
	assert_int_equal(reuser.round, 50);
	(void)close(reuser.fd);
	if (reuser.other_fd >= 0)
		(void)close(reuser.other_fd);
}

/* A sender and a receiver that go on from their own callbacks. */
struct flow {
	struct stream in, out;
	struct op recv_op, send_op;
	const char *data;
	char *got;
	size_t size, sent, received, piece_bytes;
	int short_count, file_fd;
	int64_t file_offset;
	bool is_ended, is_sender_done;
};

static void send_more(struct flow *flow)
{
	size_t left = flow->size - flow->sent;

	if (flow->file_fd >= 0)
		stream_sendfile(&flow->out, &flow->send_op, flow->file_fd, flow->file_offset + (int64_t)flow->sent,
				left);
	else
		stream_send(&flow->out, &flow->send_op, flow->data + flow->sent, left);
}

static void on_sent(struct loop *loop, struct op *op, int result)
{
	struct flow *flow = op->owner;

	(void)loop;
	assert_true(result > 0);
	flow->sent += (size_t)result;
	if (flow->sent < flow->size) {
		flow->short_count++;
		send_more(flow);
		return;
	}
	flow->is_sender_done = true;
	stream_close(&flow->out);
}

static void on_received(struct loop *loop, struct op *op, int result)
{
	struct flow *flow = op->owner;

	(void)loop;
	assert_true(result >= 0);
	flow->received += (size_t)result;
	if (result == 0) {
		flow->is_ended = true;
		stream_close(&flow->in);
		return;
	}
	stream_recv(&flow->in, op, flow->got + flow->received,
		    min_size(flow->piece_bytes, flow->size + 1 - flow->received));
}

static void run_flow(struct loop *loop, struct flow *flow, const int fds[2])
{
	stream_socket_init(&flow->in, loop, fds[1]);
	stream_socket_init(&flow->out, loop, fds[0]);
	flow->recv_op = (struct op){ .done = on_received, .owner = flow };
	flow->send_op = (struct op){ .done = on_sent, .owner = flow };
	flow->got = malloc(flow->size + 1);
	assert_non_null(flow->got);
	send_more(flow);
	stream_recv(&flow->in, &flow->recv_op, flow->got, flow->piece_bytes);
	for (int i = 0; i < TURNS_MAX && !flow->is_ended; i++)
		loop_turn(loop, 100 * MSEC_US);
	assert_true(flow->is_ended && flow->is_sender_done);
	assert_int_equal(flow->received, flow->size);
	assert_memory_equal(flow->got, flow->data, flow->size);
	free(flow->got);
}

static char *pattern(size_t size)
{
	char *data = malloc(size);

	assert_non_null(data);
	for (size_t i = 0; i < size; i++)
		data[i] = (char)(i * 31 + (i >> 8) * 7 + (i >> 16));
	return data;
}

static void test_short_writes(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct flow flow = { .size = MIB + 77, .piece_bytes = 3000, .file_fd = -1 };
	const int small = 4096;
	int fds[2];

	char *data = pattern(flow.size);
	flow.data = data;
	tcp_pair(fds);
	assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	run_flow(loop, &flow, fds);
	assert_true(flow.short_count > 0);
	free(data);
}

static int temp_file(const char *data, size_t size)
{
	char name[] = "/tmp/heng-t-loop-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	(void)unlink(name);
	assert_int_equal(write(fd, data, size), size);
	return fd;
}

static void test_sendfile(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	const size_t whole = 3 * MIB + 123;
	char *data = pattern(whole);
	int fds[2], file_fd = temp_file(data, whole);
	struct probe probe;

	for (int i = 0; i < 2; i++) {
		struct flow flow = { .piece_bytes = 64 * KIB, .file_fd = file_fd, .file_offset = i * 1000003 };
		flow.size = whole - (size_t)flow.file_offset;
		flow.data = data + flow.file_offset;
		tcp_pair(fds);
		run_flow(loop, &flow, fds);
		assert_true(flow.short_count > 0);
	}
	/* At the end of the file there is nothing to send; of the file's own position nothing was used. */
	tcp_pair(fds);
	loop_sendfile(loop, armed(&probe), fds[0], file_fd, (int64_t)whole, 100);
	turn_until(loop, &probe, 1);
	assert_int_equal(probe.last, 0);
	assert_int_equal(lseek(file_fd, 0, SEEK_CUR), whole);

	/* A reader that does not read: it waits, and ends when asked to. */
	(void)fill(fds[0]);
	loop_sendfile(loop, armed(&probe), fds[0], file_fd, 0, 100000);
	turn_some(loop);
	assert_int_equal(probe.count, 0);
	loop_cancel(loop, &probe.op);
	turn_until(loop, &probe, 1);
	assert_int_equal(probe.last, -ECANCELED);
	loop_sendfile(loop, armed(&probe), fds[0], file_fd, 0, 100000);
	loop_cancel(loop, &probe.op);
	turn_until(loop, &probe, 1);
	assert_int_equal(probe.last, -ECANCELED);

	/* A reader that goes away: an error, no signal. */
	loop_sendfile(loop, armed(&probe), fds[0], file_fd, 0, whole);
	turn_some(loop);
	(void)close(fds[1]);
	turn_until(loop, &probe, 1);
	assert_true(probe.last == -EPIPE || probe.last == -ECONNRESET);
	loop_sendfile(loop, armed(&probe), fds[0], file_fd, 0, whole);
	turn_until(loop, &probe, 1);
	assert_int_equal(probe.last, -EPIPE);
	(void)close(fds[0]);
	(void)close(file_fd);
	free(data);
}

/* More at once than the submission queue holds. */
static void test_many(void **state)
{
	enum { PAIRS = 400 };
	struct loop *loop = ((struct world *)*state)->loop;
	struct probe *probes = calloc(PAIRS, sizeof(*probes));
	int(*fds)[2] = calloc(PAIRS, sizeof(*fds));
	char *bytes = calloc(PAIRS, 1);

	for (int i = 0; i < PAIRS; i++) {
		pair(fds[i]);
		loop_recv(loop, armed(&probes[i]), fds[i][0], &bytes[i], 1);
	}
	turn_some(loop);
	for (int i = 0; i < PAIRS; i += 2)
		assert_int_equal(write(fds[i][1], "x", 1), 1);
	for (int i = 0; i < PAIRS; i += 2) {
		turn_until(loop, &probes[i], 1);
		assert_int_equal(probes[i].last, 1);
	}
	for (int i = 1; i < PAIRS; i += 2) {
		assert_int_equal(probes[i].count, 0);
		loop_cancel(loop, &probes[i].op);
	}
	for (int i = 1; i < PAIRS; i += 2) {
		turn_until(loop, &probes[i], 1);
		assert_int_equal(probes[i].last, -ECANCELED);
	}
	for (int i = 0; i < PAIRS; i++)
		close_pair(fds[i]);
	free(probes);
	free(fds);
	free(bytes);
}

struct alarm {
	struct timer timer;
	struct loop *loop;
	struct timer *to_stop;
	int fired, again;
	int64_t at_us, set_us, delay_us;
};

static void on_alarm(struct timer *timer, int64_t now_us)
{
	struct alarm *alarm = timer->owner;

	alarm->fired++;
	alarm->at_us = now_us;
	if (alarm->to_stop)
		loop_timer_stop(alarm->loop, alarm->to_stop);
	if (alarm->again-- > 0)
		loop_timer_set(alarm->loop, timer, alarm->delay_us);
}

static void set_alarm(struct loop *loop, struct alarm *alarm, int64_t delay_us)
{
	*alarm = (struct alarm){ .timer = { .fire = on_alarm, .owner = alarm }, .loop = loop };
	alarm->delay_us = delay_us;
	alarm->set_us = loop_now_us(loop);
	loop_timer_set(loop, &alarm->timer, delay_us);
}

static void test_timers(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct alarm first, second, stopped, far;

	loop_turn(loop, 0);
	set_alarm(loop, &far, 3600 * SEC_US);
	set_alarm(loop, &second, 12 * MSEC_US);
	set_alarm(loop, &stopped, 8 * MSEC_US);
	set_alarm(loop, &first, 3 * MSEC_US);
	first.again = 1;
	first.to_stop = &stopped.timer;
	/* Nothing else is pending, so that only timers can end these turns. */
	while (second.fired == 0 || first.fired < 2)
		loop_turn(loop, -1);
	assert_int_equal(first.fired, 2);
	assert_int_equal(second.fired, 1);
	assert_int_equal(stopped.fired, 0);
	assert_int_equal(far.fired, 0);
	assert_true(second.at_us >= second.set_us + second.delay_us);
	assert_true(first.at_us >= first.set_us + 2 * first.delay_us);
	/* One for now, at once. */
	set_alarm(loop, &first, -5);
	while (first.fired == 0)
		loop_turn(loop, -1);
	loop_timer_stop(loop, &far.timer);
	loop_timer_stop(loop, &far.timer);
	/* The turn's own limit. A turn may end early (the kernel interrupts a wait when it clears up an older ring), but it must wait. */
	int64_t before_us = clock_mono_us();
	int turns = 0;
	for (; clock_mono_us() - before_us < 5 * MSEC_US; turns++)
		loop_turn(loop, 5 * MSEC_US);
	assert_true(turns < 20);
}

enum { POSTERS = 4, POSTS = 500 };

struct letter {
	struct post post;
	int poster, number;
};
struct mailbag {
	struct loop *loop;
	struct letter letters[POSTERS][POSTS];
	int seen[POSTERS], total;
};
struct poster {
	struct mailbag *bag;
	int index;
};

static void on_letter(struct loop *loop, struct post *post)
{
	struct mailbag *bag = post->owner;
	struct letter *letter = CONTAINER_OF(post, struct letter, post);

	assert_int_equal(letter->number, bag->seen[letter->poster]);
	bag->seen[letter->poster]++;
	if (++bag->total == POSTERS * POSTS)
		loop_stop(loop);
}

static void *post_all(void *owner)
{
	struct poster *poster = owner;

	for (int i = 0; i < POSTS; i++) {
		struct letter *letter = &poster->bag->letters[poster->index][i];
		*letter = (struct letter){ { .run = on_letter, .owner = poster->bag }, poster->index, i };
		loop_post(poster->bag->loop, &letter->post);
	}
	return NULL;
}

static void test_posts(void **state)
{
	struct mailbag *bag = calloc(1, sizeof(*bag));
	struct poster posters[POSTERS];
	pthread_t threads[POSTERS];

	bag->loop = ((struct world *)*state)->loop;
	for (int i = 0; i < POSTERS; i++) {
		posters[i] = (struct poster){ bag, i };
		assert_int_equal(pthread_create(&threads[i], NULL, post_all, &posters[i]), 0);
	}
	loop_run(bag->loop);
	assert_int_equal(bag->total, POSTERS * POSTS);
	for (int i = 0; i < POSTERS; i++)
		(void)pthread_join(threads[i], NULL);
	free(bag);
}

static void again(struct loop *loop, struct post *post)
{
	int *left = post->owner;

	if (--*left == 0)
		loop_stop(loop);
	else
		loop_post(loop, post);
}

static void test_post_from_itself(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	int left = 20;
	struct post post = { .run = again, .owner = &left };

	loop_post(loop, &post);
	loop_run(loop);
	assert_int_equal(left, 0);
	/* Stopped before it runs: it returns at once, once. */
	loop_stop(loop);
	loop_run(loop);
	left = 1;
	loop_post(loop, &post);
	loop_run(loop);
	assert_int_equal(left, 0);
}

/* Made on one thread, run on another. */
static void *run_loop(void *owner)
{
	loop_run(owner);
	return NULL;
}

static void on_echo(struct loop *loop, struct op *op, int result)
{
	on_probe(loop, op, result);
	loop_stop(loop);
}

static void test_other_thread(void **state)
{
	struct loop *loop = ((struct world *)*state)->loop;
	struct probe probe;
	pthread_t thread;
	char text[8];
	int fds[2];

	pair(fds);
	/* Asked for before the first turn, by the thread that made the loop. */
	loop_recv(loop, armed(&probe), fds[0], text, sizeof(text));
	probe.op.done = on_echo;
	assert_int_equal(pthread_create(&thread, NULL, run_loop, loop), 0);
	assert_int_equal(write(fds[1], "hi", 2), 2);
	(void)pthread_join(thread, NULL);
	assert_int_equal(probe.count, 1);
	assert_int_equal(probe.last, 2);
	close_pair(fds);
}

static void test_names(void **state)
{
	static const struct {
		const char *name;
		bool is_known;
		enum loop_backend backend;
	} rows[] = {
		{ "", false, LOOP_AUTO },    { "uring", false, LOOP_AUTO },    { "EPOLL", false, LOOP_AUTO },
		{ "auto", true, LOOP_AUTO }, { "io_uring", true, LOOP_URING }, { "epoll", true, LOOP_EPOLL },
	};
	struct loop *loop;
	enum loop_backend backend;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		backend = LOOP_AUTO;
		assert_int_equal(loop_backend_from_name(rows[i].name, &backend), rows[i].is_known);
		assert_int_equal(backend, rows[i].backend);
	}
	assert_int_equal(loop_new(LOOP_AUTO, &loop, NULL), 0);
	assert_true(loop_backend(loop) != LOOP_AUTO);
	loop_free(&loop);
	assert_null(loop);
	loop_free(&loop);
}

static bool has_uring;

static int setup(struct world *world, void **state)
{
	*state = world;
	if (world->backend == LOOP_URING && !has_uring) {
		world->loop = NULL;
		return 0;
	}
	return loop_new(world->backend, &world->loop, NULL);
}
static int setup_epoll(void **state)
{
	static struct world world = { .backend = LOOP_EPOLL };

	return setup(&world, state);
}
static int setup_uring(void **state)
{
	static struct world world = { .backend = LOOP_URING };

	return setup(&world, state);
}
static int teardown(void **state)
{
	loop_free(&((struct world *)*state)->loop);
	return 0;
}

/* Both back ends run the same function; where the kernel forbids one, its rows are skipped and say so. */
#define ROW(test)                                    \
	static void test##_if_there(void **state)    \
	{                                            \
		if (!((struct world *)*state)->loop) \
			skip();                      \
		test(state);                         \
	}
#define ROWS(X)                   \
	X(test_read_and_finish)   \
	X(test_backend)           \
	X(test_accept)            \
	X(test_connect)           \
	X(test_connect_cancelled) \
	X(test_recv_and_send)     \
	X(test_peer_gone)         \
	X(test_cancel)            \
	X(test_descriptor_reuse)  \
	X(test_short_writes)      \
	X(test_sendfile)          \
	X(test_many)              \
	X(test_timers)            \
	X(test_posts)             \
	X(test_post_from_itself)  \
	X(test_other_thread)
ROWS(ROW)
#define BOTH(test)                                                        \
	{ "epoll " #test, test##_if_there, setup_epoll, teardown, NULL }, \
		{ "io_uring " #test, test##_if_there, setup_uring, teardown, NULL },

int main(void)
{
	const struct CMUnitTest tests[] = { ROWS(BOTH) cmocka_unit_test(test_names) };
	struct loop *loop = NULL;

	has_uring = loop_new(LOOP_URING, &loop, NULL) == 0;
	loop_free(&loop);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
