/* A token (first line) and a cluster key file (the rest), both of any bytes. No token may be accepted that was not signed: with a key that
 * the input cannot know, every verdict is a refusal; tickets signed by us over the input's user name are read back as they were. */
#include <string.h>

#include "wire/ticket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TRANSFER "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static void check_token(const struct ticket_keys *keys, struct str token)
{
	const struct ticket_request request = {
		TRANSFER, 1, 0, 5, STR("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	};
	struct ticket ticket;
	struct err err = ERR_INIT;
	char nonce[TICKET_NONCE_SIZE];
	int64_t expires;

	MUST(ticket_check(keys, token, &request, 0, SEC_US, &ticket, nonce, &expires, &err) < 0);
	MUST(ticket_open(keys, token, &ticket, &err) < 0);
}

static void check_round(const struct ticket_keys *keys, struct str user)
{
	struct ticket ticket = { .transfer_id = TRANSFER, .file_id = 1, .chunk_bytes = 1 }, opened;
	struct err err = ERR_INIT;
	char text[TICKET_TEXT_SIZE];

	user.size = min_size(user.size, sizeof(ticket.user) - 1);
	if (!str_copy(user, ticket.user, sizeof(ticket.user)))
		return;
	MUST(ticket_issue(keys, &ticket, text, &err) == 0);
	MUST(ticket_open(keys, str_from(text), &opened, &err) == 0);
	MUST(strcmp(opened.user, ticket.user) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = { (const char *)data, size }, token = STR_NONE;
	struct ticket_keys keys = { .count = 1 }, parsed;
	struct err err = ERR_INIT;

	rng_secret(keys.keys[0].key, TICKET_KEY_SIZE);
	(void)str_cut(&rest, '\n', &token);
	check_token(&keys, token);
	check_round(&keys, token);
	MUST((ticket_keys_parse(rest, &parsed, &err) == 0) == (parsed.count > 0));
	return 0;
}
