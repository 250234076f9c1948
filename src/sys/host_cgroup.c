#include "sys/host_inside.h"

#include "base/hash.h"

static const char *const controller_names[HOST_CONTROLLERS] = { "cpu", "cpuacct", "memory" };

bool host_group_up(char path[PATH_MAX])
{
	char *slash = strrchr(path, '/');

	if (!slash)
		return false;
	*slash = '\0';
	return true;
}

static bool has_item(struct str list, const char *name)
{
	struct str item;

	while (str_cut(&list, ',', &item)) {
		if (str_eq_c(item, name))
			return true;
	}
	return false;
}

/* "4:memory:/a/b" has the controller's v1 path, "0::/a/b" the one of v2. The path may hold colons. */
static bool find_path(struct str text, const char *controller, char target[PATH_MAX])
{
	struct str line, number, list;

	while (str_cut(&text, '\n', &line)) {
		if (!str_cut(&line, ':', &number) || !str_cut(&line, ':', &list))
			continue;
		if (controller ? has_item(list, controller) : list.size == 0 && str_eq_c(number, "0"))
			return str_copy(line, target, PATH_MAX) && target[0] == '/';
	}
	return false;
}

/* Where the hierarchy is mounted, and where the process's cgroup lies below that. Inside a container the mount may show only the container's own
 * part of the hierarchy while the path is the whole one, or the path may lie outside (a namespace entered from elsewhere): then the top of what
 * is mounted is the nearest we can see. */
static bool find_mount(struct str mounts, const char *controller, const char *path, struct host_group *group)
{
	const char *fs_type = controller ? "cgroup" : "cgroup2";
	struct host_mount mount;
	char option[PATH_MAX];
	bool is_found = false;

	while (host_mount_next(&mounts, &mount)) {
		const char *below;

		if (strcmp(mount.fs_type, fs_type) != 0)
			continue;
		if (controller && !host_mount_option(&mount, controller, option))
			continue;
		below = strstr(path, "/..") ? NULL : host_path_below(path, mount.root);
		if (is_found && !below)
			continue;
		is_found = true;
		memcpy(group->top, mount.point, sizeof(group->top));
		group->path[0] = '\0';
		if (below) {
			memcpy(group->path, below, strlen(below) + 1);
			break;
		}
	}
	return is_found;
}

/* False: no such hierarchy. One that exists but is not mounted gives a group of version 0: another one's numbers would not be the process's. */
static bool find_group(struct str text, struct str mounts, const char *controller, struct host_group *group)
{
	char path[PATH_MAX];

	*group = (struct host_group){ .version = 0 };
	if (!find_path(text, controller, path))
		return false;
	if (find_mount(mounts, controller, path, group))
		group->version = controller ? 1 : 2;
	return true;
}

void host_groups_find(struct host_groups *groups, struct host_files *files)
{
	struct buf text = BUF_INIT(MIB);
	struct str read, mounts;
	uint64_t hash;

	if (!host_read(files, &read, "%s/cgroup", files->process)) {
		*groups = (struct host_groups){ .text_hash = 0 };
		return;
	}
	hash = hash64(read.data, read.size);
	if (hash == groups->text_hash)
		return;
	*groups = (struct host_groups){ .text_hash = hash };
	/* Our own mounts: the paths are for us to open, whichever process is measured. */
	if (buf_append(&text, read) && host_read(files, &mounts, "/proc/self/mountinfo")) {
		(void)find_group(buf_str(&text), mounts, NULL, &groups->unified);
		for (int i = 0; i < HOST_CONTROLLERS; i++) {
			if (!find_group(buf_str(&text), mounts, controller_names[i], &groups->of[i]))
				groups->of[i] = groups->unified;
		}
	}
	buf_fini(&text);
}

const char *host_groups_name(const struct host_groups *groups)
{
	const int cpu = groups->of[HOST_CPU].version, memory = groups->of[HOST_MEMORY].version;

	return cpu == 1 || memory == 1 ? "v1" : cpu == 2 || memory == 2 ? "v2" : "none";
}
