/* Where a folder shall be that is not there yet: everything is made in a hidden folder beside it and renamed into place as a whole, so that the target
 * appears complete or not at all. */
#ifndef HENG_FOLDER_PLACE_H
#define HENG_FOLDER_PLACE_H

#include <limits.h>
#include <stdatomic.h>

#include "base/err.h"
#include "folder/stage.h"

#define PLACE_TEMP_NAME ".heng-pull-XXXXXX"

struct place {
	int parent_fd, temp_fd;  /* temp_fd: the hidden folder, for a stage */
	char name[NAME_MAX + 1]; /* of the target, in its parent */
	char temp_name[sizeof(PLACE_TEMP_NAME)];
};
/* -ERR_REFUSED when the target exists: checked now, so that nothing is done in vain. place_close in any case. */
int place_open(struct place *place, const char *target, struct err *err);
/* The stage's tree gets its folders' modes and times, is synced and becomes the target. is_interrupted: NULL, or looked at before that; then it ends with
 * ERR_WAITING. After a failure nothing is in place. */
int place_put(struct place *place, struct stage *stage, const char *target, const atomic_bool *is_interrupted,
	      struct err *err);
/* Whatever is left in the hidden folder goes; a failure to remove it is told with the failure that led here (result), or as one of its own. Returns
 * result or that. */
int place_close(struct place *place, int result, struct err *err);

#endif
