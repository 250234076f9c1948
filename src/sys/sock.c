#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "sys/sock.h"

#define LISTEN_BACKLOG 4096
#define HOST_SIZE      256

static int bad_address(const char *text, const char *why, struct err *err)
{
	err_set(err, ERR_CONFIG, "'%.120s' is not an address: %s", text, why);
	err_hint(err, "write host:port, as in 127.0.0.1:7080, [::1]:7080 or example.org:7080");
	return -ERR_CONFIG;
}

/* Cuts "[v6]:port" or "host:port"; NULL, or what is wrong. */
static const char *split_address(const char *text, char host[HOST_SIZE], uint16_t *ret_port)
{
	const char *host_start = text, *host_end, *colon;
	uint64_t port;

	if (text[0] == '[') {
		host_start = text + 1;
		host_end = strchr(text, ']');
		if (!host_end || host_end[1] != ':')
			return "']:' does not follow '['";
		colon = host_end + 1;
	} else {
		colon = strrchr(text, ':');
		if (!colon)
			return "the port is missing";
		host_end = colon;
		if (memchr(text, ':', (size_t)(colon - text)))
			return "an IPv6 address is written in brackets";
	}
	if (!str_to_u64(str_from(colon + 1), &port) || port > UINT16_MAX)
		return "the port is a number from 0 to 65535";
	if (host_end == host_start)
		return "the host is missing (0.0.0.0 means every IPv4 address of this machine)";
	if (!str_copy((struct str){ host_start, (size_t)(host_end - host_start) }, host, HOST_SIZE))
		return "the host's name is too long";
	*ret_port = (uint16_t)port;
	return NULL;
}

int sock_addr_parse(const char *text, struct sock_addr *ret_addr, struct err *err)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST }, *found = NULL;
	char host[HOST_SIZE];
	uint16_t port = 0;
	const char *fault = split_address(text, host, &port);
	int result;

	memset(ret_addr, 0, sizeof(*ret_addr));
	if (fault)
		return bad_address(text, fault, err);
	result = getaddrinfo(host, NULL, &hints, &found);
	if (result == EAI_NONAME && text[0] != '[') {
		hints.ai_flags = AI_ADDRCONFIG;
		result = getaddrinfo(host, NULL, &hints, &found);
	}
	if (result != 0)
		return bad_address(text, result == EAI_SYSTEM ? strerror(errno) : gai_strerror(result), err);
	memcpy(&ret_addr->storage, found->ai_addr, found->ai_addrlen);
	ret_addr->size = found->ai_addrlen;
	freeaddrinfo(found);
	if (ret_addr->storage.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&ret_addr->storage)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&ret_addr->storage)->sin_port = htons(port);
	return 0;
}

int sock_port(const struct sock_addr *addr)
{
	if (addr->storage.ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)&addr->storage)->sin6_port);
	if (addr->storage.ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)&addr->storage)->sin_port);
	return 0;
}

char *sock_addr_text(const struct sock_addr *addr, char target[SOCK_TEXT_SIZE])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (addr->storage.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&addr->storage;
		(void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		(void)snprintf(target, SOCK_TEXT_SIZE, "[%s]:%d", host, sock_port(addr));
	} else if (addr->storage.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)&addr->storage;
		(void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		(void)snprintf(target, SOCK_TEXT_SIZE, "%s:%d", host, sock_port(addr));
	} else {
		(void)snprintf(target, SOCK_TEXT_SIZE, "unknown");
	}
	return target;
}

bool sock_addr_is_loopback(const struct sock_addr *addr)
{
	if (addr->storage.ss_family == AF_INET6) {
		const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&addr->storage)->sin6_addr;
		return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET);
	}
	if (addr->storage.ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)&addr->storage)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return false;
}

static int listen_failed(int fd, const struct sock_addr *addr, const char *step, struct err *err)
{
	char text[SOCK_TEXT_SIZE];
	int number = errno;

	if (fd >= 0)
		(void)close(fd);
	err_sys(err, ERR_SYSTEM, number, "cannot listen on %s (%s)", sock_addr_text(addr, text), step);
	if (number == EADDRINUSE)
		err_hint(err, "another process listens there (ss -ltnp shows which): stop it or choose another port");
	else if (number == EADDRNOTAVAIL)
		err_hint(err, "this machine has no such address (ip addr shows those it has)");
	else if (number == EACCES)
		err_hint(err, "ports below 1024 need the right CAP_NET_BIND_SERVICE: choose a higher port");
	return -ERR_SYSTEM;
}

int sock_listen(const struct sock_addr *addr, bool is_shared, struct err *err)
{
	const int on = 1;
	int fd = socket(addr->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return listen_failed(fd, addr, "socket", err);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return listen_failed(fd, addr, "SO_REUSEADDR", err);
	if (is_shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0)
		return listen_failed(fd, addr, "SO_REUSEPORT", err);
	if (bind(fd, (const struct sockaddr *)&addr->storage, addr->size) < 0)
		return listen_failed(fd, addr, "bind", err);
	if (listen(fd, LISTEN_BACKLOG) < 0)
		return listen_failed(fd, addr, "listen", err);
	return fd;
}

int sock_local(int fd, struct sock_addr *ret_addr)
{
	memset(ret_addr, 0, sizeof(*ret_addr));
	ret_addr->size = sizeof(ret_addr->storage);
	return getsockname(fd, (struct sockaddr *)&ret_addr->storage, &ret_addr->size) < 0 ? -ERR_SYSTEM : 0;
}

int sock_peer(int fd, struct sock_addr *ret_addr)
{
	memset(ret_addr, 0, sizeof(*ret_addr));
	ret_addr->size = sizeof(ret_addr->storage);
	return getpeername(fd, (struct sockaddr *)&ret_addr->storage, &ret_addr->size) < 0 ? -ERR_CLOSED : 0;
}

void sock_set_nodelay(int fd)
{
	const int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void sock_tune_for_peer(int fd, const struct sock_addr *peer)
{
	static const char wanted[] = "cubic";

	if (sock_addr_is_loopback(peer))
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted, sizeof(wanted) - 1);
}

void sock_tune_loopback(int fd)
{
	struct sock_addr peer;

	if (sock_peer(fd, &peer) == 0)
		sock_tune_for_peer(fd, &peer);
}
