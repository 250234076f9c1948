#include "folder/stored.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "sys/fetch.h"
#include "sys/fs.h"

#define ANSWER_MAX     (16 * MIB)
#define READ_BYTES     (256 * KIB)
#define NOTE_LINE_MAX  128 /* "# seq digest" */
#define URL_SIZE       1024
#define GIVE_UP_US     (60 * SEC_US)
#define STEP_US        (100 * MSEC_US)
#define HEADER_SIZE    300
#define MANIFEST_BYTES ((uint64_t)64 * GIB) /* of the text: 10 million entries of the longest lines fit */

bool stored_is_interrupted(const struct stored_place *place)
{
	return place->is_interrupted != NULL && atomic_load(place->is_interrupted);
}

/* --- patience --- */

int64_t stored_give_up_us(const struct stored_place *place)
{
	return place->give_up_us > 0 ? place->give_up_us : GIVE_UP_US;
}

void stored_waiting_text(const struct stored_place *place, int64_t silent_us, const struct err *last,
			 char target[STORED_TEXT_SIZE])
{
	bool is_any = last->code != ERR_NONE;

	snprintf(target, STORED_TEXT_SIZE, "nothing has come from the scheduler at %.100s for %lld s%s%.200s",
		 place->url, (long long)(silent_us / SEC_US), is_any ? "; last: " : "", is_any ? last->text : "");
}

int stored_given_up(const struct stored_place *place, int64_t silent_us, const struct err *last, struct err *err)
{
	char text[STORED_TEXT_SIZE];

	stored_waiting_text(place, silent_us, last, text);
	err_set(err, ERR_TIMEOUT, "%s", text);
	err_hint(err, "is the scheduler well? what was asked for can be asked for again at any time");
	return -(int)ERR_TIMEOUT;
}

/* --- reading --- the manifest's own lines go to its parser; a file waits for the line with its digest, which follows at once --- */

struct reader {
	struct manifest_parser *parser;
	enum digest_kind digest;
	stored_entry_fn *on_entry;
	void *owner;
	struct manifest_entry file; /* its path is in `path` */
	bool is_file_waiting;
	bool is_line_begun, is_note;
	char note[NOTE_LINE_MAX];
	size_t note_size;
	uint64_t file_count, entry_count, total_bytes;
	char path[MANIFEST_PATH_MAX + 1];
};

static int no_digest(const struct reader *reader, struct err *err)
{
	return err_set(err, ERR_MANIFEST_BAD, "entry %" PRIu64 " of the manifest is a file without its digest",
		       reader->file.seq);
}

static int on_parsed(void *owner, const struct manifest_entry *entry, struct err *err)
{
	struct reader *reader = owner;

	if (reader->is_file_waiting)
		return no_digest(reader, err);
	reader->entry_count++;
	if (entry->type != MANIFEST_FILE)
		return reader->on_entry(reader->owner, entry, "", err);
	reader->file = *entry;
	MUST(str_copy(entry->path, reader->path, sizeof(reader->path)));
	reader->file.path = (struct str){ reader->path, entry->path.size };
	reader->is_file_waiting = true;
	reader->file_count++;
	reader->total_bytes += entry->size_bytes;
	return 0;
}

static int take_note(struct reader *reader, struct err *err)
{
	struct str rest = { reader->note, reader->note_size }, mark, seq_text;
	char hex[DIGEST_HEX_SIZE];
	uint64_t seq;
	bool is_good = str_cut(&rest, ' ', &mark) && str_eq_c(mark, "#") && str_cut(&rest, ' ', &seq_text) &&
		       str_to_u64(seq_text, &seq) && digest_hex_is_valid(reader->digest, rest) &&
		       str_copy(rest, hex, sizeof(hex));

	if (!is_good || !reader->is_file_waiting || seq != reader->file.seq)
		return err_set(err, ERR_MANIFEST_BAD,
			       "a line that begins with # is not the digest of the file before it");
	reader->is_file_waiting = false;
	return reader->on_entry(reader->owner, &reader->file, hex, err);
}

