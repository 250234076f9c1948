#include "sys/host_inside.h"

/* The least of what this one cgroup sets; unknown: it sets none. v1 writes a number near 2^63 for "none", v2 the word "max". */
static int64_t read_limit(struct host_files *files, const struct host_group *group, const char *path)
{
	static const char *const names[][3] = { { "memory.limit_in_bytes" }, { "memory.max", "memory.high" } };
	int64_t best_bytes = HOST_UNKNOWN;

	for (const char *const *name = names[group->version - 1]; *name; name++) {
		int64_t bytes;
		if (host_read_number(files, &bytes, "%s%s/%s", group->top, path, *name) &&
		    (best_bytes == HOST_UNKNOWN || bytes < best_bytes))
			best_bytes = bytes;
	}
	return best_bytes;
}

/* The least limit from the process's cgroup up to the top; among equal ones the highest, which holds the others. */
static int64_t find_limit(struct host_files *files, const struct host_group *group, char ret_path[PATH_MAX])
{
	int64_t best_bytes = HOST_UNKNOWN, bytes;
	char path[PATH_MAX];
	struct str text;

	if (group->version == 0)
		return HOST_UNKNOWN;
	memcpy(path, group->path, sizeof(path));
	do {
		bytes = read_limit(files, group, path);
		if (bytes != HOST_UNKNOWN && (best_bytes == HOST_UNKNOWN || bytes <= best_bytes)) {
			best_bytes = bytes;
			memcpy(ret_path, path, sizeof(path));
		}
	} while (host_group_up(path));
	/* What binds may lie above the top of what a container is shown; v1 tells the least on the whole way. */
	if (group->version == 1 && host_read(files, &text, "%s%s/memory.stat", group->top, group->path) &&
	    host_keyed(text, "hierarchical_memory_limit", &bytes) &&
	    (best_bytes == HOST_UNKNOWN || bytes < best_bytes)) {
		best_bytes = bytes;
		ret_path[0] = '\0';
	}
	return best_bytes;
}

/* File pages that nobody used lately go when room is needed: they are no load. */
static int64_t group_used_bytes(struct host_files *files, const struct host_group *group, const char *path)
{
	const bool is_v2 = group->version == 2;
	int64_t used_bytes, inactive_bytes;
	struct str text;

	if (!host_read_number(files, &used_bytes, "%s%s/%s", group->top, path,
			      is_v2 ? "memory.current" : "memory.usage_in_bytes") ||
	    !host_read(files, &text, "%s%s/memory.stat", group->top, path) ||
	    !host_keyed(text, is_v2 ? "inactive_file" : "total_inactive_file", &inactive_bytes))
		return HOST_UNKNOWN;
	/* Read one after the other, so the second may be ahead. */
	return max_i64(used_bytes - inactive_bytes, 0);
}

/* "some avg10=0.12 avg60=..." in percent with two digits: 0.12 is 1200 millionths. */
static int64_t read_pressure(struct str text)
{
	struct str word, whole;
	int64_t percent, hundredths;

	if (!host_word(&text, &word) || !str_eq_c(word, "some") || !host_word(&text, &word) ||
	    !str_starts(word, STR("avg10=")))
		return HOST_UNKNOWN;
	word = (struct str){ word.data + 6, word.size - 6 };
	if (!str_cut(&word, '.', &whole) || !host_number(whole, &percent) || word.size != 2 ||
	    !host_number(word, &hundredths) || percent > 100)
		return HOST_UNKNOWN;
	return min_i64(percent * 10000 + hundredths * 100, 1000000);
}

/* The cgroup's own, else the machine's. The kernel may have been told to keep no such account: reading fails then. */
static int64_t find_pressure(struct host_files *files, const struct host_group *unified)
{
	int64_t pressure_ppm = HOST_UNKNOWN;
	struct str text;

	if (unified->version == 2 && host_read(files, &text, "%s%s/memory.pressure", unified->top, unified->path))
		pressure_ppm = read_pressure(text);
	if (pressure_ppm == HOST_UNKNOWN && host_read(files, &text, "/proc/pressure/memory"))
		pressure_ppm = read_pressure(text);
	return pressure_ppm;
}

void host_memory_measure(struct host_files *files, const struct host_groups *groups, struct host_facts *facts)
{
	const struct host_group *group = &groups->of[HOST_MEMORY];
	char path[PATH_MAX] = "";
	const int64_t limit_bytes = find_limit(files, group, path);
	int64_t total_bytes = HOST_UNKNOWN, available_bytes = HOST_UNKNOWN;
	struct str text;

	if (host_read(files, &text, "/proc/meminfo")) {
		if (host_keyed(text, "MemTotal", &total_bytes))
			total_bytes = host_scale(total_bytes, 1024, 1);
		if (host_keyed(text, "MemAvailable", &available_bytes))
			available_bytes = host_scale(available_bytes, 1024, 1);
	}
	/* "No limit" is larger than any machine. Where the machine's size is not known it must not pass for a size. */
	if (limit_bytes != HOST_UNKNOWN && limit_bytes < (total_bytes == HOST_UNKNOWN ? INT64_MAX / 2 : total_bytes)) {
		facts->mem_limit_bytes = limit_bytes;
		facts->mem_used_bytes = group_used_bytes(files, group, path);
	} else {
		facts->mem_limit_bytes = total_bytes;
		if (total_bytes != HOST_UNKNOWN && available_bytes != HOST_UNKNOWN && available_bytes <= total_bytes)
			facts->mem_used_bytes = total_bytes - available_bytes;
	}
	facts->mem_pressure_ppm = find_pressure(files, &groups->unified);
}
