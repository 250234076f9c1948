/* A client of S3 and what speaks like it (Ceph RGW, MinIO): one call at a time or many, signed (plug/sigv4), path style, their failures in words.
 * What a failure means for what was being done, and whether it is tried again, is for the caller. */
#ifndef HENG_PLUG_S3_H
#define HENG_PLUG_S3_H

#include "plug/sigv4.h"
#include "sys/fetch.h"

#define S3_KEY_MAX        1024 /* bytes of an object's key */
#define S3_PAIRS_MAX      10
#define S3_METAS_MAX      8
#define S3_META_SIZE      160
#define S3_ETAG_SIZE      128
#define S3_CODE_SIZE      64
#define S3_PARTS_MAX      10000
#define S3_PART_BYTES_MIN ((uint64_t)5 * MIB) /* but for the last */

struct s3;
struct s3_options {
	const char *endpoint; /* "https://s3.example:9000" */
	const char *region, *bucket;
	const char *credentials_file; /* two lines: key id, secret; "": AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY */
};
int s3_new(const struct s3_options *options, struct s3 **ret_s3, struct err *err);
void s3_free(struct s3 **s3);

struct s3_call {
	/* Asked: filled by the caller, kept alive until done. */
	const char *method;
	struct str key;                          /* empty: the bucket */
	struct sigv4_pair queries[S3_PAIRS_MAX]; /* up to one without a name */
	struct sigv4_pair headers[S3_PAIRS_MAX];
	struct str body; /* or, with body_size >= 0, of a file: */
	int body_fd;
	int64_t body_offset, body_size;
	const char *sha256; /* hex, of the body; NULL: computed, of a body in memory */
	int64_t timeout_us; /* 0: none but for silence */
	const atomic_bool *is_interrupted;
	bool (*sink)(struct s3_call *call, struct str piece); /* NULL: collected in `answer` */
	void (*done)(struct s3_call *call);                   /* s3_start only */
	void *owner;
	/* Answered. */
	int status; /* 0: none came */
	struct err err;
	struct buf answer; /* caller frees: s3_call_fini */
	uint64_t size_bytes;
	char etag[S3_ETAG_SIZE], code[S3_CODE_SIZE]; /* code: S3's word of a failure */
	/* The rest belongs to s3. */
	struct {
		char name[32], value[S3_META_SIZE];
	} metas[S3_METAS_MAX];
	size_t meta_count;
	struct s3 *s3;
	struct fetch_call fetch;
	struct buf url, texts;
};
#define S3_CALL_INIT ((struct s3_call){ .method = "GET", .body_fd = -1, .body_size = -1 })

void s3_call_query(struct s3_call *call, const char *name, struct str value);
void s3_call_header(struct s3_call *call, const char *name, struct str value);
/* What the answer has as "x-amz-meta-<name>", or "". */
const char *s3_call_meta(const struct s3_call *call, const char *name);
/* Starts it: done is called from fetch_step, call->err says how it ended. May be started again. */
void s3_start(struct s3 *s3, struct fetch *fetch, struct s3_call *call);
/* The same to the end. 0, or -code: FINAL_STORE (it may pass: no answer, 5xx, slow down), FINAL_REFUSED (it will not: a wrong key, no such bucket or
 * object), WAITING (interrupted). call->status tells more. */
int s3_do(struct s3 *s3, struct fetch *fetch, struct s3_call *call, struct err *err);
void s3_call_fini(struct s3_call *call);
int s3_fetch_new(struct s3 *s3, struct fetch **ret_fetch, struct err *err);

#endif
