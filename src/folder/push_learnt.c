#include "folder/push_learnt.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "sys/fs.h"

#define TEXT_HEAD       "heng-network 1"
#define TEXT_MAX        2048
#define STALE_US        (3600 * SEC_US) /* of a file that a push was writing when it was killed */
#define SAMPLES_LEAST   16
#define SAMPLE_LEAST_US (1 * SEC_US)
/* A chunk is cut so that it takes so long, or so many round trips: shorter ones spend their time on the way, longer ones are lost whole. */
#define CHUNK_US           (1 * SEC_US)
#define CHUNK_ROUND_TRIPS  10
#define FAILURE_MANY_PPM   50000
#define START_LEAST        4
#define ROUND_TRIP_MAX_US  (60 * SEC_US)
#define FAILURE_PPM_MOST   1000000u
#define CHANGE_NOTABLE_PCT 25

static uint64_t choose_chunk(uint64_t rate_bytes, unsigned parallel, int64_t round_trip_us, uint32_t failure_ppm)
{
	int64_t wanted_us = max_i64(CHUNK_US, CHUNK_ROUND_TRIPS * round_trip_us);
	unsigned __int128 ideal = (unsigned __int128)(rate_bytes / parallel) * (uint64_t)wanted_us / SEC_US;
	uint64_t bytes = PUSH_LEARNT_LAN_BYTES;

	if (failure_ppm > FAILURE_MANY_PPM)
		ideal /= 2;
	while (bytes > ideal && bytes > PUSH_LEARNT_WAN_BYTES)
		bytes /= 2;
	/* Where chunks may be large the scheduler's own size is as good: its operator knows the disks. */
	return bytes == PUSH_LEARNT_LAN_BYTES ? 0 : bytes;
}

bool push_learnt_from(const struct push_pace *pace, int64_t round_trip_us, struct push_learnt *ret_learnt)
{
	if (pace->acked_count < SAMPLES_LEAST || pace->last_us - pace->first_us < SAMPLE_LEAST_US ||
	    pace->best_rate == 0)
		return false;
	uint64_t attempts = pace->acked_count + pace->refused_count;

	*ret_learnt = (struct push_learnt){
		/* A push may end in a storm: the next one need not begin there. */
		.parallel = pace->limit > START_LEAST ? pace->limit : START_LEAST,
		.rate_bytes = pace->best_rate,
		.round_trip_us = min_i64(round_trip_us, ROUND_TRIP_MAX_US),
		.failure_ppm = (uint32_t)((unsigned __int128)pace->refused_count * FAILURE_PPM_MOST / attempts),
	};
	ret_learnt->chunk_bytes = choose_chunk(pace->best_rate, pace->limit, ret_learnt->round_trip_us,
					       ret_learnt->failure_ppm);
	return true;
}

/* --- the text --- */

struct field {
	const char *name;
	uint64_t most;
	uint64_t value;
};
enum { FIELD_CHUNK, FIELD_PARALLEL, FIELD_RATE, FIELD_ROUND_TRIP, FIELD_FAILURE, FIELD_COUNT };
#define FIELDS                                                                                      \
	{                                                                                           \
		{ "chunk_bytes", PUSH_LEARNT_LAN_BYTES, 0 }, { "parallel", PUSH_PACE_MOST, 0 },     \
			{ "rate_bytes", UINT64_MAX, 0 }, { "round_trip_us", ROUND_TRIP_MAX_US, 0 }, \
			{ "failure_ppm", FAILURE_PPM_MOST, 0 },                                     \
	}

/* "name value", of which the value must be within bounds; names that are not known belong to a later version. */
static bool take_field(struct str line, struct field fields[FIELD_COUNT])
{
	struct str name;

	if (!str_cut(&line, ' ', &name))
		return false;
	for (size_t i = 0; i < FIELD_COUNT; i++) {
		if (str_eq_c(name, fields[i].name))
			return str_to_u64(line, &fields[i].value) && fields[i].value <= fields[i].most;
	}
	return true;
}

