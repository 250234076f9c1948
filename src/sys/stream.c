#include <sys/socket.h>
#include <unistd.h>

#include "sys/stream.h"

static void socket_recv(struct stream *stream, struct op *op, void *target, size_t size)
{
	loop_recv(stream->loop, op, stream->fd, target, size);
}

static void socket_send(struct stream *stream, struct op *op, const void *data, size_t size)
{
	loop_send(stream->loop, op, stream->fd, data, size);
}

static void socket_sendfile(struct stream *stream, struct op *op, int file_fd, int64_t offset, size_t size)
{
	loop_sendfile(stream->loop, op, stream->fd, file_fd, offset, size);
}

static void socket_cancel(struct stream *stream, struct op *op) { loop_cancel(stream->loop, op); }

static void socket_shut(struct stream *stream) { (void)shutdown(stream->fd, SHUT_WR); }

static void socket_close(struct stream *stream)
{
	if (stream->fd >= 0)
		(void)close(stream->fd);
	stream->fd = -1;
}

static const struct stream_ops socket_ops = {
	.recv = socket_recv,
	.send = socket_send,
	.sendfile = socket_sendfile,
	.cancel = socket_cancel,
	.shut = socket_shut,
	.close = socket_close,
};

void stream_socket_init(struct stream *stream, struct loop *loop, int fd)
{
	*stream = (struct stream){ .ops = &socket_ops, .loop = loop, .fd = fd };
}
