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
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "sys/host_machine.h"

static void test_plain_machine(void **state)
{
	struct host_facts facts;
	struct host *host;

	(void)state;
	begin_machine();
	put_all(plain);
	host = host_new(root, "/data", 0);
	host_measure(host, 100 * SEC_US, &facts);
	/* What has to be counted between two calls is unknown at the first one. */
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	assert_int_equal(facts.disk_queue_milli, HOST_UNKNOWN);
	assert_int_equal(facts.disk_io_us, HOST_UNKNOWN);
	assert_int_equal(facts.net_rx_bps, HOST_UNKNOWN);
	assert_int_equal(facts.net_tx_bps, HOST_UNKNOWN);
	assert_int_equal(facts.cpu_cores_milli, 3000);
	assert_int_equal(facts.cpu_throttled_ppm, HOST_UNKNOWN);
	assert_int_equal(facts.rss_bytes, 2048 * 1024);
	assert_int_equal(facts.mem_limit_bytes, 8 * (int64_t)GIB);
	assert_int_equal(facts.mem_used_bytes, 2 * (int64_t)GIB);
	assert_int_equal(facts.mem_pressure_ppm, 12500);
	assert_int_equal(facts.tcp_conns, 37);
	assert_int_equal(facts.fds_open, 3);
	assert_int_equal(facts.fds_limit, 1024);
	assert_int_equal(facts.threads, 7);
	assert_int_equal(facts.started_wall_us, (int64_t)1700000000 * SEC_US + 12345 * SEC_US / sysconf(_SC_CLK_TCK));
	assert_true(facts.disk_total_bytes > 0 && facts.disk_free_bytes > 0);
	assert_string_equal(facts.disk_device, "sda1");
	assert_string_equal(facts.cgroup, "none");
	/* Two seconds later: CPUs 0 and 3 were busy for half a second each (3 with stolen time, 0 with time for interrupts), 1 waited for a disk, 2 is
	 * not ours. 100 requests took 1.6 s. */
	put("/proc/stat", "cpu0 120 0 110 1000 50 10 10 0 0 0\ncpu1 100 0 100 1000 250 0 0 0 0 0\n"
			  "cpu2 300 0 100 1000 50 0 0 0 0 0\ncpu3 100 0 100 1000 50 0 0 50 0 0\nbtime 1700000000\n");
	put("/proc/diskstats", "   8       0 sda 9000 0 8 90000 9000 0 8 95000 0 900 90000\n"
			       "   8       1 sda1 560 0 8 2600 540 0 8 9000 0 900 13000 1 2 3\n");
	put("/proc/self/net/dev",
	    "lo: 9000 1 0 0 0 0 0 0 9000 1 0 0 0 0 0 0\neth0:1250000 1 0 0 0 0 0 0 2000500 1 0 0 0 0 0 0\n");
	host_measure(host, 102 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 500);
	assert_int_equal(facts.disk_queue_milli, 1500);
	assert_int_equal(facts.disk_io_us, 16000);
	assert_int_equal(facts.net_rx_bps, 250000 * 8 / 2);
	assert_int_equal(facts.net_tx_bps, 500 * 8 / 2);
	/* Nothing happened: that is 0, but a mean over the last five minutes. */
	host_measure(host, 104 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 0);
	assert_int_equal(facts.disk_queue_milli, 0);
	assert_int_equal(facts.disk_io_us, 16000);
	assert_int_equal(facts.net_rx_bps, 0);
	/* Counters that went back (a driver loaded anew, 32 bits that ran over), then on from there. */
	put("/proc/stat", "cpu0 20 0 110 1000 50 10 10 0 0 0\ncpu1 100 0 100 1000 250 0 0 0 0 0\n"
			  "cpu2 300 0 100 1000 50 0 0 0 0 0\ncpu3 100 0 100 1000 50 0 0 50 0 0\n");
	put("/proc/diskstats", "   8       1 sda1 0 0 0 0 0 0 0 0 0 0 0\n");
	put("/proc/self/net/dev", "lo: 9000 1 0 0 0 0 0 0 9000 1 0 0 0 0 0 0\neth0: 0 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n");
	host_measure(host, 106 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	assert_int_equal(facts.disk_queue_milli, HOST_UNKNOWN);
	assert_int_equal(facts.disk_io_us, HOST_UNKNOWN);
	assert_int_equal(facts.net_rx_bps, HOST_UNKNOWN);
	host_measure(host, 108 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, 0);
	assert_int_equal(facts.disk_queue_milli, 0);
	assert_int_equal(facts.disk_io_us, HOST_UNKNOWN);
	assert_int_equal(facts.net_rx_bps, 0);
	/* No time went by, or the caller's clock is broken: no rate. */
	host_measure(host, 108 * SEC_US, &facts);
	assert_int_equal(facts.cpu_busy_milli, HOST_UNKNOWN);
	assert_int_equal(facts.net_tx_bps, HOST_UNKNOWN);
	host_measure(host, 50 * SEC_US, &facts);
	assert_int_equal(facts.disk_queue_milli, HOST_UNKNOWN);
	host_free(&host);
	assert_null(host);
	host_free(&host);
}

static bool is_all_unknown(const struct host_facts *facts)
{
	const struct host_facts none = {
		HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN,
		HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN,
		HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, HOST_UNKNOWN, "",           "none",
	};

	return memcmp(facts, &none, offsetof(struct host_facts, disk_device)) == 0 && facts->disk_device[0] == '\0' &&
	       strcmp(facts->cgroup, "none") == 0;
}

static void test_nothing_there(void **state)
{
	char too_long[PATH_MAX + 1];
	struct host_facts facts;
	struct host *host;

	(void)state;
	begin_machine();
	host = host_new(root, "/no/such/folder", 0);
	for (int64_t i = 1; i < 4; i++) {
		host_measure(host, i * SEC_US, &facts);
		assert_true(is_all_unknown(&facts));
	}
	host_free(&host);
	memset(too_long, 'a', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = '\0';
	host = host_new(too_long, too_long, 0);
	host_measure(host, SEC_US, &facts);
	assert_true(is_all_unknown(&facts));
	host_free(&host);
}

/* Whatever stands in the files: no crash, and no number that is in none of them. */
static void test_garbage(void **state)
{
	static const char *const garbage[] = {
		"",
		"\n",
		"\n\n:\n::\n:::\n - \n -\n",
		"-1 -2 -3 -4 -5 -6 -7 -8 -9 -10 -11 -12 -13 -14\n",
		"cpu0\ncpu0 x\ncpu 1 2\ncpucpu 1 2 3 4 5 6 7 8\nVmRSS:\nThreads:x\nMemTotal: kB\nbtime\n",
		"Cpus_allowed_list:\t9-1\nTcp:\nTcp:\nTcp: CurrEstab\nMax open files unlimited unlimited\n",
		"Cpus_allowed_list:\t0-99999999999999999999\nsome avg10=x\n0::\n4:memory\n1:cpu:no/slash\n",
		"36 35 8:x / / rw - ext4 /dev/sda1 rw\n36 35 8 / / rw - ext4\n36\n8 1 sda1 1 2 3\n8 1\n",
		"42 (no end\n",
		"42 (end)\n",
		"some avg10=101.00\n",
		"some avg10=1.5\n",
		"\xff\xfe\x01 \x7f\n(((()))))\n",
	};
	struct host_facts facts;
	struct host *host;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(garbage); i++) {
		begin_machine();
		for (const struct file *file = plain; file->path; file++) {
			if (!strstr(file->path, "/fd/") && strcmp(file->path, "/data/here") != 0)
				put(file->path, garbage[i]);
		}
		host = host_new(root, "/data", 0);
		for (int64_t j = 1; j < 4; j++) {
			host_measure(host, j * SEC_US, &facts);
			/* The file system itself is asked for these. */
			facts.disk_free_bytes = facts.disk_total_bytes = facts.inodes_free = HOST_UNKNOWN;
			if (!is_all_unknown(&facts) || facts.fds_open != HOST_UNKNOWN)
				fail_msg("garbage %zu was taken for a fact", i);
		}
		host_free(&host);
	}
}

/* Each file is missing in turn: only what comes from it is unknown. */
static void test_one_missing(void **state)
{
	static const struct {
		const char *path;
		size_t offset;
	} rows[] = {
#define FIELD(name) offsetof(struct host_facts, name)
		{ "/proc/self/limits", FIELD(fds_limit) },
		{ "/proc/self/stat", FIELD(started_wall_us) },
		{ "/proc/self/net/snmp", FIELD(tcp_conns) },
		{ "/proc/meminfo", FIELD(mem_limit_bytes) },
		{ "/proc/meminfo", FIELD(mem_used_bytes) },
		{ "/proc/pressure/memory", FIELD(mem_pressure_ppm) },
		{ "/sys/devices/system/cpu/online", FIELD(cpu_cores_milli) },
		{ "/proc/self/status", FIELD(rss_bytes) },
		{ "/proc/self/status", FIELD(threads) },
#undef FIELD
	};
	struct host_facts facts, whole;
	struct host *host;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		begin_machine();
		put_all(plain);
		host = host_new(root, "/data", 0);
		host_measure(host, SEC_US, &whole);
		drop(rows[i].path);
		host_measure(host, SEC_US, &facts);
		host_free(&host);
		assert_int_not_equal(*(const int64_t *)(const void *)((const char *)&whole + rows[i].offset),
				     HOST_UNKNOWN);
		assert_int_equal(*(const int64_t *)(const void *)((const char *)&facts + rows[i].offset), HOST_UNKNOWN);
		assert_string_equal(facts.disk_device, "sda1");
	}
}

