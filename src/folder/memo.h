/* What a disk remembers of its recent work, in bounded memory: digests of chunks it wrote, which chunks it said lately are here, folders whose names are known to be durable.
 * Direct-mapped: a newcomer displaces what had its place, which costs a second look later, never a wrong answer. Not thread-safe. */
#ifndef HENG_FOLDER_MEMO_H
#define HENG_FOLDER_MEMO_H

#include "base/digest.h"
#include "base/hash.h"

struct memo;
struct memo *memo_new(void);
void memo_free(struct memo **memo);

void memo_set_digest(struct memo *memo, struct hash128 chunk, enum digest_kind kind, const char *digest_hex);
void memo_forget_digest(struct memo *memo, struct hash128 chunk);
/* False when the digest of that kind is not remembered. */
bool memo_digest(const struct memo *memo, struct hash128 chunk, enum digest_kind kind, char target[DIGEST_HEX_SIZE]);

/* Somebody was told just now that the chunk is here. */
void memo_tell(struct memo *memo, struct hash128 chunk);
/* How often anybody was told anything. */
uint64_t memo_told_count(const struct memo *memo);
/* Was somebody told of the chunk since that was the count? A newcomer in its place counts for it too: true more often than need be, never less. */
bool memo_was_told(const struct memo *memo, struct hash128 chunk, uint64_t since_count);

void memo_set_durable(struct memo *memo, struct hash128 folder);
bool memo_is_durable(const struct memo *memo, struct hash128 folder);
/* Folders were removed: their names, made again, are not durable yet. */
void memo_forget_folders(struct memo *memo);

#endif
