#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/ticket.h"
#include "base/mem.h"

/* A ticket is base64url(MAC || fields). The fields are text, the user last since it is free text:
 *   1 <key id> <transfer id> <file id> <object bytes> <chunk bytes> <md5|sha256> <expires wall us> <user> */
#define TICKET_VERSION     "1"
#define FIELDS_SIZE_MAX    256
#define SIGNATURE_HEX_SIZE (2 * MAC_SIZE + 1)
#define MESSAGE_SIZE_MAX   256

uint64_t ticket_chunk_count(const struct ticket *ticket)
{
	if (ticket->object_bytes == 0 || ticket->chunk_bytes == 0)
		return 1;
	return ticket->object_bytes / ticket->chunk_bytes + (ticket->object_bytes % ticket->chunk_bytes != 0);
}

uint64_t ticket_chunk_size(const struct ticket *ticket, uint64_t chunk_index)
{
	const uint64_t count = ticket_chunk_count(ticket);

	if (chunk_index >= count)
		return 0;
	if (chunk_index + 1 < count)
		return ticket->chunk_bytes;
	return ticket->object_bytes - chunk_index * ticket->chunk_bytes;
}

/* Each use of a cluster key has a key of its own, so that a MAC made for one purpose never fits another. */
static void ticket_mac(const uint8_t cluster_key[TICKET_KEY_SIZE], const void *fields, size_t size,
		       uint8_t target[MAC_SIZE])
{
	uint8_t key[MAC_SIZE];

	mac_derive(cluster_key, TICKET_KEY_SIZE, STR("ticket"), key);
	mac_sha256(key, sizeof(key), fields, size, target);
	mem_wipe(key, sizeof(key));
}

void ticket_transfer_key(const uint8_t cluster_key[TICKET_KEY_SIZE], const char *transfer_id,
			 uint8_t target[TICKET_KEY_SIZE])
{
	char info[sizeof("transfer ") + ULID_SIZE];
	const int size = snprintf(info, sizeof(info), "transfer %.*s", ULID_SIZE - 1, transfer_id);

	mac_derive(cluster_key, TICKET_KEY_SIZE, (struct str){ info, (size_t)size }, target);
}

int ticket_issue(const struct ticket_keys *keys, const struct ticket *ticket, char target[TICKET_TEXT_SIZE],
		 struct err *err)
{
	uint8_t raw[MAC_SIZE + FIELDS_SIZE_MAX];
	char *fields = (char *)raw + MAC_SIZE;

	if (keys->count == 0)
		return err_set(err, ERR_CONFIG, "cannot issue a ticket: there is no cluster key");
	if (!ulid_is_valid(ticket->transfer_id, strlen(ticket->transfer_id)) || ticket->file_id == 0 ||
	    ticket->chunk_bytes == 0)
		return err_set(err, ERR_INTERNAL,
			       "cannot issue a ticket for transfer '%s', file %" PRIu64 ", chunks of %" PRIu64 " bytes",
			       ticket->transfer_id, ticket->file_id, ticket->chunk_bytes);
	const int size = snprintf(
		fields, FIELDS_SIZE_MAX,
		TICKET_VERSION " %" PRIu32 " %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %s %" PRId64 " %s",
		keys->keys[0].id, ticket->transfer_id, ticket->file_id, ticket->object_bytes, ticket->chunk_bytes,
		digest_name(ticket->digest), ticket->expires_wall_us, ticket->user);
	if (size < 0 || size >= FIELDS_SIZE_MAX)
		return err_set(err, ERR_INTERNAL, "cannot issue a ticket: its fields do not fit");
	ticket_mac(keys->keys[0].key, fields, (size_t)size, raw);
	base64url_encode(raw, MAC_SIZE + (size_t)size, target, TICKET_TEXT_SIZE);
	return 0;
}

static int ticket_bad(struct err *err, const char *why)
{
	err_set(err, ERR_TICKET_BAD, "the ticket is not valid: %s", why);
	err_hint(err, "ask the scheduler for a new ticket; if that fails too, do scheduler and node hold the same "
		      "cluster key file?");
	return -ERR_TICKET_BAD;
}

