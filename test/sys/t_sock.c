#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "sys/sock.h"

static void test_parse(void **state)
{
	static const struct {
		const char *text;
		const char *back; /* NULL: refused */
		int port;
		bool is_loopback;
	} rows[] = {
		{ "", NULL, 0, false },
		{ ":", NULL, 0, false },
		{ ":80", NULL, 0, false },
		{ "127.0.0.1", NULL, 0, false },
		{ "127.0.0.1:", NULL, 0, false },
		{ "127.0.0.1:-1", NULL, 0, false },
		{ "127.0.0.1:+1", NULL, 0, false },
		{ "127.0.0.1:65536", NULL, 0, false },
		{ "127.0.0.1:80x", NULL, 0, false },
		{ "127.0.0.1: 80", NULL, 0, false },
		{ "::1:80", NULL, 0, false },
		{ "[::1]", NULL, 0, false },
		{ "[::1", NULL, 0, false },
		{ "[::1]80", NULL, 0, false },
		{ "[]:80", NULL, 0, false },
		{ "[::g]:80", NULL, 0, false },
		{ "127.0.0.1:0", "127.0.0.1:0", 0, true },
		{ "127.0.0.1:7080", "127.0.0.1:7080", 7080, true },
		{ "127.255.0.9:65535", "127.255.0.9:65535", 65535, true },
		{ "0.0.0.0:80", "0.0.0.0:80", 80, false },
		{ "128.0.0.1:80", "128.0.0.1:80", 80, false },
		{ "[::1]:7080", "[::1]:7080", 7080, true },
		{ "[::]:7080", "[::]:7080", 7080, false },
		{ "[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", 1, true },
		{ "[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.1]:1", 1, false },
		{ "[2001:db8:1111:2222:3333:4444:5555:6666]:65535", "[2001:db8:1111:2222:3333:4444:5555:6666]:65535",
		  65535, false },
	};
	char text[SOCK_TEXT_SIZE], long_name[400];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct sock_addr addr;
		struct err err = ERR_INIT;
		int result = sock_addr_parse(rows[i].text, &addr, &err);
		if (!rows[i].back) {
			assert_int_equal(result, -ERR_CONFIG);
			assert_non_null(strstr(err.text, "is not an address"));
			assert_true(err.hint[0] != '\0');
			continue;
		}
		assert_int_equal(result, 0);
		assert_string_equal(sock_addr_text(&addr, text), rows[i].back);
		assert_int_equal(sock_port(&addr), rows[i].port);
		assert_int_equal(sock_addr_is_loopback(&addr), rows[i].is_loopback);
	}
	struct sock_addr addr;
	memset(long_name, 'x', sizeof(long_name));
	memcpy(long_name + sizeof(long_name) - 4, ":80", 4);
	assert_int_equal(sock_addr_parse(long_name, &addr, NULL), -ERR_CONFIG);
	/* A bare chroot has no /etc/hosts, and then nobody knows this name. */
	struct addrinfo *known = NULL;
	bool is_known = getaddrinfo("localhost", NULL, NULL, &known) == 0;
	if (known != NULL)
		freeaddrinfo(known);
	assert_int_equal(sock_addr_parse("localhost:80", &addr, NULL) == 0, is_known);
	assert_true(!is_known || sock_addr_is_loopback(&addr));
	memset(&addr, 0, sizeof(addr));
	assert_string_equal(sock_addr_text(&addr, text), "unknown");
	assert_false(sock_addr_is_loopback(&addr));
	assert_int_equal(sock_port(&addr), 0);
}

static void test_listen(void **state)
{
	struct err err = ERR_INIT;
	struct sock_addr addr, peer;
	char name[32];
	socklen_t name_size = sizeof(name);
	int on = 0;
	socklen_t on_size = sizeof(on);

	(void)state;
	assert_int_equal(sock_addr_parse("127.0.0.1:0", &addr, &err), 0);
	int fd = sock_listen(&addr, true, &err);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(sock_local(fd, &addr), 0);
	assert_true(sock_port(&addr) > 0);
	/* Shared: a second one on the same port, but only when both say so. */
	int second_fd = sock_listen(&addr, true, &err);
	assert_true(second_fd >= 0);
	(void)close(second_fd);
	assert_int_equal(sock_listen(&addr, false, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, EADDRINUSE);
	assert_non_null(strstr(err.text, "127.0.0.1:"));
	assert_true(err.hint[0] != '\0');

	int client_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(sock_peer(client_fd, &peer) < 0);
	sock_tune_loopback(client_fd); /* knows no peer yet: harmless */
	assert_int_equal(connect(client_fd, (struct sockaddr *)&addr.storage, addr.size), 0);
	assert_int_equal(sock_peer(client_fd, &peer), 0);
	assert_int_equal(sock_port(&peer), sock_port(&addr));
	sock_tune_loopback(client_fd);
	assert_int_equal(getsockopt(client_fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_size), 0);
	/* A kernel may lack it; then nothing must have changed. */
	int probe_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has_cubic = setsockopt(probe_fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0;
	assert_int_equal(strcmp(name, "cubic") == 0, has_cubic);
	(void)close(probe_fd);
	sock_set_nodelay(client_fd);
	assert_int_equal(getsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &on, &on_size), 0);
	assert_true(on != 0);
	(void)close(client_fd);
	(void)close(fd);
	assert_true(sock_local(-1, &addr) < 0);

	assert_int_equal(sock_addr_parse("192.0.2.1:0", &addr, &err), 0);
	assert_int_equal(sock_listen(&addr, false, &err), -ERR_SYSTEM);
	assert_int_equal(err.sys_errno, EADDRNOTAVAIL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_listen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
