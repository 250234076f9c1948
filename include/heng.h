/* libheng: the client of heng as a C library. It pushes folders to a heng scheduler, fetches completed ones back, compares, lists and cancels.
 *
 *   struct heng_client *client;
 *   struct heng_error *error;
 *   if (heng_client_new(&client, "http://10.0.0.5:7080", key, &error) == HENG_DONE) {
 *           struct heng_op *op = heng_op_new(client);
 *           if (heng_push(op, "/path/to/batch", &error) != HENG_DONE)
 *                   fprintf(stderr, "%s\n%s\n", heng_error_text(error), heng_error_hint(error));
 *           heng_error_free(error);
 *           heng_op_free(op);
 *           heng_client_free(client);
 *   }
 *
 * What holds for all of it:
 * - Threads: one client serves any number of threads at once. An operation belongs to one thread at a time; only heng_stop may be called on
 *   it from elsewhere. The calling thread does the work, with a few threads of the library that end before the call returns and take no signals.
 * - The library prints nothing, ends no process, changes no signal's disposition and no other setting of the process. SIGPIPE is blocked in the
 *   calling thread while a call runs. Of the environment it reads TMPDIR alone.
 * - Memory: a large allocation that fails is an error (no_memory); a small one that fails, or a mistake in heng itself, writes one line to
 *   stderr and aborts, as in the heng command.
 * - After fork(), the child may only use handles that it makes itself.
 * - The ABI: handles are opaque, numbers and texts are asked for by key, options are set by name, so new ones change no structure. Functions and
 *   constants are never taken away or renumbered within one heng_abi().
 * Text is bytes ending with NUL; paths and batch names are whatever bytes the file system has, messages are UTF-8. */
#ifndef HENG_H
#define HENG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HENG_API __attribute__((visibility("default")))
#else
#define HENG_API
#endif

/* What this header describes; a program may compare it with heng_abi(). */
#define HENG_ABI 1
HENG_API int heng_abi(void);
HENG_API const char *heng_version(void); /* "0.1.0" */

/* What a call came to; the same numbers as the exit codes of the heng command. */
enum heng_result {
	HENG_DONE = 0,
	HENG_FAULT = 1,      /* heng itself is wrong: please report */
	HENG_USAGE = 2,      /* an argument is wrong */
	HENG_REFUSED = 3,    /* the same call will be refused again */
	HENG_INCOMPLETE = 4, /* may pass, or was stopped: the same call again continues */
	HENG_INTEGRITY = 5   /* what arrived is not what was sent; of heng_verify: the folder differs */
};

/* Why a call failed. Calls that may fail take a `struct heng_error **` as their last argument, which may be NULL: it is set to NULL when all went
 * well, else to an error that the caller frees. Its texts live as long as it does. Asked of NULL: 0, HENG_DONE and "". */
struct heng_error;
HENG_API int heng_error_result(const struct heng_error *error);       /* enum heng_result */
HENG_API int heng_error_code(const struct heng_error *error);         /* 2204 of HENG-2204 */
HENG_API const char *heng_error_word(const struct heng_error *error); /* stable, for programs: "refused" */
HENG_API const char *heng_error_text(const struct heng_error *error); /* one line for people */
HENG_API const char *heng_error_hint(const struct heng_error *error); /* what to do, or "" */
HENG_API void heng_error_free(struct heng_error *error);              /* NULL allowed */

/* Where the scheduler is, and who asks: url is http://host:port or https://host:port, api_key one word. Nothing is connected yet. Returns an enum heng_result. */
struct heng_client;
HENG_API int heng_client_new(struct heng_client **ret_client, const char *url, const char *api_key,
			     struct heng_error **ret_error);
/* The same with the key as the only word of a file. */
HENG_API int heng_client_new_key_file(struct heng_client **ret_client, const char *url, const char *key_file,
				      struct heng_error **ret_error);
/* For a scheduler at https://host:port, before the first operation: whose servers are believed, and the certificate that is shown to the scheduler.
 * Paths of PEM files, each NULL where there is none; certificate and key come together; ca NULL: the system's authorities. The files are read now;
 * nobody but its owner may have access to the key. */
HENG_API int heng_client_set_tls(struct heng_client *client, const char *ca, const char *certificate, const char *key,
				 struct heng_error **ret_error);
/* NULL allowed. Operations that still exist keep what they need. */
HENG_API void heng_client_free(struct heng_client *client);

/* An operation: options and callbacks go in, one call is made with it, facts come out. It may be used again, for another call or for the same
 * once more; the facts are those of the last call. NULL when client is NULL. */
struct heng_op;
HENG_API struct heng_op *heng_op_new(struct heng_client *client);
HENG_API void heng_op_free(struct heng_op *op); /* NULL allowed; not while a call with it runs */

/* Options, by the names and values of the command's: `heng push --chunk-size 8MiB` is heng_op_set(op, "chunk-size", "8MiB"). A value of NULL
 * sets the default again. docs/library.md lists them. Checked when set, as far as the name and the value's form go; what a call does
 * not use it ignores. */
HENG_API int heng_op_set(struct heng_op *op, const char *name, const char *value, struct heng_error **ret_error);

/* Callbacks run in the thread that made the call. They may ask op for facts and call heng_stop; nothing else with the same op. They return
 * normally (no longjmp, no exception). A function of NULL: none. Not while a call runs. */
