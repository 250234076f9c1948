#include <dirent.h>
#include <unistd.h>

#include "sys/host_inside.h"

#define DESCRIPTORS_MAX 1048576

int64_t host_ticks_per_second(void)
{
	const long ticks = sysconf(_SC_CLK_TCK);

	return ticks > 0 ? ticks : 100;
}

bool host_process_stat(struct host_files *files, const char *process, int64_t *ret_cpu_ticks, int64_t *ret_start_ticks)
{
	struct str text, word;
	const char *end;
	int64_t user_ticks = 0, system_ticks = 0, start_ticks = 0;

	/* "12 (a name) R 1 ...": the name may hold brackets and blanks, so it ends at the last bracket. */
	if (!host_read(files, &text, "%s/stat", process) || text.size == 0)
		return false;
	end = memrchr(text.data, ')', text.size);
	if (!end)
		return false;
	text = (struct str){ end + 1, text.size - (size_t)(end + 1 - text.data) };
	for (int field = 3; field <= 22; field++) {
		int64_t *value = field == 14   ? &user_ticks
				 : field == 15 ? &system_ticks
				 : field == 22 ? &start_ticks
					       : NULL;

		if (!host_word(&text, &word) || (value && !host_number(word, value)))
			return false;
	}
	if (user_ticks > INT64_MAX / 4 || system_ticks > INT64_MAX / 4)
		return false;
	*ret_cpu_ticks = user_ticks + system_ticks;
	*ret_start_ticks = start_ticks;
	return true;
}

static int64_t count_descriptors(const struct host_files *files)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	int64_t count = 0;
	DIR *dir;

	if (!host_path(files, path, "%s/fd", files->process))
		return HOST_UNKNOWN;
	dir = opendir(path);
	if (!dir)
		return HOST_UNKNOWN;
	while (count < DESCRIPTORS_MAX && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.')
			count++;
	}
	(void)closedir(dir);
	/* The one that counts is not the process's own business. */
	return files->is_real && files->pid == 0 ? count - 1 : count;
}

/* The kernel moves the time of boot with the wall clock. When a process was started is told once and for all: whoever hears it takes another time for
 * another process. */
static int64_t find_start(struct host_files *files)
{
	int64_t boot_s, cpu_ticks, start_ticks, start_us;
	struct str text;

	if (!host_process_stat(files, files->process, &cpu_ticks, &start_ticks))
		return HOST_UNKNOWN;
	if (start_ticks == files->start_ticks)
		return files->started_wall_us;
	if (!host_read(files, &text, "/proc/stat") || !host_keyed(text, "btime", &boot_s) ||
	    boot_s > INT64_MAX / SEC_US / 2)
		return HOST_UNKNOWN;
	start_us = host_scale(start_ticks, SEC_US, host_ticks_per_second());
	if (start_us > INT64_MAX / 2)
		return HOST_UNKNOWN;
	files->start_ticks = start_ticks;
	files->started_wall_us = boot_s * SEC_US + start_us;
	return files->started_wall_us;
}

void host_process_measure(struct host_files *files, struct host_facts *facts)
{
	struct str text;
	int64_t value;

	if (host_read(files, &text, "%s/status", files->process)) {
		if (host_keyed(text, "VmRSS", &value))
			facts->rss_bytes = host_scale(value, 1024, 1);
		if (host_keyed(text, "Threads", &value))
			facts->threads = value;
	}
	if (host_read(files, &text, "%s/limits", files->process) && host_keyed(text, "Max open files", &value))
		facts->fds_limit = value;
	facts->fds_open = count_descriptors(files);
	facts->started_wall_us = find_start(files);
}
