#include <stdlib.h>

#include "http/conn.h"

/* What http_run_task keeps: the public task, and where it is to run. */
struct task_box {
	struct http_task task;
	struct work *work;
};

void task_free(struct http_task **task)
{
	if (!*task)
		return;
	buf_fini(&(*task)->body);
	buf_fini(&(*task)->answer);
	free(CONTAINER_OF(*task, struct task_box, task));
	*task = NULL;
}

static void task_run(struct job *job)
{
	struct http_task *task = job->owner;
	task->result = task->run(task);
}

static void task_answer(struct http_task *task)
{
	struct http_call *call = task->call;
	if (task->retry_after_us > 0) {
		char text[24];
		struct buf number = BUF_INIT(sizeof(text));
		/* Whole seconds, rounded up: coming back too early is what this is meant to prevent. */
		buf_printf(&number, "%lld", (long long)((task->retry_after_us + SEC_US - 1) / SEC_US));
		if (str_copy(buf_str(&number), text, sizeof(text)))
			http_reply_header(call, "Retry-After", text);
		buf_fini(&number);
	}
	if (task->result < 0) {
		/* A handler that fails without saying why is ours to repair, but the client must still get an answer. */
		if (task->err.code == ERR_NONE)
			err_set(&task->err, ERR_INTERNAL, "the request failed without a reason");
		http_reply_err(call, &task->err);
		return;
	}
	if (task->answer.is_failed) {
		struct err err;
		err_set(&err, ERR_INTERNAL, "the answer would be larger than %zu bytes", task->answer.limit);
		err_hint(&err, "ask for less at a time");
		http_reply_err(call, &err);
		return;
	}
	if (task->answer.size > 0)
		http_reply_json(call, task->status, &task->answer);
	else
		http_reply(call, task->status, NULL, STR_NONE);
}

static void task_done(struct job *job, struct loop *home)
{
	(void)home;
	struct http_task *task = job->owner;
	struct http_conn *conn = call_conn(task->call);
	conn_enter(conn);
	task->call->task = NULL;
	task_answer(task);
	task_free(&task);
	conn_leave(conn);
}

static int task_data(struct http_call *call, struct str piece)
{
	struct http_task *task = call->task;
	if (buf_append(&task->body, piece))
		return 0;
	struct err err;
	err_set(&err, ERR_LIMIT, "the body is larger than %zu bytes", task->body.limit);
	task_free(&call->task);
	http_reply_err(call, &err);
	return -ERR_LIMIT;
}

static void task_end(struct http_call *call)
{
	struct http_task *task = call->task;
	struct task_box *box = CONTAINER_OF(task, struct task_box, task);
	task->job = (struct job){ .run = task_run, .done = task_done, .owner = task };
	if (work_submit(box->work, &task->job, http_loop(call)))
		return;
	struct err err;
	err_set(&err, ERR_BUSY, "too many requests are waiting to be worked on");
	err_hint(&err, "try again in a moment");
	task_free(&call->task);
	http_reply_err(call, &err);
}

static void task_gone(struct http_call *call, const struct err *err)
{
	(void)err;
	task_free(&call->task);
}

void http_run_task(struct http_call *call, struct work *work, size_t body_limit_bytes, size_t answer_limit_bytes,
		   int (*run)(struct http_task *task))
{
	static const struct http_sink sink = { task_data, task_end, task_gone };
	int64_t size = http_body_size(call);
	if (size > 0 && (uint64_t)size > body_limit_bytes) {
		struct err err;
		err_set(&err, ERR_LIMIT, "the body is larger than %zu bytes", body_limit_bytes);
		http_reply_err(call, &err);
		return;
	}
	struct task_box *box = must_zalloc(1, sizeof(*box));
	box->work = work;
	box->task = (struct http_task){
		.call = call,
		.body = BUF_INIT(body_limit_bytes),
		.answer = BUF_INIT(answer_limit_bytes),
		.status = 200,
		.app = http_app(call),
		.run = run,
	};
	call->task = &box->task;
	http_take_body(call, &sink);
}
