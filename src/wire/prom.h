/* Numbers in the text form that Prometheus reads (exposition format 0.0.4): families, each with its samples. */
#ifndef HENG_WIRE_PROM_H
#define HENG_WIRE_PROM_H

#include "base/buf.h"

#define PROM_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum prom_kind { PROM_COUNTER, PROM_GAUGE };
struct prom_label {
	const char *name, *value; /* the value: any bytes; what is not UTF-8 is shown as \xNN */
};

/* All samples of a family follow it, before the next one. Failure is the buffer's. */
void prom_family(struct buf *target, const char *name, enum prom_kind kind, const char *help);
void prom_sample(struct buf *target, const char *name, const struct prom_label *labels, size_t label_count,
		 uint64_t value);
/* A family of one sample without labels. */
void prom_value(struct buf *target, const char *name, enum prom_kind kind, const char *help, uint64_t value);

#endif
