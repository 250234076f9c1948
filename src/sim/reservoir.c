#include "sim/reservoir.h"

#include <math.h>

void reservoir_clear(struct reservoir *reservoir) { reservoir->count = 0; }

static void swap_items(struct reservoir_item *a, struct reservoir_item *b)
{
	struct reservoir_item kept = *a;

	*a = *b;
	*b = kept;
}

static void sift_up(struct reservoir_item *items, size_t place)
{
	while (place > 0 && items[place].log_priority < items[(place - 1) / 2].log_priority) {
		swap_items(&items[place], &items[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
}

static void sift_down(struct reservoir_item *items, size_t count)
{
	size_t place = 0;

	for (;;) {
		size_t least = place;

		for (size_t child = 2 * place + 1; child <= 2 * place + 2 && child < count; child++) {
			if (items[child].log_priority < items[least].log_priority)
				least = child;
		}
		if (least == place)
			return;
		swap_items(&items[place], &items[least]);
		place = least;
	}
}

void reservoir_feed(struct reservoir *reservoir, double value, int64_t now_us, struct rng *rng)
{
	double uniform = (double)((rng_u64(rng) >> 11) + 1) * 0x1p-53;
	struct reservoir_item item = { RESERVOIR_ALPHA * ((double)now_us / (double)SEC_US) - log(uniform), value };

	if (reservoir->count < RESERVOIR_SIZE) {
		reservoir->items[reservoir->count] = item;
		sift_up(reservoir->items, reservoir->count++);
	} else if (item.log_priority > reservoir->items[0].log_priority) {
		reservoir->items[0] = item;
		sift_down(reservoir->items, reservoir->count);
	}
}

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

double reservoir_median(const struct reservoir *reservoir)
{
	double values[RESERVOIR_SIZE];
	size_t count = reservoir->count;

	if (count == 0)
		return -1.0;
	for (size_t i = 0; i < count; i++)
		values[i] = reservoir->items[i].value;
	qsort(values, count, sizeof(values[0]), by_value);
	return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2.0;
}
