/* What this machine and this process measure on themselves: /proc, /sys, cgroup v1 and v2, statvfs, the data folder's device, PSI. A source that is
 * missing, unreadable or garbled gives HOST_UNKNOWN, never 0; so does a rate over an interval in which its counter went back. All paths lie below a
 * root, so that tests give recorded trees. */
#ifndef HENG_SYS_HOST_H
#define HENG_SYS_HOST_H

#include "base/err.h"

#define HOST_UNKNOWN (-1)

struct host_facts {
	/* Thousandths of a core, over the interval since the last call. Where a quota binds: what the cgroup with that quota used. Else what all
	 * processes of the machine used of the CPUs in our affinity mask. */
	int64_t cpu_busy_milli;
	int64_t cpu_cores_milli; /* cgroup quota (the least on the way up to the root), at most the affinity mask; else the mask */
	int64_t cpu_throttled_ppm; /* share of the periods in which that cgroup was throttled; unknown without a quota */
	int64_t rss_bytes;
	int64_t mem_limit_bytes; /* the least limit on the way up, at most physical memory; else physical */
	int64_t mem_used_bytes; /* of the cgroup whose limit that is, without inactive file pages; else of the machine */
	int64_t mem_pressure_ppm;
	int64_t disk_queue_milli,
		disk_io_us; /* of the device that holds the data folder; queue over the interval, io over
						 five minutes (unknown when there was none) */
	int64_t disk_free_bytes, disk_total_bytes,
		inodes_free;            /* inodes unknown where the file system makes them as it likes (btrfs) */
	int64_t net_rx_bps, net_tx_bps; /* bits; all interfaces but lo; lo when there is no other */
	/* Of the network namespace, v4 and v6. From the kernel's gauge (CurrEstab, RFC 4022), which costs the same however many there are, and which
	 * counts connections in CLOSE-WAIT too; without it counted line by line, up to a bound; beyond the bound all sockets in use. */
	int64_t tcp_conns;
	int64_t fds_open, fds_limit, threads;
	int64_t started_wall_us;
	char disk_device
		[64]; /* "vda", "vda1" where the partition has counters of its own, "dm-0" for a mapped one; "" unknown */
	char cgroup[16]; /* "v1", "v2", "none": where processor and memory are limited */
};

struct host;
/* root: "" for the real machine. data_dir NULL: disk fields stay unknown. pid 0: this process. Never fails for a missing source. */
struct host *host_new(const char *root, const char *data_dir, int pid);
void host_free(struct host **host);
/* Rates are over the time since the former call; the first call gives unknown for them. now_us: monotonic. One caller at a time; blocks as long as
 * the data folder's file system does. */
void host_measure(struct host *host, int64_t now_us, struct host_facts *ret_facts);

#endif
