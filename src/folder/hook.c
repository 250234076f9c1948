#include "folder/hook_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/curve.h"
#include "sys/fs.h"

#define RETRY_MOST_US (60 * SEC_US)
#define FILES_PAGE    16
#define SAVE_FILES    64
#define SAVE_US       SEC_US

#define TEXT(key, field, text, words)                                                                          \
	{                                                                                                      \
		.name = key, .type = CONF_TEXT, .offset = offsetof(struct hook_conf, field), .fallback = text, \
		.help = words                                                                                  \
	}

const struct conf_row hook_conf_rows[] = {
	TEXT("name", name, NULL,
	     "how it is called in logs, records and what it is told; a folder of that name is made"),
	{ .name = "command",
	  .type = CONF_WORDS,
	  .fallback = "",
	  .offset = offsetof(struct hook_conf, command),
	  .help = "program and its arguments, run without a shell" },
	TEXT("webhook", webhook, "", "or: URL to which is posted"),
	TEXT("secret_file", secret_file, "", "file with the secret that signs what is posted, for heng alone to read"),
	{ .name = "each",
	  .type = CONF_CHOICE,
	  .offset = offsetof(struct hook_conf, each),
	  .choices = "transfer|file",
	  .fallback = "transfer",
	  .help = "told once for a transfer, or once for each of its files" },
	{ .name = "timeout",
	  .type = CONF_DURATION,
	  .offset = offsetof(struct hook_conf, timeout_us),
	  .min = 10 * MSEC_US,
	  .max = 24 * 3600 * SEC_US,
	  .fallback = "30s",
	  .help = "a command or an answer that takes longer has failed" },
	{ .name = "tries",
	  .type = CONF_INT,
	  .offset = offsetof(struct hook_conf, tries),
	  .min = 1,
	  .max = 1000,
	  .fallback = "10",
	  .help = "in a row that fail; then the transfer's delivery is given up, with an alert" },
	{ .name = "retry_after",
	  .type = CONF_DURATION,
	  .offset = offsetof(struct hook_conf, retry_after_us),
	  .min = MSEC_US,
	  .max = 60 * SEC_US,
	  .fallback = "1s",
	  .help = "before the second try; doubled for each that follows, up to a minute" },
	{ .name = NULL },
};

/* --- the queue of one hook --- */

static bool has_debt_locked(const struct hook *hook, const char *transfer_id)
{
	for (const struct hook_debt *debt = hook->debts; debt; debt = debt->next)
		if (strcmp(debt->transfer_id, transfer_id) == 0)
			return true;
	return false;
}

/* In the order of completion; but nothing goes before the one that may just be being told. */
static void put_locked(struct hook *hook, const struct hook_debt *new_debt)
{
	struct hook_debt **link = hook->debts && hook->is_thread_started ? &hook->debts->next : &hook->debts, *debt;

	if (has_debt_locked(hook, new_debt->transfer_id))
		return;
	while (*link && (*link)->completed_wall_us <= new_debt->completed_wall_us)
		link = &(*link)->next;
	debt = must_alloc(sizeof(*debt));
	*debt = *new_debt;
	debt->next = *link;
	*link = debt;
}

static void pop(struct hook *hook)
{
	pthread_mutex_lock(&hook->hooks->lock);
	struct hook_debt *debt = hook->debts;
	hook->debts = debt->next;
	pthread_mutex_unlock(&hook->hooks->lock);
	free(debt);
}

/* The first, once it is due; NULL: the end. */
static struct hook_debt *wait_for_debt(struct hook *hook)
{
	struct hooks *hooks = hook->hooks;
	struct hook_debt *debt = NULL;

	pthread_mutex_lock(&hooks->lock);
	while (!atomic_load(&hooks->is_stopping)) {
		int64_t now_us = clock_mono_us();
		if (hook->debts && hook->debts->due_us <= now_us) {
			debt = hook->debts;
			break;
		}
		if (hook->debts) {
			int64_t due_us = hook->debts->due_us;
			struct timespec until = { .tv_sec = (time_t)(due_us / SEC_US),
						  .tv_nsec = (long)(due_us % SEC_US) * 1000 };
			(void)pthread_cond_timedwait(&hooks->changed, &hooks->lock, &until);
		} else {
			(void)pthread_cond_wait(&hooks->changed, &hooks->lock);
		}
	}
	pthread_mutex_unlock(&hooks->lock);
	return debt;
}

