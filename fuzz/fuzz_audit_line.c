/* Audit rows of any bytes: what is accepted is written again, and reads as the same row. */
#include <string.h>

#include "plug/audit_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(struct str text, struct audit_hasher *hasher)
{
	struct audit_line line, again;
	struct buf buf = BUF_INIT(4 * AUDIT_LINE_MAX);
	uint8_t hash[AUDIT_HASH_SIZE], hash_again[AUDIT_HASH_SIZE];
	struct err err = ERR_INIT;

	if (audit_line_parse(text, &line, &err) == 0) {
		audit_line_write(&buf, &line.row);
		MUST(!buf.is_failed);
		/* Written anew it may be longer than a line may be: escapes. */
		if (buf.size <= AUDIT_LINE_MAX) {
			MUST(audit_line_parse(buf_str(&buf), &again, &err) == 0);
			audit_row_hash(hasher, &line.row, hash);
			audit_row_hash(hasher, &again.row, hash_again);
			MUST(memcmp(hash, hash_again, sizeof(hash)) == 0);
			MUST(memcmp(line.row.hash, again.row.hash, sizeof(hash)) == 0);
			audit_line_fini(&again);
		}
	}
	audit_line_fini(&line);
	buf_fini(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = { (const char *)data, size }, line;
	struct audit_hasher *hasher = audit_hasher_new();

	while (str_cut(&rest, '\n', &line))
		check_line(line, hasher);
	audit_hasher_free(&hasher);
	return 0;
}
