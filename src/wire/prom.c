#include "wire/prom.h"

#include <inttypes.h>

void prom_family(struct buf *target, const char *name, enum prom_kind kind, const char *help)
{
	buf_printf(target, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		   kind == PROM_COUNTER ? "counter" : "gauge");
}

/* Quotes, backslashes and line ends are what the form knows escapes for. */
static void label_value(struct buf *target, const char *value)
{
	char shown[256];

	for (const char *c = str_display(str_from(value), shown, sizeof(shown)); *c != '\0'; c++) {
		if (*c == '\\' || *c == '"')
			buf_append(target, STR("\\"));
		buf_append(target, (struct str){ c, 1 });
	}
}

void prom_sample(struct buf *target, const char *name, const struct prom_label *labels, size_t label_count,
		 uint64_t value)
{
	buf_append_c(target, name);
	for (size_t i = 0; i < label_count; i++) {
		buf_printf(target, "%s%s=\"", i == 0 ? "{" : ",", labels[i].name);
		label_value(target, labels[i].value);
		buf_append(target, STR("\""));
	}
	buf_printf(target, "%s %" PRIu64 "\n", label_count > 0 ? "}" : "", value);
}

void prom_value(struct buf *target, const char *name, enum prom_kind kind, const char *help, uint64_t value)
{
	prom_family(target, name, kind, help);
	prom_sample(target, name, NULL, 0, value);
}
