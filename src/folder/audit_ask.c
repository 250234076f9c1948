#include "folder/audit_ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plug/audit_line.h"

#define PAGE_ROWS  5000
#define ANSWER_MAX (64 * MIB)
#define PATH_SIZE  (9 * KIB) /* the server takes no longer line */
#define PLACE_SIZE 80

struct page {
	bool is_more, is_ended;
	char after[PLACE_SIZE];
	uint64_t to_id;
};

/* The last line of an answer, which is no row. */
static int take_end(struct str line, struct page *page, struct err *err)
{
	json_t *root = json_loadb(line.data, line.size, 0, NULL);
	const char *after = json_string_value(json_object_get(root, "after"));
	const json_int_t to_id = json_integer_value(json_object_get(root, "to_id"));
	int result = 0;

	page->is_more = json_is_true(json_object_get(root, "more"));
	page->to_id = to_id > 0 ? (uint64_t)to_id : 0;
	page->is_ended = true;
	/* It goes into the next question. */
	if (!after || strspn(after, "0123456789.") != strlen(after) ||
	    !str_copy(str_from(after), page->after, sizeof(page->after)))
		result = err_set(err, ERR_PEER, "the scheduler's page of the audit does not say where it ended");
	json_decref(root);
	return result;
}

static int take_page(struct str rest, struct page *page, audit_ask_fn *each, void *owner, struct err *err)
{
	struct audit_line row;
	struct str line;
	int result = 0;

	while (result == 0 && str_cut(&rest, '\n', &line)) {
		if (page->is_ended)
			return err_set(err, ERR_PEER, "the scheduler's page of the audit goes on behind its end");
		if (str_starts(line, STR("{\"more\":"))) {
			result = take_end(line, page, err);
			continue;
		}
		result = audit_line_parse(line, &row, err);
		if (result < 0)
			err->code = ERR_PEER;
		else
			result = each(owner, &row.row, err);
		audit_line_fini(&row);
	}
	if (result == 0 && !page->is_ended)
		return err_set(err, ERR_PEER, "the scheduler's page of the audit was cut");
	return result < 0 ? -(int)err->code : result;
}

int audit_ask(const struct client *client, const char *query, audit_ask_fn *each, void *owner, struct err *err)
{
	struct page page = { .is_more = true, .after = "0.0.0" };
	char *path = must_alloc(PATH_SIZE);
	struct buf answer = BUF_INIT(ANSWER_MAX);
	int result = 0;

	while (result == 0 && page.is_more) {
		int size = snprintf(path, PATH_SIZE, "/api/v1/audit?%s%safter=%s&limit=%d", query,
				    query[0] != '\0' ? "&" : "", page.after, PAGE_ROWS);
		if (page.to_id > 0 && size > 0 && (size_t)size < PATH_SIZE)
			size += snprintf(path + size, PATH_SIZE - (size_t)size, "&to_id=%" PRIu64, page.to_id);
		if (size < 0 || (size_t)size >= PATH_SIZE) {
			result = err_set(err, ERR_USAGE, "the question is longer than %zu bytes", (size_t)PATH_SIZE);
			break;
		}
		buf_clear(&answer);
		page.is_ended = page.is_more = false;
		result = client_get(client, path, &answer, err);
		if (result == 0)
			result = take_page(buf_str(&answer), &page, each, owner, err);
	}
	buf_fini(&answer);
	free(path);
	return result < 0 ? result : 0;
}

static bool read_point(const json_t *root, const char *id_name, const char *hash_name, struct audit_point *ret)
{
	const json_t *id = json_object_get(root, id_name), *hash = json_object_get(root, hash_name);

	if (!json_is_integer(id) || json_integer_value(id) < 0 || !json_is_string(hash))
		return false;
	ret->id = (uint64_t)json_integer_value(id);
	return hex_decode((struct str){ json_string_value(hash), json_string_length(hash) }, ret->hash,
			  sizeof(ret->hash));
}

int audit_ask_head(const struct client *client, struct audit_head *ret_head, struct err *err)
{
	json_t *root;
	int result = client_ask(client, false, "/api/v1/audit/head", &root, err);

	if (result < 0)
		return result;
	if (!read_point(root, "id", "hash", &ret_head->last) ||
	    !read_point(root, "anchor_id", "anchor_hash", &ret_head->anchor))
		result = err_set(err, ERR_PEER, "the scheduler does not say where the audit's chain stands");
	json_decref(root);
	return result;
}
