/* Inside the pull: the pulling thread walks the manifest, makes folders, links and empty files, and hands the other files to a few threads that
 * fetch them. */
#ifndef HENG_FOLDER_PULL_IMPL_H
#define HENG_FOLDER_PULL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "folder/pull.h"
#include "folder/stage.h"

#define PULL_QUEUE_MAX 256

/* A file to fetch. */
struct pull_file {
	uint64_t seq, size_bytes;
	uint32_t mode;
	int64_t mtime_ns;
	char digest[DIGEST_HEX_SIZE];
	size_t path_size;
	char path[];
};

struct pull {
	const struct pull_options *options;
	struct stored_place place; /* with the words for waiting led to the progress */
	int64_t started_us;
	struct stored stored;
	struct key_file *key; /* NULL: files stay as they are stored */
	struct stage stage;
	atomic_bool is_over; /* a failure or an interruption: everybody stops */
	atomic_uint_fast64_t bytes_done, files_done, retries;
	atomic_int_fast64_t life_us; /* when something last came, or began to be waited for */
	atomic_uint
		awaiting_count; /* threads for which something is to come; not those that write, or were told to wait */
	pthread_mutex_t lock;   /* protects what follows */
	pthread_cond_t changed; /* a file was added or taken, or the end has come */
	struct pull_file *queue[PULL_QUEUE_MAX];
	size_t queue_first, queue_count;
	bool is_closed; /* no file is added any more */
	bool is_failed;
	struct err failure; /* the first */
	struct err last;    /* of an attempt that will be made again */
};

/* --- pull.c --- */
struct pull_file *pull_take(struct pull *pull); /* waits; NULL: there are no more, or the pull is over */
void pull_fail(struct pull *pull, const struct err *err);
bool pull_is_over(const struct pull *pull);
void pull_note_retry(struct pull *pull, const struct err *err);
/* From now on something is to come for this thread; and not any more. Something has come. */
void pull_await(struct pull *pull);
void pull_await_end(struct pull *pull);
void pull_note_life(struct pull *pull);

/* --- pull_file.c --- one thread of those that fetch; argument: the pull */
void *pull_files(void *pull);

#endif
