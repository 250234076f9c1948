/* Lines of changed entries, of any bytes: what is taken is in order, within bounds, and reads back as it was from its own text. */
#include <inttypes.h>
#include <string.h>

#include "folder/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct plan_change changes[PLAN_CHANGES_MAX], again[PLAN_CHANGES_MAX];
	struct buf text = BUF_INIT(PLAN_CHANGES_MAX * 128);
	struct err err;
	size_t count = 0, again_count = 0;

	if (plan_changes_parse((struct str){ (const char *)data, size }, changes, &count, &err) < 0)
		return 0;
	MUST(count > 0 && count <= PLAN_CHANGES_MAX);
	for (size_t i = 0; i < count; i++) {
		MUST(changes[i].mode <= 07777 && (i == 0 || changes[i].seq > changes[i - 1].seq));
		buf_printf(&text, "%" PRIu64 " %" PRIu64 " %" PRId64 " %o\n", changes[i].seq, changes[i].size_bytes,
			   changes[i].mtime_ns, changes[i].mode);
	}
	MUST(plan_changes_parse(buf_str(&text), again, &again_count, &err) == 0 && again_count == count);
	for (size_t i = 0; i < count; i++)
		MUST(changes[i].seq == again[i].seq && changes[i].size_bytes == again[i].size_bytes &&
		     changes[i].mtime_ns == again[i].mtime_ns && changes[i].mode == again[i].mode);
	buf_fini(&text);
	return 0;
}
