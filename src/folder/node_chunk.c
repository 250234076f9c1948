/* Chunks for the merge, and their removal. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder/node_inside.h"
#include "base/json.h"
#include "sys/fs.h"

#define ANSWER_MAX (16 * KIB)

struct chunk_read {
	struct node *node;
	struct http_call *call;
	struct job job;
	char transfer_id[ULID_SIZE];
	uint64_t file_id, chunk_index, size_bytes;
	int fd; /* or the negative code */
	struct err err;
};

static void read_run(struct job *job)
{
	struct chunk_read *read = job->owner;

	read->fd = disk_read(read->node->disk, read->transfer_id, read->file_id, read->chunk_index, &read->size_bytes,
			     &read->err);
}

static void read_done(struct job *job, struct loop *home UNUSED)
{
	struct chunk_read *read = job->owner;

	if (read->fd < 0)
		http_reply_err(read->call, &read->err);
	else
		http_reply_file(read->call, 200, "application/octet-stream", read->fd, 0, read->size_bytes);
	free(read);
}

void node_read_begin(struct http_call *call, void *app)
{
	struct node *node = app;
	struct chunk_read *read;
	struct err err = ERR_INIT;

	if (node_refuse_stranger(node, call))
		return;
	read = must_zalloc(1, sizeof(*read));
	*read = (struct chunk_read){ .node = node, .call = call, .fd = -1 };
	read->job = (struct job){ .run = read_run, .done = read_done, .owner = read };
	if (node_chunk_ids(call, read->transfer_id, &read->file_id, &read->chunk_index, &err) < 0)
		http_reply_err(call, &err);
	else if (work_submit(node->work, &read->job, http_loop(call)))
		return;
	else {
		err_set(&err, ERR_BUSY, "the node has too much waiting for its disk");
		http_reply_err(call, &err);
	}
	free(read);
}

/* Where the chunk lies, for a scheduler on this machine that can read it there and spare both a copy through the network. Device and inode
 * let the reader prove that it opened this very file. */
static int place_run(struct http_task *task)
{
	struct node *node = task->app;
	char transfer_id[ULID_SIZE], self[40], path[4096];
	uint64_t file_id, chunk_index, size_bytes;
	struct stat facts;
	struct json json;

	if (node_chunk_ids(task->call, transfer_id, &file_id, &chunk_index, &task->err) < 0)
		return -ERR_BAD_REQUEST;
	AUTO(fs_close) int fd = disk_read(node->disk, transfer_id, file_id, chunk_index, &size_bytes, &task->err);
	if (fd < 0)
		return fd;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	const ssize_t size = readlink(self, path, sizeof(path));
	if (size <= 0 || (size_t)size >= sizeof(path) || fstat(fd, &facts) < 0)
		return err_sys(&task->err, ERR_SYSTEM, errno, "cannot tell where the chunk lies");
	json_init(&json, &task->answer);
	json_open(&json, NULL);
	json_str(&json, "path", (struct str){ path, (size_t)size });
	json_u64(&json, "device", facts.st_dev);
	json_u64(&json, "inode", facts.st_ino);
	json_u64(&json, "size", size_bytes);
	json_close(&json);
	return 0;
}

void node_place_begin(struct http_call *call, void *app)
{
	struct node *node = app;

	if (!node_refuse_stranger(node, call))
		http_run_task(call, node->work, 0, 16 * KIB, place_run);
}

static int remove_chunk_run(struct http_task *task)
{
	struct node *node = task->app;
	char transfer_id[ULID_SIZE];
	uint64_t file_id, chunk_index;
	int r = node_chunk_ids(task->call, transfer_id, &file_id, &chunk_index, &task->err);

	if (r == 0)
		r = disk_remove_chunk(node->disk, transfer_id, file_id, chunk_index, &task->err);
	if (r == 0)
		buf_append(&task->answer, STR("{}"));
	return r;
}

void node_remove_chunk_begin(struct http_call *call, void *app)
{
	struct node *node = app;

	if (!node_refuse_stranger(node, call))
		http_run_task(call, node->work, 0, ANSWER_MAX, remove_chunk_run);
}

static int remove_run(struct http_task *task)
{
	struct node *node = task->app;
	char transfer_id[ULID_SIZE];

	if (!str_copy(http_param(task->call, "transfer"), transfer_id, sizeof(transfer_id)))
		return err_set(&task->err, ERR_BAD_REQUEST, "the transfer id is not a ULID");
	const int r = disk_remove_transfer(node->disk, transfer_id, &task->err);
	if (r == 0)
		buf_append(&task->answer, STR("{}"));
	return r;
}

void node_remove_begin(struct http_call *call, void *app)
{
	struct node *node = app;

	if (!node_refuse_stranger(node, call))
		http_run_task(call, node->work, 0, ANSWER_MAX, remove_run);
}
