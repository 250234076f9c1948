#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sys/work.h"

#define THREADS_MAX 256

struct work {
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t has_job;
	struct job *first, **last_link;
	size_t queued_count, queue_limit_count;
	bool is_closing;

	/* Set before the threads start. */
	char name[16];
	unsigned thread_count;
	pthread_t threads[];
};

static void done_on_home(struct loop *loop, struct post *post)
{
	struct job *job = post->owner;

	job->done(job, loop);
}

/* The next job, or NULL when the pool is closing and nothing is left. */
static struct job *take_job(struct work *work)
{
	struct job *job;

	(void)pthread_mutex_lock(&work->lock);
	while (!work->first && !work->is_closing)
		(void)pthread_cond_wait(&work->has_job, &work->lock);
	job = work->first;
	if (job) {
		work->first = job->next;
		if (!work->first)
			work->last_link = &work->first;
		work->queued_count--;
	}
	(void)pthread_mutex_unlock(&work->lock);
	return job;
}

static void *work_thread(void *owner)
{
	struct work *work = owner;

	(void)pthread_setname_np(pthread_self(), work->name);
	for (struct job *job; (job = take_job(work)) != NULL;) {
		job->next = NULL;
		job->run(job);
		if (job->home) {
			job->post = (struct post){ .run = done_on_home, .owner = job };
			loop_post(job->home, &job->post);
		} else {
			job->done(job, NULL);
		}
	}
	return NULL;
}

int work_new(const char *name, unsigned thread_count, size_t queue_limit_count, struct work **ret_work, struct err *err)
{
	struct work *work;
	sigset_t all, before;
	int number = 0;

	*ret_work = NULL;
	if (thread_count == 0 || thread_count > THREADS_MAX || queue_limit_count == 0)
		return err_set(err, ERR_CONFIG, "a pool of %u threads (1 to %d are allowed) with a queue of %zu",
			       thread_count, THREADS_MAX, queue_limit_count);
	work = must_zalloc(1, sizeof(*work) + thread_count * sizeof(pthread_t));
	work->queue_limit_count = queue_limit_count;
	work->last_link = &work->first;
	(void)snprintf(work->name, sizeof(work->name), "%s", name);
	MUST(pthread_mutex_init(&work->lock, NULL) == 0 && pthread_cond_init(&work->has_job, NULL) == 0);
	/* Signals are for the thread that set the handlers up, never for one that may be inside a database. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	while (number == 0 && work->thread_count < thread_count) {
		number = pthread_create(&work->threads[work->thread_count], NULL, work_thread, work);
		if (number == 0)
			work->thread_count++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (number != 0) {
		unsigned made_count = work->thread_count;
		work_free(&work);
		return err_sys(err, ERR_SYSTEM, number, "cannot start thread %u of %u for the pool '%s'",
			       made_count + 1, thread_count, name);
	}
	*ret_work = work;
	return 0;
}

void work_free(struct work **work_ptr)
{
	struct work *work = *work_ptr;

	if (!work)
		return;
	(void)pthread_mutex_lock(&work->lock);
	work->is_closing = true;
	(void)pthread_cond_broadcast(&work->has_job);
	(void)pthread_mutex_unlock(&work->lock);
	for (unsigned i = 0; i < work->thread_count; i++)
		MUST(pthread_join(work->threads[i], NULL) == 0);
	(void)pthread_cond_destroy(&work->has_job);
	(void)pthread_mutex_destroy(&work->lock);
	free(work);
	*work_ptr = NULL;
}

bool work_submit(struct work *work, struct job *job, struct loop *home)
{
	bool is_taken;

	job->home = home;
	job->next = NULL;
	(void)pthread_mutex_lock(&work->lock);
	is_taken = !work->is_closing && work->queued_count < work->queue_limit_count;
	if (is_taken) {
		*work->last_link = job;
		work->last_link = &job->next;
		work->queued_count++;
		(void)pthread_cond_signal(&work->has_job);
	}
	(void)pthread_mutex_unlock(&work->lock);
	return is_taken;
}
