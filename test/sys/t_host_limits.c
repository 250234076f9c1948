#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "sys/host_machine.h"

#define V1_MOUNTS                                                                     \
	"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"                                       \
	"31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" \
	"34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define V1_SPLIT_MOUNTS                                            \
	"31 30 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu\n"         \
	"32 30 0:29 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n" \
	"40 30 0:37 / /cg/unified rw - cgroup2 cgroup2 rw\n"
#define V1_NONE "9223372036854771712\n"

struct limits_row {
	const char *name;
	const struct file *files; /* beside the plain machine's; replace them */
	const char *cgroup;
	int64_t cores_milli, limit_bytes, used_bytes, pressure_ppm;
};

static const struct file v1_quota[] = {
	{ "/proc/self/cgroup", "4:memory:/\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/\n" },
	{ "/proc/self/mountinfo", V1_MOUNTS },
	{ "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n" },
	{ "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n" },
	{ "/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n" },
	{ "/sys/fs/cgroup/memory/memory.usage_in_bytes", "200000000\n" },
	{ "/sys/fs/cgroup/memory/memory.stat",
	  "inactive_file 5\nhierarchical_memory_limit 268435456\ntotal_inactive_file 50000000\n" },
	{ NULL, NULL },
};
/* The parent is the tighter one for the processor, the child for memory. */
static const struct file v1_nested[] = {
	{ "/proc/self/cgroup", "4:memory:/a/b\n2:cpu,cpuacct:/a/b:c\n" },
	{ "/proc/self/mountinfo", V1_MOUNTS },
	{ "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n" },
	{ "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n" },
	{ "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "25000\n" },
	{ "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000\n" },
	{ "/sys/fs/cgroup/cpu,cpuacct/a/b:c/cpu.cfs_quota_us", "60000\n" },
	{ "/sys/fs/cgroup/cpu,cpuacct/a/b:c/cpu.cfs_period_us", "100000\n" },
	{ "/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE },
	{ "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "500000000\n" },
	{ "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "400000000\n" },
	{ "/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "100\n" },
	/* Counted after the usage was read, and larger by then. */
	{ "/sys/fs/cgroup/memory/a/b/memory.stat", "hierarchical_memory_limit 400000000\ntotal_inactive_file 101\n" },
	{ NULL, NULL },
};
static const struct file v1_unlimited[] = {
	{ "/proc/self/cgroup", "4:memory:/a\n2:cpu,cpuacct:/a\n" },
	{ "/proc/self/mountinfo", V1_MOUNTS },
	{ "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n" },
	{ "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n" },
	{ "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", V1_NONE },
	{ "/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100\n" },
	{ "/sys/fs/cgroup/memory/a/memory.stat",
	  "hierarchical_memory_limit 18446744073709551615\ntotal_inactive_file 1\n" },
	{ NULL, NULL },
};
/* A container without a namespace of its own: the mount shows its part, the path is the whole one. What binds lies above what it can see. */
static const struct file v1_container[] = {
	{ "/proc/self/cgroup", "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n" },
	{ "/proc/self/mountinfo",
	  "31 30 0:28 /docker/abc /sys/fs/cgroup/cpu\\040acct ro master:9 shared:3 - cgroup cgroup rw,cpu,cpuacct\n"
	  "34 30 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" },
	{ "/sys/fs/cgroup/cpu acct/cpu.cfs_quota_us", "200000\n" },
	{ "/sys/fs/cgroup/cpu acct/cpu.cfs_period_us", "100000\n" },
	{ "/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE },
	{ "/sys/fs/cgroup/memory/memory.usage_in_bytes", "3000000\n" },
	{ "/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 1000000000\ntotal_inactive_file 1000000\n" },
	{ NULL, NULL },
};
static const struct file v2_max[] = {
	{ "/proc/self/cgroup", "0::/a\n" },
	{ "/proc/self/mountinfo", "40 30 0:37 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n" },
	{ "/sys/fs/cgroup/a/cpu.max", "max 100000\n" },
	{ "/sys/fs/cgroup/a/memory.max", "max\n" },
	{ "/sys/fs/cgroup/a/memory.high", "max\n" },
	{ "/sys/fs/cgroup/a/memory.current", "77\n" },
	{ "/sys/fs/cgroup/a/memory.pressure", "some avg10=0.07 avg60=0.00 avg300=0.00 total=0\n" },
	{ NULL, NULL },
};
/* The parent is the tighter one for both; memory by its throttling limit. The lowest cgroup has no controllers. */
static const struct file v2_nested[] = {
	{ "/proc/self/cgroup", "0::/a/b/c\n" },
	{ "/proc/self/mountinfo", "40 30 0:37 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" },
	{ "/sys/fs/cgroup/a/cpu.max", "50000 100000\n" },
	{ "/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n" },
	{ "/sys/fs/cgroup/a/memory.max", "2000000\n" },
	{ "/sys/fs/cgroup/a/memory.high", "1000000\n" },
	{ "/sys/fs/cgroup/a/memory.current", "900000\n" },
	{ "/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 400000\nactive_file 3\n" },
	{ "/sys/fs/cgroup/a/b/memory.max", "1500000\n" },
	{ "/sys/fs/cgroup/a/b/memory.current", "1\n" },
	{ "/sys/fs/cgroup/a/b/memory.stat", "inactive_file 0\n" },
	{ NULL, NULL },
};
/* Of equal limits the outer one binds: it holds more. */
static const struct file v2_equal[] = {
	{ "/proc/self/cgroup", "0::/a/b\n" },
	{ "/proc/self/mountinfo", "40 30 0:37 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" },
	{ "/sys/fs/cgroup/a/memory.max", "1000\n" },
	{ "/sys/fs/cgroup/a/memory.current", "900\n" },
	{ "/sys/fs/cgroup/a/memory.stat", "inactive_file 1\n" },
	{ "/sys/fs/cgroup/a/b/memory.max", "1000\n" },
	{ "/sys/fs/cgroup/a/b/memory.current", "700\n" },
	{ "/sys/fs/cgroup/a/b/memory.stat", "inactive_file 1\n" },
	{ NULL, NULL },
};
/* In a cgroup namespace the path is "/" and the mount's top has limits. More cores than the mask: the mask binds. */
static const struct file v2_namespace[] = {
	{ "/proc/self/cgroup", "0::/\n" },
	{ "/proc/self/mountinfo", "40 30 0:37 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n" },
	{ "/sys/fs/cgroup/cpu.max", "800000 100000\n" },
	{ "/sys/fs/cgroup/memory.max", "1000000\n" },
	{ "/sys/fs/cgroup/memory.current", "600000\n" },
	{ NULL, NULL },
};
/* Entered from outside: the path leads out of what is mounted, whose top is the best there is. */
static const struct file v2_outside[] = {
	{ "/proc/self/cgroup", "0::/../../other\n" },
	{ "/proc/self/mountinfo", "40 30 0:37 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n" },
	{ "/sys/fs/cgroup/cpu.max", "100000 100000\n" },
	{ "/sys/cpu.max", "10000 100000\n" },
	{ NULL, NULL },
};
/* v1 exists but is not mounted here: v2 has no word on it. */
static const struct file v1_unmounted[] = {
	{ "/proc/self/cgroup", "4:memory:/a\n2:cpu:/a\n0::/\n" },
	{ "/proc/self/mountinfo", "40 30 0:37 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n" },
	{ "/sys/fs/cgroup/cpu.max", "100000 100000\n" },
	{ "/sys/fs/cgroup/memory.max", "1000000\n" },
	{ NULL, NULL },
};
static const struct file bad_quota[] = {
	{ "/proc/self/cgroup", "0::/a/b\n" },
	{ "/proc/self/mountinfo", "40 30 0:37 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n" },
	{ "/sys/fs/cgroup/a/b/cpu.max", "100000 0\n" },
	{ "/sys/fs/cgroup/a/cpu.max", "0 100000\n" },
	{ "/sys/fs/cgroup/cpu.max", "1\n" },
	{ "/sys/fs/cgroup/memory.max", "10 pages\n" },
	{ "/sys/fs/cgroup/a/memory.max", "-10\n" },
	{ "/sys/fs/cgroup/a/b/memory.max", "0x10\n" },
	{ NULL, NULL },
};

static void test_limits(void **state)
{
	static const int64_t memory = 8 * (int64_t)GIB, used = 2 * (int64_t)GIB;
	const struct limits_row rows[] = {
		{ "v1 with quota", v1_quota, "v1", 1500, 268435456, 150000000, 12500 },
		{ "v1 nested", v1_nested, "v1", 500, 400000000, 0, 12500 },
		{ "v1 unlimited", v1_unlimited, "v1", 3000, memory, used, 12500 },
		{ "v1 container", v1_container, "v1", 2000, 1000000000, 2000000, 12500 },
		{ "v2 max", v2_max, "v2", 3000, memory, used, 700 },
		{ "v2 nested", v2_nested, "v2", 500, 1000000, 500000, 12500 },
		{ "v2 equal", v2_equal, "v2", 3000, 1000, 899, 12500 },
		{ "v2 namespace", v2_namespace, "v2", 3000, 1000000, HOST_UNKNOWN, 12500 },
		{ "v2 outside", v2_outside, "v2", 1000, memory, used, 12500 },
		{ "v1 not mounted", v1_unmounted, "none", 3000, memory, used, 12500 },
		{ "bad quota", bad_quota, "v2", 3000, 10, HOST_UNKNOWN, 12500 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct host_facts facts;
		struct host *host;

		begin_machine();
		put_all(plain);
		put_all(rows[i].files);
		host = host_new(root, NULL, 0);
		host_measure(host, SEC_US, &facts);
		host_free(&host);
		if (strcmp(facts.cgroup, rows[i].cgroup) != 0 || facts.cpu_cores_milli != rows[i].cores_milli ||
		    facts.mem_limit_bytes != rows[i].limit_bytes || facts.mem_used_bytes != rows[i].used_bytes ||
		    facts.mem_pressure_ppm != rows[i].pressure_ppm)
			fail_msg("%s: cgroup %s, cores %lld, limit %lld, used %lld, pressure %lld", rows[i].name,
				 facts.cgroup, (long long)facts.cpu_cores_milli, (long long)facts.mem_limit_bytes,
				 (long long)facts.mem_used_bytes, (long long)facts.mem_pressure_ppm);
		assert_int_equal(facts.disk_free_bytes, HOST_UNKNOWN);
	}
}

static void test_quota_use(void **state)
{
	struct host_facts facts;
	struct host *host;

	(void)state;
	begin_machine();
	put_all(plain);
	put_all(v2_nested);
	/* The quota is the parent's, so its use counts, with all that its other children do. */
	put("/sys/fs/cgroup/a/cpu.stat", "usage_usec 1000000\nuser_usec 1\nnr_periods 10\nnr_throttled 1\n");
	put("/sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nnr_periods 1\nnr_throttled 0\n");
	host = host_new(root, NULL, 0);
	host_measure(host, 10 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	assert_int_equal(facts.cpu_throttled_ppm, HOST_UNKNOWN);
	put("/sys/fs/cgroup/a/cpu.stat", "usage_usec 2200000\nnr_periods 50\nnr_throttled 11\n");
	host_measure(host, 13 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 400);
	assert_int_equal(facts.cpu_throttled_ppm, 250000);
	/* Idle: no period began, none was throttled. */
	host_measure(host, 16 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 0);
	assert_int_equal(facts.cpu_throttled_ppm, 0);
	/* Another quota binds now: the former counter has nothing to do with its own. */
	put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
	host_measure(host, 19 * SEC_US, &facts);
	assert_int_equal(facts.cpu_cores_milli, 2500);
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	put("/sys/fs/cgroup/a/b/cpu.stat", "usage_usec 3000005\nnr_periods 1\nnr_throttled 0\n");
	host_measure(host, 22 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 1000);
	/* The process is moved to another cgroup. */
	put("/proc/self/cgroup", "0::/z\n");
	put("/sys/fs/cgroup/z/cpu.max", "100000 100000\n");
	put("/sys/fs/cgroup/z/cpu.stat", "usage_usec 9000000\n");
	host_measure(host, 25 * SEC_US, &facts);
	assert_int_equal(facts.cpu_cores_milli, 1000);
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	put("/sys/fs/cgroup/z/cpu.stat", "usage_usec 8000000\n");
	host_measure(host, 28 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	host_measure(host, 31 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 0);
	assert_int_equal(facts.cpu_throttled_ppm, HOST_UNKNOWN);
	host_free(&host);
}

#define STAT_OF(pid, user, system) \
	pid " (x) R 1 1 1 0 -1 4194560 0 0 0 0 " user " " system " 0 0 20 0 7 0 12345 1000 512\n"

static void test_quota_use_v1(void **state)
{
	struct host_facts facts;
	struct host *host;

	(void)state;
	begin_machine();
	put_all(plain);
	put_all(v1_quota);
	put("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "1000000000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n");
	host = host_new(root, NULL, 0);
	host_measure(host, 10 * SEC_US, &facts);
	put("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "1300000000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 3\nnr_throttled 3\nthrottled_time 9\n");
	host_measure(host, 11 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 300);
	assert_int_equal(facts.cpu_throttled_ppm, 1000000);
	host_free(&host);
	/* The two controllers apart, and the process in a cgroup of one only: its cgroup's processes are added up. */
	begin_machine();
	put_all(plain);
	put("/proc/self/mountinfo", V1_SPLIT_MOUNTS);
	put("/proc/self/cgroup", "2:cpuacct:/\n1:cpu:/q\n0::/\n");
	put("/cg/cpu/q/cpu.cfs_quota_us", "100000\n");
	put("/cg/cpu/q/cpu.cfs_period_us", "100000\n");
	put("/cg/cpuacct/cpuacct.usage", "999999999999\n");
	put("/cg/cpu/q/cgroup.procs", "7\n8\n");
	put("/proc/7/stat", STAT_OF("7", "1000", "0"));
	put("/proc/8/stat", STAT_OF("8", "500", "500"));
	host = host_new(root, NULL, 0);
	host_measure(host, 10 * SEC_US, &facts);
	assert_int_equal(facts.cpu_cores_milli, 1000);
	put("/proc/7/stat", STAT_OF("7", "1030", "0"));
	put("/proc/8/stat", STAT_OF("8", "500", "550"));
	host_measure(host, 12 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 80 * 1000 / sysconf(_SC_CLK_TCK) / 2);
	/* One ended: what it used in between nobody knows. */
	put("/cg/cpu/q/cgroup.procs", "8\n");
	host_measure(host, 14 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	host_measure(host, 16 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 0);
	host_free(&host);
}

/* --- this machine --- */

/* This process's own cgroup in the v1 hierarchy with that controller: a child of it holds the worker alone and touches nobody else. False when
 * there is no such hierarchy. */
static bool find_own_group(const char *controller, char *target, size_t target_size)
{
	struct buf text;
	struct str rest, line, number, list, item;
	char own[512] = "", mount[128], option[64];
	bool is_found = false;

	if (fs_read_file("/proc/self/cgroup", MIB, &text, NULL) < 0)
		return false;
	rest = buf_str(&text);
	while (str_cut(&rest, '\n', &line)) {
		if (!str_cut(&line, ':', &number) || !str_cut(&line, ':', &list))
			continue;
		while (str_cut(&list, ',', &item)) {
			if (str_eq_c(item, controller))
				is_found = str_copy(line, own, sizeof(own));
		}
	}
	buf_fini(&text);
	if (!is_found || fs_read_file("/proc/self/mounts", MIB, &text, NULL) < 0)
		return false;
	/* "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0" */
	rest = buf_str(&text);
	is_found = false;
	while (!is_found && str_cut(&rest, '\n', &line)) {
		char source[64], type[64], options[512], copy[1024];
		if (!str_copy(line, copy, sizeof(copy)) ||
		    sscanf(copy, "%63s %127s %63s %511s", source, mount, type, options) != 4 ||
		    strcmp(type, "cgroup") != 0)
			continue;
		list = str_from(options);
		while (!is_found && str_cut(&list, ',', &item))
			is_found = str_copy(item, option, sizeof(option)) && strcmp(option, controller) == 0;
	}
	buf_fini(&text);
	if (is_found)
		(void)snprintf(target, target_size, "%s%s", mount, strcmp(own, "/") == 0 ? "" : own);
	return is_found;
}

static int set_value(const char *dir, const char *file, long long value)
{
	char path[PATH_MAX], text[32];
	int fd, size, result;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, file);
	size = snprintf(text, sizeof(text), "%lld", value);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	result = write(fd, text, (size_t)size) == size ? 0 : -1;
	(void)close(fd);
	return result;
}

/* A child in a cgroup of its own. It works when told so, and ends with its parent: a cgroup with a process in it would stay. */
struct worker {
	pid_t pid;
	int fd; /* one byte from it when it is in the cgroup, one when its work is done; one to it to begin */
};

#define WORK_US 100000

static void work(const char *dir, int fd)
{
	struct timespec used = { 0 };
	char byte = 'm';

	if (set_value(dir, "cgroup.procs", getpid()) < 0 || write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
		return;
	while (used.tv_sec == 0 && used.tv_nsec < WORK_US * 1000) {
		if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) < 0)
			return;
	}
	if (write(fd, &byte, 1) == 1)
		(void)!read(fd, &byte, 1);
}

static bool start_worker(const char *dir, struct worker *ret_worker)
{
	int ends[2];
	char byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	ret_worker->fd = ends[0];
	ret_worker->pid = fork();
	assert_true(ret_worker->pid >= 0);
	if (ret_worker->pid == 0) {
		(void)close(ends[0]);
		work(dir, ends[1]);
		_exit(0);
	}
	assert_int_equal(close(ends[1]), 0);
	return read(ret_worker->fd, &byte, 1) == 1;
}

static void end_worker(const struct worker *worker, const char *dir)
{
	int64_t until_us = clock_mono_us() + 10 * SEC_US;

	assert_int_equal(close(worker->fd), 0);
	assert_int_equal(waitpid(worker->pid, NULL, 0), worker->pid);
	/* The kernel lets go of the dead a moment later. */
	while (rmdir(dir) < 0) {
		assert_true(errno == EBUSY && clock_mono_us() < until_us);
		(void)sched_yield();
	}
}

/* A cgroup below our own, for a child. False, and why in words, where the machine does not allow it. */
static bool make_group(const char *controller, const char *what, char dir[PATH_MAX])
{
	char top[PATH_MAX - 64];

	if (!find_own_group(controller, top, sizeof(top))) {
		print_message("a real %s is not tried: no cgroup v1 hierarchy has it\n", what);
		return false;
	}
	(void)snprintf(dir, PATH_MAX, "%s/heng-t-host-%d", top, (int)getpid());
	if (mkdir(dir, 0700) == 0)
		return true;
	print_message("a real %s is not tried: making a cgroup in %s: %s\n", what, top, strerror(errno));
	return false;
}

static void test_real_cpu_quota(void **state)
{
	char dir[PATH_MAX], byte = 'g';
	struct host_facts quota, tight, used;
	struct worker worker;
	struct host *host;
	int64_t begun_us, ended_us;
	bool is_set, is_moved, is_done;
	cpu_set_t set;

	(void)state;
	if (!make_group("cpu", "processor quota", dir))
		skip();
	is_set = set_value(dir, "cpu.cfs_period_us", 100000) == 0 && set_value(dir, "cpu.cfs_quota_us", 150000) == 0;
	is_moved = start_worker(dir, &worker);
	host = host_new("", NULL, worker.pid);
	host_measure(host, clock_mono_us(), &quota);
	/* A tighter one, which binds on any machine and which the worker uses up. */
	is_set = is_set && set_value(dir, "cpu.cfs_quota_us", 20000) == 0;
	begun_us = clock_mono_us();
	host_measure(host, begun_us, &tight);
	is_done = is_moved && send(worker.fd, &byte, 1, MSG_NOSIGNAL) == 1 && read(worker.fd, &byte, 1) == 1;
	ended_us = clock_mono_us();
	host_measure(host, ended_us, &used);
	host_free(&host);
	end_worker(&worker, dir);
	assert_true(is_set && is_moved && is_done);
	assert_string_equal(quota.cgroup, "v1");
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	assert_int_equal(quota.cpu_cores_milli, CPU_COUNT(&set) >= 2 ? 1500 : 1000);
	assert_int_equal(tight.cpu_cores_milli, 200);
	assert_int_equal(used.cpu_cores_milli, 200);
	/* What the worker used is told, whatever else the machine does; ticks of 10 ms make it coarse. */
	assert_in_range(used.cpu_busy_milli * (ended_us - begun_us) / 1000, WORK_US - 30000, WORK_US + 30000);
	assert_in_range(used.cpu_throttled_ppm, 1, 1000000);
}

static void test_real_memory_limit(void **state)
{
	char dir[PATH_MAX];
	struct host_facts facts;
	struct worker worker;
	struct host *host;
	bool is_set, is_moved;

	(void)state;
	if (!make_group("memory", "memory limit", dir))
		skip();
	is_set = set_value(dir, "memory.limit_in_bytes", 256 * (long long)MIB) == 0;
	is_moved = start_worker(dir, &worker);
	host = host_new("", NULL, worker.pid);
	host_measure(host, clock_mono_us(), &facts);
	host_free(&host);
	end_worker(&worker, dir);
	assert_true(is_set && is_moved);
	assert_string_equal(facts.cgroup, "v1");
	assert_int_equal(facts.mem_limit_bytes, 256 * (int64_t)MIB);
	assert_in_range(facts.mem_used_bytes, 0, 256 * (int64_t)MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_quota_use),
		cmocka_unit_test(test_quota_use_v1),
		cmocka_unit_test(test_real_cpu_quota),
		cmocka_unit_test(test_real_memory_limit),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
