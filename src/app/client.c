#include "app/client.h"

#include <stdio.h>
#include <stdlib.h>

#include "folder/push_option.h"

static const char *client_word(const struct cmd *cmd, const char *const *values, const char *option,
			       const char *variable)
{
	const char *word = cmd_value(cmd, values, option);
	return word != NULL ? word : getenv(variable);
}

int client_open(const struct cmd *cmd, const char *const *values, struct client *ret_client, struct err *err)
{
	const char *url = client_word(cmd, values, "to", "HENG_URL");
	const char *key_file = client_word(cmd, values, "key-file", "HENG_KEY_FILE");
	*ret_client = (struct client){ 0 };
	if (url == NULL || url[0] == '\0')
		url = "http://127.0.0.1:7080";
	if (key_file == NULL || key_file[0] == '\0') {
		err_set(err, ERR_USAGE, "no API key");
		err_hint(err, "name the file it is in: --key-file FILE, or HENG_KEY_FILE");
		return -(int)ERR_USAGE;
	}
	int r = client_url(url, ret_client->url, sizeof(ret_client->url), err);
	if (r == 0)
		r = client_key_file(key_file, ret_client->key, sizeof(ret_client->key), err);
	return r < 0 ? r
		     : client_tls(ret_client, client_word(cmd, values, "ca", "HENG_CA"),
				  client_word(cmd, values, "cert", "HENG_CERT"),
				  client_word(cmd, values, "cert-key", "HENG_CERT_KEY"), err);
}

int client_progress(const struct cmd *cmd, const char *const *values, bool *ret_json, struct err *err)
{
	static const char *const choices[] = { "auto", "json", NULL };
	int choice = 0;
	int r = cmd_choice(cmd, values, "progress", choices, &choice, err);
	*ret_json = choice == 1;
	return r;
}

int client_give_up(int64_t *ret_give_up_us, struct err *err)
{
	struct push_options options = { .give_up_us = 0 };
	const char *value = getenv("HENG_GIVE_UP_SECONDS");
	int r = value != NULL ? push_option_set(&options, "give-up", "HENG_GIVE_UP_SECONDS", value, err) : 0;
	*ret_give_up_us = options.give_up_us;
	return r;
}

void client_state_dir(char *target, size_t target_size)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int size = 0;

	/* By its specification a path that is not absolute counts as none. */
	target[0] = '\0';
	if (state != NULL && state[0] == '/')
		size = snprintf(target, target_size, "%s/heng", state);
	else if (home != NULL && home[0] == '/')
		size = snprintf(target, target_size, "%s/.local/state/heng", home);
	if (size < 0 || (size_t)size >= target_size)
		target[0] = '\0';
}

void client_json_err(struct json *json, const struct err *err)
{
	if (err->code == ERR_NONE)
		return;
	json_c(json, "error", err_word(err->code));
	json_c(json, "message", err->text);
	json_c(json, "hint", err->hint);
}
