/* One value of a configuration: text against its row. Private to conf, and to the help, which says what is allowed. */
#ifndef HENG_BASE_CONF_VALUE_H
#define HENG_BASE_CONF_VALUE_H

#include "base/conf.h"

#define CONF_WHY_SIZE 256

/* Writes the value to its place in target. False, with what is wrong in why ("must be ..., not 'x'"), when it is not one. */
bool conf_value_read(const struct conf_row *row, struct str text, char *target, struct arena *arena,
		     char why[CONF_WHY_SIZE]);
/* Fills in the default. False when the row has none: the key is required. */
bool conf_value_default(const struct conf_row *row, char *target, struct arena *arena);
/* What the row takes, as words: "a whole number, 1 to 65535". Returns why. */
const char *conf_value_allowed(const struct conf_row *row, char why[CONF_WHY_SIZE]);
/* The name of the row most like key, or NULL when none is like it. */
const char *conf_value_nearest(const struct conf_row *rows, struct str key);

#endif
