/* Receipts that the scheduler has not taken yet, kept in a file so that a node may promise what it stored while nobody can be told. Appended
 * with one sync for a whole batch, read and dropped from the front. A record is a frame with its length and CRC-32C: what a crash left half
 * written at the end is recognised and cut, what rotted in the middle is passed over and counted. A record may come again after a crash (dropping is
 * not synced): the scheduler takes a receipt twice without harm, and losing one is what must not happen.
 * Blocking; one thread at a time. */
#ifndef HENG_FOLDER_JOURNAL_H
#define HENG_FOLDER_JOURNAL_H

#include "base/err.h"
#include "plug/store.h"

struct journal;
struct journal_record {
	struct store_receipt receipt;
	bool is_repeat; /* the chunk had been here before it was sent: refused, its file stays */
};

/* Opens or makes the file at `path`, whose folder nobody else writes to. limit_bytes: of what waits; 0 takes nothing. ret_lost_bytes: rotted in the
 * middle and passed over; what is cut at the end was never promised. */
int journal_open(const char *path, uint64_t limit_bytes, struct journal **ret_journal, uint64_t *ret_lost_bytes,
		 struct err *err);
void journal_close(struct journal **journal);
size_t journal_count(const struct journal *journal); /* records that wait */
bool journal_is_empty(const struct journal *journal);
/* More than half of the limit is free: the rest is for receipts that somebody waits for. */
bool journal_has_plenty(const struct journal *journal);
/* All of them durable, or none promised: ERR_LIMIT when they do not fit, ERR_SYSTEM when the disk does not take them. */
int journal_append(struct journal *journal, const struct journal_record *records, size_t count, struct err *err);
/* The oldest, up to `limit`, which stay until they are dropped. None only when the journal is empty. */
int journal_read(struct journal *journal, struct journal_record *ret_records, size_t limit, size_t *ret_count,
		 uint64_t *ret_lost_bytes, struct err *err);
/* Those that the last journal_read gave are not wanted any more. An error is of shortening the file only: they will not be read again before a
 * restart. */
int journal_drop(struct journal *journal, struct err *err);

#endif
