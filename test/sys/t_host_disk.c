#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

#define DISKS                                                   \
	"   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0\n"            \
	"   8       0 sda 1 0 0 1 1 0 0 1 0 0 1\n"              \
	"   8       2 sda2 1 0 0 1 1 0 0 1 0 0 1\n"             \
	" 253       3 dm-3 1 0 0 1 1 0 0 1 0 0 1 0 0 0 0 0 0\n" \
	" 259       0 nvme0n1 1 0 0 1 1 0 0 1 0 0 1\n"

static void test_device(void **state)
{
	static const struct {
		const char *name, *mounts, *device;
	} rows[] = {
		{ "whole disk", "1 0 8:0 / / rw - ext4 /dev/root rw\n", "sda" },
		{ "partition", "1 0 8:2 / / rw - ext4 /dev/sda2 rw\n", "sda2" },
		{ "partition without counters", "1 0 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n", "nvme0n1" },
		{ "lvm", "1 0 253:3 / / rw - xfs /dev/mapper/vg-data rw\n", "dm-3" },
		{ "btrfs on lvm", "1 0 0:41 /@ / rw - btrfs /dev/mapper/vg-data rw,subvol=/@\n", "dm-3" },
		{ "btrfs", "1 0 0:41 / / rw - btrfs /dev/sda2 rw\n", "sda2" },
		{ "longest mount point",
		  "1 0 8:0 / / rw - ext4 /dev/sda rw\n2 1 8:2 / /da rw - ext4 /dev/sda2 rw\n3 1 253:3 / /data rw - xfs "
		  "/dev/dm-3 rw\n",
		  "dm-3" },
		{ "the later mount hides the earlier one",
		  "1 0 8:0 / /data rw - ext4 /dev/sda rw\n2 1 8:2 / /data rw - ext4 /dev/sda2 rw\n", "sda2" },
		{ "name with blanks",
		  "1 0 8:0 / / rw - ext4 /dev/sda rw\n2 1 8:2 / /data\\040x rw - ext4 /dev/sda2 rw\n", "sda" },
		{ "overlay",
		  "1 0 0:50 / / rw - overlay overlay "
		  "rw,lowerdir=/l:/m,upperdir=/store\\040a/up,workdir=/store\\040a/w\n"
		  "2 1 8:2 / /store\\040a rw - ext4 /dev/sda2 rw\n",
		  "sda2" },
		{ "overlay on an overlay",
		  "1 0 0:50 / / rw - overlay o rw,upperdir=/up/a\n2 1 0:51 / /up rw - overlay o rw,upperdir=/up2/x\n"
		  "3 1 253:3 / /up2 rw - xfs /dev/dm-3 rw\n",
		  "dm-3" },
		{ "overlay whose upper folder is out of sight",
		  "1 0 0:50 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/docker/x,workdir=/w\n", "" },
		{ "overlays in a ring",
		  "1 0 0:50 / /data rw - overlay o rw,upperdir=/b\n2 1 0:51 / /b rw - overlay o rw,upperdir=/data/u\n",
		  "" },
		{ "read-only overlay", "1 0 0:50 / / ro - overlay overlay ro,lowerdir=/l:/m\n", "" },
		{ "tmpfs", "1 0 0:22 / / rw - tmpfs tmpfs rw,size=1k\n", "" },
		{ "nfs", "1 0 0:60 / / rw - nfs4 server:/dev/sda rw\n", "" },
		{ "unknown device", "1 0 8:77 / / rw - ext4 /dev/sdz rw\n", "" },
		{ "no mount holds it", "1 0 8:0 / /other rw - ext4 /dev/sda rw\n", "" },
		{ "nothing mounted", "", "" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct host_facts facts;
		struct host *host;

		begin_machine();
		put_all(plain);
		put("/proc/diskstats", DISKS);
		put("/proc/self/mountinfo", rows[i].mounts);
		link_to("/dev/mapper/vg-data", "../dm-3");
		link_to("/sys/dev/block/259:1", "../../devices/pci0000:00/nvme/nvme0/nvme0n1/nvme0n1p1");
		host = host_new(root, "/data", 0);
		host_measure(host, SEC_US, &facts);
		host_measure(host, 2 * SEC_US, &facts);
		host_free(&host);
		if (strcmp(facts.disk_device, rows[i].device) != 0)
			fail_msg("%s: '%s' where '%s' belongs", rows[i].name, facts.disk_device, rows[i].device);
		/* An unknown device is not an idle one. */
		assert_int_equal(facts.disk_queue_milli, rows[i].device[0] != '\0' ? 0 : HOST_UNKNOWN);
	}
}

static void put_disk(const char *name, int64_t io_count, int64_t io_ms)
{
	char line[256];

	(void)snprintf(line, sizeof(line), "8 1 %s %lld 0 0 %lld 0 0 0 0 0 0 0\n", name, (long long)io_count,
		       (long long)io_ms);
	put("/proc/diskstats", line);
}

static void test_five_minutes(void **state)
{
	struct host_facts facts;
	struct host *host;
	int64_t now_us = 1000 * SEC_US, io_count = 0, io_ms = 0;

	(void)state;
	begin_machine();
	put_all(plain);
	host = host_new(root, "/data", 0);
	/* Ten minutes of 20 ms a request, asked each second and each three: the ring must not be full too early. */
	for (int i = 0; i < 300; i++) {
		put_disk("sda1", io_count += 10, io_ms += 200);
		host_measure(host, now_us += (i % 2 == 0 ? 1 : 3) * SEC_US, &facts);
		assert_int_equal(facts.disk_io_us, i == 0 ? HOST_UNKNOWN : 20000);
	}
	/* Then of 2 ms: the mean moves by the share of the new ones, and after five minutes the old ones are gone. */
	for (int i = 1; i <= 100; i++) {
		put_disk("sda1", io_count += 10, io_ms += 20);
		host_measure(host, now_us += 3 * SEC_US, &facts);
		if (i == 50)
			assert_in_range(facts.disk_io_us, 10000, 14000);
	}
	assert_in_range(facts.disk_io_us, 2000, 2700);
	for (int i = 0; i < 3; i++) {
		put_disk("sda1", io_count += 10, io_ms += 20);
		host_measure(host, now_us += 3 * SEC_US, &facts);
	}
	assert_int_equal(facts.disk_io_us, 2000);
	/* Idle for longer than the window: no request, no latency. */
	for (int i = 0; i < 105; i++)
		host_measure(host, now_us += 3 * SEC_US, &facts);
	assert_int_equal(facts.disk_io_us, HOST_UNKNOWN);
	/* Nobody asked for an hour: what came in it is no five minutes. */
	put_disk("sda1", io_count += 10, io_ms += 99999);
	host_measure(host, now_us += 3600 * SEC_US, &facts);
	assert_int_equal(facts.disk_io_us, HOST_UNKNOWN);
	put_disk("sda1", io_count += 10, io_ms += 50);
	host_measure(host, now_us += 3 * SEC_US, &facts);
	assert_int_equal(facts.disk_io_us, 5000);
	/* Another disk took its place, with larger counters. */
	put_disk("sdb1", io_count += 1000, io_ms += 1);
	host_measure(host, now_us += 3 * SEC_US, &facts);
	assert_string_equal(facts.disk_device, "sdb1");
	assert_int_equal(facts.disk_io_us, HOST_UNKNOWN);
	assert_int_equal(facts.disk_queue_milli, HOST_UNKNOWN);
	host_free(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_five_minutes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
