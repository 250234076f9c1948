#include "folder/sched_audit.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "sys/fs.h"

struct sched_call *sched_call_new(struct sched *sched, struct http_call *call, int (*run)(struct sched_call *c))
{
	struct sched_call *c = must_zalloc(1, sizeof(*c));

	c->sched = sched;
	c->call = call;
	c->run = run;
	c->work = sched->work;
	c->answer = BUF_INIT(SCHED_ANSWER_MAX);
	c->status = 200;
	c->file_fd = -1;
	c->job.owner = c;
	return c;
}

static void call_free(struct sched_call *c)
{
	if (c->drop)
		c->drop(c);
	fs_close(&c->file_fd);
	buf_fini(&c->body);
	buf_fini(&c->answer);
	free(c);
}

static void call_reply_err(struct sched_call *c)
{
	char seconds[24];

	if (c->retry_after_us > 0) {
		snprintf(seconds, sizeof(seconds), "%lld", (long long)((c->retry_after_us + SEC_US - 1) / SEC_US));
		http_reply_header(c->call, "Retry-After", seconds);
	}
	http_reply_err(c->call, &c->err);
}

/* The server takes the descriptor and sends from it, piece by piece. */
static void call_reply_file(struct sched_call *c)
{
	int fd = c->file_fd;

	c->file_fd = -1;
	http_reply_header(c->call, "Accept-Ranges", "bytes");
	http_reply_file(c->call, c->status, c->type, fd, (int64_t)c->file_offset, c->file_bytes);
}

/* Gives the answer; the call is over and c is gone. */
static void call_reply(struct sched_call *c)
{
	struct http_call *call = c->call;

	http_set_state(call, NULL);
	if (c->result == 0 && c->answer.is_failed)
		c->result = err_set(&c->err, ERR_LIMIT, "the answer passes %zu bytes: ask for less at a time",
				    c->answer.limit);
	if (c->content_range[0] != '\0')
		http_reply_header(call, "Content-Range", c->content_range);
	if (c->result < 0)
		call_reply_err(c);
	else if (c->file_fd >= 0)
		call_reply_file(c);
	else if (c->type)
		http_reply(call, c->status, c->type, buf_str(&c->answer));
	else
		http_reply_json(call, c->status, &c->answer);
	call_free(c);
}

void sched_call_refuse(struct sched_call *c, const struct err *err)
{
	c->err = *err;
	c->result = -(int)err->code;
	call_reply(c);
}

static int busy(struct sched_call *c)
{
	return err_set(&c->err, ERR_BUSY, "the scheduler has more calls waiting than it takes");
}

/* --- what a user may not --- */

/* A no to what somebody with a key wanted; wrong keys are another's to tell. */
static bool is_refusal(const struct sched_call *c)
{
	static const enum err_code REFUSALS[] = { ERR_FORBIDDEN,     ERR_QUOTA,        ERR_NO_SPACE,
						  ERR_ENTRY_REFUSED, ERR_BATCH_EXISTS, ERR_OTHER_FOLDER };
	bool is_one = false;

	for (size_t i = 0; i < COUNT_OF(REFUSALS); i++)
		is_one = is_one || (c->result < 0 && c->err.code == REFUSALS[i]);
	return is_one && c->user;
}

/* On a pool thread. The answer is a no whether it could be written down or not. */
static void record_refusal(const struct sched_call *c)
{
	const struct str id = http_param(c->call, "id");
	char transfer_id[ULID_SIZE];
	struct sched_audit_room room;
	struct store_audit row;
	struct err err = ERR_INIT;
	const bool is_of_transfer = ulid_is_valid(id.data, id.size) && str_copy(id, transfer_id, sizeof(transfer_id));

	sched_audit_note(c, "refused", err_word(c->err.code), is_of_transfer ? transfer_id : NULL, c->err.text, &row,
			 &room);
	if (c->sched->store->ops->audit(c->sched->store, &row, &err) < 0)
		log_err(LOG_WARN, &err, "a refusal to user '%s' is not in the audit", c->user->name);
}

/* --- the call itself --- */

static void run_job(struct job *job)
{
	struct sched_call *c = job->owner;

	c->result = c->run(c);
	if (is_refusal(c))
		record_refusal(c);
}

