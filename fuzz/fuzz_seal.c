/* The text of a key file, a label, and an encrypted file, of any bytes: nothing is taken that was not written, and what a key file gives is written and
 * reads as the same. */
#include <string.h>

#include "wire/seal_key.h"
#include "wire/unseal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int refuse(void *owner, const void *plain, size_t size, struct err *err)
{
	(void)owner, (void)plain, (void)size, (void)err;
	/* By no key of ours. */
	MUST(false);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t KEY[SEAL_KEY_SIZE];
	const struct str text = { (const char *)data, size };
	uint8_t key[SEAL_KEY_SIZE], again[SEAL_KEY_SIZE];
	char id[SEAL_ID_SIZE], again_id[SEAL_ID_SIZE], label[SEAL_LABEL_SIZE], written[SEAL_KEY_TEXT_MAX];
	enum seal_cipher cipher;
	struct err err = ERR_INIT;

	if (!seal_key_parse(text, key, id)) {
		const size_t written_size = seal_key_write(key, written, sizeof(written));
		MUST(!seal_key_parse((struct str){ written, written_size }, again, again_id));
		MUST(memcmp(key, again, sizeof(key)) == 0 && strcmp(id, again_id) == 0);
	}
	if (seal_label_parse(text, &cipher, id)) {
		seal_label(cipher, id, label);
		MUST(str_eq_c(text, label));
	}
	struct unseal *unseal = unseal_new(KEY, refuse, NULL);
	unseal_begin(unseal, STR("a"), size);
	MUST(unseal_feed(unseal, data, size, &err) < 0 || unseal_end(unseal, &err) < 0);
	unseal_free(&unseal);
	return 0;
}
