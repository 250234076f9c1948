#include "sim/recent.h"

void recent_init(struct recent *recent) { *recent = (struct recent){ 0 }; }

static size_t row_index(uint32_t load_count) { return min_size(load_count, RECENT_LOADS - 1); }

void recent_feed(struct recent *recent, uint32_t load_count, int64_t latency_ns)
{
	struct recent_row *row = &recent->rows[row_index(load_count)];
	row->samples_ns[row->next] = latency_ns;
	row->next = (uint8_t)((row->next + 1) % RECENT_SAMPLES);
	if (row->count < RECENT_SAMPLES)
		row->count++;
}

static int64_t row_median(const struct recent_row *row)
{
	int64_t sorted[RECENT_SAMPLES];
	for (size_t i = 0; i < row->count; i++) {
		size_t place = i;
		for (; place > 0 && sorted[place - 1] > row->samples_ns[i]; place--)
			sorted[place] = sorted[place - 1];
		sorted[place] = row->samples_ns[i];
	}
	return sorted[(row->count - 1) / 2];
}

int64_t recent_median_ns(const struct recent *recent, uint32_t load_count)
{
	size_t middle = row_index(load_count);
	for (size_t distance = 0; distance < RECENT_LOADS; distance++) {
		if (middle >= distance && recent->rows[middle - distance].count > 0)
			return row_median(&recent->rows[middle - distance]);
		if (middle + distance < RECENT_LOADS && recent->rows[middle + distance].count > 0)
			return row_median(&recent->rows[middle + distance]);
	}
	return 0;
}
