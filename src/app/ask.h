/* What `heng status` and `heng nodes` share: a question to the scheduler, and its answer's fields made fit for showing. */
#ifndef HENG_APP_ASK_H
#define HENG_APP_ASK_H

#include <jansson.h>

#include "app/client.h"

/* Asks; lists named "nodes" come sorted by id. In JSON mode it prints the answer, and *ret_root is NULL. */
int ask_json(const struct cmd *cmd, const char *const *values, const char *path, json_t **ret_root, struct err *err);
/* The same by a POST without a body. */
int ask_json_post(const struct cmd *cmd, const char *const *values, const char *path, json_t **ret_root,
		  struct err *err);
/* "" and 0 where there is no such field, or another kind of one. */
const char *ask_text(const json_t *item, const char *name);
uint64_t ask_u64(const json_t *item, const char *name);
double ask_number(const json_t *item, const char *name); /* for showing only */
/* The server's own words, shown safely; longer than the target they are cut. */
char *ask_word(const json_t *item, const char *name, char *target, size_t target_size);

#endif
