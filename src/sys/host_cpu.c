#include <sched.h>

#include "base/hash.h"
#include "sys/host_inside.h"

#define CPUS_MAX      8192
#define PROCESSES_MAX 4096

struct cpu_mask {
	uint64_t bits[CPUS_MAX / 64];
};

/* What a source counts from is named by a number, so that two sources' values are never subtracted from one another. */
enum source { SOURCE_NONE, SOURCE_MACHINE, SOURCE_GROUP, SOURCE_PROCESSES };

void host_cpu_init(struct host_cpu *cpu)
{
	*cpu = (struct host_cpu){ .used_us = HOST_UNKNOWN,
				  .periods_count = HOST_UNKNOWN,
				  .throttled_count = HOST_UNKNOWN };
}

static bool mask_has(const struct cpu_mask *mask, int64_t cpu)
{
	return cpu >= 0 && cpu < CPUS_MAX && (mask->bits[cpu / 64] >> (cpu % 64) & 1) != 0;
}

static int64_t mask_count(const struct cpu_mask *mask)
{
	int64_t count = 0;

	for (size_t i = 0; i < COUNT_OF(mask->bits); i++)
		count += __builtin_popcountll(mask->bits[i]);
	return count;
}

/* "0-3,8,10-11" */
static bool mask_read(struct str list, struct cpu_mask *mask)
{
	struct str range, first;

	*mask = (struct cpu_mask){ 0 };
	while (str_cut(&list, ',', &range)) {
		int64_t from, to;

		if (!str_cut(&range, '-', &first) || !host_number(first, &from))
			return false;
		to = from;
		if ((range.size > 0 && !host_number(range, &to)) || to < from || to >= CPUS_MAX)
			return false;
		for (int64_t cpu = from; cpu <= to; cpu++)
			mask->bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
	}
	return true;
}

static bool mask_ask_kernel(int pid, struct cpu_mask *mask)
{
	_Static_assert(sizeof(struct cpu_mask) % sizeof(cpu_set_t) == 0, "the kernel fills whole sets");
	cpu_set_t sets[sizeof(struct cpu_mask) / sizeof(cpu_set_t)];

	memset(sets, 0, sizeof(sets));
	if (sched_getaffinity(pid, sizeof(sets), sets) < 0)
		return false;
	memcpy(mask, sets, sizeof(*mask));
	return true;
}

/* The process's mask may name CPUs that are offline, or that this machine could have but has not. */
static bool find_mask(struct host_files *files, struct cpu_mask *ret_mask)
{
	struct cpu_mask allowed, online;
	struct str text, line, word;

	if (host_read(files, &text, "%s/status", files->process)) {
		while (str_cut(&text, '\n', &line)) {
			if (!host_word(&line, &word) || !str_eq_c(word, "Cpus_allowed_list:"))
				continue;
			if (!host_word(&line, &word) || !mask_read(word, &allowed))
				break;
			if (!host_read(files, &text, "/sys/devices/system/cpu/online") || !host_word(&text, &word) ||
			    !mask_read(word, &online))
				break;
			for (size_t i = 0; i < COUNT_OF(allowed.bits); i++)
				ret_mask->bits[i] = allowed.bits[i] & online.bits[i];
			if (mask_count(ret_mask) > 0)
				return true;
			break;
		}
	}
	return files->is_real && mask_ask_kernel(files->pid, ret_mask) && mask_count(ret_mask) > 0;
}

