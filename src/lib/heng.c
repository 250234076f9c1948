#include "lib/op.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Escapes make a byte four at most. */
struct heng_error {
	enum err_code code;
	char text[4 * sizeof(((struct err *)NULL)->text)], hint[4 * sizeof(((struct err *)NULL)->hint)];
};

/* Given where there is no memory for an error; never freed. */
static struct heng_error no_memory = { .code = ERR_NO_MEMORY, .text = "no memory" };

int heng_abi(void) { return HENG_ABI; }

const char *heng_version(void) { return HENG_VERSION; }

/* --- errors --- */

int error_give(const struct err *err, struct heng_error **ret_error)
{
	if (ret_error)
		*ret_error = NULL;
	if (err->code == ERR_NONE)
		return HENG_DONE;
	if (ret_error) {
		struct heng_error *error = calloc(1, sizeof(*error));
		if (error) {
			error->code = err->code;
			/* Names of files and words of servers are in it, in whatever bytes they came. */
			str_display(str_from(err->text), error->text, sizeof(error->text));
			str_display(str_from(err->hint), error->hint, sizeof(error->hint));
		}
		*ret_error = error ? error : &no_memory;
	}
	return (int)err_exit(err->code);
}

int heng_error_result(const struct heng_error *error) { return error ? (int)err_exit(error->code) : HENG_DONE; }

int heng_error_code(const struct heng_error *error) { return error ? (int)error->code : 0; }

const char *heng_error_word(const struct heng_error *error) { return error ? err_word(error->code) : ""; }

const char *heng_error_text(const struct heng_error *error) { return error ? error->text : ""; }

const char *heng_error_hint(const struct heng_error *error) { return error ? error->hint : ""; }

void heng_error_free(struct heng_error *error)
{
	if (error != &no_memory)
		free(error);
}

/* --- clients --- */

struct heng_client *client_ref(struct heng_client *client)
{
	atomic_fetch_add(&client->holder_count, 1);
	return client;
}

void client_drop(struct heng_client *client)
{
	if (atomic_fetch_sub(&client->holder_count, 1) > 1)
		return;
	client_fini(&client->client);
	free(client);
}

static int client_new(struct heng_client **ret_client, const char *url, const char *key, bool is_file, struct err *err)
{
	struct heng_client *client;

	if (!ret_client || !url || !key)
		return err_set(err, ERR_USAGE,
			       "a client needs a place to be put, a URL and a key: one of them is NULL");
	*ret_client = NULL;
	client = calloc(1, sizeof(*client));
	if (!client)
		return err_set(err, ERR_NO_MEMORY, "no memory for a client");
	(void)client_ref(client);
	struct client *inside = &client->client;
	int result = client_url(url, inside->url, sizeof(inside->url), err);
	if (result == 0)
		result = is_file ? client_key_file(key, inside->key, sizeof(inside->key), err)
				 : client_key(str_from(key), inside->key, sizeof(inside->key), err);
	if (result < 0)
		client_drop(client);
	else
		*ret_client = client;
	return result;
}

int heng_client_new(struct heng_client **ret_client, const char *url, const char *api_key,
		    struct heng_error **ret_error)
{
	struct err err = ERR_INIT;

	(void)client_new(ret_client, url, api_key, false, &err);
	return error_give(&err, ret_error);
}

int heng_client_new_key_file(struct heng_client **ret_client, const char *url, const char *key_file,
			     struct heng_error **ret_error)
{
	struct err err = ERR_INIT;

	(void)client_new(ret_client, url, key_file, true, &err);
	return error_give(&err, ret_error);
}

static int set_tls(struct heng_client *client, const char *ca, const char *certificate, const char *key,
		   struct err *err)
{
	if (!client)
		return err_set(err, ERR_USAGE, "TLS needs a client: it is NULL");
	/* Those who run with it read it without a lock. */
	if (atomic_load(&client->holder_count) > 1)
		return err_set(err, ERR_USAGE, "the client has operations already: TLS is set before the first");
	return client_tls(&client->client, ca, certificate, key, err);
}

int heng_client_set_tls(struct heng_client *client, const char *ca, const char *certificate, const char *key,
			struct heng_error **ret_error)
{
	struct err err = ERR_INIT;

	(void)set_tls(client, ca, certificate, key, &err);
	return error_give(&err, ret_error);
}

void heng_client_free(struct heng_client *client)
{
	if (client)
		client_drop(client);
}
