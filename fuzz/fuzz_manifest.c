/* Any bytes: no crash, the same verdict however they are cut, and what is accepted obeys the rules and is written again as it was meant. */
#include <stdlib.h>
#include <string.h>

#include "wire/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct gathered {
	struct buf text;
	uint64_t count;
};

static int gather(void *owner, const struct manifest_entry *entry, struct err *err UNUSED)
{
	struct gathered *gathered = owner;

	MUST(entry->seq == gathered->count);
	MUST(entry->seq == 0 ? str_eq(entry->path, STR(".")) : manifest_path_fault(entry->path) == NULL);
	gathered->count++;
	manifest_write(&gathered->text, entry);
	return 0;
}

static int parse(struct str text, size_t step, struct gathered *gathered)
{
	static const struct manifest_limits limits = { 1000, (uint64_t)1 << 40, (uint64_t)1 << 45 };
	struct manifest_parser *parser = manifest_parser_new(&limits, gather, gathered);
	struct err err = ERR_INIT;
	int r = 0;

	for (size_t at = 0; r == 0 && at < text.size; at += step)
		r = manifest_feed(parser, (struct str){ text.data + at, min_size(step, text.size - at) }, &err);
	if (r == 0)
		r = manifest_end(parser, &err);
	manifest_parser_free(&parser);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct str text = { (const char *)data, size };
	struct gathered whole = { .text = BUF_INIT(64 * MIB) }, bytes = { .text = BUF_INIT(64 * MIB) };
	const int r = parse(text, size + 1, &whole);

	MUST(parse(text, 1, &bytes) == r);
	MUST(whole.count == bytes.count && str_eq(buf_str(&whole.text), buf_str(&bytes.text)));
	buf_fini(&whole.text);
	buf_fini(&bytes.text);
	return 0;
}