/* Thousandths of a core; unknown: no quota here. */
static int64_t read_quota(struct host_files *files, const struct host_group *group, const char *path)
{
	int64_t quota_us, period_us, cores_milli;
	struct str text;

	if (group->version == 2) {
		/* "150000 100000" or "max 100000" */
		if (!host_read(files, &text, "%s%s/cpu.max", group->top, path) || !host_number_next(&text, &quota_us) ||
		    !host_number_next(&text, &period_us))
			return HOST_UNKNOWN;
	} else if (!host_read_number(files, &quota_us, "%s%s/cpu.cfs_quota_us", group->top, path) ||
		   !host_read_number(files, &period_us, "%s%s/cpu.cfs_period_us", group->top, path)) {
		/* -1, which is no number to us, says that there is no quota. */
		return HOST_UNKNOWN;
	}
	if (quota_us <= 0)
		return HOST_UNKNOWN;
	cores_milli = host_scale(quota_us, 1000, period_us);
	return cores_milli == 0 ? 1 : cores_milli;
}

/* The least quota from the process's cgroup up to the top; among equal ones the highest, which holds the others. */
static int64_t find_quota(struct host_files *files, const struct host_group *group, char ret_path[PATH_MAX])
{
	int64_t best_milli = HOST_UNKNOWN;
	char path[PATH_MAX];

	if (group->version == 0)
		return HOST_UNKNOWN;
	memcpy(path, group->path, sizeof(path));
	do {
		const int64_t cores_milli = read_quota(files, group, path);
		if (cores_milli != HOST_UNKNOWN && (best_milli == HOST_UNKNOWN || cores_milli <= best_milli)) {
			best_milli = cores_milli;
			memcpy(ret_path, path, sizeof(path));
		}
	} while (host_group_up(path));
	return best_milli;
}

/* What the processes of the cgroup used, for machines whose v1 hierarchies "cpu" and "cpuacct" are mounted apart and where the process is in the
 * former's cgroup only. Other cgroups below the same quota are not in it. A process that ends takes its count along, so the set of processes is
 * part of the source's name. */
static int64_t processes_used_us(struct host_files *files, const struct host_group *group, uint64_t *ret_source)
{
	struct buf pids = BUF_INIT(MIB);
	struct str text, rest;
	int64_t pid, ticks, start, total = 0;
	size_t count = 0;

	if (!host_read(files, &text, "%s%s/cgroup.procs", group->top, group->path) || !buf_append(&pids, text)) {
		buf_fini(&pids);
		return HOST_UNKNOWN;
	}
	*ret_source = hash64(pids.data, pids.size) ^ SOURCE_PROCESSES;
	rest = buf_str(&pids);
	while (total >= 0 && host_number_next(&rest, &pid)) {
		char process[32];

		(void)snprintf(process, sizeof(process), "/proc/%lld", (long long)pid);
		if (++count > PROCESSES_MAX || !host_process_stat(files, process, &ticks, &start) ||
		    ticks > INT64_MAX - total)
			total = HOST_UNKNOWN;
		else
			total += ticks;
	}
	buf_fini(&pids);
	return count == 0 ? HOST_UNKNOWN : host_scale(total, SEC_US, host_ticks_per_second());
}

static int64_t group_used_us(struct host_files *files, const struct host_groups *groups, const char *path,
			     uint64_t *ret_source)
{
	const struct host_group *cpu = &groups->of[HOST_CPU], *account = &groups->of[HOST_CPUACCT];
	struct str text;
	int64_t used;

	*ret_source = hash64(path, strlen(path)) ^ SOURCE_GROUP;
	if (cpu->version == 2)
		return host_read(files, &text, "%s%s/cpu.stat", cpu->top, path) && host_keyed(text, "usage_usec", &used)
			       ? used
			       : HOST_UNKNOWN;
	if (account->version == 1 && strcmp(account->path, cpu->path) == 0)
		return host_read_number(files, &used, "%s%s/cpuacct.usage", account->top, path) ? used / 1000
												: HOST_UNKNOWN;
	return processes_used_us(files, cpu, ret_source);
}

/* "cpu3 user nice system idle iowait irq softirq steal guest guest_nice": all but idle and iowait is busy; guest is in user already. Stolen time
 * counts as busy: nobody here could have used it. */
