/* What was once written to chunk files, as memory or the file's attribute tells. */
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "folder/disk_inside.h"

/* Of a durable chunk: "<kind>:<hex>", what its sender gave and we wrote. */
#define DIGEST_ATTRIBUTE "user.heng.digest"

/* Not every file system keeps attributes, nor has room for one; the sync that follows tells of a disk that is ill. Without it, rot that is met
 * after a restart looks like a sender with other bytes. */
void disk_keep_digest(int fd, enum digest_kind kind, const char *digest_hex)
{
	char text[DIGEST_HEX_SIZE + 16];
	const int size = snprintf(text, sizeof(text), "%s:%s", digest_name(kind), digest_hex);

	(void)fsetxattr(fd, DIGEST_ATTRIBUTE, text, (size_t)size, 0);
}

bool disk_remembered_digest(struct disk *disk, struct hash128 key, enum digest_kind kind, char target[DIGEST_HEX_SIZE])
{
	bool is_known;

	pthread_mutex_lock(&disk->lock);
	is_known = memo_digest(disk->memo, key, kind, target);
	pthread_mutex_unlock(&disk->lock);
	return is_known;
}

bool disk_attribute_digest(int fd, enum digest_kind kind, char target[DIGEST_HEX_SIZE])
{
	char text[DIGEST_HEX_SIZE + 16];
	const ssize_t size = fgetxattr(fd, DIGEST_ATTRIBUTE, text, sizeof(text));
	struct str rest, word;

	if (size <= 0)
		return false;
	rest = (struct str){ text, (size_t)size };
	return str_cut(&rest, ':', &word) && str_eq_c(word, digest_name(kind)) && digest_hex_is_valid(kind, rest) &&
	       str_copy(rest, target, DIGEST_HEX_SIZE);
}

bool disk_written_digest(struct disk *disk, struct hash128 key, int fd, enum digest_kind kind,
			 char target[DIGEST_HEX_SIZE])
{
	return disk_remembered_digest(disk, key, kind, target) || disk_attribute_digest(fd, kind, target);
}

bool disk_may_have(struct disk *disk, const struct disk_chunk *chunk, bool is_read)
{
	char name[DISK_NAME_SIZE], hex[DIGEST_HEX_SIZE];
	uint64_t size_bytes = 0;
	struct err err = ERR_INIT;
	AUTO(fs_close)
	int fd = disk_read(disk, chunk->transfer_id, chunk->file_id, chunk->chunk_index, &size_bytes, &err);

	if (fd < 0)
		return fd != -ERR_CHUNK_GONE;
	if (size_bytes != chunk->size_bytes)
		return false;
	disk_chunk_name(chunk->transfer_id, chunk->file_id, chunk->chunk_index, name, sizeof(name));
	if (!disk_written_digest(disk, disk_name_key(name), fd, chunk->digest, hex) &&
	    (!is_read || fs_digest(fd, chunk->digest, hex, &err) < 0))
		return true;
	return strcmp(hex, chunk->digest_hex) == 0;
}
