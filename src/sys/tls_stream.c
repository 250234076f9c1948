/* OpenSSL sits between two buffers: `input` has what was received, `output` what is to be sent, both encrypted; drive() moves whatever can move.
 *
 * What the stream itself has asked of the loop (raw operations) is always on behalf of an operation of the user's, which does not end before it.
 * So when no operation of the user's is pending the loop has none of ours, and the stream may be closed. */
#include "sys/tls_stream.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys/tls_inside.h"

#define RECORD_BYTES    (16 * KIB)
#define RECORD_EXTRA    ((size_t)512) /* more than any suite adds to a record */
#define RECORDS_AT_ONCE 8             /* encrypted before they are sent */
#define OUTPUT_BYTES    (RECORDS_AT_ONCE * (RECORD_BYTES + RECORD_EXTRA) + 8 * KIB)
#define INPUT_MIN_BYTES (4 * KIB) /* while a connection waits for its next request */
#define INPUT_MAX_BYTES (256 * KIB)
#define PIECE_BYTES     (RECORDS_AT_ONCE * RECORD_BYTES) /* of a file */

struct tls_stream {
	struct loop *loop;
	int fd;
	struct tls_context *context;
	SSL *ssl;
	struct tls_peer *peer;
	bool is_shaken; /* the handshake is over */
	bool is_open;   /* and our last words of it are sent */
	bool is_ended;  /* we have said goodbye */
	int failure;    /* negative errno: nothing works any more */

	/* The user's operations, NULL: none is pending. */
	struct op *recv_op, *send_op;
	char *target;
	size_t target_size;
	const char *data; /* what is to be encrypted; NULL: the file's next piece has not been read yet */
	size_t data_size, data_done;
	int file_fd;
	int64_t file_offset;
	char *piece;

	/* Ours. */
	struct op raw_recv, raw_send, raw_file;
	bool is_receiving, is_sending, is_reading_file, is_eof;
	char *input;
	size_t input_begin, input_size, input_capacity;
	char *output;
	size_t output_begin, output_size;
};

static void drive(struct tls_stream *t);

/* --- between OpenSSL and the buffers --- */

static int bio_write(BIO *bio, const char *data, int size)
{
	struct tls_stream *t = BIO_get_data(bio);

	BIO_clear_retry_flags(bio);
	if (size <= 0)
		return 0;
	if (!t->output)
		t->output = must_alloc(OUTPUT_BYTES);
	/* What is being sent stays where it is: new bytes go behind it. */
	size_t count = min_size((size_t)size, OUTPUT_BYTES - t->output_size);
	if (count == 0) {
		BIO_set_retry_write(bio);
		return -1;
	}
	memcpy(t->output + t->output_size, data, count);
	t->output_size += count;
	return (int)count;
}

static int bio_read(BIO *bio, char *target, int size)
{
	struct tls_stream *t = BIO_get_data(bio);
	size_t count = min_size(size > 0 ? (size_t)size : 0, t->input_size - t->input_begin);

	BIO_clear_retry_flags(bio);
	if (count == 0) {
		if (t->is_eof)
			return 0;
		BIO_set_retry_read(bio);
		return -1;
	}
	memcpy(target, t->input + t->input_begin, count);
	t->input_begin += count;
	return (int)count;
}

static long bio_ctrl(BIO *bio, int command, long number UNUSED, void *pointer UNUSED)
{
	const struct tls_stream *t = BIO_get_data(bio);

	if (command == BIO_CTRL_FLUSH)
		return 1;
	return command == BIO_CTRL_EOF && t->is_eof && t->input_begin == t->input_size;
}

static int bio_create(BIO *bio)
{
	BIO_set_init(bio, 1);
	return 1;
}

static BIO_METHOD *bio_method;

