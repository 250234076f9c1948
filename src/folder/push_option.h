/* The options of a push by their names and their values in words: as people give them on a command line, and programs through the library.
 * One list says what is allowed. */
#ifndef HENG_FOLDER_PUSH_OPTION_H
#define HENG_FOLDER_PUSH_OPTION_H

#include "folder/push.h"

bool push_option_exists(const char *name);
/* A flag is set by "", "yes" or "1", and unset by "no" or "0". Texts (name, resume, state-dir) are kept as pointers to value. Otherwise ERR_USAGE, which
 * says what is allowed and calls the option what the user calls it: label ("--parallel"). */
int push_option_set(struct push_options *options, const char *name, const char *label, const char *value,
		    struct err *err);

#endif
