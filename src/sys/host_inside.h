/* The parts of sys/host, each of which fills its own fields of the facts. Private to the host_*.c files; fs_name.c reads mounts as well. */
#ifndef HENG_SYS_HOST_INSIDE_H
#define HENG_SYS_HOST_INSIDE_H

#include <limits.h>

#include "base/buf.h"
#include "sys/host.h"

/* --- host_file.c: reading below the root, and what is in such files --- */

struct host_files {
	char root[PATH_MAX];                  /* "" or a folder without a slash at its end */
	bool is_real;                         /* root is "": system calls may be asked as well */
	int pid;                              /* 0: this process */
	char process[32];                     /* "/proc/self", "/proc/123" */
	struct buf text;                      /* of the last file read */
	int64_t start_ticks, started_wall_us; /* the process's, as first seen; -1: not yet */
};
/* The file's whole text, which lives until the next read. False when it is missing, unreadable or too large. */
bool host_read(struct host_files *files, struct str *ret_text, const char *fmt, ...) PRINTF(3, 4);
/* The first word of the file as a number. */
bool host_read_number(struct host_files *files, int64_t *ret_value, const char *fmt, ...) PRINTF(3, 4);
/* "root" + path; false when it does not fit. */
bool host_path(const struct host_files *files, char target[PATH_MAX], const char *fmt, ...) PRINTF(3, 4);
/* Where a symbolic link points to. */
bool host_link(const struct host_files *files, char target[PATH_MAX], const char *path);

/* Cuts the next word up to a blank or a line's end. */
bool host_word(struct str *rest, struct str *ret_word);
/* Digits only; what is too large for an int64_t becomes INT64_MAX: kernels write "no limit" so. */
bool host_number(struct str word, int64_t *ret_value);
bool host_number_next(struct str *rest, int64_t *ret_value);
/* The number after the key in the line that begins with the key: "VmRSS:  12 kB", "nr_periods 7". */
bool host_keyed(struct str text, const char *key, int64_t *ret_value);

/* value * multiplier / divisor; unknown when value is, or when divisor is not positive; saturates. */
int64_t host_scale(int64_t value, int64_t multiplier, int64_t divisor);
/* now - *former, then *former = now. Unknown when either is, or when the counter went back. */
int64_t host_delta(int64_t *former, int64_t now);

/* --- host_mount.c: /proc/self/mountinfo --- */

struct host_mount {
	int64_t id, major, minor;
	char root[PATH_MAX], point[PATH_MAX], source[PATH_MAX];
	char fs_type[32];
	struct str options; /* of the file system; as written, in the text that was given */
};
/* Cuts the next mount from *rest; garbled lines are passed over. */
bool host_mount_next(struct str *rest, struct host_mount *ret_mount);
/* The value of "name=value" among the options, "" for a bare "name". False: not there. */
bool host_mount_option(const struct host_mount *mount, const char *name, char target[PATH_MAX]);
/* The mount that holds an absolute path: the last one with the longest mount point. Its options end with the next read. */
bool host_mount_of(struct host_files *files, const char *path, struct host_mount *ret_mount);
/* What is left of `path` below `parent`: "" or "/...". NULL: it is not below. */
const char *host_path_below(const char *path, const char *parent);

/* --- host_cgroup.c: which cgroups bind the process --- */

enum host_controller { HOST_CPU, HOST_CPUACCT, HOST_MEMORY, HOST_CONTROLLERS };
struct host_group {
	int version;         /* 1, 2; 0: none */
	char top[PATH_MAX];  /* the mounted hierarchy */
	char path[PATH_MAX]; /* the process's cgroup below it: "" or "/..." */
};
struct host_groups {
	uint64_t text_hash; /* of the process's cgroup file at the last look */
	struct host_group of[HOST_CONTROLLERS];
	struct host_group unified; /* v2, with or without controllers: it has the pressure files */
};
/* Looks again when the process was moved to another cgroup. */
void host_groups_find(struct host_groups *groups, struct host_files *files);
const char *host_groups_name(const struct host_groups *groups);
/* Cuts the last part off; false at the top. */
bool host_group_up(char path[PATH_MAX]);

/* --- host_cpu.c --- */

struct host_cpu {
	uint64_t source; /* what used_us counts: another source makes the former value worthless */
	int64_t used_us; /* at the last call */
	int64_t periods_count, throttled_count;
};
void host_cpu_init(struct host_cpu *cpu);
/* elapsed_us: since the former call; not positive: rates stay unknown. */
void host_cpu_measure(struct host_cpu *cpu, struct host_files *files, const struct host_groups *groups,
		      int64_t elapsed_us, struct host_facts *facts);

/* --- host_memory.c --- */

void host_memory_measure(struct host_files *files, const struct host_groups *groups, struct host_facts *facts);

/* --- host_disk.c --- */

#define HOST_DISK_SAMPLES   64
#define HOST_DISK_WINDOW_US (300 * SEC_US)

struct host_disk_sample {
	int64_t at_us, io_count, io_ms;
};
struct host_disk {
	char data_dir[PATH_MAX]; /* "": none */
	char device[64];
	int64_t queue_ms;
	struct host_disk_sample samples[HOST_DISK_SAMPLES]; /* a ring, the oldest first */
	size_t first_index, sample_count;
};
void host_disk_init(struct host_disk *disk, const char *data_dir);
void host_disk_measure(struct host_disk *disk, struct host_files *files, int64_t elapsed_us, int64_t now_us,
		       struct host_facts *facts);

/* --- host_net.c --- */

#define HOST_NET_INTERFACES_MAX 256

struct host_interface {
	char name[32];
	int64_t rx_bytes, tx_bytes;
};
struct host_net {
	struct host_interface former[HOST_NET_INTERFACES_MAX];
	size_t former_count;
};
void host_net_measure(struct host_net *net, struct host_files *files, int64_t elapsed_us, struct host_facts *facts);

/* --- host_process.c --- */

/* The fields of /proc/<pid>/stat after the name in brackets, which may hold anything; the first is the state. */
bool host_process_stat(struct host_files *files, const char *process, int64_t *ret_cpu_ticks, int64_t *ret_start_ticks);
int64_t host_ticks_per_second(void);
void host_process_measure(struct host_files *files, struct host_facts *facts);

#endif
