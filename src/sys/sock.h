/* Addresses and sockets. Text form of an address: "127.0.0.1:7080", "[::1]:7080", "host:7080" (resolved, blocking). */
#ifndef HENG_SYS_SOCK_H
#define HENG_SYS_SOCK_H

#include <sys/socket.h>

#include "base/err.h"

#define SOCK_TEXT_SIZE 64

struct sock_addr {
	struct sockaddr_storage storage;
	socklen_t size;
};

int sock_addr_parse(const char *text, struct sock_addr *ret_addr, struct err *err);
char *sock_addr_text(const struct sock_addr *addr, char target[SOCK_TEXT_SIZE]);
bool sock_addr_is_loopback(const struct sock_addr *addr);
int sock_port(const struct sock_addr *addr);

/* Returns a listening, non-blocking, close-on-exec descriptor (SO_REUSEADDR; SO_REUSEPORT when is_shared), or negative. Port 0 picks a
 * free one: ask sock_local. */
int sock_listen(const struct sock_addr *addr, bool is_shared, struct err *err);
int sock_local(int fd, struct sock_addr *ret_addr);
int sock_peer(int fd, struct sock_addr *ret_addr);
void sock_set_nodelay(int fd);
/* On loopback some congestion controls (BBR) pace far below what memory allows: asks for cubic there, quietly does nothing elsewhere. */
void sock_tune_loopback(int fd);
/* The same before a connection is made, when the descriptor does not know its peer yet. */
void sock_tune_for_peer(int fd, const struct sock_addr *peer);

#endif