/* Others look at the debts, so what changes of one changes under the lock. */
static void note_progress(struct hook *hook, struct hook_debt *debt, uint64_t next_seq)
{
	pthread_mutex_lock(&hook->hooks->lock);
	debt->next_seq = next_seq;
	debt->tries = 0;
	debt->error[0] = '\0';
	pthread_mutex_unlock(&hook->hooks->lock);
}

static void note_failure(struct hook *hook, struct hook_debt *debt, const struct err *err)
{
	pthread_mutex_lock(&hook->hooks->lock);
	debt->due_us = clock_mono_us() + curve_backoff_us((unsigned)min_i64((int64_t)debt->tries, 30),
							  hook->retry_after_us, RETRY_MOST_US, &hook->rng);
	debt->tries++;
	str_display(str_from(err->text), debt->error, sizeof(debt->error));
	pthread_mutex_unlock(&hook->hooks->lock);
}

/* --- telling --- */

static void save(struct hook *hook, const struct hook_debt *debt)
{
	struct err err = ERR_INIT;

	/* Then some of it is told twice after a crash, no more. */
	if (hook_outbox_save(hook, debt, &err) < 0)
		log_err(LOG_WARN, &err, "hook %s, transfer %s: how far it was told", hook->name, debt->transfer_id);
}

struct page {
	struct hook_file files[FILES_PAGE];
	size_t count;
};

static int on_entry(void *owner, const struct store_entry *entry)
{
	struct page *page = owner;
	struct hook_file *file = &page->files[page->count];

	if (entry->type != MANIFEST_FILE)
		return 0;
	*file = (struct hook_file){
		.seq = entry->seq, .size_bytes = entry->size_bytes, .mode = entry->mode, .mtime_ns = entry->mtime_ns
	};
	memcpy(file->digest, entry->digest, sizeof(file->digest));
	MUST(str_copy(entry->path, file->path, sizeof(file->path)));
	return ++page->count == FILES_PAGE;
}

static int tell_page(struct hook *hook, struct hook_debt *debt, const struct store_transfer *transfer,
		     const struct page *page, int64_t *saved_us, struct err *err)
{
	for (size_t i = 0; i < page->count; i++) {
		const struct hook_file *file = &page->files[i];

		if (atomic_load(&hook->hooks->is_stopping))
			return err_set(err, ERR_WAITING, "interrupted");
		int result = hook_call(hook, transfer, file, debt->tries + 1, err);
		if (result < 0)
			return err_wrap(err, "entry %" PRIu64, file->seq);
		note_progress(hook, debt, file->seq + 1);
		if (debt->next_seq % SAVE_FILES == 0 || clock_mono_us() - *saved_us > SAVE_US) {
			save(hook, debt);
			*saved_us = clock_mono_us();
		}
	}
	return 0;
}

static int tell_files(struct hook *hook, struct hook_debt *debt, const struct store_transfer *transfer, struct err *err)
{
	struct page *page = must_alloc(sizeof(*page));
	struct store *store = hook->hooks->store;
	int64_t saved_us = clock_mono_us();
	int result;

	/* Pages are read whole before anything of them is told: a reader that waits for somebody's server would hold up the database. */
	do {
		page->count = 0;
		result = store->ops->entries(store, transfer->id, debt->next_seq, UINT64_MAX >> 1, on_entry, page, err);
		if (result >= 0)
			result = tell_page(hook, debt, transfer, page, &saved_us, err);
	} while (result >= 0 && page->count == FILES_PAGE);
	free(page);
	return result < 0 ? result : 0;
}

static void record(struct hook *hook, const struct store_transfer *transfer, const char *kind, const char *outcome,
		   const char *detail)
{
	struct store *store = hook->hooks->store;
	struct err err = ERR_INIT;
	const struct store_audit row = { .at_wall_us = clock_wall_us(),
					 .kind = kind,
					 .transfer_id = transfer->id,
					 .user = transfer->user,
					 .outcome = outcome,
					 .detail = detail };

	if (store->ops->audit(store, &row, &err) < 0)
		log_err(LOG_ERROR, &err, "hook %s, transfer %s: '%s' could not be recorded", hook->name, transfer->id,
			outcome);
}