/* A piece of a line, with its end when that has come. */
static int take_part(struct reader *reader, struct str part, struct err *err)
{
	bool is_end = part.data[part.size - 1] == '\n';

	if (!reader->is_line_begun) {
		reader->is_note = part.data[0] == '#';
		reader->note_size = 0;
	}
	reader->is_line_begun = !is_end;
	if (!reader->is_note)
		return manifest_feed(reader->parser, part, err);
	size_t size = part.size - is_end;
	if (size > sizeof(reader->note) - reader->note_size)
		return err_set(err, ERR_MANIFEST_BAD, "a line that begins with # is longer than any digest's");
	memcpy(reader->note + reader->note_size, part.data, size);
	reader->note_size += size;
	return is_end ? take_note(reader, err) : 0;
}

static int reader_feed(struct reader *reader, struct str piece, struct err *err)
{
	while (piece.size > 0) {
		const char *end = memchr(piece.data, '\n', piece.size);
		size_t size = end ? (size_t)(end - piece.data) + 1 : piece.size;
		int result = take_part(reader, (struct str){ piece.data, size }, err);
		if (result < 0)
			return result;
		piece.data += size;
		piece.size -= size;
	}
	return 0;
}

static int reader_end(struct reader *reader, struct err *err)
{
	int result = manifest_end(reader->parser, err);

	if (result < 0)
		return result;
	if (reader->is_line_begun)
		return err_set(err, ERR_MANIFEST_BAD, "the manifest's last line has no end");
	return reader->is_file_waiting ? no_digest(reader, err) : 0;
}

static struct reader *reader_new(enum digest_kind digest, stored_entry_fn *on_entry, void *owner)
{
	struct reader *reader = must_zalloc(1, sizeof(*reader));

	reader->parser = manifest_parser_new(&manifest_limits_default, on_parsed, reader);
	reader->digest = digest;
	reader->on_entry = on_entry;
	reader->owner = owner;
	return reader;
}

static void reader_free(struct reader **reader)
{
	manifest_parser_free(&(*reader)->parser);
	free(*reader);
	*reader = NULL;
}

static int read_file(int fd, struct reader *reader, struct err *err)
{
	char *block = must_alloc(READ_BYTES);
	int64_t offset = 0;
	size_t got = 0;
	int result;

	do {
		result = fs_read_all(fd, block, READ_BYTES, offset, &got, err);
		if (result == 0)
			result = reader_feed(reader, (struct str){ block, got }, err);
		offset += (int64_t)got;
	} while (result == 0 && got == READ_BYTES);
	free(block);
	return result < 0 ? result : reader_end(reader, err);
}

int stored_each(const struct stored *stored, stored_entry_fn *on_entry, void *owner, struct err *err)
{
	struct reader *reader = reader_new(stored->digest, on_entry, owner);
	int result = read_file(stored->manifest_fd, reader, err);

	reader_free(&reader);
	return result;
}

/* --- fetching --- */

struct call_watch {
	int64_t life_us; /* when something last came */
	bool is_over;
};

struct manifest_get {
	struct call_watch watch; /* the first: a call's owner */
	const struct stored_place *place;
	struct reader *reader;
	int fd;
	uint64_t size_bytes;
};

static void call_done(struct fetch *fetch, struct fetch_call *call)
{
	struct call_watch *watch = call->owner;

	(void)fetch;
	watch->is_over = true;
}

