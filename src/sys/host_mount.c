#include "sys/host_inside.h"

/* Blanks, line ends and backslashes in names are written as \ooo. */
static bool decode(struct str text, char target[PATH_MAX])
{
	size_t size = 0;

	for (size_t i = 0; i < text.size; i++) {
		char c = text.data[i];
		uint32_t value;

		if (c == '\\' && text.size - i > 3 && str_to_octal((struct str){ text.data + i + 1, 3 }, &value) &&
		    value > 0 && value <= 0xff) {
			c = (char)value;
			i += 3;
		}
		if (c == '\0' || size + 1 >= PATH_MAX)
			return false;
		target[size++] = c;
	}
	target[size] = '\0';
	return true;
}

/* 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue (proc(5)); any number of fields stands before the dash. */
static bool read_line(struct str line, struct host_mount *mount)
{
	struct str device, major, word, root, point, type, source;

	if (!host_number_next(&line, &mount->id) || !host_word(&line, &word) || !host_word(&line, &device) ||
	    !host_word(&line, &root) || !host_word(&line, &point))
		return false;
	if (!str_cut(&device, ':', &major) || !host_number(major, &mount->major) || !host_number(device, &mount->minor))
		return false;
	do {
		if (!host_word(&line, &word))
			return false;
	} while (!str_eq_c(word, "-"));
	if (!host_word(&line, &type) || !host_word(&line, &source))
		return false;
	/* Some file systems have no options of their own. */
	if (!host_word(&line, &mount->options))
		mount->options = STR_NONE;
	return str_copy(type, mount->fs_type, sizeof(mount->fs_type)) && decode(root, mount->root) &&
	       decode(point, mount->point) && decode(source, mount->source);
}

bool host_mount_next(struct str *rest, struct host_mount *ret_mount)
{
	struct str line;

	while (str_cut(rest, '\n', &line)) {
		if (read_line(line, ret_mount))
			return true;
	}
	return false;
}

bool host_mount_option(const struct host_mount *mount, const char *name, char target[PATH_MAX])
{
	struct str rest = mount->options, option, key;

	while (str_cut(&rest, ',', &option)) {
		if (!str_cut(&option, '=', &key) || !str_eq_c(key, name))
			continue;
		return decode(option, target);
	}
	return false;
}

const char *host_path_below(const char *path, const char *parent)
{
	const size_t size = strlen(parent);

	if (strcmp(parent, "/") == 0)
		return path[0] != '/' ? NULL : path[1] == '\0' ? "" : path;
	if (strncmp(path, parent, size) != 0 || (path[size] != '\0' && path[size] != '/'))
		return NULL;
	return path[size] == '/' && path[size + 1] == '\0' ? "" : path + size;
}

bool host_mount_of(struct host_files *files, const char *path, struct host_mount *ret_mount)
{
	struct host_mount mount;
	struct str rest;
	size_t best_size = 0;

	if (!host_read(files, &rest, "/proc/self/mountinfo"))
		return false;
	while (host_mount_next(&rest, &mount)) {
		const size_t size = strlen(mount.point);
		/* A later mount on the same point hides the earlier one. */
		if (size >= best_size && size > 0 && host_path_below(path, mount.point)) {
			best_size = size;
			*ret_mount = mount;
		}
	}
	return best_size > 0;
}
