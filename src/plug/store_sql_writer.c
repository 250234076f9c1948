#include "plug/store_sql.h"

#define SQL_TRIES_MAX 3

/* The whole transaction is gone: everybody who took part learns why. */
static void batch_failed(struct sql_job *batch, const struct err *why)
{
	for (struct sql_job *job = batch; job; job = job->next) {
		if (job->result < 0)
			continue;
		job->result = -(int)why->code;
		if (job->err)
			*job->err = *why;
	}
}

/* Each closure in a savepoint, so that one which fails takes back only its own rows. Returns negative when the transaction is lost. */
static int job_run(struct sql_conn *conn, struct sql_job *job, struct err *err)
{
	struct err own = ERR_INIT;
	const struct sql_audit_chain before = conn->audit;

	if (sql_run_id(conn, SQL_SAVE, err, "starting a part of a transaction") < 0)
		return -ERR_STORE;
	job->result = job->run(conn, job->arg, &own);
	if (job->result >= 0 && conn->engine->settle(conn, &own) < 0)
		job->result = -(int)own.code;
	if (job->result < 0) {
		if (job->err)
			*job->err = own;
		/* Full disks and I/O errors roll the whole transaction back by themselves. */
		if (!conn->engine->is_in_transaction(conn)) {
			*err = own;
			return -ERR_STORE;
		}
		if (sql_run_id(conn, SQL_SAVE_UNDO, err, "taking back a part of a transaction") < 0)
			return -ERR_STORE;
		conn->audit.last = before.last;
		conn->audit.is_read = before.is_read;
		conn->audit.is_moved = before.is_moved;
	}
	return sql_run_id(conn, SQL_SAVE_RELEASE, err, "ending a part of a transaction");
}

static int batch_try(struct sql_conn *conn, struct sql_job *batch, struct err *err)
{
	int result = sql_begin(conn, err);

	for (struct sql_job *job = batch; job && result >= 0; job = job->next)
		result = job_run(conn, job, err);
	if (result >= 0)
		result = sql_commit(conn, err);
	if (result < 0 && conn->engine->is_in_transaction(conn))
		conn->engine->rollback(conn);
	return result;
}

/* A lost transaction is run again as long as the engine could mend what took it. */
static void batch_run(struct sql_conn *conn, struct sql_job *batch)
{
	struct err err = ERR_INIT;

	for (int tries = 0; tries < SQL_TRIES_MAX; tries++) {
		for (struct sql_job *job = batch; job; job = job->next)
			job->result = 0;
		err = (struct err)ERR_INIT;
		if (batch_try(conn, batch, &err) >= 0)
			return;
		if (conn->engine->mend(conn, &err) < 0)
			break;
	}
	batch_failed(batch, &err);
}

/* Takes the run of closures at the head of the queue, or one plan. */
static struct sql_job *batch_take(struct sql_writer *writer)
{
	struct sql_job *batch = writer->head, **end = &batch->next;

	while (!batch->is_plan && *end && !(*end)->is_plan)
		end = &(*end)->next;
	writer->head = *end;
	if (!writer->head)
		writer->tail = &writer->head;
	*end = NULL;
	return batch;
}

static void batch_wake(struct sql_job *batch)
{
	struct sql_job *next;

	/* A job lies on its caller's stack: once it is done and the lock is let go, it may be gone. */
	for (struct sql_job *job = batch; job; job = next) {
		next = job->next;
		job->is_done = true;
		pthread_cond_signal(&job->done);
	}
}

static void *writer_main(void *arg)
{
	struct sql_writer *writer = arg;
	struct sql_job *batch;

	pthread_mutex_lock(&writer->lock);
	for (;;) {
		while (writer->is_lent || (!writer->head && !writer->is_closing))
			pthread_cond_wait(&writer->wake, &writer->lock);
		if (!writer->head)
			break;
		batch = batch_take(writer);
		if (batch->is_plan) {
			writer->is_lent = true;
			writer->lent_to = batch->caller;
		} else {
			pthread_mutex_unlock(&writer->lock);
			batch_run(writer->conn, batch);
			pthread_mutex_lock(&writer->lock);
		}
		batch_wake(batch);
	}
	pthread_mutex_unlock(&writer->lock);
	return NULL;
}

int sql_writer_start(struct sql_writer *writer, struct err *err)
{
	int rc;

	writer->head = NULL;
	writer->tail = &writer->head;
	writer->is_closing = writer->is_lent = false;
	pthread_mutex_init(&writer->lock, NULL);
	pthread_cond_init(&writer->wake, NULL);
	rc = pthread_create(&writer->thread, NULL, writer_main, writer);
	if (rc == 0)
		return 0;
	pthread_cond_destroy(&writer->wake);
	pthread_mutex_destroy(&writer->lock);
	return err_sys(err, ERR_SYSTEM, rc, "starting the store's writer thread");
}

void sql_writer_stop(struct sql_writer *writer)
{
	pthread_mutex_lock(&writer->lock);
	MUST(!writer->is_lent); /* a plan outlives its store */
	writer->is_closing = true;
	pthread_cond_signal(&writer->wake);
	pthread_mutex_unlock(&writer->lock);
	pthread_join(writer->thread, NULL);
	pthread_cond_destroy(&writer->wake);
	pthread_mutex_destroy(&writer->lock);
}

static int job_submit(struct sql_writer *writer, struct sql_job *job)
{
	job->caller = pthread_self();
	pthread_cond_init(&job->done, NULL);
	pthread_mutex_lock(&writer->lock);
	/* Whoever has a plan open would wait here for itself. */
	if (writer->is_lent && pthread_equal(writer->lent_to, job->caller)) {
		job->result = err_set(job->err, ERR_INTERNAL,
				      "this thread has a plan open: commit or abort it before writing anything else");
	} else {
		*writer->tail = job;
		writer->tail = &job->next;
		pthread_cond_signal(&writer->wake);
		while (!job->is_done)
			pthread_cond_wait(&job->done, &writer->lock);
	}
	pthread_mutex_unlock(&writer->lock);
	pthread_cond_destroy(&job->done);
	return job->result;
}

int sql_writer_do(struct sql_writer *writer, int (*run)(struct sql_conn *, void *, struct err *), void *arg,
		  struct err *err)
{
	struct sql_job job = { .run = run, .arg = arg, .err = err };

	return job_submit(writer, &job);
}

int sql_writer_lend(struct sql_writer *writer, struct err *err)
{
	struct sql_job job = { .is_plan = true, .err = err };

	return job_submit(writer, &job);
}

void sql_writer_return(struct sql_writer *writer)
{
	pthread_mutex_lock(&writer->lock);
	writer->is_lent = false;
	pthread_cond_signal(&writer->wake);
	pthread_mutex_unlock(&writer->lock);
}
