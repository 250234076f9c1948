#include "app/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ask_text(const json_t *item, const char *name)
{
	const char *text = json_string_value(json_object_get(item, name));
	return text != NULL ? text : "";
}

uint64_t ask_u64(const json_t *item, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(item, name));
	return value > 0 ? (uint64_t)value : 0;
}

double ask_number(const json_t *item, const char *name) { return json_number_value(json_object_get(item, name)); }

char *ask_word(const json_t *item, const char *name, char *target, size_t target_size)
{
	return str_display(str_from(ask_text(item, name)), target, target_size);
}

/* A server lists its nodes as they came to it; people and scripts look for a name. */
static int ask_compare_ids(const void *a, const void *b)
{
	return strcmp(ask_text(*(json_t *const *)a, "id"), ask_text(*(json_t *const *)b, "id"));
}

static void ask_sort_nodes(json_t *root)
{
	json_t *list = json_object_get(root, "nodes"), *sorted = json_array(), *item;
	size_t i, count = json_array_size(list);
	json_t **items = must_zalloc(count + 1, sizeof(json_t *));
	json_array_foreach(list, i, item) items[i] = item;
	qsort(items, count, sizeof(json_t *), ask_compare_ids);
	for (i = 0; i < count; i++)
		json_array_append(sorted, items[i]);
	free(items);
	json_object_set_new(root, "nodes", sorted);
}

static int ask_by(bool is_post, const struct cmd *cmd, const char *const *values, const char *path, json_t **ret_root,
		  struct err *err)
{
	struct client client = { 0 };
	*ret_root = NULL;
	int r = client_open(cmd, values, &client, err);
	if (r == 0)
		r = client_ask(&client, is_post, path, ret_root, err);
	client_fini(&client);
	if (*ret_root != NULL && json_object_get(*ret_root, "nodes") != NULL)
		ask_sort_nodes(*ret_root);
	if (*ret_root != NULL && cmd_value(cmd, values, "json") != NULL) {
		char *text = json_dumps(*ret_root, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
		printf("%s\n", text != NULL ? text : "{}");
		free(text);
		json_decref(*ret_root);
		*ret_root = NULL;
	}
	return r;
}

int ask_json(const struct cmd *cmd, const char *const *values, const char *path, json_t **ret_root, struct err *err)
{
	return ask_by(false, cmd, values, path, ret_root, err);
}

int ask_json_post(const struct cmd *cmd, const char *const *values, const char *path, json_t **ret_root,
		  struct err *err)
{
	return ask_by(true, cmd, values, path, ret_root, err);
}
