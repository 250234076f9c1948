/* AWS Signature Version 4, the variant that S3 uses: what is signed of a request, and the signature. Pure, and the same for who signs a request and
 * for who checks one: whoever checks reads the request back into bytes, computes the signature, and compares it by str_eq_secret. */
#ifndef HENG_PLUG_SIGV4_H
#define HENG_PLUG_SIGV4_H

#include "base/buf.h"
#include "base/err.h"

#define SIGV4_PAIRS_MAX      64 /* queries, and headers, of one request */
#define SIGV4_SIGNATURE_SIZE 65 /* hex, with its NUL */
#define SIGV4_TIME_SIZE      17 /* "20130524T000000Z", with its NUL */
#define SIGV4_UNSIGNED       "UNSIGNED-PAYLOAD"

struct sigv4_pair {
	struct str name, value;
};

/* Everything as bytes: nothing is percent-encoded yet (or any more). Slices belong to the caller. */
struct sigv4_request {
	const char *method;
	struct str path; /* begins with '/' */
	const struct sigv4_pair *queries;
	size_t query_count;
	/* Those that are signed, host among them; in any order and case. */
	const struct sigv4_pair *headers;
	size_t header_count;
	struct str payload; /* hex of the body's SHA-256, or SIGV4_UNSIGNED */
};

/* Whose signature, and where it is good. */
struct sigv4_scope {
	struct str key_id, secret;
	const char *region, *service; /* "us-east-1", "s3" */
	const char *time;             /* as sigv4_time makes it */
};

void sigv4_time(int64_t wall_us, char target[SIGV4_TIME_SIZE]);
/* Path and query as they go over the wire: each byte encoded once, queries in the order that is signed. */
int sigv4_target(const struct sigv4_request *request, struct buf *ret_target, struct err *err);
/* The text whose digest is signed, from which most mistakes show. Each appends to ret_text; -ERR_LIMIT for too many pairs or a full buffer,
 * -ERR_BAD_REQUEST for a header name or a value that would break the text into other lines. */
int sigv4_canonical(const struct sigv4_request *request, struct buf *ret_text, struct err *err);
int sigv4_sign(const struct sigv4_scope *scope, const struct sigv4_request *request, char target[SIGV4_SIGNATURE_SIZE],
	       struct err *err);
/* The value of the header Authorization. */
int sigv4_authorization(const struct sigv4_scope *scope, const struct sigv4_request *request, struct buf *ret_value,
			struct err *err);

#endif
