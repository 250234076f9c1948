/* Moving the write-ahead log into the database file beside the writer, so that no commit waits for it.
 *
 * SQLite would do it within the commit that made the log long, and every receipt behind that commit would wait for two syncs and the copying. A
 * checkpoint beside a busy writer never catches up with it, and only a log that was moved whole begins anew: so the writer does it itself when the
 * log has become several times as long. */
#include "plug/store_sqlite.h"

#include <stdlib.h>

#define LOG_PAGES_MARK 4000 /* about 16 MiB: moved beside the writer from here on */
#define LOG_PAGES_MAX  (4 * LOG_PAGES_MARK)

struct sqlite_checkpoint {
	sqlite3 *db; /* the thread's own connection */
	pthread_t thread;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t wake;
	bool is_wanted, is_closing;
};

/* What fails here (a full disk) leaves the log as it was, and is tried again after the next commit. */
static void move_log(sqlite3 *db) { (void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL); }

static void *checkpoint_main(void *arg)
{
	struct sqlite_checkpoint *checkpoint = arg;

	pthread_mutex_lock(&checkpoint->lock);
	while (!checkpoint->is_closing) {
		if (!checkpoint->is_wanted) {
			pthread_cond_wait(&checkpoint->wake, &checkpoint->lock);
			continue;
		}
		checkpoint->is_wanted = false;
		pthread_mutex_unlock(&checkpoint->lock);
		move_log(checkpoint->db);
		pthread_mutex_lock(&checkpoint->lock);
	}
	pthread_mutex_unlock(&checkpoint->lock);
	return NULL;
}

/* Called by SQLite after each commit, on the writer's thread. */
static int on_commit(void *arg, sqlite3 *db, const char *name, int page_count)
{
	struct sqlite_checkpoint *checkpoint = arg;

	(void)name;
	if (page_count >= LOG_PAGES_MAX) {
		move_log(db);
	} else if (page_count >= LOG_PAGES_MARK) {
		pthread_mutex_lock(&checkpoint->lock);
		checkpoint->is_wanted = true;
		pthread_cond_signal(&checkpoint->wake);
		pthread_mutex_unlock(&checkpoint->lock);
	}
	return SQLITE_OK;
}

int sqlite_checkpoint_start(struct sqlite_conn *writer, struct err *err)
{
	struct sqlite_checkpoint *checkpoint = must_zalloc(1, sizeof(*checkpoint));
	int rc = sqlite3_open_v2(writer->where, &checkpoint->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

	if (rc != SQLITE_OK) {
		err_set(err, ERR_STORE, "opening it once more for checkpoints: %s", sqlite3_errstr(rc));
		goto failed;
	}
	pthread_mutex_init(&checkpoint->lock, NULL);
	pthread_cond_init(&checkpoint->wake, NULL);
	rc = pthread_create(&checkpoint->thread, NULL, checkpoint_main, checkpoint);
	if (rc != 0) {
		pthread_cond_destroy(&checkpoint->wake);
		pthread_mutex_destroy(&checkpoint->lock);
		err_sys(err, ERR_SYSTEM, rc, "starting the store's checkpoint thread");
		goto failed;
	}
	(void)sqlite3_wal_hook(writer->db, on_commit, checkpoint);
	writer->checkpoint = checkpoint;
	return 0;
failed:
	(void)sqlite3_close(checkpoint->db);
	free(checkpoint);
	return -ERR_STORE;
}

void sqlite_checkpoint_stop(struct sqlite_conn *writer)
{
	struct sqlite_checkpoint *checkpoint = writer->checkpoint;

	if (!checkpoint)
		return;
	(void)sqlite3_wal_hook(writer->db, NULL, NULL);
	pthread_mutex_lock(&checkpoint->lock);
	checkpoint->is_closing = true;
	pthread_cond_signal(&checkpoint->wake);
	pthread_mutex_unlock(&checkpoint->lock);
	pthread_join(checkpoint->thread, NULL);
	pthread_cond_destroy(&checkpoint->wake);
	pthread_mutex_destroy(&checkpoint->lock);
	MUST(sqlite3_close(checkpoint->db) == SQLITE_OK);
	free(checkpoint);
	writer->checkpoint = NULL;
}
