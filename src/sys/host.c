#include "sys/host_inside.h"

struct host {
	struct host_files files;
	struct host_groups groups;
	struct host_cpu cpu;
	struct host_disk disk;
	struct host_net net;
	bool has_measured;
	int64_t measured_us;
};

struct host *host_new(const char *root, const char *data_dir, int pid)
{
	struct host *host = must_zalloc(1, sizeof(*host));
	struct host_files *files = &host->files;
	const size_t root_size = strlen(root);

	/* A root that is too long is no folder of any machine; without it nothing is found. */
	if (root_size < sizeof(files->root))
		memcpy(files->root, root, root_size + 1);
	else
		memcpy(files->root, "/nonexistent", sizeof("/nonexistent"));
	files->is_real = root_size == 0;
	files->pid = pid;
	files->start_ticks = -1;
	if (pid > 0)
		(void)snprintf(files->process, sizeof(files->process), "/proc/%d", pid);
	else
		(void)snprintf(files->process, sizeof(files->process), "/proc/self");
	host_cpu_init(&host->cpu);
	host_disk_init(&host->disk, data_dir);
	return host;
}

void host_free(struct host **host)
{
	if (!*host)
		return;
	buf_fini(&(*host)->files.text);
	free(*host);
	*host = NULL;
}

void host_measure(struct host *host, int64_t now_us, struct host_facts *ret_facts)
{
	const int64_t elapsed_us = host->has_measured ? now_us - host->measured_us : 0;

	*ret_facts = (struct host_facts){
		.cpu_busy_milli = HOST_UNKNOWN,
		.cpu_cores_milli = HOST_UNKNOWN,
		.cpu_throttled_ppm = HOST_UNKNOWN,
		.rss_bytes = HOST_UNKNOWN,
		.mem_limit_bytes = HOST_UNKNOWN,
		.mem_used_bytes = HOST_UNKNOWN,
		.mem_pressure_ppm = HOST_UNKNOWN,
		.disk_queue_milli = HOST_UNKNOWN,
		.disk_io_us = HOST_UNKNOWN,
		.disk_free_bytes = HOST_UNKNOWN,
		.disk_total_bytes = HOST_UNKNOWN,
		.inodes_free = HOST_UNKNOWN,
		.net_rx_bps = HOST_UNKNOWN,
		.net_tx_bps = HOST_UNKNOWN,
		.tcp_conns = HOST_UNKNOWN,
		.fds_open = HOST_UNKNOWN,
		.fds_limit = HOST_UNKNOWN,
		.threads = HOST_UNKNOWN,
		.started_wall_us = HOST_UNKNOWN,
	};
	host_groups_find(&host->groups, &host->files);
	memcpy(ret_facts->cgroup, host_groups_name(&host->groups), strlen(host_groups_name(&host->groups)) + 1);
	host_cpu_measure(&host->cpu, &host->files, &host->groups, elapsed_us, ret_facts);
	host_memory_measure(&host->files, &host->groups, ret_facts);
	host_disk_measure(&host->disk, &host->files, elapsed_us, now_us, ret_facts);
	host_net_measure(&host->net, &host->files, elapsed_us, ret_facts);
	host_process_measure(&host->files, ret_facts);
	host->measured_us = now_us;
	host->has_measured = true;
}
