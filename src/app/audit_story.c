#include "app/audit_story.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/ask.h"
#include "folder/audit_ask.h"
#include "wire/manifest.h"

#define LINES_MAX   500000u /* rows of one story, which is sorted in memory */
#define CHUNKS_PAGE 2000u
#define PATH_SIZE   (9 * KIB)

struct line {
	uint64_t id;
	char *text;
	size_t size;
};

struct story {
	const struct client *client;
	const struct audit_story_options *options;
	uint64_t file_id, first_chunk, last_chunk;
	bool is_whole_only; /* rows of the object as a whole, which stand at its first chunk */
	struct line *lines;
	size_t count, capacity;
};

static int keep_row(void *owner, const struct audit_row *row, struct err *err)
{
	struct story *story = owner;
	struct buf text = BUF_INIT(MIB);

	/* Who looked at the transfer's rows is no part of a chunk's life. */
	if (str_eq_c(row->fields[AUDIT_kind].text, "audit") ||
	    (story->is_whole_only && !row->fields[AUDIT_size_bytes].is_null))
		return 0;
	if (story->count == LINES_MAX)
		return err_set(err, ERR_LIMIT, "the story has more than %u rows: ask for one chunk, or search",
			       LINES_MAX);
	if (story->count == story->capacity) {
		story->capacity = story->capacity ? 2 * story->capacity : 256;
		story->lines = realloc(story->lines, story->capacity * sizeof(*story->lines));
		MUST(story->lines);
	}
	audit_show_row(&text, story->options->form, row);
	if (text.is_failed) {
		buf_fini(&text);
		return err_set(err, ERR_LIMIT, "row %" PRIu64 " is too long to show", row->id);
	}
	story->lines[story->count++] = (struct line){ row->id, text.data, text.size };
	return 0;
}

