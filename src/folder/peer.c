#include "folder/peer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NAME_SIZE 256
#define HTTPS     "https://"

bool peer_is_https(const char *url) { return strncmp(url, HTTPS, sizeof(HTTPS) - 1) == 0; }

const char *peer_scheme(const char *addr) { return peer_is_https(addr) ? "" : "http://"; }

const char *peer_host(const char *addr) { return peer_is_https(addr) ? addr + sizeof(HTTPS) - 1 : addr; }

bool peer_is_node(const struct tls_peer *peer, const char *node_id)
{
	char uri[NAME_SIZE], dns[NAME_SIZE];

	if (!peer || !peer->is_cluster || node_id[0] == '\0')
		return false;
	snprintf(uri, sizeof(uri), "heng:node:%s", node_id);
	snprintf(dns, sizeof(dns), "%s.node.heng", node_id);
	return tls_peer_has_name(peer, "uri", uri) || tls_peer_has_name(peer, "dns", dns);
}

bool peer_is_any_node(const struct tls_peer *peer)
{
	if (!peer || !peer->is_cluster)
		return false;
	for (size_t i = 0; i < peer->name_count; i++) {
		const char *name = peer->names[i];
		size_t size = strlen(name);
		if (strncmp(name, "uri:heng:node:", 14) == 0 && size > 14)
			return true;
		if (strncmp(name, "dns:", 4) == 0 && size > 14 && strcasecmp(name + size - 10, ".node.heng") == 0)
			return true;
	}
	return false;
}

bool peer_is_scheduler(const struct tls_peer *peer)
{
	return peer && peer->is_cluster &&
	       (tls_peer_has_name(peer, "uri", "heng:scheduler") || tls_peer_has_name(peer, "dns", "scheduler.heng"));
}
