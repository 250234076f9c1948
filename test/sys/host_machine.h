/* Recorded machines: folders with the files that sys/host reads, made in a scratch folder. For the tests of sys/host. */
#ifndef HENG_TEST_HOST_MACHINE_H
#define HENG_TEST_HOST_MACHINE_H

#include "base/clock.h"
#include "sys/fs.h"
#include "sys/host.h"

static char scratch[64];
static char root[128]; /* the recorded machine of the test that runs */

static void put(const char *path, const char *content)
{
	char whole[PATH_MAX];
	char *slash;
	int fd;

	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	slash = strrchr(whole, '/');
	*slash = '\0';
	assert_int_equal(fs_make_dirs(whole, NULL), 0);
	*slash = '/';
	fd = open(whole, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	assert_int_equal(close(fd), 0);
}

static UNUSED void drop(const char *path)
{
	char whole[PATH_MAX];

	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	assert_int_equal(unlink(whole), 0);
}

static UNUSED void link_to(const char *path, const char *target)
{
	char whole[PATH_MAX];

	put(path, "");
	drop(path);
	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	assert_int_equal(symlink(target, whole), 0);
}

struct file {
	const char *path, *content;
};
/* A row without a path ends the table. */
static UNUSED void put_all(const struct file *files)
{
	for (; files->path; files++)
		put(files->path, files->content);
}

static UNUSED void begin_machine(void)
{
	static unsigned number;

	(void)snprintf(root, sizeof(root), "%s/m%u", scratch, number++);
	assert_int_equal(mkdir(root, 0700), 0);
}

/* Four CPUs of which the process may use three; 8 GiB; one disk with a partition; eth0 and lo. */
static UNUSED const struct file plain[] = {
	{ "/proc/self/status", "Name:\ta b\nVmRSS:\t    2048 kB\nThreads:\t7\nCpus_allowed_list:\t0-1,3,5-900\n" },
	{ "/proc/self/stat",
	  "42 (a) R (b) S 1 1 1 0 -1 4194560 0 0 0 0 150 50 0 0 20 0 7 0 12345 1000 512 18446744073709551615 0 0\n" },
	{ "/proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"
			       "Max cpu time              unlimited            unlimited            seconds   \n"
			       "Max open files            1024                 4096                 files     \n" },
	{ "/proc/self/fd/0", "" },
	{ "/proc/self/fd/1", "" },
	{ "/proc/self/fd/17", "" },
	{ "/proc/self/cgroup", "" },
	{ "/proc/self/mountinfo", "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" },
	{ "/proc/self/net/dev", "Inter-|   Receive                                                |  Transmit\n"
				" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets "
				"errs drop fifo colls carrier compressed\n"
				"    lo: 5000 1 0 0 0 0 0 0 5000 1 0 0 0 0 0 0\n"
				"  eth0: 1000000 10 0 0 0 0 0 0 2000000 20 0 0 0 0 0 0\n" },
	{ "/proc/self/net/snmp",
	  "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm MaxConn CurrEstab InSegs\nTcp: 1 -1 37 9\n" },
	{ "/proc/stat", "cpu  1 1 1 1 1 1 1 1 1 1\n"
			"cpu0 100 0 100 1000 50 0 0 0 0 0\n"
			"cpu1 100 0 100 1000 50 0 0 0 0 0\n"
			"cpu2 100 0 100 1000 50 0 0 0 0 0\n"
			"cpu3 100 0 100 1000 50 0 0 0 0 0\n"
			"btime 1700000000\n" },
	{ "/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:          100 kB\nMemAvailable:    6291456 kB\n" },
	{ "/proc/pressure/memory",
	  "some avg10=1.25 avg60=0.50 avg300=0.10 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n" },
	{ "/proc/diskstats", "   8       0 sda 1000 0 8 5000 1000 0 8 15000 0 900 20000\n"
			     "   8       1 sda1 500 0 8 2500 500 0 8 7500 0 900 10000\n" },
	{ "/sys/devices/system/cpu/online", "0-3\n" },
	{ "/data/here", "" },
	{ NULL, NULL },
};

static int setup(void **state)
{
	(void)state;
	(void)snprintf(scratch, sizeof(scratch), "/tmp/heng-t-host-XXXXXX");
	return mkdtemp(scratch) == NULL;
}

static int teardown(void **state)
{
	int parent_fd = fs_open_dir("/tmp", NULL);

	(void)state;
	if (parent_fd < 0 || fs_remove_tree(parent_fd, scratch + strlen("/tmp/"), NULL) < 0)
		return 1;
	return close(parent_fd);
}

#endif
