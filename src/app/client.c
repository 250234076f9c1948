#include "app/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sys/fetch.h"
#include "sys/fs.h"

#define CLIENT_KEY_FILE_MAX (4 * KIB)
#define CLIENT_TIMEOUT_US   (30 * SEC_US)

int client_url(const char *text, char *target, size_t target_size, struct err *err)
{
	struct str url = str_from(text), scheme = STR("http://");
	while (url.size > 0 && url.data[url.size - 1] == '/')
		url.size--;
	bool is_good = str_starts(url, scheme) && url.size > scheme.size && str_copy(url, target, target_size);
	/* Host and port only: what else might stand in a URL (paths, users, blanks) means nothing here. */
	is_good = is_good && strspn(target + scheme.size,
				    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_:[]") ==
				     url.size - scheme.size;
	if (!is_good) {
		err_set(err, ERR_USAGE, "'%s' is not the URL of a scheduler", text);
		err_hint(err, "like http://10.0.0.5:7080");
		return -(int)ERR_USAGE;
	}
	return 0;
}

int client_key(const char *path, char *target, size_t target_size, struct err *err)
{
	struct buf text = BUF_INIT(CLIENT_KEY_FILE_MAX);
	int r = fs_read_file(path, CLIENT_KEY_FILE_MAX, &text, err);
	if (r < 0) {
		buf_fini(&text);
		err->code = ERR_USAGE;
		return err_wrap(err, "reading the key file '%s'", path);
	}
	struct str key = str_trim(buf_str(&text));
	while (key.size > 0 && (key.data[key.size - 1] == '\n' || key.data[key.size - 1] == '\r'))
		key.size--;
	key = str_trim(key);
	bool is_good = key.size > 0 && str_copy(key, target, target_size);
	for (size_t i = 0; is_good && i < key.size; i++)
		is_good = key.data[i] > ' ' && key.data[i] < 0x7f;
	if (text.data != NULL)
		mem_wipe(text.data, text.size);
	buf_fini(&text);
	if (!is_good)
		return err_set(err, ERR_USAGE, "the key file '%s' does not hold one word of at most %zu characters",
			       path, target_size - 1);
	return 0;
}

int client_open(const struct cmd *cmd, const char *const *values, struct client *ret_client, struct err *err)
{
	const char *url = cmd_value(cmd, values, "to"), *key_file = cmd_value(cmd, values, "key-file");
	*ret_client = (struct client){ 0 };
	if (url == NULL)
		url = getenv("HENG_URL");
	if (url == NULL || url[0] == '\0')
		url = "http://127.0.0.1:7080";
	if (key_file == NULL)
		key_file = getenv("HENG_KEY_FILE");
	if (key_file == NULL || key_file[0] == '\0') {
		err_set(err, ERR_USAGE, "no API key");
		err_hint(err, "name the file it is in: --key-file FILE, or HENG_KEY_FILE");
		return -(int)ERR_USAGE;
	}
	int r = client_url(url, ret_client->url, sizeof(ret_client->url), err);
	return r < 0 ? r : client_key(key_file, ret_client->key, sizeof(ret_client->key), err);
}

static int client_call(const struct client *client, const char *method, const char *path, struct str body,
		       struct buf *answer, struct err *err)
{
	struct fetch *fetch;
	int r = fetch_new(&fetch, err);
	if (r < 0)
		return r;
	char url[1024], header[300];
	snprintf(url, sizeof(url), "%s%s", client->url, path);
	snprintf(header, sizeof(header), "X-Api-Key: %s", client->key);
	struct fetch_call call = FETCH_CALL_INIT;
	call.method = method;
	call.url = url;
	call.headers[0] = header;
	if (body.size > 0)
		call.headers[1] = "Content-Type: application/json";
	call.body = body;
	call.timeout_us = CLIENT_TIMEOUT_US;
	call.answer.limit = 64 * MIB;
	r = fetch_do(fetch, &call, err);
	if (r == 0 && !buf_append(answer, buf_str(&call.answer)))
		r = err_set(err, ERR_LIMIT, "the answer is larger than %zu bytes", answer->limit);
	buf_fini(&call.answer);
	fetch_free(&fetch);
	mem_wipe(header, sizeof(header));
	return r;
}

int client_get(const struct client *client, const char *path, struct buf *answer, struct err *err)
{
	return client_call(client, "GET", path, STR_NONE, answer, err);
}

int client_post(const struct client *client, const char *path, struct str body, struct buf *answer, struct err *err)
{
	return client_call(client, "POST", path, body, answer, err);
}
