#include "folder/batch.h"

#include <stdio.h>

#include "plug/store.h"

static int fault(struct str batch, const char *rule, struct err *err)
{
	char shown[256];

	err_set(err, ERR_BATCH_NAME, "batch name '%s' %s", str_display(batch, shown, sizeof(shown)), rule);
	err_hint(err, "choose another with --name");
	return -ERR_BATCH_NAME;
}

int batch_check(struct str batch, struct err *err)
{
	char rule[100];

	if (batch.size == 0)
		return fault(batch, "is empty", err);
	if (batch.size > STORE_BATCH_MAX) {
		snprintf(rule, sizeof(rule), "has %zu bytes, and %d are the most", batch.size, STORE_BATCH_MAX);
		return fault(batch, rule, err);
	}
	if (batch.data[0] == '.')
		return fault(batch, "begins with a dot", err);
	for (size_t i = 0; i < batch.size; i++) {
		if (batch.data[i] == '/')
			return fault(batch, "has a '/' in it", err);
		if ((unsigned char)batch.data[i] < 0x20 || batch.data[i] == 0x7f)
			return fault(batch, "has a control character in it", err);
	}
	return 0;
}