static void run_done(struct job *job, struct loop *home)
{
	(void)home;
	call_reply(job->owner);
}

static void refuse_job(struct job *job) { record_refusal(job->owner); }

/* Refused before it ran, on the loop's thread. */
static void call_refuse(struct sched_call *c)
{
	c->job.run = refuse_job;
	c->job.done = run_done;
	if (!is_refusal(c) || !work_submit(c->work, &c->job, http_loop(c->call)))
		call_reply(c);
}

static void call_run(struct sched_call *c)
{
	c->job.run = run_job;
	c->job.done = run_done;
	if (work_submit(c->work, &c->job, http_loop(c->call)))
		return;
	c->result = busy(c);
	call_reply(c);
}

/* --- its body --- */

static void take_job(struct job *job)
{
	struct sched_call *c = job->owner;

	c->result = c->take(c, c->piece);
}

/* A failure is told at the next event of the body: until then the server still owns the call's framing. */
static void take_done(struct job *job, struct loop *home)
{
	struct sched_call *c = job->owner;

	(void)home;
	http_body_resume(c->call);
}

static int body_data(struct http_call *call, struct str piece)
{
	struct sched_call *c = http_state(call);

	if (c->result == 0 && piece.size > c->body_limit_bytes - c->body_bytes)
		c->result = err_set(&c->err, ERR_LIMIT, "the body passes the %llu bytes allowed here",
				    (unsigned long long)c->body_limit_bytes);
	c->body_bytes += piece.size;
	if (c->result == 0 && !c->take && !buf_append(&c->body, piece))
		c->result = err_set(&c->err, ERR_NO_MEMORY, "no memory for the body");
	if (c->result == 0 && c->take) {
		c->piece = piece;
		c->job.run = take_job;
		c->job.done = take_done;
		if (work_submit(c->sched->work, &c->job, http_loop(call)))
			return HTTP_BODY_WAIT;
		c->result = busy(c);
	}
	if (c->result < 0) {
		int result = c->result;

		call_reply(c);
		return result;
	}
	return 0;
}

static void body_end(struct http_call *call)
{
	struct sched_call *c = http_state(call);

	if (c->result < 0)
		call_refuse(c);
	else
		call_run(c);
}

static void body_gone(struct http_call *call, const struct err *err)
{
	struct sched_call *c = http_state(call);

	(void)err;
	if (!c)
		return;
	http_set_state(call, NULL);
	call_free(c);
}

static const struct http_sink body_sink = { .data = body_data, .end = body_end, .gone = body_gone };

/* Who calls is known: its body, or the call itself, may begin. */
static void call_admitted(struct sched_call *c)
{
	int64_t size = http_body_size(c->call);

	if (c->check) {
		c->result = c->check(c);
		if (c->result < 0) {
			call_refuse(c);
			return;
		}
	}
	/* A call that takes no body is answered whether or not one was sent: the server discards it. */
	if (c->body_limit_bytes == 0) {
		call_run(c);
		return;
	}
	if (size > 0 && (uint64_t)size > c->body_limit_bytes) {
		c->result = err_set(&c->err, ERR_LIMIT, "a body of %lld bytes is larger than the %llu allowed here",
				    (long long)size, (unsigned long long)c->body_limit_bytes);
		call_reply(c);
		return;
	}
	if (!c->take)
		c->body = BUF_INIT(c->body_limit_bytes);
	http_take_body(c->call, &body_sink);
}

static void prove_job(struct job *job)
{
	struct sched_call *c = job->owner;

	c->result = sched_auth_prove(c);
}

static void prove_done(struct job *job, struct loop *home)
{
	struct sched_call *c = job->owner;

	(void)home;
	if (c->result < 0)
		call_reply(c);
	else
		call_admitted(c);
}

void sched_call_go(struct sched_call *c)
{
	http_set_state(c->call, c);
	if (!c->is_unproven) {
		call_admitted(c);
		return;
	}
	c->job.run = prove_job;
	c->job.done = prove_done;
	if (work_submit(c->sched->provers, &c->job, http_loop(c->call)))
		return;
	sched_auth_undo(c);
	c->result = busy(c);
	call_reply(c);
}
