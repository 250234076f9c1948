/* One delivery: the same facts as JSON, given to a command (on its input, and the most wanted in its environment) or posted. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "folder/hook_impl.h"
#include "sys/spawn.h"

#define BODY_MAX     (256 * KIB)
#define ENV_MAX      (256 * KIB)
#define ENV_WORDS    24
#define OUTPUT_MAX   ((size_t)4 * KIB)
#define OUTPUT_LINES 20
#define HEADER_SIZE  256
#define SHOWN_SIZE   200

/* "<transfer>.<hook>", "<transfer>.<hook>.<seq>": the same however often it is told, so that a receiver knows it again. */
static void delivery_id(const struct hook *hook, const struct store_transfer *transfer, const struct hook_file *file,
			char target[HEADER_SIZE])
{
	if (file)
		snprintf(target, HEADER_SIZE, "%s.%s.%" PRIu64, transfer->id, hook->name, file->seq);
	else
		snprintf(target, HEADER_SIZE, "%s.%s", transfer->id, hook->name);
}

struct places {
	char final[HOOK_PLACE_SIZE], manifest[HOOK_PLACE_SIZE];
};

static int find_places(const struct hook *hook, const struct store_transfer *transfer, struct places *places,
		       struct err *err)
{
	const char *base = hook->hooks->final_place;

	if (snprintf(places->final, HOOK_PLACE_SIZE, "%s/%s", base, transfer->batch) >= HOOK_PLACE_SIZE ||
	    snprintf(places->manifest, HOOK_PLACE_SIZE, "%s/.heng/%s.manifest", base, transfer->batch) >=
		    HOOK_PLACE_SIZE)
		return err_set(err, ERR_CONFIG, "the path of the final store is too long");
	return 0;
}

/* A name as text where it is text, and its bytes percent-encoded whatever it is. */
static void json_name(struct json *json, const char *key, const char *key_enc, const char *name)
{
	struct str text = str_from(name);
	size_t most = 3 * text.size + 1;
	char *encoded = must_alloc(most);

	json_str(json, key, text);
	(void)percent_encode(text, true, encoded, most);
	json_c(json, key_enc, encoded);
	free(encoded);
}

static void json_file(struct json *json, const struct hook_file *file)
{
	char mode[16];

	snprintf(mode, sizeof(mode), "%o", file->mode);
	json_open(json, "file");
	json_u64(json, "seq", file->seq);
	json_name(json, "path", "path_enc", file->path);
	json_u64(json, "bytes", file->size_bytes);
	json_c(json, "digest", file->digest);
	json_c(json, "mode", mode);
	json_i64(json, "mtime_ns", file->mtime_ns);
	json_close(json);
}

static void write_body(const struct hook *hook, const struct store_transfer *transfer, const struct hook_file *file,
		       const struct places *places, uint64_t try_count, struct buf *body)
{
	char id[HEADER_SIZE];
	struct json json;

	delivery_id(hook, transfer, file, id);
	json_init(&json, body);
	json_open(&json, NULL);
	json_c(&json, "delivery", id);
	json_c(&json, "event", file ? "file" : "transfer");
	json_c(&json, "hook", hook->name);
	json_u64(&json, "try", try_count);
	json_c(&json, "transfer_id", transfer->id);
	json_c(&json, "user", transfer->user);
	json_name(&json, "batch", "batch_enc", transfer->batch);
	json_name(&json, "final", "final_enc", places->final);
	json_name(&json, "manifest", "manifest_enc", places->manifest);
	json_c(&json, "digest", digest_name(transfer->digest));
	json_u64(&json, "entries", transfer->entry_count);
	json_u64(&json, "files", transfer->file_count);
	json_u64(&json, "bytes", transfer->total_bytes);
	json_i64(&json, "completed_us", transfer->completed_wall_us);
	if (file)
		json_file(&json, file);
	json_close(&json);
}

/* --- a command --- */

/* Words of an environment, one behind the other in a buffer that may move while it grows. */
struct words {
	struct buf texts;
	size_t at[ENV_WORDS], count;
};

