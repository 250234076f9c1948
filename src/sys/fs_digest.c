#include <stdlib.h>

#include "sys/fs.h"

#define READ_PIECE_BYTES (256 * KIB)

int fs_digest(int fd, enum digest_kind kind, char target[DIGEST_HEX_SIZE], struct err *err)
{
	struct digest *digest = digest_new(kind);
	char *piece = must_alloc(READ_PIECE_BYTES);
	int64_t offset = 0;
	size_t size = 0;
	int result;

	do {
		result = fs_read_all(fd, piece, READ_PIECE_BYTES, offset, &size, err);
		if (result < 0)
			break;
		digest_feed(digest, piece, size);
		offset += (int64_t)size;
	} while (size == READ_PIECE_BYTES);
	digest_hex(digest, target);
	digest_free(&digest);
	free(piece);
	return result;
}