static bool read_cpu_line(struct str line, int64_t *ret_cpu, int64_t *ret_busy_ticks)
{
	struct str word;
	int64_t busy_ticks = 0;

	if (!host_word(&line, &word) || !str_starts(word, STR("cpu")) ||
	    !host_number((struct str){ word.data + 3, word.size - 3 }, ret_cpu))
		return false;
	for (int i = 0; i < 8; i++) {
		int64_t ticks;
		/* Kernels before 2.6.11 know no steal. */
		if (!host_number_next(&line, &ticks)) {
			if (i < 7)
				return false;
			break;
		}
		if (ticks > INT64_MAX / 16)
			return false;
		if (i != 3 && i != 4)
			busy_ticks += ticks;
	}
	*ret_busy_ticks = busy_ticks;
	return true;
}

static int64_t machine_used_us(struct host_files *files, const struct cpu_mask *mask, uint64_t *ret_source)
{
	struct cpu_mask counted = { 0 };
	struct str text, line;
	int64_t cpu, busy_ticks, total = 0;

	if (!host_read(files, &text, "/proc/stat"))
		return HOST_UNKNOWN;
	while (str_cut(&text, '\n', &line)) {
		if (!read_cpu_line(line, &cpu, &busy_ticks) || !mask_has(mask, cpu) || mask_has(&counted, cpu))
			continue;
		counted.bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
		total = busy_ticks > INT64_MAX - total ? INT64_MAX : total + busy_ticks;
	}
	*ret_source = hash64(&counted, sizeof(counted)) ^ SOURCE_MACHINE;
	/* A CPU whose line is missing was busy or not: nobody knows. */
	if (mask_count(&counted) != mask_count(mask))
		return HOST_UNKNOWN;
	return host_scale(total, SEC_US, host_ticks_per_second());
}

static void measure_throttling(struct host_cpu *cpu, struct host_files *files, const struct host_group *group,
			       const char *path, struct host_facts *facts)
{
	int64_t periods_count = HOST_UNKNOWN, throttled_count = HOST_UNKNOWN;
	struct str text;

	if (host_read(files, &text, "%s%s/cpu.stat", group->top, path) &&
	    (!host_keyed(text, "nr_periods", &periods_count) || !host_keyed(text, "nr_throttled", &throttled_count)))
		periods_count = throttled_count = HOST_UNKNOWN;
	periods_count = host_delta(&cpu->periods_count, periods_count);
	throttled_count = host_delta(&cpu->throttled_count, throttled_count);
	/* A cgroup that had nothing to run began no period, and was not throttled in any. */
	facts->cpu_throttled_ppm = periods_count == 0 && throttled_count == 0
					   ? 0
					   : host_scale(throttled_count, 1000000, periods_count);
}

void host_cpu_measure(struct host_cpu *cpu, struct host_files *files, const struct host_groups *groups,
		      int64_t elapsed_us, struct host_facts *facts)
{
	struct cpu_mask mask = { 0 };
	char path[PATH_MAX] = "";
	const int64_t quota_milli = find_quota(files, &groups->of[HOST_CPU], path);
	const bool is_masked = find_mask(files, &mask);
	const int64_t mask_milli = is_masked ? mask_count(&mask) * 1000 : HOST_UNKNOWN;
	const bool is_quota = quota_milli != HOST_UNKNOWN && (!is_masked || quota_milli < mask_milli);
	uint64_t source = SOURCE_NONE;
	int64_t used_us = HOST_UNKNOWN;

	facts->cpu_cores_milli = is_quota ? quota_milli : mask_milli;
	if (is_quota)
		used_us = group_used_us(files, groups, path, &source);
	else if (is_masked)
		used_us = machine_used_us(files, &mask, &source);
	if (source != cpu->source) {
		host_cpu_init(cpu);
		cpu->source = source;
	}
	used_us = host_delta(&cpu->used_us, used_us);
	facts->cpu_busy_milli = host_scale(used_us, 1000, elapsed_us);
	if (is_quota)
		measure_throttling(cpu, files, &groups->of[HOST_CPU], path, facts);
}