/* The kernel moves btime when the wall clock is set; the process was started when it was started, and another one under its number later. */
static void test_the_wall_clock_is_set(void **state)
{
	static const char *const boots[] = { "btime 1600000000\n", "btime 1800000000\n", "cpu\n" };
	const int64_t tick_us = SEC_US / sysconf(_SC_CLK_TCK);
	struct host_facts before, facts;
	struct host *host;

	(void)state;
	begin_machine();
	put_all(plain);
	host = host_new(root, "/data", 0);
	host_measure(host, SEC_US, &before);
	for (size_t i = 0; i < COUNT_OF(boots); i++) {
		put("/proc/stat", boots[i]);
		host_measure(host, SEC_US, &facts);
		assert_int_equal(facts.started_wall_us, before.started_wall_us);
	}
	put("/proc/stat", boots[1]);
	put("/proc/self/stat", "9 (x) R 0 0 0 0 0 0 0 0 0 0 5 5 0 0 0 0 1 0 99999 0 0\n");
	host_measure(host, SEC_US, &facts);
	assert_int_equal(facts.started_wall_us, (int64_t)1800000000 * SEC_US + 99999 * tick_us);
	host_free(&host);
}

/* --- the network --- */

static void test_interfaces(void **state)
{
	static const struct {
		const char *before, *after;
		int64_t rx_bps, tx_bps;
	} rows[] = {
#define IF(name, rx, tx) name ": " rx " 0 0 0 0 0 0 0 " tx " 0 0 0 0 0 0 0\n"
		{ IF("lo", "10", "10"), IF("lo", "20", "30"), 80, 160 },
		{ IF("lo", "10", "10") IF("a", "1", "1"), IF("lo", "20", "30") IF("a", "3", "1"), 16, 0 },
		{ IF("a", "1", "1") IF("b", "1", "1"), IF("b", "2", "1") IF("a", "2", "3"), 16, 16 },
		/* One came with a large count, one went. */
		{ IF("a", "1", "1") IF("gone", "9", "9"), IF("new", "1000", "1000") IF("a", "2", "2"), 8, 8 },
		{ IF("a", "5", "5") IF("b", "5", "5"), IF("a", "4", "5") IF("b", "9", "5"), HOST_UNKNOWN,
		  HOST_UNKNOWN },
		{ IF("a", "5", "5"), "", HOST_UNKNOWN, HOST_UNKNOWN },
		{ "", IF("a", "5", "5"), HOST_UNKNOWN, HOST_UNKNOWN },
		{ IF("a", "0", "0"), IF("a", "99999999999999999999", "0"), HOST_UNKNOWN, HOST_UNKNOWN },
		{ IF("a", "1", "1") "b: 1 2\n", IF("a", "2", "2") "b: 9 9\n", 8, 8 },
#undef IF
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct host_facts facts;
		struct host *host;

		begin_machine();
		put("/proc/self/net/dev", rows[i].before);
		host = host_new(root, NULL, 0);
		host_measure(host, SEC_US, &facts);
		put("/proc/self/net/dev", rows[i].after);
		host_measure(host, 2 * SEC_US, &facts);
		host_free(&host);
		if (facts.net_rx_bps != rows[i].rx_bps || facts.net_tx_bps != rows[i].tx_bps)
			fail_msg("row %zu: %lld, %lld", i, (long long)facts.net_rx_bps, (long long)facts.net_tx_bps);
	}
}

