/* The audit's rows as a chain: each holds the hash of the row before it, and its own, which covers that and all its fields. Whatever engine keeps
 * the rows, their bytes, hashes and checks are made here; docs/audit.md describes the bytes for whoever recomputes them.
 *
 * SHA-256 of: "heng-audit-1\n", the previous row's hash (32 bytes, zeros before the first row), the row's id (8 bytes), and each field that is not
 * null, in the order of audit_field_list.h: its number (1 byte), then 'i' and 8 bytes, or 't', the length in 4 bytes, and the text. All
 * numbers big-endian, two's complement. */
#ifndef HENG_PLUG_AUDIT_CHAIN_H
#define HENG_PLUG_AUDIT_CHAIN_H

#include "base/buf.h"
#include "plug/store.h"

#define AUDIT_HASH_SIZE     32
#define AUDIT_HASH_HEX_SIZE (2 * AUDIT_HASH_SIZE + 1)

enum audit_field {
#define AUDIT_FIELD(number, name, type) AUDIT_##name,
#include "plug/audit_field_list.h"
#undef AUDIT_FIELD
	AUDIT_FIELD_COUNT,
};
const char *audit_field_name(enum audit_field field);
bool audit_field_is_number(enum audit_field field);

/* Text is not owned. */
struct audit_value {
	bool is_null;
	int64_t number;  /* of a field that is one */
	struct str text; /* of the others; data is not NULL */
};

struct audit_row {
	uint64_t id; /* 1.. without gaps */
	struct audit_value fields[AUDIT_FIELD_COUNT];
	uint8_t prev[AUDIT_HASH_SIZE], hash[AUDIT_HASH_SIZE];
};

/* Where a chain stands: its last row. Id 0 and zeros: before the first one. */
struct audit_point {
	uint64_t id;
	uint8_t hash[AUDIT_HASH_SIZE];
};

/* What the store says of its chain: the newest row, and the last one that was taken out to the archive. */
struct audit_head {
	struct audit_point last, anchor;
};

/* Which rows; what is NULL or 0 does not restrict. Rows come by id; of one transfer by file_id, chunk_index, id. */
struct audit_query {
	uint64_t to_id;
	const char *transfer_id, *user, *node_id, *kind, *outcome;
	/* Of one transfer only: the rows of that object (0: those that belong to none), chunks first to last. */
	bool has_file;
	uint64_t file_id, first_chunk, last_chunk;
	int64_t from_wall_us, to_wall_us; /* inclusive */
	/* Strictly after this place: that of the row, or what a former page ended with. Without a transfer the id counts alone. */
	struct audit_place {
		uint64_t file_id, chunk_index, id;
	} after;
	size_t limit; /* rows called back for */
};

/* The text that a row's fields point into where it had to be made fit. */
struct audit_room {
	char detail[1024], others[AUDIT_FIELD_COUNT][512];
};

/* The row to be: all but id, prev and hash. Every text becomes valid UTF-8 (stray bytes as \xNN), since engines and JSON keep no other. `receipt`:
 * NULL, or the attempt it tells of. The fields point into all three. */
void audit_row_fill(struct audit_row *row, const struct store_audit *audit, const struct store_receipt *receipt,
		    struct audit_room *room);

/* Hashes rows; one thread at a time. */
struct audit_hasher;
struct audit_hasher *audit_hasher_new(void);
void audit_hasher_free(struct audit_hasher **hasher);
/* From id, prev and fields. */
void audit_row_hash(struct audit_hasher *hasher, const struct audit_row *row, uint8_t target[AUDIT_HASH_SIZE]);
/* Gives the row the place after *last, and moves *last to it. */
void audit_row_link(struct audit_hasher *hasher, struct audit_point *last, struct audit_row *row);

/* Looks at rows in the order of their ids, beginning after *last, and moves *last on whatever it finds. 0, or -ERR_AUDIT_BROKEN with words that name
 * the row and say what is wrong: changed, missing, put in, not the successor of the row before it. */
int audit_row_check(struct audit_hasher *hasher, struct audit_point *last, const struct audit_row *row,
		    struct err *err);

#endif
