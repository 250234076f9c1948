/* By what nodes are judged, and where that is written down. */
#include "folder/sched_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/decide.h"
#include "sys/fs.h"

#define LOG_SYNC_INTERVAL_US SEC_US
#define LOG_QUEUE_BYTES      (64 * MIB)

int sched_load_profile(struct sched *sched, const char *path, struct err *err)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(PROFILE_TEXT_MAX);
	int result;

	sched->profile = *profile_builtin("folder");
	if (!path || path[0] == '\0')
		return 0;
	result = fs_read_file(path, PROFILE_TEXT_MAX, &text, err);
	if (result == 0)
		result = profile_parse(path, buf_str(&text), &sched->profile, err);
	if (result < 0)
		err_hint(err, "docs/scoring.md says how to write a profile");
	return result < 0 ? err_wrap(err, "reading the profile '%s'", path) : 0;
}

/* Each file can be read alone: it begins with the profile that its tables were made by. */
static void log_head(void *owner, struct buf *buf)
{
	struct sched *sched = owner;

	decide_write_profile(buf, &sched->profile, clock_wall_us());
}

static void log_told(void *owner, const struct err *fault, uint64_t dropped_count)
{
	(void)owner;
	if (fault)
		log_err(LOG_ERROR, fault, "decisions cannot be logged; they are kept in memory, %d MiB at most",
			(int)(LOG_QUEUE_BYTES / MIB));
	else
		log_say(LOG_WARN, "decisions are logged again; %llu lines were lost since the start",
			(unsigned long long)dropped_count);
}

int sched_open_decisions(struct sched *sched, const struct sched_conf *conf, struct err *err)
{
	char path[PATH_TEXT_MAX];
	struct logfile_conf options = {
		.path = path,
		.rotate_bytes = conf->decision_log_rotate_bytes,
		.keep_count = (unsigned)conf->decision_log_keep,
		.sync_interval_us = LOG_SYNC_INTERVAL_US,
		.queue_bytes = LOG_QUEUE_BYTES,
		.head = log_head,
		.told = log_told,
		.owner = sched,
	};
	int result;

	sched->is_every_place = conf->decision_log_places != 0;
	if (!conf->decision_log || conf->decision_log[0] == '\0')
		snprintf(path, sizeof(path), "%s/decisions.jsonl", sched->state_dir);
	else if (strcmp(conf->decision_log, "off") == 0)
		return 0;
	else if (!str_copy(str_from(conf->decision_log), path, sizeof(path)))
		return err_set(err, ERR_CONFIG, "decision_log is too long a path");
	result = logfile_open(&options, &sched->decisions, err);
	return result < 0 ? err_wrap(err, "opening the decision log '%s'", path) : 0;
}