#define TCP_HEAD        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
#define TCP_LINE(state) "   0: 0100007F:1F90 0200007F:C350 " state " 00000000:00000000 00:00000000 00000000     0\n"

static void test_connections(void **state)
{
	static const struct {
		const char *snmp, *tcp, *tcp6, *sockstat, *sockstat6;
		int64_t count;
	} rows[] = {
		{ "Tcp: A CurrEstab\nTcp: 1 5\n", TCP_HEAD TCP_LINE("01"), NULL, NULL, NULL, 5 },
		{ "Tcp: A CurrEstab\nTcp: 1 0\n", NULL, NULL, NULL, NULL, 0 },
		/* The sum over CPUs may come out below 0 for a moment. */
		{ "Tcp: A CurrEstab\nTcp: 1 18446744073709551615\n", TCP_HEAD, NULL, NULL, NULL, 0 },
		{ "Tcp: A CurrEstab\nTcp: 1\n", TCP_HEAD TCP_LINE("01") TCP_LINE("0A") TCP_LINE("01"),
		  TCP_HEAD TCP_LINE("01"), NULL, NULL, 3 },
		{ NULL, TCP_HEAD TCP_LINE("06"), NULL, "TCP: inuse 9\n", NULL, 0 },
		{ NULL, NULL, TCP_HEAD TCP_LINE("01"), NULL, NULL, 1 },
		{ NULL, NULL, NULL, "sockets: used 9\nTCP: inuse 7 orphan 0\nUDP: inuse 3\n", "TCP6: inuse 2\n", 9 },
		{ NULL, NULL, NULL, "TCP: alloc 7\n", NULL, HOST_UNKNOWN },
		{ NULL, NULL, NULL, NULL, NULL, HOST_UNKNOWN },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct file files[] = {
			{ "/proc/self/net/snmp", rows[i].snmp },
			{ "/proc/self/net/tcp", rows[i].tcp },
			{ "/proc/self/net/tcp6", rows[i].tcp6 },
			{ "/proc/self/net/sockstat", rows[i].sockstat },
			{ "/proc/self/net/sockstat6", rows[i].sockstat6 },
		};
		struct host_facts facts;
		struct host *host;

		begin_machine();
		for (size_t j = 0; j < COUNT_OF(files); j++) {
			if (files[j].content)
				put(files[j].path, files[j].content);
		}
		host = host_new(root, NULL, 0);
		host_measure(host, SEC_US, &facts);
		host_free(&host);
		if (facts.tcp_conns != rows[i].count)
			fail_msg("row %zu: %lld", i, (long long)facts.tcp_conns);
	}
}