static void make_method(void)
{
	bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "heng");
	MUST(bio_method && BIO_meth_set_write(bio_method, bio_write) == 1 &&
	     BIO_meth_set_read(bio_method, bio_read) == 1 && BIO_meth_set_ctrl(bio_method, bio_ctrl) == 1 &&
	     BIO_meth_set_create(bio_method, bio_create) == 1);
}

static size_t output_left(const struct tls_stream *t) { return t->output_size - t->output_begin; }

static size_t output_room(const struct tls_stream *t)
{
	return t->output ? OUTPUT_BYTES - t->output_size : OUTPUT_BYTES;
}

static void drop_output(struct tls_stream *t)
{
	free(t->output);
	t->output = NULL;
	t->output_begin = t->output_size = 0;
}

/* --- ends --- */

static void finish(struct tls_stream *t, struct op **ref, int result)
{
	struct op *op = *ref;

	*ref = NULL;
	loop_finish(t->loop, op, result);
}

static void finish_send(struct tls_stream *t, int result)
{
	free(t->piece);
	t->piece = NULL;
	t->data = NULL;
	t->file_fd = -1;
	finish(t, &t->send_op, result);
}

static void fail(struct tls_stream *t, int failure)
{
	if (t->failure == 0 || failure == -ECANCELED)
		t->failure = failure;
	if (t->is_receiving)
		loop_cancel(t->loop, &t->raw_recv);
	if (t->is_reading_file)
		loop_cancel(t->loop, &t->raw_file);
	/* What OpenSSL has to say of a broken protocol is still sent; of anything else the peer hears nothing more. */
	if (failure == -EPROTO)
		return;
	if (t->is_sending)
		loop_cancel(t->loop, &t->raw_send);
	else
		drop_output(t);
}

/* What a call of OpenSSL came to that gave nothing. True: it waits for input. */
static bool take_trouble(struct tls_stream *t, int result)
{
	int what = SSL_get_error(t->ssl, result);

	if (what == SSL_ERROR_WANT_READ)
		return true;
	if (what == SSL_ERROR_WANT_WRITE)
		return false;
	ERR_clear_error();
	fail(t, t->is_eof && t->input_begin == t->input_size ? -ECONNABORTED : -EPROTO);
	return false;
}

/* --- moving on --- each returns whether it waits for input */

static bool shake(struct tls_stream *t)
{
	ERR_clear_error();
	int result = SSL_do_handshake(t->ssl);
	if (result != 1)
		return take_trouble(t, result);
	t->is_shaken = true;
	t->peer = tls_peer_of(t->ssl, t->context);
	return false;
}

static bool read_plain(struct tls_stream *t)
{
	size_t done = 0;
	int result = 1;

	while (done < t->target_size) {
		ERR_clear_error();
		result = SSL_read(t->ssl, t->target + done, (int)min_size(t->target_size - done, MIB));
		if (result <= 0)
			break;
		done += (size_t)result;
	}
	if (done > 0) {
		/* What stopped it shows again at the next receive. */
		finish(t, &t->recv_op, (int)done);
		return false;
	}
	if (SSL_get_error(t->ssl, result) == SSL_ERROR_ZERO_RETURN) {
		finish(t, &t->recv_op, 0);
		return false;
	}
	return take_trouble(t, result);
}

static void write_plain(struct tls_stream *t)
{
	while (t->data_done < t->data_size && output_room(t) >= RECORD_BYTES + RECORD_EXTRA) {
		ERR_clear_error();
		int result = SSL_write(t->ssl, t->data + t->data_done,
				       (int)min_size(t->data_size - t->data_done, RECORD_BYTES));
		if (result <= 0) {
			if (take_trouble(t, result))
				fail(t, -EPROTO);
			return;
		}
		t->data_done += (size_t)result;
	}
}

static void read_file(struct tls_stream *t)
{
	if (!t->piece)
		t->piece = must_alloc(PIECE_BYTES);
	t->is_reading_file = true;
	loop_read(t->loop, &t->raw_file, t->file_fd, t->file_offset, t->piece, min_size(t->data_size, PIECE_BYTES));
}

