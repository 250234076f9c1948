/* What the parts of profile share: the table of its plain numbers, and the profile that stands below one without a base. Private to profile. */
#ifndef HENG_CORE_PROFILE_IMPL_H
#define HENG_CORE_PROFILE_IMPL_H

#include "base/conf.h"
#include "core/profile.h"

/* One plain number of struct profile, and how it is spelled in YAML. Reading, writing and the defaults all go by this table. */
struct profile_number {
	const char *name;
	enum conf_type type; /* CONF_INT or CONF_DURATION; both are int64_t */
	size_t offset;
	int64_t min, max;
	const char *help;
};
#define PROFILE_NUMBERS 22
extern const struct profile_number profile_numbers[PROFILE_NUMBERS];
int64_t profile_number_get(const struct profile *profile, const struct profile_number *number);
#define PROFILE_NUMBER_SIZE 32
/* As YAML spells it: "9s", "900000". Returns target. */
char *profile_number_text(enum conf_type type, int64_t value, char target[PROFILE_NUMBER_SIZE]);

/* A profile without `base:` tunes this one: no dimensions, no rules, no warm-up, no slow start. */
extern const struct profile profile_neutral;

#endif
