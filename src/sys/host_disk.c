#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "sys/host_inside.h"

/* An overlay on an overlay on ...: the kernel allows two. Where the upper folder is out of sight its path may lead back to the overlay itself. */
#define STACK_MAX 4
/* One sample in so much time, so that the ring covers the window however often we are asked. */
#define SAMPLE_INTERVAL_US (HOST_DISK_WINDOW_US / (HOST_DISK_SAMPLES - 4))
/* A window without a sample near its start (the process was stopped, say) is no five minutes. */
#define SLACK_US (60 * SEC_US)

/* A device's line of /proc/diskstats (kernel: admin-guide/iostats). */
struct disk_line {
	char name[64];
	int64_t io_count; /* reads and writes completed */
	int64_t io_ms;    /* that they took, waiting included */
	int64_t queue_ms; /* each request's time in the queue, summed */
};

/* By name when there is one, else by number. */
struct disk_key {
	const char *name;
	int64_t major, minor;
};

void host_disk_init(struct host_disk *disk, const char *data_dir)
{
	*disk = (struct host_disk){ .queue_ms = HOST_UNKNOWN };
	if (data_dir && !str_copy(str_from(data_dir), disk->data_dir, sizeof(disk->data_dir)))
		disk->data_dir[0] = '\0';
}

static bool read_line(struct str line, const struct disk_key *key, struct disk_line *ret_line)
{
	int64_t major, minor, fields[11];
	struct str name;

	if (!host_number_next(&line, &major) || !host_number_next(&line, &minor) || !host_word(&line, &name))
		return false;
	if (key->name ? !str_eq_c(name, key->name) : major != key->major || minor != key->minor)
		return false;
	for (size_t i = 0; i < COUNT_OF(fields); i++) {
		if (!host_number_next(&line, &fields[i]) || fields[i] > INT64_MAX / 4)
			return false;
	}
	ret_line->io_count = fields[0] + fields[4];
	ret_line->io_ms = fields[3] + fields[7];
	ret_line->queue_ms = fields[10];
	return str_copy(name, ret_line->name, sizeof(ret_line->name));
}

static bool find_line(struct host_files *files, const struct disk_key *key, struct disk_line *ret_line)
{
	struct str text, line;

	if (!host_read(files, &text, "/proc/diskstats"))
		return false;
	while (str_cut(&text, '\n', &line)) {
		if (read_line(line, key, ret_line))
			return true;
	}
	return false;
}

