#include "folder/merge_impl.h"
#include "folder/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/fs.h"
#include "sys/sock.h"

#define PLACE_TIMEOUT_US (2 * SEC_US)
#define PLACE_URL_SIZE   256
#define PIECE_BYTES      (256 * KIB) /* stays in the cache between reading, hashing and writing */

/* Opens the file that the node named, if it is the very same one: a path means nothing in another mount namespace. */
static int open_place(json_t *root, uint64_t size_bytes)
{
	const char *path = NULL;
	json_int_t device = 0, inode = 0, size = 0;
	struct stat facts;

	if (!root || json_unpack(root, "{s:s, s:I, s:I, s:I}", "path", &path, "device", &device, "inode", &inode,
				 "size", &size) < 0)
		return -1;
	AUTO(fs_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &facts) < 0 || !S_ISREG(facts.st_mode) || facts.st_dev != (dev_t)device ||
	    facts.st_ino != (ino_t)inode || (uint64_t)facts.st_size != size_bytes || (uint64_t)size != size_bytes)
		return -1;
	int result = fd;
	fd = -1;
	return result;
}

int merge_local_open(struct merge_run *run, struct fetch *fetch, const char *addr, const struct store_chunk *chunk)
{
	struct fetch_call call = FETCH_CALL_INIT;
	struct sock_addr parsed;
	struct err err = ERR_INIT;
	char url[PLACE_URL_SIZE];
	int fd = -1;

	if (sock_addr_parse(peer_host(addr), &parsed, &err) < 0 || !sock_addr_is_loopback(&parsed))
		return -1;
	snprintf(url, sizeof(url), "%s%s/internal/v1/chunk/%s/%" PRIu64 "/%" PRIu64 "/place", peer_scheme(addr), addr,
		 run->transfer.id, chunk->file_id, chunk->chunk_index);
	call.url = url;
	call.headers[0] = internal_key_header(run->merge->options.internal_key);
	call.timeout_us = PLACE_TIMEOUT_US;
	call.answer.limit = 16 * KIB;
	/* Whatever goes wrong here, the ordinary way over the network follows and says it in full. */
	if (fetch_do(fetch, &call, &err) == 0) {
		json_t *root = json_loadb(call.answer.data, call.answer.size, JSON_REJECT_DUPLICATES, NULL);
		fd = open_place(root, chunk->size_bytes);
		json_decref(root);
	}
	buf_fini(&call.answer);
	return fd;
}

int merge_local_copy(struct merge_target *target, int fd, uint64_t offset, uint64_t size_bytes, uint64_t *ret_bytes,
		     struct err *err)
{
	char *piece = must_alloc(PIECE_BYTES);
	/* Every byte is read in any case, as only a digest of what is there now proves that nothing rotted since its node had it: so a copy by the
	 * kernel (copy_file_range) spares one of two copies and reads the page cache twice, which came to nothing on ext4 (docs/performance.md).
	 * Shared blocks spare the write. A hard link would too, but mode, time and attributes are the file's, not the name's, and until the
	 * transfer is completed the node's chunk must stay as the node made it. */
	const bool is_cloned = merge_target_clone(target, fd, offset, size_bytes);
	uint64_t done = 0;
	int result = 0;

	while (done < size_bytes && result == 0 && (!is_cloned || merge_target_frontier(target) == offset + done)) {
		size_t want = size_bytes - done < PIECE_BYTES ? (size_t)(size_bytes - done) : PIECE_BYTES;
		ssize_t got = pread(fd, piece, want, (off_t)done);
		if (got < 0 && errno == EINTR)
			continue;
		/* Unreadable or short: the caller asks the node for the rest, which will say what is wrong. */
		if (got <= 0)
			break;
		struct str now = { piece, (size_t)got };
		if (is_cloned)
			merge_target_hash(target, offset + done, now);
		else
			result = merge_target_feed(target, offset + done, now, err);
		done += (uint64_t)got;
	}
	free(piece);
	/* What is cloned is there, also when it is not hashed yet: out of turn, or as it could not be read here. Then it is read back. */
	*ret_bytes = is_cloned ? size_bytes : done;
	return result;
}
