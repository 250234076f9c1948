/* What the writer and the reader of reports share. */
#ifndef HENG_CORE_REPORT_IMPL_H
#define HENG_CORE_REPORT_IMPL_H

#include "core/report.h"

bool report_field_find(const char *name, enum report_field *ret_field);

#endif
