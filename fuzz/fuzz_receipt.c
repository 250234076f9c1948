/* Receipts and answers of any bytes: what is accepted is written again, and reads as the same. */
#include <string.h>

#include "folder/receipt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(struct str line)
{
	struct store_receipt receipt, again;
	struct buf buf = BUF_INIT(2 * RECEIPT_LINE_MAX);
	struct err err = ERR_INIT;
	enum err_code code;

	(void)receipt_answer_parse(line, &code, &err);
	if (receipt_parse(line, &receipt, &err) < 0)
		return;
	receipt_write(&buf, &receipt);
	MUST(!buf.is_failed && buf.size <= RECEIPT_LINE_MAX);
	MUST(receipt_parse((struct str){ buf.data, buf.size - 1 }, &again, &err) == 0);
	MUST(memcmp(&receipt, &again, sizeof(again)) == 0);
	buf_fini(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = { (const char *)data, size }, line;

	while (str_cut(&rest, '\n', &line))
		check_line(line);
	return 0;
}
