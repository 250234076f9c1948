/* What a push remembers of a network, of any bytes: what is taken is within bounds, and reads back as it was from its own text. */
#include <string.h>

#include "folder/push_learnt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define URL "http://127.0.0.1:7080"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct push_learnt learnt, again;
	char text[2048];

	push_learnt_parse((struct str){ (const char *)data, size }, URL, &learnt);
	if (learnt.parallel == 0) {
		MUST(learnt.chunk_bytes == 0 && learnt.rate_bytes == 0);
		return 0;
	}
	MUST(learnt.parallel >= PUSH_PACE_LEAST && learnt.parallel <= PUSH_PACE_MOST);
	MUST(learnt.chunk_bytes == 0 ||
	     (learnt.chunk_bytes >= PUSH_LEARNT_WAN_BYTES && learnt.chunk_bytes <= PUSH_LEARNT_LAN_BYTES));
	size_t text_size = push_learnt_print(&learnt, URL, text, sizeof(text));
	MUST(text_size > 0);
	push_learnt_parse((struct str){ text, text_size }, URL, &again);
	MUST(learnt.parallel == again.parallel && learnt.chunk_bytes == again.chunk_bytes &&
	     learnt.rate_bytes == again.rate_bytes && learnt.round_trip_us == again.round_trip_us &&
	     learnt.failure_ppm == again.failure_ppm);
	return 0;
}
