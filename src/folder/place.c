#include "folder/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/fs.h"

#define SHOWN_SIZE 300

static int exists_already(const char *target, struct err *err)
{
	char shown[SHOWN_SIZE];

	err_set(err, ERR_REFUSED, "'%s' exists already", str_display(str_from(target), shown, sizeof(shown)));
	err_hint(err, "name a folder that is not there yet; nothing is ever written over");
	return -(int)ERR_REFUSED;
}

static int split_target(const char *target, char parent[PATH_MAX], char name[NAME_MAX + 1], struct err *err)
{
	struct str path = str_from(target);

	while (path.size > 1 && path.data[path.size - 1] == '/')
		path.size--;
	const char *slash = path.size > 0 ? memrchr(path.data, '/', path.size) : NULL;
	struct str last = slash ? (struct str){ slash + 1, path.size - (size_t)(slash - path.data) - 1 } : path;
	struct str before = slash == NULL ? STR(".") : (struct str){ path.data, (size_t)(slash - path.data) };
	if (before.size == 0)
		before = STR("/");
	if (last.size == 0 || str_eq_c(last, ".") || str_eq_c(last, "..") || !str_copy(last, name, NAME_MAX + 1) ||
	    !str_copy(before, parent, PATH_MAX))
		return err_set(err, ERR_USAGE, "'%.200s' cannot be the name of a new folder", target);
	return 0;
}

static int make_temp(struct place *place, const char *parent, struct err *err)
{
	char path[PATH_MAX + sizeof(PLACE_TEMP_NAME) + 1], shown[SHOWN_SIZE];

	snprintf(path, sizeof(path), "%s/" PLACE_TEMP_NAME, parent);
	if (!mkdtemp(path))
		return err_sys(err, ERR_SYSTEM, errno, "cannot make a folder in '%s'",
			       str_display(str_from(parent), shown, sizeof(shown)));
	memcpy(place->temp_name, path + strlen(path) - (sizeof(PLACE_TEMP_NAME) - 1), sizeof(PLACE_TEMP_NAME));
	place->temp_fd = openat(place->parent_fd, place->temp_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (place->temp_fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot open the new folder '%s'", place->temp_name);
	return 0;
}

/* The rename at the end checks again. */
int place_open(struct place *place, const char *target, struct err *err)
{
	char parent[PATH_MAX], shown[SHOWN_SIZE];
	struct stat st;

	*place = (struct place){ .parent_fd = -1, .temp_fd = -1 };
	int result = split_target(target, parent, place->name, err);
	if (result < 0)
		return result;
	place->parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place->parent_fd < 0)
		return err_sys(err, ERR_REFUSED, errno, "cannot open '%s', where the folder shall be",
			       str_display(str_from(parent), shown, sizeof(shown)));
	if (fstatat(place->parent_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return exists_already(target, err);
	return make_temp(place, parent, err);
}

int place_close(struct place *place, int result, struct err *err)
{
	struct err removal = ERR_INIT;

	fs_close(&place->temp_fd);
	if (place->temp_name[0] != '\0' && fs_remove_tree(place->parent_fd, place->temp_name, &removal) < 0) {
		if (result == 0)
			*err = removal;
		err_hint(err, "remove the folder %s beside the target yourself: %.100s", place->temp_name,
			 removal.text);
		result = result < 0 ? result : -(int)removal.code;
	}
	fs_close(&place->parent_fd);
	return result;
}

/* A rename that could not be made durable is taken back: a failure leaves nothing behind. */
static void take_back(const struct stage *stage, struct place *place)
{
	struct stat ours, there;

	if (fstat(stage->tree_fd, &ours) < 0 ||
	    fstatat(place->parent_fd, place->name, &there, AT_SYMLINK_NOFOLLOW) < 0 || ours.st_ino != there.st_ino ||
	    ours.st_dev != there.st_dev || fchmod(stage->tree_fd, 0700) < 0)
		return;
	(void)fs_rename(place->parent_fd, place->name, place->temp_fd, "failed", true, NULL);
}

int place_put(struct place *place, struct stage *stage, const char *target, const atomic_bool *is_interrupted,
	      struct err *err)
{
	int result = stage_finish(stage, err);

	/* One sync for everything: nothing is visible before it has returned. */
	if (result == 0)
		result = fs_sync_tree(stage->tree_fd, err);
	if (result == 0 && is_interrupted && atomic_load(is_interrupted))
		result = err_set(err, ERR_WAITING, "interrupted");
	if (result < 0)
		return result;
	result = stage_publish(stage, place->parent_fd, place->name, err);
	if (result == -ERR_BATCH_EXISTS)
		return exists_already(target, err);
	if (result < 0)
		take_back(stage, place);
	return result;
}
