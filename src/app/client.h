/* What the client's commands share: where the scheduler is, and the key. */
#ifndef HENG_APP_CLIENT_H
#define HENG_APP_CLIENT_H

#include "app/cmd.h"
#include "base/buf.h"

#define CLIENT_OPTIONS                                                                           \
	{ "to", 0, "URL", "the scheduler, http://host:port (HENG_URL; http://127.0.0.1:7080)" }, \
		{ "key-file", 0, "FILE", "file with your API key (HENG_KEY_FILE)" },             \
	{                                                                                        \
		"json", 0, NULL, "answer in JSON"                                                \
	}

struct client {
	char url[512]; /* without a '/' at the end */
	char key[257];
};
/* From --to and --key-file, else the environment. */
int client_open(const struct cmd *cmd, const char *const *values, struct client *ret_client, struct err *err);
/* GET of a path; the body is appended to answer. */
int client_get(const struct client *client, const char *path, struct buf *answer, struct err *err);
/* POST of a JSON text. */
int client_post(const struct client *client, const char *path, struct str body, struct buf *answer, struct err *err);
/* Checks and cuts a URL: http://host:port. */
int client_url(const char *text, char *target, size_t target_size, struct err *err);
/* The key is the file's only word. */
int client_key(const char *path, char *target, size_t target_size, struct err *err);

#endif