/* Runs the call to its end, to the user's word, or to that of patience. */
static int wait_for(struct fetch *fetch, const struct stored_place *place, struct fetch_call *call, struct err *err)
{
	struct call_watch *watch = call->owner;
	const int64_t give_up_us = stored_give_up_us(place);
	const struct err none = ERR_INIT;
	char text[STORED_TEXT_SIZE];
	int result = 0;

	watch->life_us = clock_mono_us();
	/* It is given up here, and not by chance a moment earlier. */
	call->stall_timeout_us = give_up_us + SEC_US;
	call->done = call_done;
	fetch_start(fetch, call);
	while (!watch->is_over && result == 0) {
		fetch_step(fetch, STEP_US);
		int64_t silent_us = clock_mono_us() - watch->life_us;
		if (watch->is_over)
			break;
		if (stored_is_interrupted(place))
			result = err_set(err, ERR_WAITING, "interrupted");
		else if (silent_us >= give_up_us)
			result = stored_given_up(place, silent_us, &none, err);
		if (result != 0 || silent_us < STORED_SILENCE_US || !place->waiting)
			continue;
		stored_waiting_text(place, silent_us, &none, text);
		place->waiting(place->owner, text);
	}
	if (result < 0) {
		fetch_cancel(fetch, call);
		return result;
	}
	*err = call->err;
	return -(int)call->err.code;
}

static bool take_manifest(struct fetch_call *call, struct str piece)
{
	struct manifest_get *get = call->owner;
	int result = 0;

	get->watch.life_us = clock_mono_us();
	get->size_bytes += piece.size;
	if (stored_is_interrupted(get->place))
		result = err_set(&call->err, ERR_WAITING, "interrupted");
	else if (get->size_bytes > MANIFEST_BYTES)
		result = err_set(&call->err, ERR_LIMIT, "the manifest has more than %" PRIu64 " bytes", MANIFEST_BYTES);
	if (result == 0)
		result = reader_feed(get->reader, piece, &call->err);
	if (result == 0)
		result = fs_write_all(get->fd, piece.data, piece.size, -1, &call->err);
	return result == 0;
}

static int ask(struct fetch *fetch, const struct stored_place *place, const char *what, struct manifest_get *get,
	       struct buf *ret_answer, struct err *err)
{
	char url[URL_SIZE], header[HEADER_SIZE];
	struct fetch_call call = FETCH_CALL_INIT;
	struct call_watch watch = { .is_over = false };

	snprintf(url, sizeof(url), "%s/api/v1/transfers/%s%s", place->url, place->transfer_id, what);
	snprintf(header, sizeof(header), "X-Api-Key: %s", place->api_key);
	call.url = url;
	call.headers[0] = header;
	call.answer.limit = ANSWER_MAX;
	call.owner = get ? &get->watch : &watch;
	call.sink = get ? take_manifest : NULL;
	int result = wait_for(fetch, place, &call, err);
	if (result == 0 && ret_answer) {
		*ret_answer = call.answer;
		call.answer = BUF_INIT(0);
	}
	buf_fini(&call.answer);
	mem_wipe(header, sizeof(header));
	return result;
}