static void test_very_many_connections(void **state)
{
	struct buf buf = BUF_INIT(64 * MIB);
	struct host_facts facts;
	struct host *host;

	(void)state;
	begin_machine();
	put("/proc/self/net/sockstat", "TCP: inuse 1234567\n");
	buf_append_c(&buf, TCP_HEAD);
	for (int i = 0; i < 1000; i++)
		buf_append_c(&buf, TCP_LINE("01"));
	put("/proc/self/net/tcp", buf_cstr(&buf));
	host = host_new(root, NULL, 0);
	host_measure(host, SEC_US, &facts);
	assert_int_equal(facts.tcp_conns, 1000);
	/* A line without an end, longer than any, is given up; so is a file beyond the bound. */
	buf_clear(&buf);
	while (buf.size < 100000)
		buf_append_c(&buf, "0123456789");
	put("/proc/self/net/tcp6", buf_cstr(&buf));
	host_measure(host, 2 * SEC_US, &facts);
	assert_int_equal(facts.tcp_conns, 1234567);
	buf_clear(&buf);
	while (buf.size < 33 * MIB)
		buf_append_c(&buf, TCP_LINE("01"));
	put("/proc/self/net/tcp6", buf_cstr(&buf));
	host_measure(host, 3 * SEC_US, &facts);
	assert_int_equal(facts.tcp_conns, 1234567);
	put("/proc/self/net/tcp6", "");
	buf_fini(&buf);
	host_free(&host);
}

/* --- this machine --- */

static void test_real_machine(void **state)
{
	struct host *host = host_new("", scratch, 0), *by_pid = host_new("", scratch, getpid());
	struct host_facts facts, again;
	cpu_set_t set;
	int fd;

	(void)state;
	host_measure(host, clock_mono_us(), &facts);
	host_measure(by_pid, clock_mono_us(), &again);
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	assert_in_range(facts.cpu_cores_milli, 1, CPU_COUNT(&set) * 1000);
	assert_true(facts.mem_limit_bytes > facts.rss_bytes && facts.rss_bytes > 0);
	assert_true(facts.disk_free_bytes >= 0 && facts.disk_total_bytes >= facts.disk_free_bytes);
	assert_true(facts.threads >= 1 && facts.fds_limit > 0);
	assert_in_range(facts.started_wall_us, clock_wall_us() - 3600 * SEC_US, clock_wall_us() + 60 * SEC_US);
	assert_int_equal(facts.started_wall_us, again.started_wall_us);
	assert_int_equal(facts.cpu_cores_milli, again.cpu_cores_milli);
	/* Our own look is not among the descriptors. */
	again = facts;
	fd = open("/dev/null", O_RDONLY);
	assert_true(fd >= 0);
	host_measure(host, clock_mono_us(), &facts);
	assert_int_equal(facts.fds_open, again.fds_open + 1);
	assert_int_equal(close(fd), 0);
	host_measure(host, clock_mono_us(), &facts);
	assert_int_equal(facts.fds_open, again.fds_open);
	assert_true(facts.cpu_busy_milli >= 0);
	host_free(&host);
	host_free(&by_pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_machine),
		cmocka_unit_test(test_nothing_there),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_one_missing),
		cmocka_unit_test(test_the_wall_clock_is_set),
		cmocka_unit_test(test_interfaces),
		cmocka_unit_test(test_connections),
		cmocka_unit_test(test_very_many_connections),
		cmocka_unit_test(test_real_machine),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
