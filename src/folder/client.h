/* What all clients share: where the scheduler is, the key, and plain questions to it. */
#ifndef HENG_FOLDER_CLIENT_H
#define HENG_FOLDER_CLIENT_H

#include <jansson.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"
#include "sys/tls.h"

struct client {
	char url[512]; /* without a '/' at the end */
	char key[257];
	struct tls *
		tls; /* whom it believes and what it shows over https; NULL: the system's authorities, nothing. Its own */
	const atomic_bool *is_interrupted; /* NULL, or looked at during a call, which ends with ERR_WAITING then */
};
void client_fini(struct client *client); /* wipes the key */
/* Reads its files of TLS, each NULL or "" where there is none: authorities, a certificate with its key. */
int client_tls(struct client *client, const char *ca, const char *certificate, const char *key, struct err *err);
/* Checks and cuts a URL: http://host:port or https://host:port. */
int client_url(const char *text, char *target, size_t target_size, struct err *err);
/* Checks a key: one word. Blanks and line ends around it do not belong to it; an empty one, or one of other bytes than visible ASCII, is ERR_USAGE. */
int client_key(struct str text, char *target, size_t target_size, struct err *err);
/* The key is the file's only word. */
int client_key_file(const char *path, char *target, size_t target_size, struct err *err);
/* GET of a path; the body is appended to answer. */
int client_get(const struct client *client, const char *path, struct buf *answer, struct err *err);
/* POST of a JSON text. */
int client_post(const struct client *client, const char *path, struct str body, struct buf *answer, struct err *err);
/* GET, or POST without a body: the answer as a JSON object (caller decrefs); ERR_PEER when it is none. */
int client_ask(const struct client *client, bool is_post, const char *path, json_t **ret_root, struct err *err);

#endif
