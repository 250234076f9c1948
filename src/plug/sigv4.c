#include "plug/sigv4.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "base/mem.h"

#define ALGORITHM     "AWS4-HMAC-SHA256"
#define CANONICAL_MAX (256 * KIB)
#define SECRET_MAX    256
#define DATE_SIZE     8
#define LINE_SIZE     512

void sigv4_time(int64_t wall_us, char target[SIGV4_TIME_SIZE])
{
	time_t seconds = (time_t)(wall_us / SEC_US);
	struct tm parts;

	if (!gmtime_r(&seconds, &parts) || strftime(target, SIGV4_TIME_SIZE, "%Y%m%dT%H%M%SZ", &parts) == 0)
		target[0] = '\0';
}

/* --- sorted pairs --- */

static int compare_bytes(struct str a, struct str b)
{
	size_t size = min_size(a.size, b.size);
	int order = size > 0 ? memcmp(a.data, b.data, size) : 0;

	return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* Where the encoded (or lower-case) forms lie in a buffer of texts, which may move while it grows. */
struct placed {
	size_t name_at, name_size, value_at, value_size;
};

static struct str name_of(const struct buf *texts, const struct placed *pair)
{
	return (struct str){ texts->data + pair->name_at, pair->name_size };
}

static struct str value_of(const struct buf *texts, const struct placed *pair)
{
	return (struct str){ texts->data + pair->value_at, pair->value_size };
}

/* Few pairs, mostly in order already. Equal ones stay as they came. */
static void sort_pairs(const struct buf *texts, struct placed *pairs, size_t count, bool is_by_value_too)
{
	for (size_t i = 1; i < count; i++) {
		struct placed pair = pairs[i];
		size_t at = i;

		for (; at > 0; at--) {
			int order = compare_bytes(name_of(texts, &pairs[at - 1]), name_of(texts, &pair));
			if (order == 0 && is_by_value_too)
				order = compare_bytes(value_of(texts, &pairs[at - 1]), value_of(texts, &pair));
			if (order <= 0)
				break;
			pairs[at] = pairs[at - 1];
		}
		pairs[at] = pair;
	}
}

static int full(struct err *err) { return err_set(err, ERR_LIMIT, "the request is too large to be signed"); }

/* --- path and query --- */

static void append_encoded(struct buf *buf, struct str text, bool keep_slash)
{
	size_t most = 3 * text.size + 1;

	if (buf_reserve(buf, most))
		buf->size += percent_encode(text, keep_slash, buf->data + buf->size, most);
}

static int append_query(const struct sigv4_request *request, struct buf *text, struct err *err)
{
	struct placed pairs[SIGV4_PAIRS_MAX];
	struct buf texts = BUF_INIT(CANONICAL_MAX);

	if (request->query_count > SIGV4_PAIRS_MAX)
		return full(err);
	for (size_t i = 0; i < request->query_count; i++) {
		pairs[i].name_at = texts.size;
		append_encoded(&texts, request->queries[i].name, false);
		pairs[i].name_size = texts.size - pairs[i].name_at;
		pairs[i].value_at = texts.size;
		append_encoded(&texts, request->queries[i].value, false);
		pairs[i].value_size = texts.size - pairs[i].value_at;
	}
	if (!texts.is_failed)
		sort_pairs(&texts, pairs, request->query_count, true);
	for (size_t i = 0; i < request->query_count && !texts.is_failed; i++) {
		if (i > 0)
			buf_append_c(text, "&");
		buf_append(text, name_of(&texts, &pairs[i]));
		buf_append_c(text, "=");
		buf_append(text, value_of(&texts, &pairs[i]));
	}
	bool is_failed = texts.is_failed || text->is_failed;
	buf_fini(&texts);
	return is_failed ? full(err) : 0;
}

int sigv4_target(const struct sigv4_request *request, struct buf *ret_target, struct err *err)
{
	append_encoded(ret_target, request->path, true);
	if (request->query_count > 0)
		buf_append_c(ret_target, "?");
	return append_query(request, ret_target, err);
}

/* --- headers --- */

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static int append_name(struct buf *texts, struct str name, struct err *err)
{
	if (name.size == 0)
		return err_set(err, ERR_BAD_REQUEST, "a header without a name cannot be signed");
	for (size_t i = 0; i < name.size; i++) {
		char c = name.data[i];
		if (!is_name_char(c))
			return err_set(err, ERR_BAD_REQUEST, "a header's name has a byte that no name has");
		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		buf_append(texts, (struct str){ &c, 1 });
	}
	return 0;
}

/* Without spaces at its ends, and with one where there are several. */
static int append_value(struct buf *texts, struct str value, struct err *err)
{
	value = str_trim(value);
	for (size_t i = 0; i < value.size; i++) {
		char c = value.data[i];
		if (c == '\r' || c == '\n' || c == '\0')
			return err_set(err, ERR_BAD_REQUEST, "a header's value has a byte that no value has");
		if (c != ' ' || value.data[i - 1] != ' ')
			buf_append(texts, (struct str){ &c, 1 });
	}
	return 0;
}

static int place_headers(const struct sigv4_request *request, struct buf *texts, struct placed pairs[SIGV4_PAIRS_MAX],
			 struct err *err)
{
	if (request->header_count > SIGV4_PAIRS_MAX)
		return full(err);
	for (size_t i = 0; i < request->header_count; i++) {
		pairs[i].name_at = texts->size;
		int result = append_name(texts, request->headers[i].name, err);
		pairs[i].name_size = texts->size - pairs[i].name_at;
		pairs[i].value_at = texts->size;
		if (result == 0)
			result = append_value(texts, request->headers[i].value, err);
		pairs[i].value_size = texts->size - pairs[i].value_at;
		if (result < 0)
			return result;
	}
	if (texts->is_failed)
		return full(err);
	sort_pairs(texts, pairs, request->header_count, false);
	return 0;
}

static bool is_repeated(const struct buf *texts, const struct placed *pairs, size_t i)
{
	return i > 0 && str_eq(name_of(texts, &pairs[i - 1]), name_of(texts, &pairs[i]));
}

/* "host;x-amz-date": repeated ones once. */
static void append_names(const struct buf *texts, const struct placed *pairs, size_t count, struct buf *text)
{
	for (size_t i = 0; i < count; i++) {
		if (is_repeated(texts, pairs, i))
			continue;
		if (i > 0)
			buf_append_c(text, ";");
		buf_append(text, name_of(texts, &pairs[i]));
	}
}

static void append_headers(const struct buf *texts, const struct placed *pairs, size_t count, struct buf *text)
{
	for (size_t i = 0; i < count; i++) {
		if (is_repeated(texts, pairs, i)) {
			buf_append_c(text, ",");
		} else {
			buf_append_c(text, i > 0 ? "\n" : "");
			buf_append(text, name_of(texts, &pairs[i]));
			buf_append_c(text, ":");
		}
		buf_append(text, value_of(texts, &pairs[i]));
	}
	buf_append_c(text, count > 0 ? "\n" : "");
}

int sigv4_canonical(const struct sigv4_request *request, struct buf *ret_text, struct err *err)
{
	struct placed pairs[SIGV4_PAIRS_MAX];
	struct buf texts = BUF_INIT(CANONICAL_MAX);

	if ((request->payload.size > 0 && memchr(request->payload.data, '\n', request->payload.size)) ||
	    strchr(request->method, '\n'))
		return err_set(err, ERR_BAD_REQUEST, "a request with a line break where none may be cannot be signed");
	int result = place_headers(request, &texts, pairs, err);
	if (result == 0) {
		buf_printf(ret_text, "%s\n", request->method);
		append_encoded(ret_text, request->path, true);
		buf_append_c(ret_text, "\n");
		result = append_query(request, ret_text, err);
	}
	if (result == 0) {
		buf_append_c(ret_text, "\n");
		append_headers(&texts, pairs, request->header_count, ret_text);
		buf_append_c(ret_text, "\n");
		append_names(&texts, pairs, request->header_count, ret_text);
		buf_append_c(ret_text, "\n");
		buf_append(ret_text, request->payload);
		if (ret_text->is_failed)
			result = full(err);
	}
	buf_fini(&texts);
	return result;
}

/* --- the signature --- */

/* A chain of MACs, so that a key that leaks is good for one day, region and service only. */
static int derive_key(const struct sigv4_scope *scope, uint8_t key[MAC_SIZE], struct err *err)
{
	char first[SECRET_MAX + 8];

	if (scope->secret.size > SECRET_MAX)
		return err_set(err, ERR_CONFIG, "the secret key is longer than %d bytes", SECRET_MAX);
	int size = snprintf(first, sizeof(first), "AWS4%.*s", STR_ARG(scope->secret));
	mac_sha256(first, (size_t)size, scope->time, DATE_SIZE, key);
	mac_sha256(key, MAC_SIZE, scope->region, strlen(scope->region), key);
	mac_sha256(key, MAC_SIZE, scope->service, strlen(scope->service), key);
	mac_sha256(key, MAC_SIZE, "aws4_request", strlen("aws4_request"), key);
	mem_wipe(first, sizeof(first));
	return 0;
}

int sigv4_sign(const struct sigv4_scope *scope, const struct sigv4_request *request, char target[SIGV4_SIGNATURE_SIZE],
	       struct err *err)
{
	struct buf canonical = BUF_INIT(CANONICAL_MAX);
	uint8_t key[MAC_SIZE], mac[MAC_SIZE];
	char digest[DIGEST_HEX_SIZE], text[LINE_SIZE];

	if (strlen(scope->time) != SIGV4_TIME_SIZE - 1)
		return err_set(err, ERR_BAD_REQUEST, "'%.40s' is not a time to sign for", scope->time);
	int result = sigv4_canonical(request, &canonical, err);
	if (result == 0) {
		digest_of(DIGEST_SHA256, canonical.data, canonical.size, digest);
		int size = snprintf(text, sizeof(text), ALGORITHM "\n%s\n%.*s/%s/%s/aws4_request\n%s", scope->time,
				    DATE_SIZE, scope->time, scope->region, scope->service, digest);
		result = size < (int)sizeof(text) ? derive_key(scope, key, err) : full(err);
	}
	if (result == 0) {
		mac_sha256(key, sizeof(key), text, strlen(text), mac);
		hex_encode(mac, sizeof(mac), target);
	}
	mem_wipe(key, sizeof(key));
	buf_fini(&canonical);
	return result;
}

int sigv4_authorization(const struct sigv4_scope *scope, const struct sigv4_request *request, struct buf *ret_value,
			struct err *err)
{
	struct placed pairs[SIGV4_PAIRS_MAX];
	struct buf texts = BUF_INIT(CANONICAL_MAX);
	char signature[SIGV4_SIGNATURE_SIZE];

	int result = sigv4_sign(scope, request, signature, err);
	if (result == 0)
		result = place_headers(request, &texts, pairs, err);
	if (result == 0) {
		buf_printf(ret_value,
			   ALGORITHM " Credential=%.*s/%.*s/%s/%s/aws4_request,SignedHeaders=", STR_ARG(scope->key_id),
			   DATE_SIZE, scope->time, scope->region, scope->service);
		append_names(&texts, pairs, request->header_count, ret_value);
		buf_printf(ret_value, ",Signature=%s", signature);
		if (ret_value->is_failed)
			result = full(err);
	}
	buf_fini(&texts);
	return result;
}