static void end_told(struct hook *hook, struct hook_debt *debt, const struct store_transfer *transfer)
{
	struct err err = ERR_INIT;
	char detail[STORE_REASON_SIZE];

	snprintf(detail, sizeof(detail), "hook %s", hook->name);
	record(hook, transfer, "hook", "delivered", detail);
	log_say(LOG_INFO, "hook %s, transfer %s: delivered", hook->name, debt->transfer_id);
	if (hook_outbox_remove(hook, debt->transfer_id, &err) < 0)
		log_err(LOG_ERROR, &err, "hook %s, transfer %s: it is told again after the next start", hook->name,
			debt->transfer_id);
	pop(hook);
}

static void end_given_up(struct hook *hook, struct hook_debt *debt, const struct store_transfer *transfer)
{
	struct err err = ERR_INIT;
	char detail[STORE_REASON_SIZE];

	snprintf(detail, sizeof(detail), "hook %s, given up after %" PRIu64 " tries: %.380s", hook->name, debt->tries,
		 debt->error);
	log_say(LOG_ERROR, "transfer %s: %s", debt->transfer_id, detail);
	record(hook, transfer, "alert", "hook_failed", detail);
	if (hook_outbox_fail(hook, debt, &err) < 0)
		log_err(LOG_ERROR, &err, "hook %s, transfer %s: it is tried again after the next start", hook->name,
			debt->transfer_id);
	pop(hook);
}

static void tell(struct hook *hook, struct hook_debt *debt)
{
	struct hooks *hooks = hook->hooks;
	struct store_transfer transfer = { .version = 0 };
	struct err err = ERR_INIT;

	str_copy(str_from(debt->transfer_id), transfer.id, sizeof(transfer.id));
	int result = hooks->store->ops->transfer_get(hooks->store, debt->transfer_id, &transfer, &err);
	if (result == 0 && hook->each == HOOK_EACH_FILE)
		result = tell_files(hook, debt, &transfer, &err);
	else if (result == 0)
		result = hook_call(hook, &transfer, NULL, debt->tries + 1, &err);
	if (result == 0) {
		end_told(hook, debt, &transfer);
		return;
	}
	if (atomic_load(&hooks->is_stopping)) {
		save(hook, debt);
		return;
	}
	note_failure(hook, debt, &err);
	log_err(LOG_WARN, &err, "hook %s, transfer %s: try %" PRIu64 " of %" PRIu64, hook->name, debt->transfer_id,
		debt->tries, hook->tries_max);
	if (debt->tries >= hook->tries_max)
		end_given_up(hook, debt, &transfer);
	else
		save(hook, debt);
}

static void *hook_main(void *arg)
{
	struct hook *hook = arg;
	struct hook_debt *debt;

	while ((debt = wait_for_debt(hook)) != NULL)
		tell(hook, debt);
	return NULL;
}

/* --- start and stop --- */

/* Owed from before: of a transfer that was completed it is told; one that was given up meanwhile owes nothing. */
static int take_up(struct hook *hook, const char *transfer_id, struct err *err)
{
	struct store *store = hook->hooks->store;
	struct store_transfer transfer;
	struct hook_debt debt;

	int result = store->ops->transfer_get(store, transfer_id, &transfer, err);
	if (result == -ERR_NO_TRANSFER || (result == 0 && transfer.state == TRANSFER_FAILED))
		return hook_outbox_remove(hook, transfer_id, err);
	if (result < 0 || transfer.state != TRANSFER_COMPLETED)
		return result;
	result = hook_outbox_read(hook, transfer_id, &debt, err);
	if (result < 0)
		return result;
	debt.completed_wall_us = transfer.completed_wall_us;
	put_locked(hook, &debt);
	return 0;
}

