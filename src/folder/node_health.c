/* GET /health: what the node says of itself to whoever asks, and the self-check of its disk behind it. */
#include <stdio.h>
#include <string.h>

#include "folder/node_inside.h"
#include "base/clock.h"
#include "base/json.h"

#define ANSWER_MAX        (16 * KIB)
#define CHECK_INTERVAL_US (3 * SEC_US)
#define CHECK_PATIENCE_US (5 * SEC_US)

/* Runs the self-check when the last one is old; one caller does, the others take the last result meanwhile. */
static void check_if_old(struct node *node)
{
	struct err err = ERR_INIT;
	bool is_mine;
	int r;

	pthread_mutex_lock(&node->health_lock);
	is_mine = !node->is_checking && clock_mono_us() - node->checked_us >= CHECK_INTERVAL_US;
	if (is_mine) {
		node->is_checking = true;
		node->check_started_us = clock_mono_us();
	}
	pthread_mutex_unlock(&node->health_lock);
	if (!is_mine)
		return;
	r = disk_check(node->disk, &err);
	pthread_mutex_lock(&node->health_lock);
	node->is_checking = false;
	node->checked_us = clock_mono_us();
	/* A full disk shows as low; -ERR_BUSY says nothing of the disk. */
	if (r == -ERR_DISK)
		str_display(str_from(err.text), node->diagnosis, sizeof(node->diagnosis));
	else if (r != -ERR_BUSY)
		node->diagnosis[0] = '\0';
	pthread_mutex_unlock(&node->health_lock);
}

static void get_diagnosis(struct node *node, char *target, size_t target_size)
{
	pthread_mutex_lock(&node->health_lock);
	(void)snprintf(target, target_size, "%s", node->diagnosis);
	if (node->is_checking && clock_mono_us() - node->check_started_us >= CHECK_PATIENCE_US)
		(void)snprintf(target, target_size, "the disk's self-check has not come back for %lld s",
			       (long long)((clock_mono_us() - node->check_started_us) / SEC_US));
	pthread_mutex_unlock(&node->health_lock);
	/* A write that failed since the check: nothing is taken until the next one passes, and nothing should be sent here. */
	if (target[0] == '\0')
		disk_failure(node->disk, target, target_size);
}

static int health_run(struct http_task *task)
{
	struct node *node = task->app;
	struct fs_space space = { 0 };
	struct disk_counts counts;
	uint64_t reserved_bytes = 0;
	bool is_low = false;
	char diagnosis[sizeof(node->diagnosis)];
	char fs[FS_NAME_SIZE] = "";
	struct err err = ERR_INIT;
	struct json json;

	check_if_old(node);
	get_diagnosis(node, diagnosis, sizeof(diagnosis));
	if (disk_space(node->disk, &space, &reserved_bytes, &is_low, &err) == 0)
		fs_name(&space, fs);
	else if (diagnosis[0] == '\0')
		str_display(str_from(err.text), diagnosis, sizeof(diagnosis));
	disk_counts(node->disk, &counts);
	const bool is_failed = diagnosis[0] != '\0';
	/* Paths are nobody's business but the cluster's. */
	if (is_failed && !node_is_internal(node, task->call))
		(void)snprintf(diagnosis, sizeof(diagnosis), "the disk failed its self-check");
	json_init(&json, &task->answer);
	json_open(&json, NULL);
	json_c(&json, "status", is_failed ? "failed" : is_low ? "disk_low" : "ok");
	json_c(&json, "node_id", node->id);
	json_c(&json, "incarnation", node->incarnation);
	json_c(&json, "start_id", node->start_id);
	json_u64(&json, "free_bytes", space.free_bytes + reserved_bytes);
	json_u64(&json, "total_bytes", space.total_bytes);
	json_u64(&json, "floor_bytes", disk_floor_bytes(node->disk, &space));
	json_u64(&json, "inodes_free", space.inodes_free);
	json_u64(&json, "inodes_total", space.inodes_total);
	json_u64(&json, "reserved_bytes", reserved_bytes);
	json_c(&json, "fs", fs);
	json_bool(&json, "is_low", is_low);
	json_bool(&json, "is_drained", atomic_load(&node->is_drained));
	json_c(&json, "diagnosis", diagnosis);
	json_u64(&json, "chunks_written", counts.chunks_written);
	json_u64(&json, "write_failures", counts.write_failures);
	json_u64(&json, "receipts_kept", courier_kept_count(node->courier));
	json_i64(&json, "server_time_us", node_clock_wall_us(&node->clock));
	json_close(&json);
	return 0;
}

void node_health_begin(struct http_call *call, void *app)
{
	struct node *node = app;

	if (node_is_internal(node, call)) {
		const struct str order = http_header(call, "X-Node-Order");

		courier_note_probe(node->courier);
		/* Other members of the cluster ask too, and give no order. */
		if (order.size > 0)
			atomic_store(&node->is_drained, str_eq_c(order, "drain"));
	}
	http_run_task(call, node->work, 0, ANSWER_MAX, health_run);
}
