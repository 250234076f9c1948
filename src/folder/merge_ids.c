/* The file ids of a plan, in order, each once. They are no numbering without gaps: those of revisions lie far above the others. */
#include "folder/merge_impl.h"

#include <stdlib.h>
#include <string.h>

/* Where the id is, or belongs. */
static size_t place_of(const struct merge_ids *ids, uint64_t file_id)
{
	size_t from = 0, to = ids->count;

	while (from < to) {
		const size_t middle = from + (to - from) / 2;

		if (ids->ids[middle] < file_id)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void grow(struct merge_ids *ids)
{
	const size_t capacity = ids->capacity > 0 ? 2 * ids->capacity : 256;
	uint64_t *more = must_alloc(capacity * sizeof(*more));

	if (ids->count > 0)
		memcpy(more, ids->ids, ids->count * sizeof(*more));
	free(ids->ids);
	ids->ids = more;
	ids->capacity = capacity;
}

void merge_ids_add(struct merge_ids *ids, uint64_t file_id)
{
	/* In the order of entries most are the last or the next one. */
	const bool is_last = ids->count > 0 && ids->ids[ids->count - 1] == file_id;
	const bool is_next = ids->count == 0 || ids->ids[ids->count - 1] < file_id;
	const size_t place = is_next ? ids->count : is_last ? ids->count - 1 : place_of(ids, file_id);

	if (place < ids->count && ids->ids[place] == file_id)
		return;
	if (ids->count == ids->capacity)
		grow(ids);
	memmove(&ids->ids[place + 1], &ids->ids[place], (ids->count - place) * sizeof(*ids->ids));
	ids->ids[place] = file_id;
	ids->count++;
}

size_t merge_ids_find(const struct merge_ids *ids, uint64_t file_id)
{
	const size_t place = place_of(ids, file_id);

	return place < ids->count && ids->ids[place] == file_id ? place : MERGE_IDS_NONE;
}

void merge_ids_fini(struct merge_ids *ids)
{
	free(ids->ids);
	*ids = (struct merge_ids){ .count = 0 };
}
