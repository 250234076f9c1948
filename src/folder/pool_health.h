/* What a node's GET /health answers, read with suspicion: it came over the network. */
#ifndef HENG_FOLDER_POOL_HEALTH_H
#define HENG_FOLDER_POOL_HEALTH_H

#include "folder/keyring.h"
#include "base/str.h"
#include "plug/store.h"

#define POOL_HEALTH_BODY_MAX (64 * KIB)
#define POOL_HEALTH_URL_SIZE (STORE_ADDR_SIZE + 32)

struct pool_health {
	char node_id[STORE_NODE_ID_SIZE];
	char incarnation[33];
	char start_id[33];   /* of the node's process; "" when it does not tell */
	uint64_t free_bytes; /* less what is promised to writes under way */
	uint64_t total_bytes, inodes_free;
	uint64_t floor_bytes; /* of the free ones it never uses so many */
	char fs_name[33];     /* "" when it does not tell */
	bool is_low;
	char diagnosis[256]; /* "" when the node is well */
};

int pool_health_parse(struct str body, struct pool_health *ret_health, struct err *err);
void pool_health_url(const char *addr, char target[POOL_HEALTH_URL_SIZE]);
/* Asks once, blocking at most timeout_us. order_header: what the node is to know of an operator's order; NULL: nothing. */
int pool_health_ask(const char *addr, const struct internal_key *internal_key, const char *order_header,
		    int64_t timeout_us, struct pool_health *ret_health, struct err *err);

/* May this text stand as a host and port in a URL? Names, IPv4 and bracketed IPv6, each with a port. */
bool pool_addr_is_valid(struct str addr);
bool pool_id_is_valid(struct str id);

#endif
