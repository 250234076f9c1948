/* From a spooled manifest to a committed plan: entries, objects (large files, packs of small ones), chunks with their target nodes. */
#ifndef HENG_FOLDER_PLAN_H
#define HENG_FOLDER_PLAN_H

#include "folder/pool.h"
#include "wire/manifest.h"

/* More chunks than this in one transfer are refused: the cut is too small for the folder. */
#define PLAN_CHUNKS_MAX 100000000u

/* Facts of a manifest, from one pass over the spool file; refuses what the manifest rules refuse. */
struct plan_facts {
	uint64_t entry_count, file_count, total_bytes, largest_file_bytes;
	uint32_t crc32c;
	char digest[33];
};
int plan_scan(int manifest_fd, const struct manifest_limits *limits, struct plan_facts *ret_facts, struct err *err);
/* Each entry of a manifest to a callback, in order; a negative return stops. Of the facts only the sums of its text are filled. */
int plan_scan_each(int manifest_fd, manifest_entry_fn *on_entry, void *owner, struct plan_facts *ret_facts,
		   struct err *err);

/* The same, each entry with the one of that number that the store has of a transfer; NULL where that has none. Slices of both are valid during the
 * callback only. */
typedef int plan_pair_fn(void *owner, const struct manifest_entry *entry, const struct store_entry *known,
			 struct err *err);
int plan_scan_beside(struct store *store, const struct store_transfer *transfer, int manifest_fd, plan_pair_fn *on_pair,
		     void *owner, struct err *err);

/* How small files are packed and large ones cut; pure, shared by tests. pack_bytes: files up to this size are packed (chunk_bytes / 8). A pack
 * holds consecutive small files (entries without bytes between them do not matter), is closed by a large file or when the next would pass
 * chunk_bytes, and is one chunk. */
uint64_t plan_pack_bytes(uint64_t chunk_bytes);
/* The key of a chunk on the ring: "<transfer_id> <relative path> <chunk_index>", for a pack "<transfer_id> <file_id> <chunk_index>". */
uint64_t plan_chunk_key(const char *transfer_id, struct str path, uint64_t file_id, bool is_pack, uint64_t chunk_index);

/* Second pass: writes the plan in one store transaction. transfer: filled but for counts and pack_bytes, which are set. ring: targets by weighted
 * ring with bounded load by bytes (epsilon 250 milli). -ERR_NO_NODES on an empty ring. store NULL: only counts, for a dry run. record: NULL, or where
 * the decisions go once the plan is durable; a dry run decides nothing. */
struct plan_record {
	struct logfile *file;
	bool is_every;                 /* every chunk's place, not the spilled ones' alone */
	const struct ring_node *nodes; /* as the ring was built of them */
	size_t node_count;
};
int plan_write(struct store *store, const struct ring *ring, int manifest_fd, const struct plan_facts *facts,
	       struct store_transfer *transfer, const struct plan_record *record, struct err *err);

/* What became of an entry since it was planned. A line of text each: "<seq> <size> <mtime ns> <mode octal>\n", in the order of seq; size 0 but for files. */
#define PLAN_CHANGES_MAX 1000u
struct plan_change {
	uint64_t seq, size_bytes;
	int64_t mtime_ns;
	uint32_t mode;
};
/* At least one, at most PLAN_CHANGES_MAX; -ERR_BAD_REQUEST for anything else. */
int plan_changes_parse(struct str text, struct plan_change changes[PLAN_CHANGES_MAX], size_t *ret_count,
		       struct err *err);

/* The changes that make of a transfer's manifest the one in the file. 1: here they are. 0: it is another folder, or too much of it has changed. facts: of the
 * file. */
int plan_differences(struct store *store, const struct store_transfer *transfer, int manifest_fd,
		     const struct plan_facts *facts, struct plan_change changes[PLAN_CHANGES_MAX], size_t *ret_count,
		     struct err *err);
/* The manifest that a planned transfer has with these changes, from what the store knows, through the manifest's own rules: its checksum and digest are
 * what a client computes over its text. -ERR_BAD_REQUEST for a change of an entry that is not there, or that gives a size to what is no file. */
int plan_revised_facts(struct store *store, const struct store_transfer *transfer, const struct plan_change *changes,
		       size_t count, struct plan_facts *ret_facts, struct err *err);
/* Plans anew, by the same rules and in one store transaction, the objects in which changed entries lie; all other objects keep what is stored of them.
 * What is planned anew gets file ids never used before. A change that says what is known already plans the file anew all the same: its content is
 * another. The digests of changed entries are forgotten, each has an audit row "revised". transfer: as it was read, state uploading; gets the new
 * counts and the identity in facts. */
int plan_revise(struct store *store, const struct ring *ring, struct store_transfer *transfer,
		const struct plan_change *changes, size_t count, const struct plan_facts *facts,
		const struct plan_record *record, struct err *err);

#endif
