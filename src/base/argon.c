#include "base/argon.h"

#include <argon2.h>

#include "base/rng.h"

#define SALT_SIZE 16
#define HASH_SIZE 32

int argon_hash(struct str secret, char target[ARGON_TEXT_SIZE], struct err *err)
{
	uint8_t salt[SALT_SIZE];

	rng_secret(salt, sizeof(salt));
	const int fault = argon2id_hash_encoded(ARGON_PASSES, ARGON_MEMORY_KIB, 1, secret.data, secret.size, salt,
						sizeof(salt), HASH_SIZE, target, ARGON_TEXT_SIZE);
	if (fault != ARGON2_OK)
		return err_set(err, ERR_NO_MEMORY, "cannot compute an Argon2id hash: %s", argon2_error_message(fault));
	return 0;
}

/* "m=19456" of "m=19456,t=2,p=1". */
static bool cut_number(struct str *rest, const char *name, uint64_t least, uint64_t most, uint64_t *ret_value)
{
	struct str piece, key;

	return str_cut(rest, ',', &piece) && str_cut(&piece, '=', &key) && str_eq_c(key, name) &&
	       str_to_u64(piece, ret_value) && *ret_value >= least && *ret_value <= most;
}

static bool is_base64(struct str text, size_t least, size_t most)
{
	if (text.size < least || text.size > most)
		return false;
	for (size_t i = 0; i < text.size; i++) {
		const char c = text.data[i];

		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
		      c == '/'))
			return false;
	}
	return true;
}

int argon_text_check(struct str text, struct err *err)
{
	struct str none, kind, version, cost, salt;
	uint64_t memory_kib, passes, lanes;

	if (text.size >= ARGON_TEXT_SIZE || !str_cut(&text, '$', &none) || none.size > 0 ||
	    !str_cut(&text, '$', &kind) || !str_eq_c(kind, "argon2id") || !str_cut(&text, '$', &version) ||
	    !str_eq_c(version, "v=19") || !str_cut(&text, '$', &cost) || !str_cut(&text, '$', &salt) ||
	    !is_base64(salt, 11, 64) || !is_base64(text, 16, 86))
		return err_set(err, ERR_CONFIG, "it is not of the form $argon2id$v=19$m=...,t=...,p=...$salt$hash");
	if (!cut_number(&cost, "m", ARGON_MEMORY_KIB_MIN, ARGON_MEMORY_KIB_MAX, &memory_kib) ||
	    !cut_number(&cost, "t", 1, ARGON_PASSES_MAX, &passes) ||
	    !cut_number(&cost, "p", 1, ARGON_LANES_MAX, &lanes) || cost.size > 0)
		return err_set(err, ERR_CONFIG, "its cost is not m=%u to %u (KiB), t=1 to %u, p=1 to %u",
			       ARGON_MEMORY_KIB_MIN, ARGON_MEMORY_KIB_MAX, ARGON_PASSES_MAX, ARGON_LANES_MAX);
	return 0;
}

int argon_check(const char *text, struct str secret, bool *ret_fits, struct err *err)
{
	const int fault = argon2id_verify(text, secret.data, secret.size);

	*ret_fits = fault == ARGON2_OK;
	if (fault == ARGON2_OK || fault == ARGON2_VERIFY_MISMATCH)
		return 0;
	return err_set(err, ERR_NO_MEMORY, "cannot compute an Argon2id hash: %s", argon2_error_message(fault));
}
