/* What the client's commands share: the options that say where the scheduler is, and which key. */
#ifndef HENG_APP_CLIENT_H
#define HENG_APP_CLIENT_H

#include "app/cmd.h"
#include "base/json.h"
#include "folder/client.h"

#define CLIENT_OPTIONS                                                                                                 \
	{ "to", 0, "URL", "the scheduler, http[s]://host:port (HENG_URL; http://127.0.0.1:7080)" },                    \
		{ "key-file", 0, "FILE", "file with your API key (HENG_KEY_FILE)" },                                   \
		{ "ca", 0, "FILE", "PEM file of the authorities whose servers are believed (HENG_CA; the system's)" }, \
		{ "cert", 0, "FILE", "PEM file of your certificate, shown to the scheduler (HENG_CERT)" },             \
		{ "cert-key", 0, "FILE", "PEM file of its key, mode 0600 (HENG_CERT_KEY)" },                           \
	{                                                                                                              \
		"json", 0, NULL, "answer in JSON"                                                                      \
	}

/* From --to, --key-file, --ca, --cert and --cert-key, else the environment. client_fini it, also when this fails. */
int client_open(const struct cmd *cmd, const char *const *values, struct client *ret_client, struct err *err);

#define CLIENT_PROGRESS_OPTION                                                                        \
	{                                                                                             \
		"progress", 0, "auto|json",                                                           \
			"how progress is told: to people, or one JSON object a line on stderr (auto)" \
	}
int client_progress(const struct cmd *cmd, const char *const *values, bool *ret_json, struct err *err);
/* What stopped a command, for --json: error, message and hint of the object that is open. Nothing when nothing did. */
void client_json_err(struct json *json, const struct err *err);
/* From HENG_GIVE_UP_SECONDS; 0 when it is not set. */
int client_give_up(int64_t *ret_give_up_us, struct err *err);
/* Where heng keeps what it remembers for this user: heng/ in $XDG_STATE_HOME, or in ~/.local/state; "" when there is no such place. */
void client_state_dir(char *target, size_t target_size);

#endif
