#include "plug/s3.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/mem.h"
#include "sys/fs.h"
#include "wire/xml.h"

#define URL_MAX         (16 * KIB)
#define TEXTS_MAX       (16 * KIB)
#define SECRET_MAX      256
#define SHOWN_SIZE      120
#define ANSWER_MAX      ((size_t)4 * MIB) /* a page of a list: 1,000 keys */
#define META_PREFIX     "x-amz-meta-"
#define CREDENTIALS_MAX KIB

struct s3 {
	char *endpoint, *host, *region, *bucket;
	char key_id[SECRET_MAX + 1], secret[SECRET_MAX + 1];
};

/* --- set-up --- */

static int take_credentials(struct s3 *s3, struct str key_id, struct str secret, const char *where, struct err *err)
{
	key_id = str_trim(key_id);
	secret = str_trim(secret);
	if (key_id.size > 0 && secret.size > 0 && str_copy(key_id, s3->key_id, sizeof(s3->key_id)) &&
	    str_copy(secret, s3->secret, sizeof(s3->secret)))
		return 0;
	err_set(err, ERR_CONFIG, "there are no credentials for the bucket in %s", where);
	err_hint(err, "final_credentials_file: two lines, the key id and the secret; mode 0600");
	return -ERR_CONFIG;
}

static int read_credentials(struct s3 *s3, const char *path, struct err *err)
{
	struct buf text = BUF_INIT(CREDENTIALS_MAX);
	struct str rest, key_id = STR_NONE, secret = STR_NONE;
	struct stat st;

	if (path[0] == '\0')
		return take_credentials(s3, str_from(getenv("AWS_ACCESS_KEY_ID")),
					str_from(getenv("AWS_SECRET_ACCESS_KEY")), "the environment", err);
	if (stat(path, &st) == 0 && (st.st_mode & 077) != 0) {
		err_set(err, ERR_CONFIG, "the credentials file '%s' can be read by others than heng", path);
		err_hint(err, "chmod 600 %s", path);
		return -ERR_CONFIG;
	}
	int result = fs_read_file(path, text.limit, &text, err);
	rest = buf_str(&text);
	if (result == 0) {
		(void)str_cut(&rest, '\n', &key_id);
		(void)str_cut(&rest, '\n', &secret);
		result = take_credentials(s3, key_id, secret, path, err);
	}
	if (text.size > 0)
		mem_wipe(text.data, text.size);
	buf_fini(&text);
	return result;
}

