#include "core/health.h"

static const char *const source_names[HEALTH_SOURCES] = {
	[HEALTH_PROBE] = "probe",
	[HEALTH_HEARTBEAT] = "heartbeat",
	[HEALTH_GOSSIP] = "gossip",
	[HEALTH_TRAFFIC] = "traffic",
};
static const char *const word_names[] = {
	[HEALTH_UNKNOWN] = "unknown",
	[HEALTH_GOOD] = "good",
	[HEALTH_DOUBTFUL] = "doubtful",
	[HEALTH_FAILED] = "failed",
};

void health_init(struct health *health) { memset(health, 0, sizeof(*health)); }

static struct health_view *health_view_of(struct health *health, enum health_source source)
{
	MUST((unsigned)source < HEALTH_SOURCES);
	return &health->views[source];
}

static bool view_say(struct health_view *view, enum health_word word, int64_t now_us)
{
	if (view->word == word)
		return false;
	view->word = word;
	view->since_us = now_us;
	return true;
}

bool health_good(struct health *health, enum health_source source, int64_t now_us)
{
	struct health_view *view = health_view_of(health, source);

	view->missed_count = 0;
	view->good_count += view->good_count < UINT32_MAX;
	view->heard_us = now_us;
	return view_say(view, HEALTH_GOOD, now_us);
}

bool health_missed(struct health *health, enum health_source source, unsigned missed_limit_count, int64_t now_us)
{
	struct health_view *view = health_view_of(health, source);

	view->good_count = 0;
	view->missed_count += view->missed_count < UINT32_MAX;
	if (view->missed_count >= missed_limit_count)
		return view_say(view, HEALTH_FAILED, now_us);
	return view->word != HEALTH_FAILED && view_say(view, HEALTH_DOUBTFUL, now_us);
}

bool health_failed(struct health *health, enum health_source source, int64_t now_us)
{
	struct health_view *view = health_view_of(health, source);

	view->good_count = 0;
	return view_say(view, HEALTH_FAILED, now_us);
}

bool health_forget(struct health *health, enum health_source source, int64_t now_us)
{
	struct health_view *view = health_view_of(health, source);

	view->good_count = 0;
	view->missed_count = 0;
	return view_say(view, HEALTH_UNKNOWN, now_us);
}

bool health_any(const struct health *health, enum health_word word, enum health_source except)
{
	for (unsigned i = 0; i < HEALTH_SOURCES; i++) {
		if (i != (unsigned)except && health->views[i].word == word)
			return true;
	}
	return false;
}

const char *health_source_name(enum health_source source)
{
	MUST((unsigned)source < HEALTH_SOURCES);
	return source_names[source];
}

const char *health_word_name(enum health_word word)
{
	MUST((unsigned)word < COUNT_OF(word_names));
	return word_names[word];
}