void push_learnt_parse(struct str text, const char *url, struct push_learnt *ret_learnt)
{
	struct field fields[FIELD_COUNT] = FIELDS;
	struct str line;

	*ret_learnt = (struct push_learnt){ 0 };
	if (!str_cut(&text, '\n', &line) || !str_eq_c(line, TEXT_HEAD) || !str_cut(&text, '\n', &line) ||
	    !str_starts(line, STR("url ")) || !str_eq_c((struct str){ line.data + 4, line.size - 4 }, url))
		return;
	while (str_cut(&text, '\n', &line)) {
		if (!take_field(line, fields))
			return;
	}
	uint64_t chunk_bytes = fields[FIELD_CHUNK].value;
	if ((chunk_bytes != 0 && chunk_bytes < PUSH_LEARNT_WAN_BYTES) || fields[FIELD_PARALLEL].value < PUSH_PACE_LEAST)
		return;
	*ret_learnt = (struct push_learnt){
		.chunk_bytes = chunk_bytes,
		.parallel = (unsigned)fields[FIELD_PARALLEL].value,
		.rate_bytes = fields[FIELD_RATE].value,
		.round_trip_us = (int64_t)fields[FIELD_ROUND_TRIP].value,
		.failure_ppm = (uint32_t)fields[FIELD_FAILURE].value,
	};
}

size_t push_learnt_print(const struct push_learnt *learnt, const char *url, char *target, size_t target_size)
{
	struct field fields[FIELD_COUNT] = FIELDS;
	int size = snprintf(target, target_size, "%s\nurl %s\n", TEXT_HEAD, url);

	fields[FIELD_CHUNK].value = learnt->chunk_bytes;
	fields[FIELD_PARALLEL].value = learnt->parallel;
	fields[FIELD_RATE].value = learnt->rate_bytes;
	fields[FIELD_ROUND_TRIP].value = (uint64_t)learnt->round_trip_us;
	fields[FIELD_FAILURE].value = learnt->failure_ppm;
	for (size_t i = 0; i < FIELD_COUNT && size > 0 && (size_t)size < target_size; i++)
		size += snprintf(target + size, target_size - (size_t)size, "%s %llu\n", fields[i].name,
				 (unsigned long long)fields[i].value);
	return size > 0 && (size_t)size < target_size ? (size_t)size : 0;
}

/* --- the file --- */

static bool file_path(const char *dir, const char *url, char path[PATH_MAX])
{
	struct hash128 hash = hash128(url, strlen(url));

	if (!dir || dir[0] == '\0')
		return false;
	int size = snprintf(path, PATH_MAX, "%s/network-%016llx", dir, (unsigned long long)hash.low);
	return size > 0 && size < PATH_MAX;
}

void push_learnt_read(const char *dir, const char *url, struct push_learnt *ret_learnt)
{
	struct buf text = BUF_INIT(TEXT_MAX);
	struct err err = ERR_INIT;
	char path[PATH_MAX];

	*ret_learnt = (struct push_learnt){ 0 };
	if (file_path(dir, url, path) && fs_read_file(path, TEXT_MAX, &text, &err) == 0)
		push_learnt_parse(buf_str(&text), url, ret_learnt);
	buf_fini(&text);
}

static bool is_near(uint64_t a, uint64_t b)
{
	uint64_t less = a < b ? a : b, more = a < b ? b : a;

	return more - less <= less / 100 * CHANGE_NOTABLE_PCT;
}

void push_learnt_write(const char *dir, const char *url, const struct push_learnt *old, const struct push_learnt *now)
{
	struct err err = ERR_INIT;
	char path[PATH_MAX], text[TEXT_MAX];

	/* A disk is not made to sync for nothing. */
	if (old->parallel == now->parallel && old->chunk_bytes == now->chunk_bytes &&
	    is_near(old->rate_bytes, now->rate_bytes))
		return;
	size_t size = push_learnt_print(now, url, text, sizeof(text));
	if (size == 0 || !file_path(dir, url, path) || fs_make_dirs(dir, &err) < 0)
		return;
	fs_clean_replaced(dir, STALE_US);
	(void)fs_replace_file(path, (struct str){ text, size }, 0600, &err);
}