static int read_secret(struct hook *hook, const char *path, struct err *err)
{
	struct buf text = BUF_INIT(KIB);
	struct stat st;

	if (path[0] == '\0')
		return 0;
	if (stat(path, &st) == 0 && (st.st_mode & 077) != 0) {
		err_set(err, ERR_CONFIG, "the secret file '%s' can be read by others than heng", path);
		err_hint(err, "chmod 600 %s", path);
		return -ERR_CONFIG;
	}
	int result = fs_read_file(path, text.limit, &text, err);
	struct str rest = buf_str(&text), line = STR_NONE;
	if (result == 0 && (!str_cut(&rest, '\n', &line) || line.size == 0 || line.size > sizeof(hook->secret)))
		result = err_set(err, ERR_CONFIG, "the secret file '%s' does not begin with a line of 1 to %zu bytes",
				 path, sizeof(hook->secret));
	if (result == 0) {
		memcpy(hook->secret, line.data, line.size);
		hook->secret_size = line.size;
	}
	mem_wipe(text.data, text.size);
	buf_fini(&text);
	return result;
}

static bool name_is_good(const char *name)
{
	return name[0] != '.' && name[0] != '\0' && strlen(name) < HOOK_NAME_SIZE &&
	       name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0';
}

static int check(const struct hook_conf *list, size_t index, struct err *err)
{
	const struct hook_conf *conf = &list[index];
	const char *const *argv = conf->command.items;

	if (!name_is_good(conf->name))
		return err_set(err, ERR_CONFIG, "its name is not 1 to %d of A-Za-z0-9._-, or begins with a point",
			       HOOK_NAME_SIZE - 1);
	for (size_t i = 0; i < index; i++)
		if (strcmp(list[i].name, conf->name) == 0)
			return err_set(err, ERR_CONFIG, "its name stands twice in the list");
	if ((conf->command.count > 0) == (conf->webhook[0] != '\0'))
		return err_set(err, ERR_CONFIG, "it needs a command or a webhook, and not both");
	if (conf->command.count > 0 && argv[0][0] != '/')
		return err_set(err, ERR_CONFIG, "its command '%.200s' is not an absolute path", argv[0]);
	if (conf->command.count > HOOK_ARGS_MAX)
		return err_set(err, ERR_CONFIG, "its command has more than %d words", HOOK_ARGS_MAX);
	if (conf->webhook[0] != '\0' && strncmp(conf->webhook, "http://", 7) != 0 &&
	    strncmp(conf->webhook, "https://", 8) != 0)
		return err_set(err, ERR_CONFIG, "its webhook is not an http:// or https:// URL");
	return 0;
}

static int open_hook(struct hooks *hooks, const struct hook_options *options, size_t index, struct err *err)
{
	const struct hook_conf *conf = &options->list[index];
	struct hook *hook = &hooks->items[index];
	const char *const *argv = conf->command.items;

	int result = check(options->list, index, err);
	if (result < 0)
		return result;
	str_copy(str_from(conf->name), hook->name, sizeof(hook->name));
	for (size_t i = 0; i < conf->command.count; i++)
		hook->argv[i] = must_strdup(argv[i]);
	hook->webhook = must_strdup(conf->webhook);
	hook->each = (enum hook_each)conf->each;
	hook->timeout_us = conf->timeout_us;
	hook->tries_max = (uint64_t)conf->tries;
	hook->retry_after_us = conf->retry_after_us;
	rng_seed_kernel(&hook->rng);
	result = read_secret(hook, conf->secret_file, err);
	if (result == 0)
		result = fetch_new(&hook->fetch, err);
	if (result == 0)
		result = hook_outbox_open(hook, options->state_dir, err);
	if (result == 0)
		result = hook_outbox_list(hook, take_up, err);
	return result;
}

static int start(struct hooks *hooks, const struct hook_options *options, struct err *err)
{
	for (size_t i = 0; i < options->count; i++) {
		if (open_hook(hooks, options, i, err) < 0)
			return err_wrap(err, "hook '%.64s' of on_complete", options->list[i].name);
	}
	/* Only when all that was owed stands in its order. */
	for (size_t i = 0; i < options->count; i++) {
		int number = pthread_create(&hooks->items[i].thread, NULL, hook_main, &hooks->items[i]);
		if (number != 0)
			return err_sys(err, ERR_SYSTEM, number, "cannot start the thread of a hook");
		hooks->items[i].is_thread_started = true;
	}
	return 0;
}

