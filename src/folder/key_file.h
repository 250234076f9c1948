/* The file with the key of heng push --encrypt. */
#ifndef HENG_FOLDER_KEY_FILE_H
#define HENG_FOLDER_KEY_FILE_H

#include "base/err.h"
#include "wire/seal.h"

/* In memory for secrets (sys/secret.h). */
struct key_file {
	uint8_t key[SEAL_KEY_SIZE];
	char id[SEAL_ID_SIZE];
};
/* Refused with -ERR_USAGE: what is no key file, and one that others may read (as ssh refuses it). */
int key_file_load(const char *path, struct key_file **ret_file, struct err *err);
void key_file_free(struct key_file **file);
/* A new file, mode 0600, durable, with a new random key; refuses one that exists. */
int key_file_make(const char *path, char ret_id[SEAL_ID_SIZE], struct err *err);

#endif
