/* A server's TLS connection as a stream: all bytes go through the loop, as with a socket; nothing blocks, buffers are bounded and given back when they
 * are empty. The handshake happens within the first receive or send, whose time limits therefore count for it. */
#ifndef HENG_SYS_TLS_STREAM_H
#define HENG_SYS_TLS_STREAM_H

#include "sys/stream.h"
#include "sys/tls.h"

/* Takes the descriptor. tls: has a certificate; what it holds now is kept until the stream is closed.
 * A receive's result: 0 when the peer said that it ends, -ECONNABORTED when it ended without saying so, -EPROTO when it broke the protocol, its
 * certificate was not believed, or it does not speak TLS. A cancel ends the whole stream. A close says goodbye if there is room for it at once. */
void stream_tls_init(struct stream *stream, struct loop *loop, int fd, struct tls *tls);
/* The peer's certificate, NULL when it has shown none, or no handshake is over yet. Lives as long as the stream. */
const struct tls_peer *stream_tls_peer(const struct stream *stream);
/* The same, to be freed by the caller (free); the stream has none any more. For whoever outlives the stream. */
struct tls_peer *stream_tls_take_peer(struct stream *stream);

#endif
