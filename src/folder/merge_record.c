#include "folder/merge_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sys/fs.h"

static int64_t offset_of(uint64_t seq) { return (int64_t)(seq * sizeof(struct merge_record)); }

int merge_records_flush(struct merge_records *records, struct err *err)
{
	if (records->count == 0)
		return 0;
	int result = fs_write_all(records->fd, records->items, records->count * sizeof(*records->items),
				  offset_of(records->first_seq), err);
	records->count = 0;
	return result < 0 ? err_wrap(err, "while noting what was put into staging") : 0;
}

int merge_records_put(struct merge_records *records, uint64_t seq, const struct merge_record *record, struct err *err)
{
	int result = 0;

	if (!records->items)
		records->items = must_zalloc(MERGE_RECORDS_MAX, sizeof(*records->items));
	/* What lies between may be another object's, so nothing is written there. */
	if (records->count == MERGE_RECORDS_MAX ||
	    (records->count > 0 && seq != records->first_seq + (uint64_t)records->count))
		result = merge_records_flush(records, err);
	if (records->count == 0)
		records->first_seq = seq;
	records->items[records->count++] = *record;
	return result;
}

int merge_records_get(struct merge_records *records, uint64_t seq, struct merge_record *ret_record, struct err *err)
{
	size_t got = 0;

	if (!records->items)
		records->items = must_zalloc(MERGE_RECORDS_MAX, sizeof(*records->items));
	if (seq < records->first_seq || seq - records->first_seq >= records->count) {
		records->first_seq = seq;
		records->count = 0;
		int result = fs_read_all(records->fd, records->items, MERGE_RECORDS_MAX * sizeof(*records->items),
					 offset_of(seq), &got, err);
		if (result < 0)
			return err_wrap(err, "while reading what was put into staging");
		records->count = got / sizeof(*records->items);
	}
	/* Behind the end nothing was written. */
	*ret_record = records->count > 0 ? records->items[seq - records->first_seq] : (struct merge_record){ 0 };
	return 0;
}

void merge_records_fini(struct merge_records *records)
{
	free(records->items);
	records->items = NULL;
	records->count = 0;
}

uint64_t merge_record_facts(const struct store_entry *entry)
{
	const uint64_t words[] = { (uint64_t)(unsigned char)entry->type,
				   entry->mode,
				   (uint64_t)entry->mtime_ns,
				   entry->size_bytes,
				   entry->file_id,
				   hash64(entry->path.data, entry->path.size),
				   hash64(entry->target.data, entry->target.size) };

	/* 0 says that there is nothing. */
	return hash64(words, sizeof(words)) | 1;
}

void merge_record_digest(const char hex[DIGEST_HEX_SIZE], uint8_t target[DIGEST_SIZE_MAX])
{
	const size_t size = strlen(hex) / 2;

	memset(target, 0, DIGEST_SIZE_MAX);
	MUST(size <= DIGEST_SIZE_MAX && hex_decode(str_from(hex), target, size));
}
