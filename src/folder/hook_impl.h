/* Private to the hooks: hook.c (queues and threads), hook_outbox.c (what is owed, on disk), hook_call.c (one delivery). */
#ifndef HENG_FOLDER_HOOK_IMPL_H
#define HENG_FOLDER_HOOK_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/rng.h"
#include "folder/hook.h"
#include "sys/fetch.h"
#include "wire/manifest.h"

#define HOOK_ARGS_MAX   64
#define HOOK_SECRET_MAX 256
#define HOOK_ERROR_SIZE 400
#define HOOK_PLACE_SIZE 8192

/* One transfer that a hook still has to be told of. */
struct hook_debt {
	char transfer_id[ULID_SIZE];
	int64_t completed_wall_us;
	uint64_t next_seq; /* each: file: those before it were told */
	uint64_t tries;    /* that failed since anything was told */
	int64_t due_us;    /* not before */
	char error[HOOK_ERROR_SIZE];
	struct hook_debt *next;
};

struct hook {
	struct hooks *hooks;
	char name[HOOK_NAME_SIZE];
	char *argv[HOOK_ARGS_MAX + 1]; /* argv[0] NULL: a webhook */
	char *webhook;
	char secret[HOOK_SECRET_MAX];
	size_t secret_size;
	enum hook_each each;
	int64_t timeout_us, retry_after_us;
	uint64_t tries_max;
	int dir_fd, failed_fd; /* outbox/<name>, and failed/ in it */
	struct fetch *fetch;
	struct rng rng; /* its thread's */
	pthread_t thread;
	bool is_thread_started;
	struct hook_debt *debts; /* under hooks->lock; the first is being told, and only its own thread takes it out */
};

struct hooks {
	struct hook *items;
	size_t count;
	char *final_place;
	struct store *store;
	atomic_bool is_stopping;
	pthread_mutex_t lock; /* protects the debts of all hooks */
	pthread_cond_t changed;
};

/* A file of the manifest, of its own memory. */
struct hook_file {
	uint64_t seq, size_bytes;
	uint32_t mode;
	int64_t mtime_ns;
	char digest[DIGEST_HEX_SIZE];
	char path[MANIFEST_PATH_MAX + 1];
};

/* --- hook_outbox.c --- */
int hook_outbox_open(struct hook *hook, const char *state_dir, struct err *err);
/* A new debt, unless there is one. */
int hook_outbox_add(struct hook *hook, const char *transfer_id, struct err *err);
/* How far it has come. */
int hook_outbox_save(struct hook *hook, const struct hook_debt *debt, struct err *err);
int hook_outbox_read(struct hook *hook, const char *transfer_id, struct hook_debt *ret_debt, struct err *err);
int hook_outbox_remove(struct hook *hook, const char *transfer_id, struct err *err);
/* Given up: kept in failed/, with the last error. */
int hook_outbox_fail(struct hook *hook, const struct hook_debt *debt, struct err *err);
/* The error of one that was given up; false when none was. */
bool hook_outbox_failed(const struct hook *hook, const char *transfer_id, char error[HOOK_ERROR_SIZE]);
int hook_outbox_list(struct hook *hook, int (*each)(struct hook *hook, const char *transfer_id, struct err *err),
		     struct err *err);

/* --- hook_call.c --- */
/* One delivery: of the transfer, or of one of its files. */
int hook_call(struct hook *hook, const struct store_transfer *transfer, const struct hook_file *file,
	      uint64_t try_count, struct err *err);

#endif
