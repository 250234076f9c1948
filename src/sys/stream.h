/* A byte stream as a vtable: plain sockets, and TLS (tls_stream.h). Machines see a stream, never a
 * descriptor. One recv and one send may be pending at a time. */
#ifndef HENG_SYS_STREAM_H
#define HENG_SYS_STREAM_H

#include "sys/loop.h"

struct stream;

struct stream_ops {
	void (*recv)(struct stream *stream, struct op *op, void *target, size_t size);
	void (*send)(struct stream *stream, struct op *op, const void *data, size_t size);
	void (*sendfile)(struct stream *stream, struct op *op, int file_fd, int64_t offset, size_t size);
	/* May end the stream for both directions, as it does with TLS: for those who are about to close. */
	void (*cancel)(struct stream *stream, struct op *op);
	/* Nothing will be sent any more: tells the peer so, who may go on sending. Nothing may be being sent. */
	void (*shut)(struct stream *stream);
	/* Both directions; pending operations must have called back. Frees what the transport holds. */
	void (*close)(struct stream *stream);
};

struct stream {
	const struct stream_ops *ops;
	struct loop *loop;
	int fd;
	void *state; /* the transport's */
};

void stream_socket_init(struct stream *stream, struct loop *loop, int fd); /* takes the descriptor */
static inline void stream_recv(struct stream *s, struct op *op, void *target, size_t size)
{
	s->ops->recv(s, op, target, size);
}
static inline void stream_send(struct stream *s, struct op *op, const void *data, size_t size)
{
	s->ops->send(s, op, data, size);
}
static inline void stream_sendfile(struct stream *s, struct op *op, int file_fd, int64_t offset, size_t size)
{
	s->ops->sendfile(s, op, file_fd, offset, size);
}
static inline void stream_cancel(struct stream *s, struct op *op) { s->ops->cancel(s, op); }
static inline void stream_shut(struct stream *s) { s->ops->shut(s); }
static inline void stream_close(struct stream *s) { s->ops->close(s); }

#endif
