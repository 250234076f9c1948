#include "folder/pool_health.h"
#include "folder/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "sys/fetch.h"

static bool health_text(const json_t *root, const char *key, char *target, size_t target_size)
{
	const json_t *value = json_object_get(root, key);

	target[0] = '\0';
	if (!json_is_string(value))
		return false;
	return str_copy((struct str){ json_string_value(value), json_string_length(value) }, target, target_size);
}

static bool health_count(const json_t *root, const char *key, uint64_t *ret_value)
{
	const json_t *value = json_object_get(root, key);

	*ret_value = 0;
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret_value = (uint64_t)json_integer_value(value);
	return true;
}

/* The node's words are shown to people later, so they are made fit for that here, and cut to what we keep. */
static void health_diagnosis(const json_t *root, const char *status, struct pool_health *health)
{
	const json_t *value = json_object_get(root, "diagnosis");
	struct str text = STR_NONE;

	if (json_is_string(value))
		text = (struct str){ json_string_value(value), json_string_length(value) };
	if (text.size != 0)
		str_display(text, health->diagnosis, sizeof(health->diagnosis));
	else if (strcmp(status, "failed") == 0)
		snprintf(health->diagnosis, sizeof(health->diagnosis), "the node reports that its disk failed");
}

/* Which file system the space is on. Without a usable name the node counts as the only one there. */
static void health_fs(const json_t *root, struct pool_health *health)
{
	uint8_t raw[(sizeof(health->fs_name) - 1) / 2];

	if (!health_text(root, "fs", health->fs_name, sizeof(health->fs_name)) ||
	    !hex_decode(str_from(health->fs_name), raw, sizeof(raw)))
		health->fs_name[0] = '\0';
}

static int health_fill(const json_t *root, struct pool_health *health, struct err *err)
{
	char status[16];
	uint64_t reserved;

	if (!health_text(root, "status", status, sizeof(status)))
		return err_set(err, ERR_PEER, "its health answer has no usable 'status'");
	if (!health_text(root, "node_id", health->node_id, sizeof(health->node_id)) ||
	    !pool_id_is_valid(str_from(health->node_id)))
		return err_set(err, ERR_PEER, "its health answer has no usable 'node_id'");
	if (!health_text(root, "incarnation", health->incarnation, sizeof(health->incarnation)))
		return err_set(err, ERR_PEER, "its health answer has no usable 'incarnation'");
	(void)health_text(root, "start_id", health->start_id, sizeof(health->start_id));
	health_diagnosis(root, status, health);
	health->is_low = strcmp(status, "disk_low") == 0 || json_is_true(json_object_get(root, "is_low"));
	/* A node whose disk failed cannot tell its space, and needs not: it takes no work. */
	if (health->diagnosis[0] != '\0')
		return 0;
	if (!health_count(root, "free_bytes", &health->free_bytes) ||
	    !health_count(root, "total_bytes", &health->total_bytes) ||
	    !health_count(root, "inodes_free", &health->inodes_free) ||
	    !health_count(root, "reserved_bytes", &reserved))
		return err_set(err, ERR_PEER, "its health answer does not tell the disk's space");
	(void)health_count(root, "floor_bytes", &health->floor_bytes);
	health_fs(root, health);
	health->free_bytes = reserved < health->free_bytes ? health->free_bytes - reserved : 0;
	return 0;
}

int pool_health_parse(struct str body, struct pool_health *ret_health, struct err *err)
{
	json_error_t fault;
	json_t *root;
	int result;

	memset(ret_health, 0, sizeof(*ret_health));
	if (body.size == 0 || body.size > POOL_HEALTH_BODY_MAX)
		return err_set(err, ERR_PEER, "its health answer of %zu bytes is not one", body.size);
	root = json_loadb(body.data, body.size, JSON_REJECT_DUPLICATES, &fault);
	if (!json_is_object(root)) {
		json_decref(root);
		return err_set(err, ERR_PEER, "its health answer is not a JSON object");
	}
	result = health_fill(root, ret_health, err);
	json_decref(root);
	return result;
}

void pool_health_url(const char *addr, char target[POOL_HEALTH_URL_SIZE])
{
	snprintf(target, POOL_HEALTH_URL_SIZE, "%s%s/health", peer_scheme(addr), addr);
}

int pool_health_ask(const char *addr, const struct internal_key *internal_key, const char *order_header,
		    int64_t timeout_us, struct pool_health *ret_health, struct err *err)
{
	struct fetch_call call = FETCH_CALL_INIT;
	char url[POOL_HEALTH_URL_SIZE];
	struct fetch *fetch = NULL;
	int result;

	result = internal_fetch_new(internal_key, &fetch, err);
	if (result < 0)
		return result;
	pool_health_url(addr, url);
	call.url = url;
	call.headers[0] = internal_key_header(internal_key);
	call.headers[1] = order_header;
	call.connect_timeout_us = timeout_us;
	call.timeout_us = timeout_us;
	call.answer = BUF_INIT(POOL_HEALTH_BODY_MAX);
	result = fetch_do(fetch, &call, err);
	if (result == 0)
		result = pool_health_parse(buf_str(&call.answer), ret_health, err);
	buf_fini(&call.answer);
	fetch_free(&fetch);
	return result;
}

static bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool pool_id_is_valid(struct str id)
{
	if (id.size == 0 || id.size >= STORE_NODE_ID_SIZE)
		return false;
	for (size_t i = 0; i < id.size; i++) {
		if (!is_alnum(id.data[i]) && id.data[i] != '.' && id.data[i] != '_' && id.data[i] != '-')
			return false;
	}
	return true;
}

static bool host_is_valid(struct str host)
{
	bool is_bracketed = host.size > 2 && host.data[0] == '[' && host.data[host.size - 1] == ']';

	if (is_bracketed)
		host = (struct str){ host.data + 1, host.size - 2 };
	if (host.size == 0)
		return false;
	for (size_t i = 0; i < host.size; i++) {
		char c = host.data[i];

		if (is_alnum(c) || c == '.' || (is_bracketed && c == ':') || (!is_bracketed && (c == '-' || c == '_')))
			continue;
		return false;
	}
	return true;
}

bool pool_addr_is_valid(struct str addr)
{
	size_t colon;
	uint64_t port;

	if (addr.size == 0 || addr.size >= STORE_ADDR_SIZE)
		return false;
	if (str_starts(addr, STR("https://")))
		addr = (struct str){ addr.data + 8, addr.size - 8 };
	colon = addr.size;
	while (colon > 0 && addr.data[colon - 1] != ':')
		colon--;
	if (colon == 0 || !host_is_valid((struct str){ addr.data, colon - 1 }))
		return false;
	return str_to_u64((struct str){ addr.data + colon, addr.size - colon }, &port) && port >= 1 && port <= 65535;
}