static void send_output(struct tls_stream *t)
{
	t->is_sending = true;
	loop_send(t->loop, &t->raw_send, t->fd, t->output + t->output_begin, output_left(t));
}

/* OpenSSL has taken everything that was there. A large target promises much, so that much is asked for at once. */
static void recv_input(struct tls_stream *t)
{
	size_t capacity = t->recv_op && t->is_open && t->target_size > INPUT_MIN_BYTES
				  ? min_size(t->target_size + RECORD_EXTRA, INPUT_MAX_BYTES)
				  : INPUT_MIN_BYTES;

	MUST(t->input_begin == t->input_size);
	if (t->input_capacity != capacity) {
		free(t->input);
		t->input = must_alloc(capacity);
		t->input_capacity = capacity;
	}
	t->input_begin = t->input_size = 0;
	t->is_receiving = true;
	loop_recv(t->loop, &t->raw_recv, t->fd, t->input, t->input_capacity);
}

static void end_failed(struct tls_stream *t)
{
	if (t->failure != -EPROTO && !t->is_sending)
		drop_output(t);
	if (output_left(t) > 0 && !t->is_sending && (t->recv_op || t->send_op))
		send_output(t);
	if (t->is_sending || t->is_receiving || t->is_reading_file)
		return;
	if (t->recv_op)
		finish(t, &t->recv_op, t->failure);
	if (t->send_op)
		finish_send(t, t->failure);
}

static void drive(struct tls_stream *t)
{
	bool is_waiting = false; /* for input */

	if (t->failure == 0 && !t->is_shaken && !t->is_receiving)
		is_waiting = shake(t);
	t->is_open = t->is_open || (t->is_shaken && output_left(t) == 0);
	/* A receive that has started a send itself (the answer to a change of keys, say) outlives it. */
	if (t->failure == 0 && t->is_open && t->recv_op && !t->is_receiving && (!t->is_sending || t->send_op))
		is_waiting = read_plain(t);
	if (t->failure == 0 && t->is_open && t->send_op && t->data)
		write_plain(t);
	if (t->failure != 0) {
		end_failed(t);
		return;
	}
	if (t->is_open && t->send_op && !t->data && !t->is_reading_file)
		read_file(t);
	if (output_left(t) > 0 && !t->is_sending && (t->recv_op || t->send_op))
		send_output(t);
	if (is_waiting && !t->is_receiving)
		recv_input(t);
	bool is_taken = t->data && (t->data_done > 0 || t->data_size == 0);
	if (t->send_op && is_taken && !t->is_sending && output_left(t) == 0)
		finish_send(t, (int)t->data_done);
}

/* --- the loop's words --- */

static void on_recv(struct loop *loop UNUSED, struct op *op, int result)
{
	struct tls_stream *t = op->owner;

	t->is_receiving = false;
	if (result > 0)
		t->input_size = (size_t)result;
	else if (result == 0)
		t->is_eof = true;
	else
		fail(t, result);
	drive(t);
}

static void on_send(struct loop *loop UNUSED, struct op *op, int result)
{
	struct tls_stream *t = op->owner;

	t->is_sending = false;
	if (result > 0) {
		t->output_begin += (size_t)result;
		if (output_left(t) == 0)
			drop_output(t);
	} else {
		drop_output(t);
		fail(t, result < 0 ? result : -ECONNABORTED);
	}
	drive(t);
}

static void on_file(struct loop *loop UNUSED, struct op *op, int result)
{
	struct tls_stream *t = op->owner;

	t->is_reading_file = false;
	if (result > 0 && t->failure == 0) {
		t->data = t->piece;
		t->data_size = (size_t)result;
	} else if (t->failure == 0) {
		/* The file's fault, not the stream's: the next send may go well. */
		finish_send(t, result);
	}
	drive(t);
}

/* --- the stream --- */