static void PRINTF(2, 3) add_word(struct words *words, const char *fmt, ...)
{
	va_list args, again;

	va_start(args, fmt);
	va_copy(again, args);
	int size = vsnprintf(NULL, 0, fmt, args);
	MUST(words->count < ENV_WORDS && size >= 0);
	words->at[words->count++] = words->texts.size;
	if (buf_reserve(&words->texts, (size_t)size + 1)) {
		(void)vsnprintf(words->texts.data + words->texts.size, (size_t)size + 1, fmt, again);
		words->texts.size += (size_t)size + 1;
	}
	va_end(again);
	va_end(args);
}

static void write_env(const struct hook *hook, const struct store_transfer *transfer, const struct hook_file *file,
		      const struct places *places, uint64_t try_count, struct words *words)
{
	char id[HEADER_SIZE];

	delivery_id(hook, transfer, file, id);
	add_word(words, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	add_word(words, "LANG=C.UTF-8");
	add_word(words, "HENG_DELIVERY=%s", id);
	add_word(words, "HENG_EVENT=%s", file ? "file" : "transfer");
	add_word(words, "HENG_HOOK=%s", hook->name);
	add_word(words, "HENG_TRY=%" PRIu64, try_count);
	add_word(words, "HENG_TRANSFER=%s", transfer->id);
	add_word(words, "HENG_USER=%s", transfer->user);
	add_word(words, "HENG_BATCH=%s", transfer->batch);
	add_word(words, "HENG_FINAL=%s", places->final);
	add_word(words, "HENG_MANIFEST=%s", places->manifest);
	add_word(words, "HENG_FILES=%" PRIu64, transfer->file_count);
	add_word(words, "HENG_BYTES=%" PRIu64, transfer->total_bytes);
	if (!file)
		return;
	add_word(words, "HENG_FILE=%s", file->path);
	add_word(words, "HENG_FILE_FINAL=%s/%s", places->final, file->path);
	add_word(words, "HENG_FILE_SEQ=%" PRIu64, file->seq);
	add_word(words, "HENG_FILE_BYTES=%" PRIu64, file->size_bytes);
	add_word(words, "HENG_FILE_DIGEST=%s", file->digest);
}

/* What it said, line by line: some of it, for whoever wants to know why it failed. */
static void log_output(const struct hook *hook, const char *transfer_id, const struct spawn *spawn)
{
	struct str rest = buf_str(&spawn->output), line;
	char shown[600];

	for (unsigned i = 0; i < OUTPUT_LINES && str_cut(&rest, '\n', &line); i++)
		log_say(LOG_INFO, "hook %s, transfer %s: %s", hook->name, transfer_id,
			str_display(line, shown, sizeof(shown)));
	if (rest.size > 0 || spawn->is_output_cut)
		log_say(LOG_INFO, "hook %s, transfer %s: (and more)", hook->name, transfer_id);
}

static int call_command(struct hook *hook, const struct store_transfer *transfer, struct words *words, struct str body,
			struct err *err)
{
	const char *env[ENV_WORDS + 1] = { NULL };
	struct spawn spawn = { .argv = (const char *const *)hook->argv,
			       .env = env,
			       .input = body,
			       .timeout_us = hook->timeout_us,
			       .is_interrupted = &hook->hooks->is_stopping,
			       .output = BUF_INIT(OUTPUT_MAX) };

	if (words->texts.is_failed)
		return err_set(err, ERR_NO_MEMORY, "no memory for the command's environment");
	for (size_t i = 0; i < words->count; i++)
		env[i] = words->texts.data + words->at[i];
	int result = spawn_run(&spawn, err);
	log_output(hook, transfer->id, &spawn);
	buf_fini(&spawn.output);
	return result;
}

/* --- a webhook --- */

/* What names a server of a URL: "https://host:port". What stands before and behind it may be what lets in. */
static void shown_url(const char *url, char target[SHOWN_SIZE])
{
	const char *host = strstr(url, "://");

	host = host ? host + strlen("://") : url;
	int scheme_size = (int)(host - url);
	size_t size = strcspn(host, "/?#");
	const char *at = memrchr(host, '@', size);
	if (at) {
		size -= (size_t)(at + 1 - host);
		host = at + 1;
	}
	snprintf(target, SHOWN_SIZE, "%.*s%.*s", scheme_size, url, (int)size, host);
}

/* A failure stands in the log, in the audit and in what users are told of their transfers, and many a webhook's path is all its secret. */
static int webhook_failed(const char *url, const struct fetch_call *call, struct err *err)
{
	const struct err cause = call->err;
	char shown[SHOWN_SIZE];

	shown_url(url, shown);
	if (call->status > 0)
		return err_set(err, ERR_REFUSED, "%s answered with the status %d", shown, call->status);
	if (cause.code == ERR_WAITING)
		return err_set(err, ERR_WAITING, "POST to %s was interrupted", shown);
	err_set(err, cause.code, "POST to %s: %s", shown, call->reason[0] ? call->reason : "it could not be sent");
	if (cause.hint[0])
		err_hint(err, "%s", cause.hint);
	return -(int)cause.code;
}

/* Whatever it says with its yes, and however much: the status is the answer. */
static bool pass_over(struct fetch_call *call UNUSED, struct str piece UNUSED) { return true; }

static int call_webhook(struct hook *hook, const char *id, struct str body, struct err *err)
{
	char delivery[HEADER_SIZE + 24], timestamp[64], signature[128], hex[2 * MAC_SIZE + 1];
	struct fetch_call call = FETCH_CALL_INIT;
	struct buf signed_text = BUF_INIT(BODY_MAX + 64);
	long long now = (long long)(clock_wall_us() / SEC_US);
	uint8_t mac[MAC_SIZE];

	snprintf(delivery, sizeof(delivery), "X-Heng-Delivery: %s", id);
	snprintf(timestamp, sizeof(timestamp), "X-Heng-Timestamp: %lld", now);
	call.method = "POST";
	call.url = hook->webhook;
	call.headers[0] = "Content-Type: application/json";
	call.headers[1] = delivery;
	call.headers[2] = timestamp;
	call.body = body;
	call.timeout_us = hook->timeout_us;
	call.stall_timeout_us = hook->timeout_us; /* it may think in silence for as long */
	call.sink = pass_over;
	call.is_interrupted = &hook->hooks->is_stopping;
	if (hook->secret_size > 0) {
		/* With the time in it, so that one that was overheard is not good for ever. */
		buf_printf(&signed_text, "%lld.", now);
		buf_append(&signed_text, body);
		mac_sha256(hook->secret, hook->secret_size, signed_text.data, signed_text.size, mac);
		hex_encode(mac, sizeof(mac), hex);
		snprintf(signature, sizeof(signature), "X-Heng-Signature: sha256=%s", hex);
		call.headers[3] = signature;
	}
	int result = fetch_do(hook->fetch, &call, err);
	if (call.status >= 200 && call.status < 300)
		result = 0; /* even where the rest of what it said broke off */
	else if (result < 0)
		result = webhook_failed(hook->webhook, &call, err);
	buf_fini(&signed_text);
	buf_fini(&call.answer);
	return result;
}

int hook_call(struct hook *hook, const struct store_transfer *transfer, const struct hook_file *file,
	      uint64_t try_count, struct err *err)
{
	struct places *places = must_alloc(sizeof(*places));
	struct words words = { .texts = BUF_INIT(ENV_MAX) };
	struct buf body = BUF_INIT(BODY_MAX);
	char id[HEADER_SIZE];

	int result = find_places(hook, transfer, places, err);
	if (result == 0) {
		write_body(hook, transfer, file, places, try_count, &body);
		if (body.is_failed)
			result = err_set(err, ERR_NO_MEMORY, "no memory for what is to be told");
	}
	if (result == 0 && hook->argv[0]) {
		write_env(hook, transfer, file, places, try_count, &words);
		result = call_command(hook, transfer, &words, buf_str(&body), err);
	} else if (result == 0) {
		delivery_id(hook, transfer, file, id);
		result = call_webhook(hook, id, buf_str(&body), err);
	}
	buf_fini(&words.texts);
	buf_fini(&body);
	free(places);
	return result;
}
