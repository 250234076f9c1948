#include "plug/store.h"

#include <string.h>

static const char *const transfer_names[] = {
	[TRANSFER_CREATED] = "created", [TRANSFER_DISTRIBUTING] = "distributing", [TRANSFER_UPLOADING] = "uploading",
	[TRANSFER_MERGING] = "merging", [TRANSFER_COMPLETED] = "completed",       [TRANSFER_FAILED] = "failed",
};
static const char *const chunk_names[] = {
	[CHUNK_PENDING] = "pending", [CHUNK_STORED] = "stored", [CHUNK_DIGEST_FAILED] = "digest_failed",
	[CHUNK_LOST] = "lost",       [CHUNK_MERGED] = "merged",
};
static const char *const order_names[] = {
	[NODE_ORDER_NONE] = "",
	[NODE_ORDER_DRAIN] = "drain",
	[NODE_ORDER_LOST] = "lost",
};

static int name_find(const char *const *names, size_t count, struct str name)
{
	for (size_t i = 0; i < count; i++) {
		if (str_eq_c(name, names[i]))
			return (int)i;
	}
	return -1;
}

const char *transfer_state_name(enum transfer_state state)
{
	MUST((size_t)state < COUNT_OF(transfer_names));
	return transfer_names[state];
}

bool transfer_state_from_name(struct str name, enum transfer_state *ret_state)
{
	int found = name_find(transfer_names, COUNT_OF(transfer_names), name);

	if (found >= 0)
		*ret_state = (enum transfer_state)found;
	return found >= 0;
}

const char *chunk_state_name(enum chunk_state state)
{
	MUST((size_t)state < COUNT_OF(chunk_names));
	return chunk_names[state];
}

bool chunk_state_from_name(struct str name, enum chunk_state *ret_state)
{
	int found = name_find(chunk_names, COUNT_OF(chunk_names), name);

	if (found >= 0)
		*ret_state = (enum chunk_state)found;
	return found >= 0;
}

const char *node_order_name(enum node_order order)
{
	MUST((size_t)order < COUNT_OF(order_names));
	return order_names[order];
}

bool node_order_from_name(struct str name, enum node_order *ret_order)
{
	int found = name_find(order_names, COUNT_OF(order_names), name);

	if (found >= 0)
		*ret_order = (enum node_order)found;
	return found >= 0;
}
