#include "core/ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"

#define RING_ID_MAX       64
#define BATCH_FIRST_COUNT 8
#define BUCKETS_PER_POINT 1

/* Ranks number the nodes in the order of their ids: points hold ranks, so that nothing depends on the order of the list. */
struct ring {
	size_t node_count, point_count;
	size_t placed_count, domain_count; /* of the nodes with points, and of their domains */
	char (*ids)[RING_ID_MAX + 1];      /* by the caller's index */
	uint16_t *index_of_rank;
	uint32_t *weights_milli; /* by the caller's index; 0 when it has no points */
	uint16_t *domains;       /* by the caller's index: a small number, equal for equal labels */
	uint64_t *hashes;        /* ascending, equal ones by rank; one more at the end, which stops every search */
	uint16_t *ranks;         /* whose point it is; one more at the end: the first again (the ring closes) */
	uint32_t *bucket_starts; /* where the points begin whose top bits are at least the bucket's number */
	unsigned bucket_shift;
};

/* A key's way clockwise from each of its places on the ring, nearest point first, each node once. */
struct ring_walk {
	const struct ring *ring;
	uint64_t at[RING_PROBES];           /* the places */
	uint32_t points[RING_PROBES];       /* the next point from each */
	uint32_t passed[RING_PROBES];       /* how many points were passed from each */
	uint64_t left_count;                /* points not passed yet, over all places */
	uint64_t seen[RING_NODES_MAX / 64]; /* by rank */
};

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014): the first place is the hash itself. */
static inline uint64_t ring_place(uint64_t key_hash, unsigned probe)
{
	uint64_t z = key_hash + probe * 0x9e3779b97f4a7c15u;

	if (probe == 0)
		return key_hash;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* The first point at or after a place; point_count when the ring closes before. A bucket holds half a point to one on average: two steps without
 * a branch do nearly always, so that the processor can search from all places at once. */
static inline uint32_t ring_search_from(const struct ring *ring, uint64_t place, uint32_t point)
{
	point += ring->hashes[point] < place;
	point += ring->hashes[point] < place;
	while (ring->hashes[point] < place)
		point++;
	return point;
}

static inline uint32_t ring_search(const struct ring *ring, uint64_t place)
{
	return ring_search_from(ring, place, ring->bucket_starts[place >> ring->bucket_shift]);
}

/* Clockwise; past the last point the subtraction wraps just as the ring does. */
static inline uint64_t ring_distance(const struct ring *ring, uint64_t place, uint32_t point)
{
	return ring->hashes[point == ring->point_count ? 0 : point] - place;
}

static bool id_is_valid(const char *id)
{
	size_t size = id ? strnlen(id, RING_ID_MAX + 1) : 0;

	if (size == 0 || size > RING_ID_MAX)
		return false;
	return strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

static uint64_t points_of(uint32_t weight_milli)
{
	uint64_t points = (uint64_t)weight_milli * RING_POINTS_PER_UNIT / RING_WEIGHT_UNIT_MILLI;

	return weight_milli && !points ? 1 : points;
}

static int ring_check(const struct ring_node *nodes, size_t node_count, size_t *ret_point_count, struct err *err)
{
	uint64_t point_count = 0;

	if (node_count > RING_NODES_MAX)
		return err_set(err, ERR_LIMIT, "a ring of %zu nodes: at most %d are possible", node_count,
			       RING_NODES_MAX);
	for (size_t i = 0; i < node_count; i++) {
		if (!id_is_valid(nodes[i].id))
			return err_set(err, ERR_CONFIG, "node %zu of the ring: an id is 1 to %d of A-Z a-z 0-9 . _ -",
				       i, RING_ID_MAX);
		point_count += points_of(nodes[i].weight_milli);
	}
	if (point_count > RING_POINTS_MAX)
		return err_set(
			err, ERR_LIMIT,
			"the weights ask for %llu points on the ring: at most %u are possible; divide all weights",
			(unsigned long long)point_count, RING_POINTS_MAX);
	*ret_point_count = (size_t)point_count;
	return 0;
}

struct named {
	const char *name;
	uint16_t index;
};

static int named_compare(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int ring_rank(struct ring *ring, struct named *names, struct err *err)
{
	for (size_t i = 0; i < ring->node_count; i++)
		names[i] = (struct named){ ring->ids[i], (uint16_t)i };
	qsort(names, ring->node_count, sizeof(*names), named_compare);
	for (size_t i = 0; i < ring->node_count; i++) {
		if (i > 0 && strcmp(names[i].name, names[i - 1].name) == 0)
			return err_set(err, ERR_NODE_CONFLICT, "two nodes of the ring have the id '%s'", names[i].name);
		ring->index_of_rank[i] = names[i].index;
	}
	return 0;
}

/* A node without a label is a domain of its own. */
static void ring_domains(struct ring *ring, const struct ring_node *nodes, struct named *names)
{
	size_t labelled_count = 0;
	uint16_t domain = 0;
	uint64_t seen[RING_NODES_MAX / 64] = { 0 };

	for (size_t i = 0; i < ring->node_count; i++) {
		if (nodes[i].domain)
			names[labelled_count++] = (struct named){ nodes[i].domain, (uint16_t)i };
		else
			ring->domains[i] = domain++;
	}
	qsort(names, labelled_count, sizeof(*names), named_compare);
	for (size_t i = 0; i < labelled_count; i++) {
		if (i > 0 && strcmp(names[i].name, names[i - 1].name) != 0)
			domain++;
		ring->domains[names[i].index] = domain;
	}
	for (size_t i = 0; i < ring->node_count; i++) {
		domain = ring->domains[i];
		if (ring->weights_milli[i] && !(seen[domain / 64] >> domain % 64 & 1)) {
			seen[domain / 64] |= 1ull << domain % 64;
			ring->domain_count++;
		}
	}
}

/* Virtual node i of a node lies at XXH3-64 of the id's bytes, a zero byte and i in four bytes, little endian. */
static void ring_hash_points(const struct ring *ring, uint64_t *hashes, uint16_t *ranks)
{
	uint8_t text[RING_ID_MAX + 5];
	size_t point = 0;

	for (size_t rank = 0; rank < ring->node_count; rank++) {
		size_t index = ring->index_of_rank[rank], size = strlen(ring->ids[index]);
		uint64_t count = points_of(ring->weights_milli[index]);

		memcpy(text, ring->ids[index], size);
		text[size] = 0;
		for (uint32_t i = 0; i < count; i++, point++) {
			for (unsigned byte = 0; byte < 4; byte++)
				text[size + 1 + byte] = (uint8_t)(i >> 8 * byte);
			hashes[point] = hash64(text, size + 5);
			ranks[point] = (uint16_t)rank;
		}
	}
}

/* Hashes are spread evenly: counting their top bits leaves about one point per bucket, and the counts are the index for searches.
 * Points come in the order of ranks and are inserted behind equal ones, which settles ties by id. */
static void ring_sort_points(struct ring *ring, const uint64_t *hashes, const uint16_t *ranks, uint32_t *filled)
{
	const size_t bucket_count = (size_t)1 << (64 - ring->bucket_shift);
	uint32_t *starts = ring->bucket_starts;

	for (size_t i = 0; i < ring->point_count; i++)
		starts[(hashes[i] >> ring->bucket_shift) + 1]++;
	for (size_t bucket = 0; bucket < bucket_count; bucket++)
		starts[bucket + 1] += starts[bucket];
	for (size_t i = 0; i < ring->point_count; i++) {
		size_t bucket = hashes[i] >> ring->bucket_shift;
		uint32_t place = starts[bucket] + filled[bucket]++;

		for (; place > starts[bucket] && ring->hashes[place - 1] > hashes[i]; place--) {
			ring->hashes[place] = ring->hashes[place - 1];
			ring->ranks[place] = ring->ranks[place - 1];
		}
		ring->hashes[place] = hashes[i];
		ring->ranks[place] = ranks[i];
	}
	ring->hashes[ring->point_count] = UINT64_MAX;
	ring->ranks[ring->point_count] = ring->point_count ? ring->ranks[0] : 0;
}

static void ring_place_points(struct ring *ring)
{
	unsigned bucket_bits = 1;
	uint64_t *hashes = must_zalloc(ring->point_count + 1, sizeof(*hashes));
	uint16_t *ranks = must_zalloc(ring->point_count + 1, sizeof(*ranks));
	uint32_t *filled;

	while (((size_t)1 << bucket_bits) < BUCKETS_PER_POINT * ring->point_count)
		bucket_bits++;
	ring->bucket_shift = 64 - bucket_bits;
	ring->bucket_starts = must_zalloc(((size_t)1 << bucket_bits) + 1, sizeof(*ring->bucket_starts));
	ring->hashes = must_zalloc(ring->point_count + 1, sizeof(*ring->hashes));
	ring->ranks = must_zalloc(ring->point_count + 1, sizeof(*ring->ranks));
	filled = must_zalloc((size_t)1 << bucket_bits, sizeof(*filled));
	ring_hash_points(ring, hashes, ranks);
	ring_sort_points(ring, hashes, ranks, filled);
	free(filled);
	free(ranks);
	free(hashes);
}

int ring_build(const struct ring_node *nodes, size_t node_count, struct ring **ret_ring, struct err *err)
{
	size_t point_count = 0;
	int result = ring_check(nodes, node_count, &point_count, err);
	struct named *names;
	struct ring *ring;

	if (result < 0)
		return result;
	ring = must_zalloc(1, sizeof(*ring));
	ring->node_count = node_count;
	ring->point_count = point_count;
	ring->ids = must_zalloc(node_count + 1, sizeof(*ring->ids));
	ring->index_of_rank = must_zalloc(node_count + 1, sizeof(*ring->index_of_rank));
	ring->weights_milli = must_zalloc(node_count + 1, sizeof(*ring->weights_milli));
	ring->domains = must_zalloc(node_count + 1, sizeof(*ring->domains));
	names = must_zalloc(node_count + 1, sizeof(*names));
	for (size_t i = 0; i < node_count; i++) {
		memcpy(ring->ids[i], nodes[i].id, strlen(nodes[i].id) + 1);
		ring->weights_milli[i] = nodes[i].weight_milli;
		ring->placed_count += nodes[i].weight_milli > 0;
	}
	result = ring_rank(ring, names, err);
	if (result == 0) {
		ring_domains(ring, nodes, names);
		ring_place_points(ring);
	}
	free(names);
	if (result < 0)
		ring_free(&ring);
	else
		*ret_ring = ring;
	return result;
}

void ring_free(struct ring **ring)
{
	if (!*ring)
		return;
	free((*ring)->ids);
	free((*ring)->index_of_rank);
	free((*ring)->weights_milli);
	free((*ring)->domains);
	free((*ring)->hashes);
	free((*ring)->ranks);
	free((*ring)->bucket_starts);
	free(*ring);
	*ring = NULL;
}

size_t ring_node_count(const struct ring *ring) { return ring->node_count; }

size_t ring_point_count(const struct ring *ring) { return ring->point_count; }

const char *ring_node_id(const struct ring *ring, size_t node_index)
{
	MUST(node_index < ring->node_count);
	return ring->ids[node_index];
}

uint32_t ring_node_weight_milli(const struct ring *ring, size_t node_index)
{
	MUST(node_index < ring->node_count);
	return ring->weights_milli[node_index];
}

uint16_t ring_node_domain(const struct ring *ring, size_t node_index)
{
	MUST(node_index < ring->node_count);
	return ring->domains[node_index];
}

uint64_t ring_hash_key(const void *key, size_t size) { return hash64(key, size); }

int ring_owner(const struct ring *ring, uint64_t key_hash)
{
	uint64_t nearest = UINT64_MAX;
	uint64_t places[RING_PROBES], distances[RING_PROBES];
	uint32_t points[RING_PROBES];
	uint16_t rank = UINT16_MAX;

	if (!ring->point_count)
		return -1;
	/* In two rounds, so that the memory accesses of all places are under way together. */
	for (unsigned probe = 0; probe < RING_PROBES; probe++) {
		places[probe] = ring_place(key_hash, probe);
		points[probe] = ring->bucket_starts[places[probe] >> ring->bucket_shift];
	}
	for (unsigned probe = 0; probe < RING_PROBES; probe++) {
		points[probe] = ring_search_from(ring, places[probe], points[probe]);
		distances[probe] = ring_distance(ring, places[probe], points[probe]);
		nearest = distances[probe] < nearest ? distances[probe] : nearest;
	}
	/* Equal distances from two places: the lower id, as for equal hashes. */
	for (unsigned probe = 0; probe < RING_PROBES; probe++) {
		if (distances[probe] == nearest && ring->ranks[points[probe]] < rank)
			rank = ring->ranks[points[probe]];
	}
	return ring->index_of_rank[rank];
}

static void walk_start(struct ring_walk *walk, const struct ring *ring, uint64_t key_hash)
{
	walk->ring = ring;
	walk->left_count = (uint64_t)ring->point_count * RING_PROBES;
	memset(walk->seen, 0, (ring->node_count + 63) / 64 * sizeof(walk->seen[0]));
	for (unsigned probe = 0; probe < RING_PROBES && ring->point_count; probe++) {
		walk->at[probe] = ring_place(key_hash, probe);
		walk->points[probe] = ring_search(ring, walk->at[probe]);
		walk->passed[probe] = 0;
	}
}

/* The rank of the node whose point is nearest to any of the places, among the points not passed yet. */
static uint16_t walk_step(struct ring_walk *walk)
{
	const struct ring *ring = walk->ring;
	uint64_t nearest = UINT64_MAX;
	uint16_t rank = UINT16_MAX;
	unsigned chosen = RING_PROBES;

	for (unsigned probe = 0; probe < RING_PROBES; probe++) {
		uint64_t distance = ring_distance(ring, walk->at[probe], walk->points[probe]);

		if (walk->passed[probe] == ring->point_count)
			continue;
		if (chosen == RING_PROBES || distance < nearest ||
		    (distance == nearest && ring->ranks[walk->points[probe]] < rank)) {
			nearest = distance;
			rank = ring->ranks[walk->points[probe]];
			chosen = probe;
		}
	}
	walk->passed[chosen]++;
	walk->left_count--;
	walk->points[chosen] = walk->points[chosen] >= ring->point_count ? 1 : walk->points[chosen] + 1;
	return rank;
}

/* The next node's index, or -1 after the last. */
static int walk_next(struct ring_walk *walk)
{
	uint16_t rank;

	while (walk->left_count) {
		rank = walk_step(walk);
		if (walk->seen[rank / 64] >> rank % 64 & 1)
			continue;
		walk->seen[rank / 64] |= 1ull << rank % 64;
		return walk->ring->index_of_rank[rank];
	}
	return -1;
}

size_t ring_candidates(const struct ring *ring, uint64_t key_hash, size_t want, uint16_t *ret_indexes)
{
	uint64_t domains_seen[RING_NODES_MAX / 64];
	uint16_t skipped[RING_NODES_MAX];
	size_t first_count, count = 0, skipped_count = 0;
	struct ring_walk walk;
	int index;

	/* Whoever looks for one more than there are walks past every point from every place. */
	want = min_size(want, ring->placed_count);
	first_count = min_size(want, ring->domain_count);
	walk_start(&walk, ring, key_hash);
	memset(domains_seen, 0, (ring->node_count + 63) / 64 * sizeof(domains_seen[0]));
	while (count < first_count && (index = walk_next(&walk)) >= 0) {
		uint16_t domain = ring->domains[index];

		if (domains_seen[domain / 64] >> domain % 64 & 1) {
			skipped[skipped_count++] = (uint16_t)index;
			continue;
		}
		domains_seen[domain / 64] |= 1ull << domain % 64;
		ret_indexes[count++] = (uint16_t)index;
	}
	/* Each domain has its turn: now those passed over, and then whatever follows, in the order of the ring. */
	for (size_t i = 0; i < skipped_count && count < want; i++)
		ret_indexes[count++] = skipped[i];
	while (count < want && (index = walk_next(&walk)) >= 0)
		ret_indexes[count++] = (uint16_t)index;
	return count;
}

/* What a node has of the batch, and the most it may have. It holds more only when no node had room for a key. */
struct ring_share {
	uint64_t held_bytes, cap_bytes;
};
struct ring_batch {
	const struct ring *ring;
	struct ring_share *shares; /* by index */
};

struct ring_batch *ring_batch_new(const struct ring *ring, uint64_t total_bytes, uint32_t epsilon_milli)
{
	struct ring_batch *batch = must_zalloc(1, sizeof(*batch));
	uint64_t weight_sum = 0;

	batch->ring = ring;
	batch->shares = must_zalloc(ring->node_count + 1, sizeof(*batch->shares));
	for (size_t i = 0; i < ring->node_count; i++)
		weight_sum += ring->weights_milli[i];
	for (size_t i = 0; i < ring->node_count && weight_sum; i++) {
		/* The points' ceiling keeps weights below 2^27, so the product is below 2^64 * 2^33 * 2^27: 128 bits do. */
		unsigned __int128 share = (unsigned __int128)total_bytes * (1000 + (uint64_t)epsilon_milli) *
					  ring->weights_milli[i];
		unsigned __int128 divisor = (unsigned __int128)weight_sum * 1000, cap = (share + divisor - 1) / divisor;

		batch->shares[i].cap_bytes = cap > UINT64_MAX ? UINT64_MAX : (uint64_t)cap;
	}
	return batch;
}

void ring_batch_free(struct ring_batch **batch)
{
	if (!*batch)
		return;
	free((*batch)->shares);
	free(*batch);
	*batch = NULL;
}

bool ring_batch_fits(uint64_t held_bytes, uint64_t cap_bytes, uint64_t size_bytes)
{
	return size_bytes <= (held_bytes < cap_bytes ? cap_bytes - held_bytes : 0);
}

static bool share_take(struct ring_share *share, uint64_t size_bytes)
{
	if (!ring_batch_fits(share->held_bytes, share->cap_bytes, size_bytes))
		return false;
	share->held_bytes += size_bytes;
	return true;
}

int ring_batch_assign(struct ring_batch *batch, uint64_t key_hash, uint64_t size_bytes)
{
	uint16_t indexes[RING_NODES_MAX];
	int owner = ring_owner(batch->ring, key_hash);
	size_t count;

	if (owner < 0)
		return -1;
	if (share_take(&batch->shares[owner], size_bytes))
		return owner;
	/* Most spills end at one of the next few; the whole list only when those are full too. */
	for (size_t want = BATCH_FIRST_COUNT, tried = 1;; want = RING_NODES_MAX) {
		want = min_size(want, batch->ring->placed_count);
		count = ring_candidates(batch->ring, key_hash, want, indexes);
		for (; tried < count; tried++) {
			if (share_take(&batch->shares[indexes[tried]], size_bytes))
				return indexes[tried];
		}
		if (want == batch->ring->placed_count)
			break;
	}
	/* All are full: rounding, or one chunk larger than any share. */
	if (size_bytes > UINT64_MAX - batch->shares[owner].held_bytes)
		batch->shares[owner].held_bytes = UINT64_MAX;
	else
		batch->shares[owner].held_bytes += size_bytes;
	return owner;
}

void ring_batch_load(const struct ring_batch *batch, size_t node_index, uint64_t *ret_held_bytes,
		     uint64_t *ret_cap_bytes)
{
	MUST(node_index < batch->ring->node_count);
	*ret_held_bytes = batch->shares[node_index].held_bytes;
	*ret_cap_bytes = batch->shares[node_index].cap_bytes;
}
