/* Who is who between scheduler and nodes: by certificates, and in URLs. */
#ifndef HENG_FOLDER_PEER_H
#define HENG_FOLDER_PEER_H

#include "sys/tls.h"

/* Addresses of nodes are "host:port", or "https://host:port" where the node serves with TLS. What a URL begins with, before such an address. */
const char *peer_scheme(const char *addr);
/* The "host:port" of either. */
const char *peer_host(const char *addr);
bool peer_is_https(const char *url);

/* Certificates of the cluster's own authority (tls_ca) name a role among their subject alternative names: the URI "heng:node:ID" or the DNS name
 * "ID.node.heng"; "heng:scheduler" or "scheduler.heng". peer NULL: nobody, false. */
bool peer_is_node(const struct tls_peer *peer, const char *node_id);
bool peer_is_any_node(const struct tls_peer *peer);
bool peer_is_scheduler(const struct tls_peer *peer);

#endif