static bool bucket_is_good(const char *bucket)
{
	size_t size = strlen(bucket);

	return size >= 3 && size <= 63 && bucket[strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-")] == '\0';
}

/* The host as it stands in the header: without the port that goes without saying. */
static int read_endpoint(struct s3 *s3, const char *endpoint, struct err *err)
{
	bool is_tls = strncmp(endpoint, "https://", 8) == 0;
	size_t scheme_size = is_tls ? 8 : 7;
	const char *host = strlen(endpoint) > scheme_size ? endpoint + scheme_size : "",
		   *usual = is_tls ? ":443" : ":80";

	size_t size = strcspn(host, "/?#@ ");
	if ((!is_tls && strncmp(endpoint, "http://", 7) != 0) || size == 0 ||
	    (host[size] != '\0' && strcmp(host + size, "/") != 0))
		return err_set(err, ERR_CONFIG,
			       "final_endpoint '%.200s' is not http://HOST[:PORT] or https://HOST[:PORT]", endpoint);
	s3->host = must_strdup(host);
	s3->host[size] = '\0';
	if (size > strlen(usual) && strcmp(s3->host + size - strlen(usual), usual) == 0)
		s3->host[size - strlen(usual)] = '\0';
	s3->endpoint = must_strdup(endpoint);
	s3->endpoint[scheme_size + size] = '\0';
	return 0;
}

int s3_new(const struct s3_options *options, struct s3 **ret_s3, struct err *err)
{
	struct s3 *s3 = must_zalloc(1, sizeof(*s3));
	int result = 0;

	s3->region = must_strdup(options->region);
	s3->bucket = must_strdup(options->bucket);
	if (!bucket_is_good(options->bucket))
		result = err_set(err, ERR_CONFIG, "'%.100s' is not the name of a bucket: 3 to 63 of a-z0-9.-",
				 options->bucket);
	if (result == 0)
		result = read_endpoint(s3, options->endpoint, err);
	if (result == 0)
		result = read_credentials(s3, options->credentials_file, err);
	if (result < 0)
		s3_free(&s3);
	*ret_s3 = s3;
	return result;
}

void s3_free(struct s3 **s3_ref)
{
	struct s3 *s3 = *s3_ref;

	if (!s3)
		return;
	mem_wipe(s3->secret, sizeof(s3->secret));
	free(s3->endpoint);
	free(s3->host);
	free(s3->region);
	free(s3->bucket);
	free(s3);
	*s3_ref = NULL;
}

int s3_fetch_new(struct s3 *s3, struct fetch **ret_fetch, struct err *err)
{
	(void)s3;
	return fetch_new(ret_fetch, err);
}

/* --- asking --- */

static size_t pair_count(const struct sigv4_pair *pairs)
{
	size_t count = 0;

	while (count < S3_PAIRS_MAX && pairs[count].name.size > 0)
		count++;
	return count;
}

void s3_call_query(struct s3_call *call, const char *name, struct str value)
{
	size_t count = pair_count(call->queries);

	MUST(count < S3_PAIRS_MAX);
	call->queries[count] = (struct sigv4_pair){ str_from(name), value };
}

void s3_call_header(struct s3_call *call, const char *name, struct str value)
{
	size_t count = pair_count(call->headers);

	MUST(count < S3_PAIRS_MAX);
	call->headers[count] = (struct sigv4_pair){ str_from(name), value };
}

void s3_call_fini(struct s3_call *call)
{
	buf_fini(&call->url);
	buf_fini(&call->texts);
	buf_fini(&call->answer);
}

static void on_header(struct fetch_call *fetch, struct str name, struct str value)
{
	struct s3_call *call = fetch->owner;
	struct str prefix = STR(META_PREFIX), etag = STR("etag"), length = STR("content-length");

	if (str_eq_nocase(name, etag)) {
		(void)str_copy(value, call->etag, sizeof(call->etag));
	} else if (str_eq_nocase(name, length)) {
		(void)str_to_u64(value, &call->size_bytes);
	} else if (name.size > prefix.size && call->meta_count < S3_METAS_MAX &&
		   str_eq_nocase((struct str){ name.data, prefix.size }, prefix)) {
		size_t i = call->meta_count;
		name = (struct str){ name.data + prefix.size, name.size - prefix.size };
		if (!str_copy(name, call->metas[i].name, sizeof(call->metas[i].name)) ||
		    !str_copy(value, call->metas[i].value, sizeof(call->metas[i].value)))
			return;
		for (char *c = call->metas[i].name; *c; c++)
			*c = (char)tolower((unsigned char)*c);
		call->meta_count++;
	}
}

const char *s3_call_meta(const struct s3_call *call, const char *name)
{
	for (size_t i = 0; i < call->meta_count; i++)
		if (strcmp(call->metas[i].name, name) == 0)
			return call->metas[i].value;
	return "";
}

static bool on_piece(struct fetch_call *fetch, struct str piece)
{
	struct s3_call *call = fetch->owner;

	if (call->sink(call, piece))
		return true;
	fetch->err = call->err;
	return false;
}

/* Signs it. The texts of headers lie one behind the other, each with its NUL, and are pointed at once the buffer has stopped to move. */
static int prepare(struct s3 *s3, struct s3_call *call, struct err *err)
{
	struct sigv4_pair headers[S3_PAIRS_MAX + 3];
	size_t count = pair_count(call->headers), at[S3_PAIRS_MAX + 3], at_count = 0;
	char time[SIGV4_TIME_SIZE], digest[DIGEST_HEX_SIZE];
	struct buf path = BUF_INIT(URL_MAX);

	if (!call->sha256)
		digest_of(DIGEST_SHA256, call->body.data, call->body.size, digest);
	const char *sha256 = call->sha256 ? call->sha256 : digest;
	sigv4_time(clock_wall_us(), time);
	memcpy(headers, call->headers, count * sizeof(*headers));
	headers[count] = (struct sigv4_pair){ STR("x-amz-date"), str_from(time) };
	headers[count + 1] = (struct sigv4_pair){ STR("x-amz-content-sha256"), str_from(sha256) };
	headers[count + 2] = (struct sigv4_pair){ STR("host"), str_from(s3->host) };
	buf_printf(&path, "/%s%s%.*s", s3->bucket, call->key.size > 0 ? "/" : "", STR_ARG(call->key));
	const struct sigv4_request request = { .method = call->method,
					       .path = buf_str(&path),
					       .queries = call->queries,
					       .query_count = pair_count(call->queries),
					       .headers = headers,
					       .header_count = count + 3,
					       .payload = str_from(sha256) };
	const struct sigv4_scope scope = { str_from(s3->key_id), str_from(s3->secret), s3->region, "s3", time };
	buf_printf(&call->url, "%s", s3->endpoint);
	int result = sigv4_target(&request, &call->url, err);
	for (size_t i = 0; i < count + 2; i++) {
		at[at_count++] = call->texts.size;
		buf_printf(&call->texts, "%.*s: %.*s", STR_ARG(headers[i].name), STR_ARG(headers[i].value));
		buf_append(&call->texts, (struct str){ "", 1 });
	}
	at[at_count++] = call->texts.size;
	buf_append_c(&call->texts, "Authorization: ");
	if (result == 0)
		result = sigv4_authorization(&scope, &request, &call->texts, err);
	buf_append(&call->texts, (struct str){ "", 1 });
	buf_fini(&path);
	call->fetch.url = buf_cstr(&call->url);
	if (result == 0 && (call->texts.is_failed || call->url.is_failed))
		result = err_set(err, ERR_LIMIT, "a call to the bucket has headers that are too long");
	for (size_t i = 0; i < at_count && result == 0; i++)
		call->fetch.headers[i] = call->texts.data + at[i];
	return result;
}

/* --- judging --- */

static void hint(struct s3_call *call)
{
	static const struct {
		const char *code, *hint;
	} rows[] = {
		{ "SignatureDoesNotMatch", "the secret in final_credentials_file is not the one of that key id" },
		{ "InvalidAccessKeyId", "the key id in final_credentials_file is not known there" },
		{ "AccessDenied",
		  "the user of final_credentials_file may not do this: read, write, list and delete are needed" },
		{ "RequestTimeTooSkewed", "the clock of this machine is off: set it" },
		{ "NoSuchBucket", "make the bucket, or correct `final`" },
		{ "PermanentRedirect", "final_endpoint or final_region is not the bucket's" },
		{ "AuthorizationHeaderMalformed", "final_region is not the bucket's" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		if (strcmp(call->code, rows[i].code) == 0)
			err_hint(&call->err, "%s", rows[i].hint);
}

static bool may_pass(const struct s3_call *call)
{
	static const char *const codes[] = { "SlowDown",           "RequestTimeout",         "InternalError",
					     "ServiceUnavailable", "ConcurrentModification", "OperationAborted" };

	for (size_t i = 0; i < COUNT_OF(codes); i++)
		if (strcmp(call->code, codes[i]) == 0)
			return true;
	return call->status >= 500 || call->status == 429 || call->status == 408;
}

static void judge(struct s3_call *call)
{
	struct err cause = call->fetch.err;
	char shown[SHOWN_SIZE];

	call->status = call->fetch.status;
	call->answer = call->fetch.answer;
	/* Some calls begin to answer before they know how they end: a failure can come with 200. */
	bool is_failed = call->status < 200 || call->status >= 300 || cause.code != ERR_NONE;
	struct str text = buf_str(&call->answer), inner = STR_NONE;
	if (call->answer.size > 0 && !call->sink && xml_cut(&text, "Error", &inner)) {
		(void)xml_find(inner, "Code", call->code, sizeof(call->code));
		is_failed = true;
	} else if (call->status >= 400 && xml_cut(&text, "Error", &inner)) {
		(void)xml_find(inner, "Code", call->code, sizeof(call->code));
	}
	call->err = ERR_INIT;
	if (!is_failed)
		return;
	str_display(call->key, shown, sizeof(shown));
	if (call->status == 0 || (call->status < 300 && cause.code != ERR_NONE)) {
		call->err = cause;
		/* Interrupted, or a fault on this side, is said as it is. */
		if (cause.code == ERR_CONNECT || cause.code == ERR_TIMEOUT || cause.code == ERR_CLOSED ||
		    cause.code == ERR_PEER)
			err_set(&call->err, ERR_FINAL_STORE, "the bucket '%s' does not answer: %.400s",
				call->s3->bucket, cause.text);
		return;
	}
	err_set(&call->err, may_pass(call) ? ERR_FINAL_STORE : ERR_FINAL_REFUSED,
		"%s of '%s' in the bucket '%s' was answered with %d%s%s", call->method, shown, call->s3->bucket,
		call->status, call->code[0] ? " " : "", call->code);
	hint(call);
}

static void on_done(struct fetch *fetch UNUSED, struct fetch_call *fetch_call)
{
	struct s3_call *call = fetch_call->owner;

	judge(call);
	if (call->done)
		call->done(call);
}

void s3_start(struct s3 *s3, struct fetch *fetch, struct s3_call *call)
{
	s3_call_fini(call);
	call->url = BUF_INIT(URL_MAX);
	call->texts = BUF_INIT(TEXTS_MAX);
	call->s3 = s3;
	call->err = ERR_INIT;
	call->status = 0;
	call->size_bytes = 0;
	call->meta_count = 0;
	call->etag[0] = call->code[0] = '\0';
	call->fetch = FETCH_CALL_INIT;
	call->fetch.method = call->method;
	call->fetch.body = call->body;
	call->fetch.body_fd = call->body_fd;
	call->fetch.body_fd_size = call->body_size;
	call->fetch.body_fd_offset = call->body_offset;
	call->fetch.timeout_us = call->timeout_us;
	call->fetch.is_interrupted = call->is_interrupted;
	call->fetch.answer = BUF_INIT(ANSWER_MAX);
	call->fetch.sink = call->sink ? on_piece : NULL;
	call->fetch.header = on_header;
	call->fetch.done = on_done;
	call->fetch.owner = call;
	if (prepare(s3, call, &call->err) == 0)
		fetch_start(fetch, &call->fetch);
	else if (call->done)
		call->done(call);
}

int s3_do(struct s3 *s3, struct fetch *fetch, struct s3_call *call, struct err *err)
{
	s3_start(s3, fetch, call);
	while (call->fetch.is_running) {
		fetch_step(fetch, 100 * MSEC_US);
		if (!call->fetch.is_running || !call->is_interrupted || !atomic_load(call->is_interrupted))
			continue;
		fetch_cancel(fetch, &call->fetch);
		call->answer = call->fetch.answer;
		err_set(&call->err, ERR_WAITING, "a call to the bucket was interrupted");
	}
	if (call->err.code == ERR_NONE)
		return 0;
	if (err)
		*err = call->err;
	return -(int)call->err.code;
}
