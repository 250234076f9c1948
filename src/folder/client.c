#include "folder/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "folder/peer.h"
#include "sys/fetch.h"
#include "sys/fs.h"

#define CLIENT_KEY_FILE_MAX (4 * KIB)
#define CLIENT_TIMEOUT_US   (30 * SEC_US)

void client_fini(struct client *client)
{
	tls_free(&client->tls);
	mem_wipe(client, sizeof(*client));
}

int client_tls(struct client *client, const char *ca, const char *certificate, const char *key, struct err *err)
{
	const struct tls_files files = { .ca = ca, .certificate = certificate, .key = key };

	tls_free(&client->tls);
	if ((!ca || ca[0] == '\0') && (!certificate || certificate[0] == '\0') && (!key || key[0] == '\0'))
		return 0;
	if (tls_new(&files, &client->tls, err) == 0)
		return 0;
	if (err)
		err->code = ERR_USAGE;
	return -ERR_USAGE;
}

int client_url(const char *text, char *target, size_t target_size, struct err *err)
{
	struct str url = str_from(text), scheme = peer_is_https(text) ? STR("https://") : STR("http://");
	while (url.size > 0 && url.data[url.size - 1] == '/')
		url.size--;
	bool is_good = str_starts(url, scheme) && url.size > scheme.size && str_copy(url, target, target_size);
	/* Host and port only: what else might stand in a URL (paths, users, blanks) means nothing here. */
	is_good = is_good && strspn(target + scheme.size,
				    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_:[]") ==
				     url.size - scheme.size;
	if (!is_good) {
		err_set(err, ERR_USAGE, "'%s' is not the URL of a scheduler", text);
		err_hint(err, "like http://10.0.0.5:7080, or https://heng.example:7080");
		return -(int)ERR_USAGE;
	}
	return 0;
}

int client_key(struct str text, char *target, size_t target_size, struct err *err)
{
	struct str key = str_trim(text);

	while (key.size > 0 && (key.data[key.size - 1] == '\n' || key.data[key.size - 1] == '\r'))
		key.size--;
	key = str_trim(key);
	bool is_good = key.size > 0 && str_copy(key, target, target_size);
	for (size_t i = 0; is_good && i < key.size; i++)
		is_good = key.data[i] > ' ' && key.data[i] < 0x7f;
	return is_good ? 0
		       : err_set(err, ERR_USAGE, "the key is not one word of at most %zu characters", target_size - 1);
}

int client_key_file(const char *path, char *target, size_t target_size, struct err *err)
{
	struct buf text = BUF_INIT(CLIENT_KEY_FILE_MAX);
	int r = fs_read_file(path, CLIENT_KEY_FILE_MAX, &text, err);
	if (r < 0)
		err->code = ERR_USAGE;
	else
		r = client_key(buf_str(&text), target, target_size, err);
	if (text.data != NULL)
		mem_wipe(text.data, text.size);
	buf_fini(&text);
	return r < 0 ? err_wrap(err, "reading the key file '%s'", path) : 0;
}

static int client_call(const struct client *client, const char *method, const char *path, struct str body,
		       struct buf *answer, struct err *err)
{
	struct fetch *fetch;
	int r = fetch_new(&fetch, err);
	if (r < 0)
		return r;
	fetch_use_tls(fetch, client->tls);
	char url[sizeof(client->url) + 9 * KIB], header[300];
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
	call.is_interrupted = client->is_interrupted;
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

int client_ask(const struct client *client, bool is_post, const char *path, json_t **ret_root, struct err *err)
{
	struct buf answer = BUF_INIT(64 * MIB);
	json_error_t fault;

	*ret_root = NULL;
	int r = is_post ? client_post(client, path, STR_NONE, &answer, err) : client_get(client, path, &answer, err);
	if (r == 0) {
		*ret_root = json_loadb(answer.data != NULL ? answer.data : "", answer.size, 0, &fault);
		if (!json_is_object(*ret_root)) {
			json_decref(*ret_root);
			*ret_root = NULL;
			r = err_set(err, ERR_PEER, "the answer is not a JSON object: %s", fault.text);
		}
	}
	buf_fini(&answer);
	return r;
}
