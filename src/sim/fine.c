#include "sim/fine.h"

#define SUB_COUNT ((uint64_t)1 << FINE_SUB_BITS)

void fine_init(struct fine *fine) { *fine = (struct fine){ 0 }; }

/* Values below an octave's width have a bucket each. Above, the leading bits after the first choose the bucket of the octave. */
static size_t bucket_of(uint64_t value)
{
	if (value >= (uint64_t)1 << FINE_OCTAVES)
		return FINE_BUCKETS - 1;
	if (value < SUB_COUNT)
		return (size_t)value;
	unsigned shift = 63 - (unsigned)__builtin_clzll(value) - FINE_SUB_BITS;
	return (size_t)(((uint64_t)(shift + 1) << FINE_SUB_BITS) + ((value >> shift) - SUB_COUNT));
}

static int64_t bucket_middle(size_t bucket)
{
	uint64_t octave = bucket >> FINE_SUB_BITS, sub = bucket & (SUB_COUNT - 1);
	if (octave == 0)
		return (int64_t)sub;
	uint64_t width = (uint64_t)1 << (octave - 1);
	return (int64_t)((SUB_COUNT + sub) * width + width / 2);
}

void fine_feed(struct fine *fine, int64_t value_ns)
{
	value_ns = max_i64(value_ns, 0);
	fine->total_count++;
	fine->sum_ns += (double)value_ns;
	fine->max_ns = max_i64(fine->max_ns, value_ns);
	fine->counts[bucket_of((uint64_t)value_ns)]++;
}

void fine_merge(struct fine *into, const struct fine *from)
{
	into->total_count += from->total_count;
	into->sum_ns += from->sum_ns;
	into->max_ns = max_i64(into->max_ns, from->max_ns);
	for (size_t i = 0; i < FINE_BUCKETS; i++)
		into->counts[i] += from->counts[i];
}

int64_t fine_quantile_ns(const struct fine *fine, uint32_t quantile_ppm)
{
	uint64_t whole = fine->total_count / 1000000 * quantile_ppm;
	uint64_t rest = (fine->total_count % 1000000 * quantile_ppm + 999999) / 1000000;
	uint64_t rank = whole + rest > 0 ? whole + rest : 1, seen = 0;
	for (size_t i = 0; i < FINE_BUCKETS; i++) {
		seen += fine->counts[i];
		if (seen >= rank)
			return min_i64(bucket_middle(i), fine->max_ns);
	}
	return -1;
}

int64_t fine_mean_ns(const struct fine *fine)
{
	return fine->total_count > 0 ? (int64_t)(fine->sum_ns / (double)fine->total_count + 0.5) : -1;
}