static int count_from(const json_t *root, const char *name, uint64_t *ret_count)
{
	const json_t *value = json_object_get(root, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -1;
	*ret_count = (uint64_t)json_integer_value(value);
	return 0;
}

static int read_facts(const json_t *root, struct stored *stored, struct err *err)
{
	const char *state = json_string_value(json_object_get(root, "state"));
	const char *digest = json_string_value(json_object_get(root, "digest"));
	char shown[64];

	if (!state || !digest || !digest_from_name(str_from(digest), &stored->digest) ||
	    count_from(root, "entries", &stored->entry_count) < 0 ||
	    count_from(root, "files", &stored->file_count) < 0 || count_from(root, "bytes", &stored->total_bytes) < 0)
		return err_set(err, ERR_PEER, "the scheduler's answer does not describe a transfer");
	const char *seal = json_string_value(json_object_get(root, "seal"));
	/* A scheduler from before there were any does not say it. */
	stored->is_sealed = seal && seal[0] != '\0';
	if (stored->is_sealed && !seal_label_parse(str_from(seal), &stored->cipher, stored->key_id))
		return err_set(err, ERR_PEER,
			       "the transfer's files are encrypted in a way that this heng does not know");
	stored->is_in_place = json_is_true(json_object_get(root, "is_in_place"));
	if (strcmp(state, "completed") != 0) {
		err_set(err, ERR_STATE, "the transfer is %s, not completed",
			str_display(str_from(state), shown, sizeof(shown)));
		err_hint(err, "heng status shows how far it is");
		return -(int)ERR_STATE;
	}
	return 0;
}

static int ask_facts(struct fetch *fetch, const struct stored_place *place, struct stored *stored, struct err *err)
{
	struct buf answer = BUF_INIT(ANSWER_MAX);
	int result = ask(fetch, place, "", NULL, &answer, err);

	if (result < 0)
		return result;
	json_t *root = json_loadb(answer.data ? answer.data : "", answer.size, JSON_REJECT_DUPLICATES, NULL);
	result = read_facts(root, stored, err);
	json_decref(root);
	buf_fini(&answer);
	return result;
}

static int skip_entry(void *owner, const struct manifest_entry *entry, const char *digest, struct err *err)
{
	(void)owner, (void)entry, (void)digest, (void)err;
	return 0;
}

static int ask_manifest(struct fetch *fetch, const struct stored_place *place, struct stored *stored, struct err *err)
{
	struct manifest_get get = { .place = place, .fd = stored->manifest_fd };

	get.reader = reader_new(stored->digest, skip_entry, NULL);
	int result = ask(fetch, place, "/manifest", &get, NULL, err);
	if (result == 0)
		result = reader_end(get.reader, err);
	if (result == 0 &&
	    (get.reader->entry_count != stored->entry_count || get.reader->file_count != stored->file_count ||
	     get.reader->total_bytes != stored->total_bytes))
		result = err_set(err, ERR_PEER, "the manifest and the transfer differ in their numbers of entries");
	reader_free(&get.reader);
	return result < 0 ? err_wrap(err, "fetching the manifest") : 0;
}

int stored_open(const struct stored_place *place, struct stored *ret_stored, struct err *err)
{
	struct fetch *fetch = NULL;

	*ret_stored = (struct stored){ .manifest_fd = -1 };
	int result = fetch_new(&fetch, err);
	if (result < 0)
		return result;
	fetch_use_tls(fetch, place->tls);
	result = ask_facts(fetch, place, ret_stored, err);
	if (result == 0) {
		ret_stored->manifest_fd = fs_temp_file(err);
		result = ret_stored->manifest_fd < 0 ? ret_stored->manifest_fd : 0;
	}
	if (result == 0)
		result = ask_manifest(fetch, place, ret_stored, err);
	fetch_free(&fetch);
	if (result < 0)
		stored_close(ret_stored);
	return result;
}

int stored_key(const struct stored *stored, const char *key_file, struct key_file **ret_key, struct err *err)
{
	*ret_key = NULL;
	if (!stored->is_sealed)
		return err_set(err, ERR_USAGE, "the transfer's files are not encrypted");
	enum seal_cipher cipher;
	if (!seal_cipher_from_name(str_from(seal_cipher_name(stored->cipher)), &cipher))
		return err_set(err, ERR_USAGE, "the transfer was encrypted with %s, which this machine's OpenSSL lacks",
			       seal_cipher_name(stored->cipher));
	const int result = key_file_load(key_file, ret_key, err);
	if (result < 0 || strcmp((*ret_key)->id, stored->key_id) == 0)
		return result;
	err_set(err, ERR_USAGE, "the key in '%.300s' is %s, but the transfer was encrypted with %s", key_file,
		(*ret_key)->id, stored->key_id);
	key_file_free(ret_key);
	return -(int)ERR_USAGE;
}

void stored_close(struct stored *stored) { fs_close(&stored->manifest_fd); }