static int by_id(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int find_file(struct story *story, json_t **ret_entry, struct err *err)
{
	const struct str given = str_from(story->options->path);
	char *path = must_alloc(PATH_SIZE), encoded[3 * MANIFEST_PATH_MAX + 1];
	int result = 0;

	*ret_entry = NULL;
	if (given.size > MANIFEST_PATH_MAX || percent_encode(given, true, encoded, sizeof(encoded)) == 0 ||
	    snprintf(path, PATH_SIZE, "/api/v1/transfers/%s/entry?path=%s", story->options->transfer_id, encoded) >=
		    (int)PATH_SIZE)
		result = err_set(err, ERR_USAGE, "--file is empty or too long to ask for");
	if (result == 0)
		result = client_ask(story->client, false, path, ret_entry, err);
	free(path);
	if (result < 0)
		return result;
	story->file_id = ask_u64(*ret_entry, "file_id");
	story->first_chunk = ask_u64(*ret_entry, "first_chunk");
	story->last_chunk = ask_u64(*ret_entry, "last_chunk");
	if (story->file_id == 0)
		return err_set(err, ERR_BAD_REQUEST, "'%s' has no bytes of its own: nothing of it was sent as a chunk",
			       story->options->path);
	if (story->options->chunk_index == UINT64_MAX)
		return 0;
	/* Chunks are counted from the file's first; in a pack that need not be the object's. */
	story->first_chunk += story->options->chunk_index;
	if (story->first_chunk > story->last_chunk)
		return err_set(err, ERR_USAGE, "'%s' has %" PRIu64 " chunks, counted from 0", story->options->path,
			       story->last_chunk - ask_u64(*ret_entry, "first_chunk") + 1);
	story->last_chunk = story->first_chunk;
	return 0;
}

static void print_entry(const struct story *story, const json_t *entry)
{
	char shown[4 * (MANIFEST_PATH_MAX + 1)], size[32], digest[160];

	printf("transfer %s\n", story->options->transfer_id);
	printf("file     '%s', %s, digest %s\n", str_display(str_from(story->options->path), shown, sizeof(shown)),
	       size_display(ask_u64(entry, "size"), size, sizeof(size)),
	       ask_text(entry, "digest")[0] != '\0' ? ask_word(entry, "digest", digest, sizeof(digest))
						    : "not bound yet");
	printf("lies in  object %" PRIu64 " from byte %" PRIu64 " on, chunks %" PRIu64 " to %" PRIu64 "\n",
	       story->file_id, ask_u64(entry, "offset"), ask_u64(entry, "first_chunk"), ask_u64(entry, "last_chunk"));
}

static void print_chunk(const json_t *item)
{
	char size[32], target[80], actual[80], copy[80], state[24];

	printf("chunk    %" PRIu64 "/%" PRIu64 ", %s: planned for %s; %s", ask_u64(item, "file_id"),
	       ask_u64(item, "chunk_index"), size_display(ask_u64(item, "size"), size, sizeof(size)),
	       ask_word(item, "target_node", target, sizeof(target)), ask_word(item, "state", state, sizeof(state)));
	if (ask_text(item, "actual_node")[0] != '\0')
		printf(", by %s", ask_word(item, "actual_node", actual, sizeof(actual)));
	if (ask_text(item, "copy_node")[0] != '\0')
		printf(" and %s", ask_word(item, "copy_node", copy, sizeof(copy)));
	printf("\n");
}

/* What the tables say of the chunks; the pages begin behind a pair, so with the one before the first. */
static int print_chunks(const struct story *story, struct err *err)
{
	uint64_t next = story->first_chunk;
	json_t *root, *list, *item;
	char path[256];
	size_t i;

	while (next <= story->last_chunk) {
		const bool is_first = next == 0;

		(void)snprintf(path, sizeof(path),
			       "/api/v1/transfers/%s/chunks?after_file=%" PRIu64 "&after_chunk=%" PRIu64 "&limit=%u",
			       story->options->transfer_id, is_first ? story->file_id - 1 : story->file_id,
			       is_first ? (uint64_t)INT64_MAX : next - 1,
			       (unsigned)(story->last_chunk - next < CHUNKS_PAGE ? story->last_chunk - next + 1
										 : CHUNKS_PAGE));
		int result = client_ask(story->client, false, path, &root, err);
		if (result < 0)
			return result;
		list = json_object_get(root, "chunks");
		json_array_foreach(list, i, item)
		{
			if (ask_u64(item, "file_id") == story->file_id &&
			    ask_u64(item, "chunk_index") <= story->last_chunk)
				print_chunk(item);
		}
		next += CHUNKS_PAGE;
		json_decref(root);
	}
	return 0;
}

static int collect(struct story *story, struct err *err)
{
	char query[200];
	int result;

	(void)snprintf(query, sizeof(query), "transfer=%s&file_id=0", story->options->transfer_id);
	result = audit_ask(story->client, query, keep_row, story, err);
	if (result < 0)
		return result;
	if (story->first_chunk > 0) {
		story->is_whole_only = true;
		(void)snprintf(query, sizeof(query), "transfer=%s&file_id=%" PRIu64 "&chunk=0",
			       story->options->transfer_id, story->file_id);
		result = audit_ask(story->client, query, keep_row, story, err);
		story->is_whole_only = false;
	}
	if (result < 0)
		return result;
	(void)snprintf(query, sizeof(query),
		       "transfer=%s&file_id=%" PRIu64 "&first_chunk=%" PRIu64 "&last_chunk=%" PRIu64,
		       story->options->transfer_id, story->file_id, story->first_chunk, story->last_chunk);
	return audit_ask(story->client, query, keep_row, story, err);
}

static int print_lines(struct story *story, struct err *err)
{
	struct buf head = BUF_INIT(16 * KIB);
	bool is_good = true;

	qsort(story->lines, story->count, sizeof(*story->lines), by_id);
	audit_show_begin(&head, story->options->form);
	if (head.size > 0)
		is_good = fwrite(head.data, 1, head.size, stdout) == head.size;
	for (size_t i = 0; i < story->count && is_good; i++)
		is_good = fwrite(story->lines[i].text, 1, story->lines[i].size, stdout) == story->lines[i].size;
	buf_fini(&head);
	return is_good ? 0 : err_set(err, ERR_SYSTEM, "the output cannot be written");
}

int audit_story(const struct client *client, const struct audit_story_options *options, struct err *err)
{
	struct story story = { .client = client, .options = options };
	json_t *entry = NULL;
	int result = find_file(&story, &entry, err);

	if (result == 0)
		result = collect(&story, err);
	if (result == 0 && options->form == AUDIT_FORM_TEXT) {
		print_entry(&story, entry);
		result = print_chunks(&story, err);
	}
	if (result == 0)
		result = print_lines(&story, err);
	for (size_t i = 0; i < story.count; i++)
		free(story.lines[i].text);
	free(story.lines);
	json_decref(entry);
	return result;
}
