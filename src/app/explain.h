/* A recorded decision as one screen for people, and as JSON for programs. */
#ifndef HENG_APP_EXPLAIN_H
#define HENG_APP_EXPLAIN_H

#include "core/decide.h"

#define EXPLAIN_ROWS     24 /* candidates shown, the best first */
#define EXPLAIN_WARNINGS 32

struct explain_line {
	const struct decide_record *record;
	const char *where;
	bool agrees; /* the line was computed again with the same outcome */
	const char *difference;
};
void explain_print(const struct explain_line *line);
/* As an object in a list that is open. text: the record's own line. */
void explain_json(struct json *json, const struct explain_line *line, struct str text);

/* What a person should know of the record beside its numbers, a sentence each; for both of the above. */
struct explain_warnings {
	char texts[EXPLAIN_WARNINGS][256];
	size_t count;
};
void explain_warn(const struct explain_line *line, struct explain_warnings *ret_warnings);
/* explain_rows.c: the tables of a record's candidates. */
void explain_table(const struct decide_record *record);
void explain_place(const struct decide_record *record);
void explain_pick(const struct decide_record *record);
void explain_plan(const struct decide_record *record);
/* "3.2 s", "250 ms"; negative "-". */
const char *explain_span(int64_t span_us, char target[24]);

#endif
