/* How a push is shown while it runs: one line that is written over and over on a terminal, a plain line every 5 s elsewhere; for programs a JSON
 * object a line (app/progress_json.h), twice a second and at each change of phase. All of it goes to stderr. */
#ifndef HENG_APP_PROGRESS_H
#define HENG_APP_PROGRESS_H

#include "folder/push.h"

struct progress_view {
	bool is_terminal, is_colored;
	bool is_silent;   /* nothing but failures */
	bool is_lineless; /* no progress, but notices */
	bool is_json;     /* lines for programs */
	bool is_drawn;    /* the terminal's line has something in it */
	int64_t told_us;
	const char *phase;
	/* Of the rate: smoothed, in bytes a second. */
	uint64_t rate_bytes, seen_bytes;
	int64_t seen_us;
};

/* is_result_json: stdout is for a program, so that no progress is wanted; is_json: nor for people. */
void progress_init(struct progress_view *view, bool is_quiet, bool is_result_json, bool is_json);
void progress_show(struct progress_view *view, const struct push_progress *progress);
void progress_note(struct progress_view *view, const char *line);
/* An entry that cannot be sent: named even to who asked for quiet. */
void progress_problem(struct progress_view *view, struct str path, const char *reason);
void progress_clear(struct progress_view *view); /* before anything else is printed */
/* The line itself; width in columns, 0: no limit. */
void progress_line(const struct push_progress *progress, uint64_t rate_bytes, size_t width, char *target,
		   size_t target_size);

#endif
