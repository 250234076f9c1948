/* What a process that was killed had half made in a folder, and that nobody will go on with. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sys/fs_impl.h"
#include "base/clock.h"

/* Removes the files in the folder whose names are of that kind. */
static void clean(const char *path, bool (*is_meant)(int dir_fd, const char *name, int64_t age_us), int64_t age_us)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)) != NULL)
		if (is_meant(dirfd(dir), entry->d_name, age_us))
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
}

static bool is_probe(int dir_fd UNUSED, const char *name, int64_t age_us UNUSED)
{
	return strncmp(name, FS_PROBE_PREFIX, strlen(FS_PROBE_PREFIX)) == 0;
}

void fs_clean_probes(const char *path) { clean(path, is_probe, 0); }

/* ".NAME.<16 hex digits>", as fs_replace_file makes them. */
static bool is_replacement(int dir_fd, const char *name, int64_t age_us)
{
	const char *suffix = strrchr(name, '.');
	struct stat facts;

	return name[0] == '.' && suffix > name + 1 && strlen(suffix + 1) == FS_UNIQUE_SIZE - 1 &&
	       strspn(suffix + 1, "0123456789abcdef") == FS_UNIQUE_SIZE - 1 &&
	       fstatat(dir_fd, name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode) &&
	       (age_us == 0 || facts.st_mtim.tv_sec <= (clock_wall_us() - age_us) / SEC_US);
}

void fs_clean_replaced(const char *path, int64_t age_us) { clean(path, is_replacement, age_us); }
