/* Configuration: YAML (libyaml) read against a table of rows. All faults are gathered and reported together, each with file, line,
 * what is allowed; unknown and repeated keys are faults. */
#ifndef HENG_BASE_CONF_H
#define HENG_BASE_CONF_H

#include "base/err.h"
#include "base/mem.h"

enum conf_type {
	CONF_TEXT,     /* const char *, in the arena */
	CONF_INT,      /* int64_t, min..max */
	CONF_SIZE,     /* uint64_t bytes: 8MiB */
	CONF_DURATION, /* int64_t microseconds: 3s */
	CONF_BOOL,     /* bool: true | false */
	CONF_CHOICE,   /* int: index in `choices` ("a|b|c") */
	CONF_WORDS,    /* struct conf_list of const char *, in the arena */
	CONF_LIST,     /* struct conf_list of structs described by item_rows */
};

struct conf_list {
	void *items; /* in the arena */
	size_t count;
};

struct conf_row {
	const char *name;
	enum conf_type type;
	size_t offset;    /* offsetof in the target struct */
	int64_t min, max; /* INT, SIZE, DURATION; both 0: no limit */
	const char
		*fallback; /* the default as text; NULL: the key is required (LIST and WORDS without one are empty) */
	const char *choices;
	const struct conf_row *item_rows; /* LIST; ends with a row whose name is NULL */
	size_t item_size;
	const char *help; /* one line for the manual */
};

/* rows ends with a row whose name is NULL. target is zeroed, defaults are filled. */
int conf_load(const char *path, const struct conf_row *rows, void *target, size_t target_size, struct arena *arena,
	      struct err *err);
int conf_parse(const char *name, struct str text, const struct conf_row *rows, void *target, size_t target_size,
	       struct arena *arena, struct err *err);

#endif
