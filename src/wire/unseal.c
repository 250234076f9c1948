#include "wire/unseal.h"

#include <inttypes.h>

#include "base/mem.h"
#include "wire/seal_impl.h"

struct unseal {
	const uint8_t *key; /* borrowed */
	unseal_sink_fn *sink;
	void *owner;
	struct seal *seals[SEAL_SM4 + 1]; /* of each cipher that was met */
	/* The file at hand. */
	struct seal *seal; /* NULL: its first segment has not been opened yet */
	struct str path;
	uint64_t stored_bytes, plain_bytes, segment_index, segment_count;
	size_t size; /* of what has come of the segment */
	uint8_t stored[SEAL_SEGMENT_BYTES], plain[SEAL_SEGMENT_BYTES];
};

struct unseal *unseal_new(const uint8_t key[SEAL_KEY_SIZE], unseal_sink_fn *sink, void *owner)
{
	struct unseal *unseal = must_zalloc(1, sizeof(*unseal));

	unseal->key = key;
	unseal->sink = sink;
	unseal->owner = owner;
	return unseal;
}

void unseal_free(struct unseal **unseal)
{
	if (!*unseal)
		return;
	for (size_t i = 0; i < COUNT_OF((*unseal)->seals); i++)
		seal_free(&(*unseal)->seals[i]);
	mem_wipe((*unseal)->plain, sizeof((*unseal)->plain));
	free(*unseal);
	*unseal = NULL;
}

void unseal_begin(struct unseal *unseal, struct str path, uint64_t stored_bytes)
{
	unseal->seal = NULL;
	unseal->path = path;
	unseal->stored_bytes = stored_bytes;
	unseal->segment_index = unseal->segment_count = 0;
	unseal->size = 0;
}

static int not_encrypted(struct err *err)
{
	err_set(err, ERR_INTEGRITY, "it is not a file that heng push --encrypt made, or it was cut or extended");
	return -(int)ERR_INTEGRITY;
}

/* The first segment is here, its header with it. */
static int begin_file(struct unseal *unseal, struct err *err)
{
	enum seal_cipher cipher;

	if (!seal_cipher_from_head(unseal->stored[0], &cipher) ||
	    !seal_plain_size(cipher, unseal->stored_bytes, &unseal->plain_bytes))
		return not_encrypted(err);
	if (!unseal->seals[cipher])
		unseal->seals[cipher] = seal_new(cipher, unseal->key);
	if (!seal_open_begin(unseal->seals[cipher], unseal->path, unseal->plain_bytes, unseal->stored))
		return not_encrypted(err);
	unseal->seal = unseal->seals[cipher];
	unseal->segment_count = seal_segment_count(cipher, unseal->plain_bytes);
	return 0;
}

static int open_segment(struct unseal *unseal, struct err *err)
{
	int result = unseal->segment_index == 0 ? begin_file(unseal, err) : 0;

	if (result < 0)
		return result;
	if (!seal_open_segment(unseal->seal, unseal->segment_index, unseal->stored, unseal->plain)) {
		if (unseal->segment_index > 0)
			return err_set(err, ERR_INTEGRITY,
				       "segment %" PRIu64 " of %" PRIu64 " is not what was encrypted there",
				       unseal->segment_index, unseal->segment_count);
		err_set(err, ERR_INTEGRITY, "it does not open with this key as a file of this path");
		err_hint(err,
			 "it was changed, or encrypted with another key, or under another name: a file's path within "
			 "its folder belongs to it");
		return -(int)ERR_INTEGRITY;
	}
	const struct seal_span span = seal_span(seal_cipher_of(unseal->seal), unseal->plain_bytes,
						unseal->segment_index);
	unseal->segment_index++;
	unseal->size = 0;
	return span.plain_bytes > 0 ? unseal->sink(unseal->owner, unseal->plain, span.plain_bytes, err) : 0;
}

/* All segments but the last are of one size, whatever the cipher. */
static size_t segment_bytes(const struct unseal *unseal)
{
	const uint64_t at = unseal->segment_index * SEAL_SEGMENT_BYTES;

	return at < unseal->stored_bytes ? min_size(SEAL_SEGMENT_BYTES, unseal->stored_bytes - at) : 0;
}

int unseal_feed(struct unseal *unseal, const void *data, size_t size, struct err *err)
{
	const uint8_t *at = data;

	while (size > 0) {
		const size_t whole = segment_bytes(unseal), want = min_size(size, whole - unseal->size);

		if (whole == 0)
			return err_set(err, ERR_INTEGRITY, "more than its %" PRIu64 " bytes came",
				       unseal->stored_bytes);
		memcpy(unseal->stored + unseal->size, at, want);
		unseal->size += want;
		at += want;
		size -= want;
		const int result = unseal->size == whole ? open_segment(unseal, err) : 0;
		if (result < 0)
			return result;
	}
	return 0;
}

int unseal_end(struct unseal *unseal, struct err *err)
{
	if (unseal->segment_index > 0 && unseal->segment_index == unseal->segment_count)
		return 0;
	if (unseal->stored_bytes == 0)
		return not_encrypted(err);
	return err_set(err, ERR_INTEGRITY, "it ends before its %" PRIu64 " bytes have come", unseal->stored_bytes);
}
