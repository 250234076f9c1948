/* Replies of any bytes: measured in one piece and byte by byte, it is the same value or the same fault; and what was measured is whole. */
#include <string.h>

#include "wire/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct resp_limits limits = {
	.line_bytes = 64, .bulk_bytes = 256, .value_bytes = 1024, .element_count = 64
};

/* The items of a value that was measured are all there, and are its bytes. */
static void walk(struct str value)
{
	size_t used;
	struct resp_item item;

	while (value.size > 0) {
		MUST(resp_item(value, &limits, &used, &item) == RESP_DONE && used <= value.size);
		MUST(item.text.size == 0 ||
		     (item.text.data >= value.data && item.text.data + item.text.size <= value.data + used));
		value = (struct str){ value.data + used, value.size - used };
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = { (const char *)data, size };

	while (rest.size > 0) {
		struct resp_scan whole = { 0 }, slow = { 0 };
		size_t whole_size = 0, slow_size = 0;
		const int r = resp_scan(&whole, rest, &limits, &whole_size);
		int s = RESP_MORE;

		for (size_t n = 0; n <= rest.size && s == RESP_MORE; n++)
			s = resp_scan(&slow, (struct str){ rest.data, n }, &limits, &slow_size);
		MUST(r == s && whole_size == slow_size);
		if (r != RESP_DONE)
			break;
		walk((struct str){ rest.data, whole_size });
		rest = (struct str){ rest.data + whole_size, rest.size - whole_size };
	}
	return 0;
}