static bool parse_fields(struct str rest, struct ticket *ret)
{
	struct str version, key_id, transfer_id, file_id, object_bytes, chunk_bytes, digest, expires;
	struct str *const pieces[] = { &version,      &key_id,      &transfer_id, &file_id,
				       &object_bytes, &chunk_bytes, &digest,      &expires };
	uint64_t id;

	for (size_t i = 0; i < COUNT_OF(pieces); i++) {
		/* A space must follow each of these: the user, even an empty one, comes after it. */
		if (!rest.size || !memchr(rest.data, ' ', rest.size) || !str_cut(&rest, ' ', pieces[i]))
			return false;
	}
	if (!str_eq(version, STR(TICKET_VERSION)) || !str_to_u64(key_id, &id) || id > UINT32_MAX ||
	    !ulid_is_valid(transfer_id.data, transfer_id.size) ||
	    !str_copy(transfer_id, ret->transfer_id, sizeof(ret->transfer_id)))
		return false;
	ret->key_id = (uint32_t)id;
	return str_to_u64(file_id, &ret->file_id) && ret->file_id != 0 &&
	       str_to_u64(object_bytes, &ret->object_bytes) && str_to_u64(chunk_bytes, &ret->chunk_bytes) &&
	       ret->chunk_bytes != 0 && digest_from_name(digest, &ret->digest) &&
	       str_to_i64(expires, &ret->expires_wall_us) && str_copy(rest, ret->user, sizeof(ret->user));
}

int ticket_open(const struct ticket_keys *keys, struct str text, struct ticket *ret_ticket, struct err *err)
{
	uint8_t raw[MAC_SIZE + FIELDS_SIZE_MAX];
	char again[TICKET_TEXT_SIZE];
	size_t size;
	uint32_t signer_id = 0;
	bool is_signed = false;

	memset(ret_ticket, 0, sizeof(*ret_ticket));
	if (text.size == 0 || text.size >= TICKET_TEXT_SIZE || !base64url_decode(text, raw, sizeof(raw), &size) ||
	    size <= MAC_SIZE)
		return ticket_bad(err, "its form");
	/* Spare bits of the last base64 digit would give one ticket several texts. */
	base64url_encode(raw, size, again, sizeof(again));
	if (!str_eq_c(text, again))
		return ticket_bad(err, "its form");
	const struct str fields = { (const char *)raw + MAC_SIZE, size - MAC_SIZE };
	for (size_t i = 0; i < keys->count; i++) {
		uint8_t mac[MAC_SIZE];

		ticket_mac(keys->keys[i].key, fields.data, fields.size, mac);
		if (str_eq_secret((struct str){ (const char *)mac, MAC_SIZE },
				  (struct str){ (const char *)raw, MAC_SIZE })) {
			is_signed = true;
			signer_id = keys->keys[i].id;
			break;
		}
	}
	if (!is_signed)
		return ticket_bad(err, "no cluster key of this node signed it");
	if (!parse_fields(fields, ret_ticket) || ret_ticket->key_id != signer_id) {
		memset(ret_ticket, 0, sizeof(*ret_ticket));
		return ticket_bad(err, "its fields");
	}
	return 0;
}

/* Returns the size of the text that is signed; 0 when it does not fit. */
static size_t sign_message(const struct ticket_request *request, struct str expiry, struct str nonce,
			   char target[MESSAGE_SIZE_MAX])
{
	const int size = snprintf(target, MESSAGE_SIZE_MAX, "%s %" PRIu64 " %" PRIu64 " %.*s %.*s %.*s %" PRIu64,
				  request->transfer_id, request->file_id, request->chunk_index, STR_ARG(expiry),
				  STR_ARG(nonce), STR_ARG(request->digest_hex), request->size_bytes);

	return size < 0 || size >= MESSAGE_SIZE_MAX ? 0 : (size_t)size;
}

int ticket_sign(struct str ticket_text, const uint8_t transfer_key[TICKET_KEY_SIZE],
		const struct ticket_request *request, int64_t expires_wall_us, char target[TICKET_TOKEN_SIZE],
		struct err *err)
{
	uint8_t secret[(TICKET_NONCE_SIZE - 1) / 2], mac[MAC_SIZE];
	char nonce[TICKET_NONCE_SIZE], expiry[24], message[MESSAGE_SIZE_MAX], signature[SIGNATURE_HEX_SIZE];

	target[0] = '\0';
	rng_secret(secret, sizeof(secret));
	hex_encode(secret, sizeof(secret), nonce);
	(void)snprintf(expiry, sizeof(expiry), "%" PRId64, max_i64(0, expires_wall_us / SEC_US));
	const size_t size = sign_message(request, str_from(expiry), str_from(nonce), message);
	if (size == 0)
		return err_set(err, ERR_INTERNAL, "cannot sign a chunk request: its fields do not fit");
	mac_sha256(transfer_key, TICKET_KEY_SIZE, message, size, mac);
	hex_encode(mac, sizeof(mac), signature);
	const int token_size = snprintf(target, TICKET_TOKEN_SIZE, "%.*s.%s.%s.%s", STR_ARG(ticket_text), expiry, nonce,
					signature);
	if (token_size < 0 || token_size >= TICKET_TOKEN_SIZE) {
		target[0] = '\0';
		return err_set(err, ERR_INTERNAL, "cannot sign a chunk request: a ticket of %zu bytes is too long",
			       ticket_text.size);
	}
	return 0;
}

