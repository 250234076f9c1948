#include <stdlib.h>
#include <string.h>

#include "folder/memo.h"

#define DIGEST_PLACES 65536
#define FOLDER_PLACES 4096
#define TOLD_PLACES   4096

struct digest_place {
	struct hash128 chunk;
	uint8_t kind; /* digest_kind + 1; 0: empty */
	uint8_t digest[DIGEST_SIZE_MAX];
};
struct memo {
	struct digest_place *digests;
	struct hash128 folders[FOLDER_PLACES]; /* all zero: empty */
	uint64_t told[TOLD_PLACES]; /* which telling it was, counted from 1, that last came to a chunk of the place */
	uint64_t told_count;
};

static bool is_same(struct hash128 a, struct hash128 b) { return a.low == b.low && a.high == b.high; }

struct memo *memo_new(void)
{
	struct memo *memo = must_zalloc(1, sizeof(*memo));

	memo->digests = must_zalloc(DIGEST_PLACES, sizeof(*memo->digests));
	return memo;
}

void memo_free(struct memo **memo)
{
	if (!*memo)
		return;
	free((*memo)->digests);
	free(*memo);
	*memo = NULL;
}

void memo_set_digest(struct memo *memo, struct hash128 chunk, enum digest_kind kind, const char *digest_hex)
{
	struct digest_place *place = &memo->digests[chunk.low % DIGEST_PLACES];

	place->chunk = chunk;
	place->kind = (uint8_t)(kind + 1);
	if (!hex_decode(str_from(digest_hex), place->digest, digest_size(kind)))
		place->kind = 0;
}

void memo_forget_digest(struct memo *memo, struct hash128 chunk)
{
	struct digest_place *place = &memo->digests[chunk.low % DIGEST_PLACES];

	if (is_same(place->chunk, chunk))
		place->kind = 0;
}

bool memo_digest(const struct memo *memo, struct hash128 chunk, enum digest_kind kind, char target[DIGEST_HEX_SIZE])
{
	const struct digest_place *place = &memo->digests[chunk.low % DIGEST_PLACES];

	if (place->kind != kind + 1 || !is_same(place->chunk, chunk))
		return false;
	hex_encode(place->digest, digest_size(kind), target);
	return true;
}

void memo_tell(struct memo *memo, struct hash128 chunk) { memo->told[chunk.low % TOLD_PLACES] = ++memo->told_count; }

uint64_t memo_told_count(const struct memo *memo) { return memo->told_count; }

bool memo_was_told(const struct memo *memo, struct hash128 chunk, uint64_t since_count)
{
	return memo->told[chunk.low % TOLD_PLACES] > since_count;
}

void memo_set_durable(struct memo *memo, struct hash128 folder) { memo->folders[folder.low % FOLDER_PLACES] = folder; }

bool memo_is_durable(const struct memo *memo, struct hash128 folder)
{
	return is_same(memo->folders[folder.low % FOLDER_PLACES], folder);
}

void memo_forget_folders(struct memo *memo) { memset(memo->folders, 0, sizeof(memo->folders)); }