typedef void heng_progress_fn(void *owner, const struct heng_op *op);
HENG_API void heng_op_on_progress(struct heng_op *op, heng_progress_fn *progress, void *owner); /* about 10 a second */
/* Retries, fail-overs and the like: a line for people. */
typedef void heng_notice_fn(void *owner, const char *line);
HENG_API void heng_op_on_notice(struct heng_op *op, heng_notice_fn *notice, void *owner);
/* An entry of the folder about which there is something to say: push: kind "source": it cannot be sent, or changed while it was. verify: the kind of
 * difference: missing, extra, type, size, digest, target, mode, mtime, unreadable. path: its path_size bytes, as the file system has them, and a NUL
 * behind them. words: for people. */
typedef void heng_problem_fn(void *owner, const char *kind, const char *path, size_t path_size, const char *words);
HENG_API void heng_op_on_problem(struct heng_op *op, heng_problem_fn *problem, void *owner);

/* Sends a folder and waits until it is whole in the final store. Stopped, killed or failed with HENG_INCOMPLETE: the same push again continues.
 * Options: name, parallel, chunk-size, limit-rate, digest, links, priority, copies, network, dry-run, give-up, state-dir, and what else `heng push` has. */
HENG_API int heng_push(struct heng_op *op, const char *folder, struct heng_error **ret_error);
/* Fetches a completed transfer into target, which must not exist and appears whole or not at all. Option: parallel. */
HENG_API int heng_pull(struct heng_op *op, const char *transfer_id, const char *target, struct heng_error **ret_error);
/* Compares a local folder with a completed transfer; every difference is a problem. HENG_INTEGRITY: it differs. */
HENG_API int heng_verify(struct heng_op *op, const char *folder, const char *transfer_id,
			 struct heng_error **ret_error);
/* The facts of one transfer. */
HENG_API int heng_status(struct heng_op *op, const char *transfer_id, struct heng_error **ret_error);
/* The caller's newest transfers, 1,000 at most, as rows. states: "uploading,merging", or NULL for all. */
HENG_API int heng_list(struct heng_op *op, const char *states, struct heng_error **ret_error);
/* Ends a transfer that has not arrived. */
HENG_API int heng_cancel(struct heng_op *op, const char *transfer_id, struct heng_error **ret_error);

/* Ends the call that runs with op within about a second, with HENG_INCOMPLETE and the word "waiting"; what is acknowledged stays acknowledged.
 * From any thread and from signal handlers (async-signal-safe). Before a call: it ends at once. An operation stays stopped for good: go on
 * with a new one. NULL allowed. */
HENG_API void heng_stop(struct heng_op *op);

/* Facts: numbers below 100, texts above, each by its key. Asked of what a call does not tell, or for a key that this library does not know: 0
 * and "". Valid in callbacks and after the call; a text until the next callback or call. */
enum heng_fact {
	HENG_FILES = 1, /* of the folder */
	HENG_BYTES = 2,
	HENG_CHUNKS = 3,
	HENG_ENTRIES = 4, /* files, folders and links */
	HENG_FILES_DONE = 5,
	HENG_BYTES_DONE = 6,
	HENG_CHUNKS_DONE = 7,
	HENG_CHUNKS_SENT = 8, /* acknowledged in this call, and not there before */
	HENG_RETRIES = 9,
	HENG_FAILOVERS = 10,
	HENG_SKIPPED = 11,     /* entries left out on request */
	HENG_CHANGED = 12,     /* entries that changed, vanished or could not be read */
	HENG_DIFFERENCES = 13, /* heng_verify */
	HENG_ELAPSED_US = 14,  /* microseconds */
	HENG_IS_RESUMABLE = 15,
	HENG_STORED_CHUNKS = 16, /* from here to 24 of heng_status, heng_list and heng_cancel */
	HENG_STORED_BYTES = 17,
	HENG_PENDING_CHUNKS = 18,
	HENG_LOST_CHUNKS = 19,
	HENG_MERGED_CHUNKS = 20,
	HENG_IS_IN_PLACE = 21,
	HENG_CREATED_US = 22, /* microseconds since 1970 */
	HENG_UPDATED_US = 23,
	HENG_COMPLETED_US = 24,
	HENG_PARALLEL = 25, /* of heng_push: chunks that may be under way now */

	HENG_TRANSFER_ID = 100,
	HENG_BATCH = 101,
	HENG_STATE = 102, /* created, distributing, uploading, merging, completed, failed */
	HENG_FINAL = 103, /* the folder's place at the scheduler */
	HENG_PHASE = 104, /* scan, plan, send, merge, pull, done */
	HENG_WAITING_FOR = 105,
	HENG_REASON = 106, /* of a failed transfer */
	HENG_DIGEST = 107, /* md5, sha256, sm3 */
	HENG_NODE = 108    /* of a row */
};
HENG_API uint64_t heng_number(const struct heng_op *op, int fact);
HENG_API const char *heng_text(const struct heng_op *op, int fact);

/* Facts in rows: after heng_list a row for each transfer, newest first; during and after heng_push a row for each node that took something, with
 * HENG_NODE, HENG_BYTES_DONE and HENG_CHUNKS_DONE. */
HENG_API size_t heng_row_count(const struct heng_op *op);
HENG_API uint64_t heng_row_number(const struct heng_op *op, size_t row, int fact);
HENG_API const char *heng_row_text(const struct heng_op *op, size_t row, int fact);

#ifdef __cplusplus
}
#endif

#endif
