#include "folder/sealer.h"

#include "base/mem.h"
#include "sys/fs.h"

#define NO_SEGMENT UINT64_MAX

struct sealer {
	enum seal_cipher cipher;
	struct seal *seal;
	/* The file at hand. */
	int fd; /* borrowed */
	uint64_t plain_bytes;
	uint64_t segment_index; /* which `stored` holds, or NO_SEGMENT */
	uint8_t plain[SEAL_SEGMENT_BYTES], stored[SEAL_SEGMENT_BYTES];
};

struct sealer *sealer_new(enum seal_cipher cipher, const uint8_t key[SEAL_KEY_SIZE])
{
	struct sealer *sealer = must_zalloc(1, sizeof(*sealer));

	sealer->cipher = cipher;
	sealer->seal = seal_new(cipher, key);
	sealer->fd = -1;
	return sealer;
}

void sealer_free(struct sealer **sealer)
{
	if (!*sealer)
		return;
	seal_free(&(*sealer)->seal);
	mem_wipe((*sealer)->plain, sizeof((*sealer)->plain));
	free(*sealer);
	*sealer = NULL;
}

static int read_plain(struct sealer *sealer, uint64_t segment_index, struct err *err)
{
	const struct seal_span span = seal_span(sealer->cipher, sealer->plain_bytes, segment_index);
	size_t got = 0;
	const int result = fs_read_all(sealer->fd, sealer->plain, span.plain_bytes, (int64_t)span.plain_at, &got, err);

	if (result == 0 && got < span.plain_bytes)
		return err_set(err, ERR_SOURCE_CHANGED, "it shrank while it was read");
	return result;
}

int sealer_open(struct sealer *sealer, int fd, const char *transfer_id, struct str path, uint64_t plain_bytes,
		const atomic_bool *is_over, struct err *err)
{
	const uint64_t count = seal_segment_count(sealer->cipher, plain_bytes);

	sealer->fd = fd;
	sealer->plain_bytes = plain_bytes;
	sealer->segment_index = NO_SEGMENT;
	seal_content_begin(sealer->seal, transfer_id, path, plain_bytes);
	for (uint64_t i = 0; i < count; i++) {
		const int result = read_plain(sealer, i, err);
		if (result < 0)
			return result;
		if (is_over && atomic_load(is_over))
			return err_set(err, ERR_WAITING, "interrupted");
		seal_content_add(sealer->seal, sealer->plain);
	}
	seal_content_end(sealer->seal);
	return 0;
}

static int make_segment(struct sealer *sealer, uint64_t segment_index, struct err *err)
{
	if (sealer->segment_index == segment_index)
		return 0;
	sealer->segment_index = NO_SEGMENT;
	const int result = read_plain(sealer, segment_index, err);
	if (result < 0)
		return result;
	if (!seal_segment(sealer->seal, segment_index, sealer->plain, sealer->stored))
		return err_set(err, ERR_SOURCE_CHANGED, "its content changed while it was read");
	sealer->segment_index = segment_index;
	return 0;
}

int sealer_read(struct sealer *sealer, uint64_t at, void *target, size_t size, struct err *err)
{
	uint8_t *to = target;

	while (size > 0) {
		const uint64_t segment_index = seal_segment_of(at);
		const int result = make_segment(sealer, segment_index, err);
		if (result < 0)
			return result;
		const struct seal_span span = seal_span(sealer->cipher, sealer->plain_bytes, segment_index);
		const size_t skip = (size_t)(at - span.stored_at), want = min_size(size, span.stored_bytes - skip);
		memcpy(to, sealer->stored + skip, want);
		to += want;
		at += want;
		size -= want;
	}
	return 0;
}