static bool is_lower_hex(struct str text)
{
	for (size_t i = 0; i < text.size; i++) {
		const char c = text.data[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return true;
}

struct token {
	struct str ticket, expiry, nonce, signature;
	int64_t expires_wall_us;
};

static int split_token(struct str text, struct token *ret, struct err *err)
{
	uint64_t expires_s;

	if (text.size == 0)
		return err_set(err, ERR_UNAUTHENTICATED, "the request has no X-Auth-Token");
	if (text.size >= TICKET_TOKEN_SIZE || !str_cut(&text, '.', &ret->ticket) ||
	    !str_cut(&text, '.', &ret->expiry) || !str_cut(&text, '.', &ret->nonce))
		return ticket_bad(err, "X-Auth-Token is not <ticket>.<expiry>.<nonce>.<signature>");
	ret->signature = text;
	if (ret->nonce.size != TICKET_NONCE_SIZE - 1 || !is_lower_hex(ret->nonce) ||
	    ret->signature.size != SIGNATURE_HEX_SIZE - 1 || !is_lower_hex(ret->signature) ||
	    !str_to_u64(ret->expiry, &expires_s) || expires_s > INT64_MAX / SEC_US)
		return ticket_bad(err, "X-Auth-Token is not <ticket>.<expiry>.<nonce>.<signature>");
	ret->expires_wall_us = (int64_t)expires_s * SEC_US;
	return 0;
}

/* Under the transfer key of any cluster key: after a rotation, clients hold the older one for a while together with newer tickets. */
static bool signature_fits(const struct ticket_keys *keys, const struct token *token,
			   const struct ticket_request *request)
{
	char message[MESSAGE_SIZE_MAX], signature[SIGNATURE_HEX_SIZE];
	const size_t size = sign_message(request, token->expiry, token->nonce, message);
	bool fits = false;

	for (size_t i = 0; size > 0 && i < keys->count && !fits; i++) {
		uint8_t key[TICKET_KEY_SIZE], mac[MAC_SIZE];

		ticket_transfer_key(keys->keys[i].key, request->transfer_id, key);
		mac_sha256(key, sizeof(key), message, size, mac);
		mem_wipe(key, sizeof(key));
		hex_encode(mac, sizeof(mac), signature);
		fits = str_eq_secret(str_from(signature), token->signature);
	}
	return fits;
}

static int check_times(const struct ticket *ticket, const struct token *token, int64_t now_wall_us, int64_t skew_us,
		       struct err *err)
{
	if (ticket->expires_wall_us < now_wall_us - skew_us) {
		err_set(err, ERR_TICKET_EXPIRED, "the ticket ended %" PRId64 " s ago",
			(now_wall_us - ticket->expires_wall_us) / SEC_US);
		err_hint(err, "read the plan again: it carries fresh tickets");
		return -ERR_TICKET_EXPIRED;
	}
	if (token->expires_wall_us < now_wall_us - skew_us) {
		/* The ticket still holds, so the time of signing is what is wrong: a clock behind ours, or a request that waited too long. */
		err_set(err, ERR_CLOCK_SKEW, "the request's signature ended %" PRId64 " s ago by this server's clock",
			(now_wall_us - token->expires_wall_us) / SEC_US);
		err_hint(err, "sign again, by the server_time_us of this answer");
		return -ERR_CLOCK_SKEW;
	}
	/* Else a client could fill the memory of nonces for as long as its ticket lives. */
	if (token->expires_wall_us > now_wall_us + skew_us + TICKET_SIGNATURE_LIFE_MAX_US) {
		err_set(err, ERR_CLOCK_SKEW,
			"the request's signature ends %" PRId64 " s from now by this server's clock",
			(token->expires_wall_us - now_wall_us) / SEC_US);
		err_hint(err, "sign for at most %" PRId64 " s ahead, by the server_time_us of this answer",
			 TICKET_SIGNATURE_LIFE_MAX_US / SEC_US);
		return -ERR_CLOCK_SKEW;
	}
	return 0;
}

static int check_claim(const struct ticket *ticket, const struct ticket_request *request, struct err *err)
{
	const uint64_t count = ticket_chunk_count(ticket);

	if (request->chunk_index >= count)
		return err_set(err, ERR_NO_CHUNK,
			       "chunk %" PRIu64 " of file %" PRIu64 ": it has %" PRIu64 " (0 to %" PRIu64 ")",
			       request->chunk_index, request->file_id, count, count - 1);
	const uint64_t size = ticket_chunk_size(ticket, request->chunk_index);
	if (request->size_bytes != size)
		return err_set(err, ERR_CHUNK_SIZE,
			       "chunk %" PRIu64 " of file %" PRIu64 " is %" PRIu64 " bytes by the plan, not %" PRIu64,
			       request->chunk_index, request->file_id, size, request->size_bytes);
	if (!digest_hex_is_valid(ticket->digest, request->digest_hex))
		return err_set(err, ERR_BAD_REQUEST,
			       "this transfer's chunks are named by their %s digest in lower-case hex",
			       digest_name(ticket->digest));
	return 0;
}

int ticket_check(const struct ticket_keys *keys, struct str token_text, const struct ticket_request *request,
		 int64_t now_wall_us, int64_t skew_us, struct ticket *ret_ticket, char ret_nonce[TICKET_NONCE_SIZE],
		 int64_t *ret_nonce_expires_wall_us, struct err *err)
{
	struct token token = { 0 };
	int r;

	ret_nonce[0] = '\0';
	*ret_nonce_expires_wall_us = 0;
	r = split_token(token_text, &token, err);
	if (r < 0)
		return r;
	r = ticket_open(keys, token.ticket, ret_ticket, err);
	if (r < 0)
		return r;
	if (!str_eq_c(str_from(request->transfer_id), ret_ticket->transfer_id) ||
	    request->file_id != ret_ticket->file_id)
		return ticket_bad(err, "it is for another transfer or file");
	/* The digest must be plain hex before it takes part in the signed text, whose fields are told apart by spaces. */
	if (!is_lower_hex(request->digest_hex) || request->digest_hex.size >= DIGEST_HEX_SIZE)
		return err_set(err, ERR_BAD_REQUEST, "the chunk's digest is not lower-case hex");
	if (!signature_fits(keys, &token, request))
		return ticket_bad(err, "the request's signature does not fit");
	r = check_times(ret_ticket, &token, now_wall_us, skew_us, err);
	if (r < 0)
		return r;
	r = check_claim(ret_ticket, request, err);
	if (r < 0)
		return r;
	str_copy(token.nonce, ret_nonce, TICKET_NONCE_SIZE);
	/* From then on one of the two expiries refuses the request anyway. */
	*ret_nonce_expires_wall_us = min_i64(token.expires_wall_us, ret_ticket->expires_wall_us) + skew_us;
	return 0;
}

static int parse_key_line(struct str line, size_t line_number, struct ticket_keys *keys, struct err *err)
{
	struct str id_text;
	uint64_t id;

	if (keys->count == COUNT_OF(keys->keys))
		return err_set(err, ERR_CONFIG, "cluster key file, line %zu: more than %zu keys", line_number,
			       COUNT_OF(keys->keys));
	if (!str_cut(&line, ' ', &id_text) || !str_to_u64(id_text, &id) || id > UINT32_MAX)
		return err_set(err, ERR_CONFIG,
			       "cluster key file, line %zu: it does not begin with a key id (0 to %" PRIu32 ")",
			       line_number, UINT32_MAX);
	for (size_t i = 0; i < keys->count; i++)
		if (keys->keys[i].id == id)
			return err_set(err, ERR_CONFIG, "cluster key file, line %zu: key id %" PRIu64 " is there twice",
				       line_number, id);
	keys->keys[keys->count].id = (uint32_t)id;
	if (!hex_decode(str_trim(line), keys->keys[keys->count].key, TICKET_KEY_SIZE))
		return err_set(err, ERR_CONFIG, "cluster key file, line %zu: the key is not %d hex digits", line_number,
			       2 * TICKET_KEY_SIZE);
	keys->count++;
	return 0;
}

int ticket_keys_parse(struct str text, struct ticket_keys *ret_keys, struct err *err)
{
	struct str line;
	int r = 0;

	memset(ret_keys, 0, sizeof(*ret_keys));
	for (size_t line_number = 1; r == 0 && str_cut(&text, '\n', &line); line_number++) {
		if (line.size > 0 && line.data[line.size - 1] == '\r')
			line.size--;
		line = str_trim(line);
		if (line.size == 0 || line.data[0] == '#')
			continue;
		r = parse_key_line(line, line_number, ret_keys, err);
	}
	if (r == 0 && ret_keys->count == 0)
		r = err_set(err, ERR_CONFIG, "cluster key file: it holds no key");
	if (r < 0) {
		mem_wipe(ret_keys, sizeof(*ret_keys));
		err_hint(err, "one key a line, newest first: '<id> <64 hex digits>'; lines with # are comments");
	}
	return r;
}