int hooks_start(const struct hook_options *options, struct hooks **ret_hooks, struct err *err)
{
	struct hooks *hooks = must_zalloc(1, sizeof(*hooks));
	pthread_condattr_t attributes;

	hooks->items = must_zalloc(options->count + 1, sizeof(*hooks->items));
	hooks->count = options->count;
	hooks->store = options->store;
	hooks->final_place = must_strdup(options->final_place);
	pthread_mutex_init(&hooks->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&hooks->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	for (size_t i = 0; i < hooks->count; i++) {
		hooks->items[i].hooks = hooks;
		hooks->items[i].dir_fd = hooks->items[i].failed_fd = -1;
	}
	int result = start(hooks, options, err);
	if (result < 0)
		hooks_stop(&hooks);
	*ret_hooks = hooks;
	return result;
}

static void close_hook(struct hook *hook)
{
	for (struct hook_debt *debt = hook->debts, *next; debt; debt = next) {
		next = debt->next;
		free(debt);
	}
	for (size_t i = 0; hook->argv[i]; i++)
		free(hook->argv[i]);
	free(hook->webhook);
	fetch_free(&hook->fetch);
	fs_close(&hook->dir_fd);
	fs_close(&hook->failed_fd);
	mem_wipe(hook->secret, sizeof(hook->secret));
}

void hooks_stop(struct hooks **hooks_ref)
{
	struct hooks *hooks = *hooks_ref;

	if (!hooks)
		return;
	pthread_mutex_lock(&hooks->lock);
	atomic_store(&hooks->is_stopping, true);
	pthread_cond_broadcast(&hooks->changed);
	pthread_mutex_unlock(&hooks->lock);
	for (size_t i = 0; i < hooks->count; i++)
		if (hooks->items[i].is_thread_started)
			pthread_join(hooks->items[i].thread, NULL);
	for (size_t i = 0; i < hooks->count; i++)
		close_hook(&hooks->items[i]);
	pthread_cond_destroy(&hooks->changed);
	pthread_mutex_destroy(&hooks->lock);
	free(hooks->items);
	free(hooks->final_place);
	free(hooks);
	*hooks_ref = NULL;
}

/* --- what the merge and the calls ask --- */

int hooks_promise(struct hooks *hooks, const char *transfer_id, struct err *err)
{
	for (size_t i = 0; i < hooks->count; i++) {
		if (hook_outbox_add(&hooks->items[i], transfer_id, err) < 0)
			return err_wrap(err, "noting that hook %s is to be told", hooks->items[i].name);
	}
	return 0;
}

void hooks_completed(struct hooks *hooks, const struct store_transfer *transfer)
{
	struct hook_debt debt = { .completed_wall_us = transfer->completed_wall_us };

	str_copy(str_from(transfer->id), debt.transfer_id, sizeof(debt.transfer_id));
	pthread_mutex_lock(&hooks->lock);
	for (size_t i = 0; i < hooks->count; i++) {
		/* Without the promise it was told already. */
		if (faccessat(hooks->items[i].dir_fd, transfer->id, F_OK, 0) == 0)
			put_locked(&hooks->items[i], &debt);
	}
	pthread_cond_broadcast(&hooks->changed);
	pthread_mutex_unlock(&hooks->lock);
}

static void json_hook(struct json *json, const struct hook *hook, const char *state, uint64_t tries, const char *error)
{
	json_open(json, NULL);
	json_c(json, "name", hook->name);
	json_c(json, "state", state);
	json_u64(json, "tries", tries);
	json_c(json, "error", error);
	json_close(json);
}

void hooks_json(struct hooks *hooks, const char *transfer_id, struct json *json)
{
	char error[HOOK_ERROR_SIZE];

	json_open_list(json, "hooks");
	for (size_t i = 0; i < hooks->count; i++) {
		struct hook *hook = &hooks->items[i];
		bool is_owed = false;

		pthread_mutex_lock(&hooks->lock);
		for (const struct hook_debt *debt = hook->debts; debt && !is_owed; debt = debt->next) {
			if (strcmp(debt->transfer_id, transfer_id) != 0)
				continue;
			json_hook(json, hook, "owed", debt->tries, debt->error);
			is_owed = true;
		}
		pthread_mutex_unlock(&hooks->lock);
		if (!is_owed && hook_outbox_failed(hook, transfer_id, error))
			json_hook(json, hook, "given_up", hook->tries_max, error);
	}
	json_close_list(json);
}