static bool find_by_name(struct host_files *files, const char *name, struct disk_line *ret_line)
{
	return find_line(files, &(struct disk_key){ .name = name }, ret_line);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The device with this number; where the kernel keeps no account of a partition, its whole disk:
 * /sys/dev/block/8:1 -> ../../devices/.../block/sda/sda1 */
static bool find_by_number(struct host_files *files, int64_t major, int64_t minor, struct disk_line *ret_line)
{
	char path[64], target[PATH_MAX];
	char *slash;

	if (find_line(files, &(struct disk_key){ .major = major, .minor = minor }, ret_line))
		return true;
	(void)snprintf(path, sizeof(path), "/sys/dev/block/%lld:%lld", (long long)major, (long long)minor);
	if (!host_link(files, target, path))
		return false;
	slash = strrchr(target, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return find_by_name(files, base_name(target), ret_line);
}

/* "/dev/sda2", "/dev/mapper/vg-data" (a link to ../dm-3 or a device file), for file systems whose own number belongs to no device (btrfs). */
static bool find_by_source(struct host_files *files, const char *source, struct disk_line *ret_line)
{
	char path[PATH_MAX], target[PATH_MAX];
	struct stat info;

	if (host_path(files, path, "%s", source) && stat(path, &info) == 0 && S_ISBLK(info.st_mode))
		return find_by_number(files, major(info.st_rdev), minor(info.st_rdev), ret_line);
	if (host_link(files, target, source))
		return find_by_name(files, base_name(target), ret_line);
	return find_by_name(files, base_name(source), ret_line);
}

static bool find_device(struct host_files *files, const char *data_dir, struct disk_line *ret_line)
{
	char path[PATH_MAX];
	struct host_mount mount;
	struct stat info;

	if (files->is_real && stat(data_dir, &info) == 0 && major(info.st_dev) != 0 &&
	    find_by_number(files, major(info.st_dev), minor(info.st_dev), ret_line))
		return true;
	if (files->is_real ? !realpath(data_dir, path) : !str_copy(str_from(data_dir), path, sizeof(path)))
		return false;
	for (int i = 0; i < STACK_MAX; i++) {
		if (!host_mount_of(files, path, &mount))
			return false;
		if (strcmp(mount.fs_type, "overlay") != 0)
			break;
		/* What is written goes to the upper folder. From inside a container that folder is out of sight: unknown. */
		if (!host_mount_option(&mount, "upperdir", path))
			return false;
	}
	if (mount.major != 0 && find_by_number(files, mount.major, mount.minor, ret_line))
		return true;
	return strncmp(mount.source, "/dev/", 5) == 0 && find_by_source(files, mount.source, ret_line);
}

static const struct host_disk_sample *sample_at(const struct host_disk *disk, size_t index)
{
	return &disk->samples[(disk->first_index + index) % HOST_DISK_SAMPLES];
}

static void drop_first(struct host_disk *disk)
{
	disk->first_index = (disk->first_index + 1) % HOST_DISK_SAMPLES;
	disk->sample_count--;
}

/* The mean over the time since the newest sample that is five minutes old, or since the oldest there is. */
static int64_t mean_io_us(struct host_disk *disk, const struct host_disk_sample *now)
{
	const struct host_disk_sample *first, *last;
	int64_t mean_us = HOST_UNKNOWN;

	if (disk->sample_count > 0) {
		last = sample_at(disk, disk->sample_count - 1);
		if (now->io_count < last->io_count || now->io_ms < last->io_ms || now->at_us < last->at_us)
			disk->sample_count = 0;
	}
	while (disk->sample_count > 1 && now->at_us - sample_at(disk, 1)->at_us >= HOST_DISK_WINDOW_US)
		drop_first(disk);
	if (disk->sample_count > 0 && now->at_us - sample_at(disk, 0)->at_us > HOST_DISK_WINDOW_US + SLACK_US)
		drop_first(disk);
	if (disk->sample_count > 0) {
		first = sample_at(disk, 0);
		mean_us = host_scale(now->io_ms - first->io_ms, 1000, now->io_count - first->io_count);
	}
	if (disk->sample_count == 0 ||
	    now->at_us - sample_at(disk, disk->sample_count - 1)->at_us >= SAMPLE_INTERVAL_US) {
		if (disk->sample_count == HOST_DISK_SAMPLES)
			drop_first(disk);
		disk->samples[(disk->first_index + disk->sample_count) % HOST_DISK_SAMPLES] = *now;
		disk->sample_count++;
	}
	return mean_us;
}

static void measure_space(const struct host_disk *disk, const struct host_files *files, struct host_facts *facts)
{
	char path[PATH_MAX];
	struct statvfs space;

	if (!host_path(files, path, "%s", disk->data_dir) || statvfs(path, &space) < 0)
		return;
	facts->disk_free_bytes = host_scale((int64_t)space.f_bavail, (int64_t)space.f_frsize, 1);
	facts->disk_total_bytes = host_scale((int64_t)space.f_blocks, (int64_t)space.f_frsize, 1);
	if (space.f_files > 0)
		facts->inodes_free = (int64_t)min_size(space.f_favail, INT64_MAX);
}

void host_disk_measure(struct host_disk *disk, struct host_files *files, int64_t elapsed_us, int64_t now_us,
		       struct host_facts *facts)
{
	struct disk_line line;

	if (disk->data_dir[0] == '\0')
		return;
	measure_space(disk, files, facts);
	if (!find_device(files, disk->data_dir, &line)) {
		disk->device[0] = '\0';
		return;
	}
	/* Another disk was mounted there: its counters have nothing to do with the former one's. */
	if (strcmp(disk->device, line.name) != 0) {
		memcpy(disk->device, line.name, sizeof(disk->device));
		disk->queue_ms = HOST_UNKNOWN;
		disk->sample_count = 0;
	}
	memcpy(facts->disk_device, line.name, sizeof(facts->disk_device));
	facts->disk_queue_milli = host_scale(host_delta(&disk->queue_ms, line.queue_ms), SEC_US, elapsed_us);
	facts->disk_io_us = mean_io_us(disk, &(struct host_disk_sample){ now_us, line.io_count, line.io_ms });
}
