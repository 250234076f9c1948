/* API keys of our own making: <id>.<secret>, 256 random bits after an id by which a scheduler finds the one hash to try. */
#ifndef HENG_APP_KEY_H
#define HENG_APP_KEY_H

#include "base/argon.h"

#define KEY_ID_SIZE   9  /* 8 hex digits and a NUL */
#define KEY_TEXT_SIZE 53 /* id, dot, 43 characters, NUL */

void key_make(char target[KEY_TEXT_SIZE]);
/* The id of a key's text; false when it has none, as keys from before have. */
bool key_id(struct str key, char target[KEY_ID_SIZE]);

#endif
