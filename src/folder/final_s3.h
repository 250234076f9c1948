/* Private to the bucket as a final store: final_s3.c (what is there, and giving it back), final_s3_publish.c (one publishing), final_s3_put.c (one
 * object).
 *
 * prefix/BATCH/path are the objects, prefix/.heng/BATCH.manifest says that they are all there: it is written last, and only where there is none. Each
 * object says in its metadata which transfer wrote it, so that a publishing that died goes on where it stopped, and nothing of others is overwritten. */
#ifndef HENG_FOLDER_FINAL_S3_H
#define HENG_FOLDER_FINAL_S3_H

#include "folder/final.h"
#include "folder/merge_impl.h"
#include "plug/s3.h"

#define FINAL_S3_KEY_SIZE (S3_KEY_MAX + 2)

struct final_s3 {
	struct s3 *s3;
	char *prefix; /* "", or with a '/' at its end */
	uint64_t part_bytes;
	unsigned connection_count;
	int64_t give_up_us;
};

/* One publishing: what its threads share. */
struct final_s3_run {
	struct merge_run *run;
	const struct final_s3 *final;
	bool is_fresh; /* nothing was there under the batch's name: no object is looked for before it is put */
	_Atomic int64_t success_us; /* the last answer that was good */
	atomic_bool is_over;        /* one of them failed */
	_Atomic bool is_noted;      /* the transfer's reason says that the bucket is waited for */
};

/* An entry, of its own memory. */
struct final_s3_entry {
	char type;
	uint32_t mode;
	int64_t mtime_ns;
	uint64_t size_bytes;
	char digest[DIGEST_HEX_SIZE];
	char path[S3_KEY_MAX + 1];
	char target[MANIFEST_PATH_MAX + 1];
};

/* What a thread works with. */
struct final_s3_worker {
	struct final_s3_run *put;
	struct fetch *fetch;
	struct rng rng;
};

/* --- final_s3.c --- */
/* "" with -ERR_ENTRY_REFUSED when it is too long. path NULL: what all the batch's keys begin with. */
int final_s3_key(const struct final_s3 *final, const char *batch, const char *path, char target[FINAL_S3_KEY_SIZE],
		 struct err *err);
int final_s3_manifest_key(const struct final_s3 *final, const char *batch, char target[FINAL_S3_KEY_SIZE],
			  struct err *err);
int final_s3_temp_file(const struct merge *merge, struct err *err);

/* --- final_s3_publish.c --- */
int final_s3_placed(struct merge_run *run, enum merge_placed *ret_placed, struct err *err);
int final_s3_publish(struct merge_run *run, struct err *err);
int final_s3_withdraw(struct merge_run *run, struct err *err);
/* A call that is tried again while that may help, until nothing has been answered well for give_up_us. */
int final_s3_ask(struct final_s3_worker *worker, struct s3_call *call, struct err *err);
/* The same for callers that drive calls of their own: what to do about one that failed. True: after *ret_wait_us again. */
bool final_s3_may_retry(struct final_s3_worker *worker, const struct err *err, unsigned try_count,
			int64_t *ret_wait_us);
bool final_s3_is_over(const struct final_s3_run *put);

/* --- final_s3_put.c --- */
/* Puts the entry's object, unless it is there and right. -ERR_BATCH_EXISTS: somebody else's is in its place. */
int final_s3_put(struct final_s3_worker *worker, const struct final_s3_entry *entry, struct err *err);
/* Whose an object is, by its metadata: 0 nobody's that we know, 1 of a transfer of ours that came to nothing, 2 this one's. Negative: cannot tell. */
enum { FINAL_S3_FOREIGN, FINAL_S3_DEAD, FINAL_S3_OWN };
int final_s3_whose(struct final_s3_run *put, const struct s3_call *head, struct err *err);

#endif