static void tls_recv(struct stream *stream, struct op *op, void *target, size_t size)
{
	struct tls_stream *t = stream->state;

	MUST(!t->recv_op);
	t->recv_op = op;
	t->target = target;
	t->target_size = size;
	drive(t);
}

static void begin_send(struct tls_stream *t, struct op *op, const char *data, size_t size)
{
	MUST(!t->send_op);
	t->send_op = op;
	t->data = data;
	t->data_size = size;
	t->data_done = 0;
	drive(t);
}

static void tls_send(struct stream *stream, struct op *op, const void *data, size_t size)
{
	begin_send(stream->state, op, data, size);
}

static void tls_sendfile(struct stream *stream, struct op *op, int file_fd, int64_t offset, size_t size)
{
	struct tls_stream *t = stream->state;

	t->file_fd = file_fd;
	t->file_offset = offset;
	begin_send(t, op, NULL, size);
}

static void tls_cancel(struct stream *stream, struct op *op)
{
	struct tls_stream *t = stream->state;

	if (op != t->recv_op && op != t->send_op)
		return;
	fail(t, -ECANCELED);
	drive(t);
}

/* The few bytes of a goodbye are given to the kernel at once, or not at all: nobody waits for them. */
static void tls_shut(struct stream *stream)
{
	struct tls_stream *t = stream->state;

	if (t->is_shaken && t->failure == 0 && !t->is_ended && !t->is_sending) {
		t->is_ended = true;
		ERR_clear_error();
		(void)SSL_shutdown(t->ssl);
		ERR_clear_error();
		if (output_left(t) > 0)
			(void)send(t->fd, t->output + t->output_begin, output_left(t), MSG_DONTWAIT | MSG_NOSIGNAL);
		drop_output(t);
	}
	(void)shutdown(t->fd, SHUT_WR);
}

static void tls_close(struct stream *stream)
{
	struct tls_stream *t = stream->state;

	if (!t)
		return;
	MUST(!t->is_receiving && !t->is_sending && !t->is_reading_file);
	tls_shut(stream);
	SSL_free(t->ssl);
	tls_context_drop(&t->context);
	free(t->peer);
	free(t->input);
	drop_output(t);
	free(t->piece);
	(void)close(t->fd);
	free(t);
	stream->state = NULL;
	stream->fd = -1;
}

static const struct stream_ops tls_ops = {
	.recv = tls_recv,
	.send = tls_send,
	.sendfile = tls_sendfile,
	.cancel = tls_cancel,
	.shut = tls_shut,
	.close = tls_close,
};

void stream_tls_init(struct stream *stream, struct loop *loop, int fd, struct tls *tls)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct tls_stream *t = must_zalloc(1, sizeof(*t));

	MUST(pthread_once(&once, make_method) == 0);
	*t = (struct tls_stream){ .loop = loop, .fd = fd, .file_fd = -1, .context = tls_take(tls) };
	t->raw_recv = (struct op){ .done = on_recv, .owner = t };
	t->raw_send = (struct op){ .done = on_send, .owner = t };
	t->raw_file = (struct op){ .done = on_file, .owner = t };
	MUST(t->context->server);
	t->ssl = SSL_new(t->context->server);
	BIO *bio = BIO_new(bio_method);
	MUST(t->ssl && bio);
	BIO_set_data(bio, t);
	SSL_set_bio(t->ssl, bio, bio);
	SSL_set_accept_state(t->ssl);
	*stream = (struct stream){ .ops = &tls_ops, .loop = loop, .fd = fd, .state = t };
}

const struct tls_peer *stream_tls_peer(const struct stream *stream)
{
	return stream->ops == &tls_ops ? ((const struct tls_stream *)stream->state)->peer : NULL;
}

struct tls_peer *stream_tls_take_peer(struct stream *stream)
{
	struct tls_stream *t = stream->ops == &tls_ops ? stream->state : NULL;
	struct tls_peer *peer = t ? t->peer : NULL;

	if (t)
		t->peer = NULL;
	return peer;
}
