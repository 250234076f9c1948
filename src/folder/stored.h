/* A completed transfer as its client sees it again: the facts of the transfer, and the manifest that lies beside the final folder, in which every
 * file has its digest. The manifest is fetched into a temporary file without a name and checked whole (form, paths, counts, a digest for each
 * file) before anybody acts on any line of it: the server is not trusted. */
#ifndef HENG_FOLDER_STORED_H
#define HENG_FOLDER_STORED_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/rng.h"
#include "folder/key_file.h"
#include "wire/manifest.h"

struct stored_place {
	const char *url, *api_key; /* http[s]://host:port of the scheduler */
	struct tls *tls;           /* as struct push_options has it */
	const char *transfer_id;
	const atomic_bool *is_interrupted; /* NULL, or looked at on the way: then the work ends with ERR_WAITING */
	int64_t give_up_us; /* without anything from the scheduler for so long it is ERR_TIMEOUT; 0: 60 s */
	/* While nothing comes, about 10 times a second from STORED_SILENCE_US on; in words what is waited for. NULL allowed. */
	void (*waiting)(void *owner, const char *text);
	void *owner;
};
#define STORED_SILENCE_US (3 * SEC_US)
int64_t stored_give_up_us(const struct stored_place *place);
#define STORED_TEXT_SIZE 400
/* The words for it, and the end of it. last: what an earlier attempt came to, ERR_NONE when there was none. */
void stored_waiting_text(const struct stored_place *place, int64_t silent_us, const struct err *last,
			 char target[STORED_TEXT_SIZE]);
int stored_given_up(const struct stored_place *place, int64_t silent_us, const struct err *last, struct err *err);

struct stored {
	int manifest_fd; /* -1: closed */
	enum digest_kind digest;
	bool is_sealed; /* the files were encrypted by their sender, */
	enum seal_cipher cipher;
	char key_id[SEAL_ID_SIZE]; /* with this key */
	bool is_in_place;          /* the folder is in the final store */
	uint64_t entry_count, file_count, total_bytes;
};

/* Fetches and checks. ERR_STATE when the transfer is not completed, ERR_PEER, ERR_MANIFEST_BAD or ERR_ENTRY_REFUSED when the manifest is not one
 * that a push could have sent. */
int stored_open(const struct stored_place *place, struct stored *ret_stored, struct err *err);
void stored_close(struct stored *stored);
/* The key that opens the transfer's files; to be freed. -ERR_USAGE: they are not encrypted, or with another key. */
int stored_key(const struct stored *stored, const char *key_file, struct key_file **ret_key, struct err *err);

/* Each entry in the manifest's order, from the first; digest is "" but for files. Slices are valid during the callback only; a negative return
 * stops. */
typedef int stored_entry_fn(void *owner, const struct manifest_entry *entry, const char *digest, struct err *err);
int stored_each(const struct stored *stored, stored_entry_fn *on_entry, void *owner, struct err *err);

bool stored_is_interrupted(const struct stored_place *place);

#endif
