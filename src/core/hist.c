#include "core/hist.h"

#define SUB_COUNT ((size_t)1 << HIST_SUB_BITS)

void hist_init(struct hist *hist) { memset(hist, 0, sizeof(*hist)); }

size_t hist_bucket(int64_t value_us)
{
	uint64_t value = (uint64_t)min_i64(max_i64(value_us, 0), HIST_VALUE_MAX_US);
	unsigned octave;

	if (value < SUB_COUNT)
		return (size_t)value;
	octave = 63 - (unsigned)__builtin_clzll(value) - HIST_SUB_BITS;
	/* value >> octave is 16..31: its own leading bit moves on by one octave. */
	return ((size_t)octave << HIST_SUB_BITS) + (size_t)(value >> octave);
}

int64_t hist_bucket_floor_us(size_t bucket)
{
	size_t octave;

	MUST(bucket < HIST_BUCKETS);
	if (bucket < 2 * SUB_COUNT)
		return (int64_t)bucket;
	octave = (bucket >> HIST_SUB_BITS) - 1;
	return (int64_t)((bucket & (SUB_COUNT - 1)) + SUB_COUNT) << octave;
}

static int64_t bucket_middle_us(size_t bucket)
{
	int64_t floor_us = hist_bucket_floor_us(bucket);
	int64_t next_us = bucket + 1 < HIST_BUCKETS ? hist_bucket_floor_us(bucket + 1) : HIST_VALUE_MAX_US + 1;

	return floor_us + (next_us - floor_us) / 2;
}

static void hist_add_sum(struct hist *hist, uint64_t more_us)
{
	hist->sum_us = more_us > (uint64_t)INT64_MAX - hist->sum_us ? (uint64_t)INT64_MAX : hist->sum_us + more_us;
}

void hist_feed(struct hist *hist, int64_t value_us)
{
	size_t bucket = hist_bucket(value_us);

	if (hist->counts[bucket] == UINT32_MAX)
		return;
	hist->counts[bucket]++;
	hist->total_count++;
	hist_add_sum(hist, (uint64_t)min_i64(max_i64(value_us, 0), HIST_VALUE_MAX_US));
}

void hist_merge(struct hist *into, const struct hist *from)
{
	if (from->total_count == 0)
		return;
	for (size_t i = 0; i < HIST_BUCKETS; i++) {
		uint32_t room = UINT32_MAX - into->counts[i];
		uint32_t more = from->counts[i] < room ? from->counts[i] : room;

		into->counts[i] += more;
		into->total_count += more;
	}
	hist_add_sum(into, from->sum_us);
}

int64_t hist_quantile_us(const struct hist *hist, uint32_t quantile_ppm)
{
	uint64_t rank, seen = 0;
	size_t last = 0;

	if (hist->total_count == 0)
		return -1;
	/* total_count stays below 2^41 as no bucket passes 2^32, so the product fits. */
	quantile_ppm = quantile_ppm > 1000000 ? 1000000 : quantile_ppm;
	rank = (hist->total_count * quantile_ppm + 999999) / 1000000;
	rank = rank == 0 ? 1 : rank;
	for (size_t i = 0; i < HIST_BUCKETS && seen < rank; i++) {
		seen += hist->counts[i];
		last = i;
	}
	return bucket_middle_us(last);
}

int64_t hist_mean_us(const struct hist *hist)
{
	return hist->total_count == 0 ? -1 : (int64_t)(hist->sum_us / hist->total_count);
}

void hist_json(struct json *json, const char *key, const struct hist *hist)
{
	json_open(json, key);
	json_u64(json, "sum_us", hist->sum_us);
	json_open_list(json, "buckets");
	for (size_t i = 0; i < HIST_BUCKETS; i++) {
		if (hist->counts[i] == 0)
			continue;
		json_open_list(json, NULL);
		json_u64(json, NULL, i);
		json_u64(json, NULL, hist->counts[i]);
		json_close_list(json);
	}
	json_close_list(json);
	json_close(json);
}

/* --- the window --- */

static int64_t slice_number_at(const struct hist_window *window, int64_t now_us)
{
	return max_i64(max_i64(now_us, 0) / window->slice_us, window->slice_number);
}

static const struct hist *slice_of(const struct hist_window *window, int64_t number)
{
	return &window->slices[(uint64_t)number % HIST_SLICES];
}

void hist_window_init(struct hist_window *window, int64_t window_us, int64_t now_us)
{
	memset(window, 0, sizeof(*window));
	window->slice_us = max_i64(window_us / HIST_SLICES, 1);
	window->slice_number = slice_number_at(window, now_us);
}

void hist_window_feed(struct hist_window *window, int64_t value_us, int64_t now_us)
{
	int64_t number = slice_number_at(window, now_us);

	/* The slices between the newest and this one hold a time that has fallen out; however far the jump, there are only so many. */
	for (int64_t i = max_i64(window->slice_number + 1, number - HIST_SLICES + 1); i <= number; i++)
		hist_init(&window->slices[(uint64_t)i % HIST_SLICES]);
	window->slice_number = number;
	hist_feed(&window->slices[(uint64_t)number % HIST_SLICES], value_us);
}

void hist_window_read(const struct hist_window *window, int64_t now_us, struct hist *ret_hist)
{
	int64_t oldest = max_i64(slice_number_at(window, now_us) - HIST_SLICES + 1, 0);

	hist_init(ret_hist);
	/* Before the window was begun the slices are empty. */
	for (int64_t i = max_i64(oldest, window->slice_number - HIST_SLICES + 1); i <= window->slice_number; i++)
		hist_merge(ret_hist, slice_of(window, i));
}
