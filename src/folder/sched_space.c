#include "folder/sched_impl.h"

#include <inttypes.h>
#include <stdlib.h>

#include "folder/space.h"
#include "sys/fs.h"

static void nodes_room(struct sched *sched, const char *final_fs, struct space_room *ret_room)
{
	struct pool_node *nodes = must_zalloc(POOL_NODES_MAX, sizeof(*nodes));
	size_t count = min_size(pool_list(sched->pool, nodes, POOL_NODES_MAX), POOL_NODES_MAX);

	space_room(nodes, count, final_fs, ret_room);
	free(nodes);
}

static int no_space(struct err *err, const char *where, uint64_t wanted, uint64_t promised, uint64_t kept,
		    uint64_t available)
{
	char wanted_text[32], promised_text[32], kept_text[32], available_text[32];

	err_set(err, ERR_NO_SPACE,
		"no room %s: the folder needs %s, other open transfers %s, kept free %s, there are %s", where,
		size_display(wanted, wanted_text, sizeof(wanted_text)),
		size_display(promised, promised_text, sizeof(promised_text)),
		size_display(kept, kept_text, sizeof(kept_text)),
		size_display(available, available_text, sizeof(available_text)));
	err_hint(err, "free space there, or let open transfers end, then push again");
	return -ERR_NO_SPACE;
}

static bool fits(uint64_t wanted, uint64_t promised, uint64_t kept, uint64_t available)
{
	return space_add(space_add(wanted, promised), kept) <= available;
}

static int check_final(struct sched *sched, const struct plan_facts *facts, const struct sched_need *need,
		       const struct fs_space *space, struct err *err)
{
	if (!fits(facts->total_bytes, need->bytes, sched->final_free_floor_bytes, space->free_bytes))
		return no_space(err, "in the final store", facts->total_bytes, need->bytes,
				sched->final_free_floor_bytes, space->free_bytes);
	/* File systems that make inodes as they go (btrfs) report none at all. */
	if (space->inodes_total == 0 || fits(facts->entry_count, need->entries, 0, space->inodes_free))
		return 0;
	err_set(err, ERR_NO_SPACE,
		"no room in the final store: the folder has %" PRIu64 " entries, other open transfers %" PRIu64
		", and %" PRIu64 " inodes are free",
		facts->entry_count, need->entries, space->inodes_free);
	err_hint(err, "free inodes there, or let open transfers end, then push again");
	return -ERR_NO_SPACE;
}

/* The nodes first, as if the final store needed nothing; then that; then both together where they share a file system, as the chunks stay until the
 * folder is put together. */
static int check_all(struct sched *sched, const struct plan_facts *facts, uint64_t wanted_bytes,
		     const struct sched_need *need, const struct fs_space *final_space, const struct space_room *room,
		     struct err *err)
{
	uint64_t twice = space_add(wanted_bytes, facts->total_bytes), shared = 0;
	const uint64_t kept = space_add(room->kept_bytes, room->final_kept_bytes);
	int result;

	if (room->is_final_shared)
		shared = room->final_bytes < final_space->free_bytes ? room->final_bytes : final_space->free_bytes;
	if (!fits(wanted_bytes, need->node_bytes, kept, space_add(room->bytes, shared)))
		return no_space(err, "on the nodes", wanted_bytes, need->node_bytes, kept,
				space_add(room->bytes, shared));
	result = check_final(sched, facts, need, final_space, err);
	if (result < 0 || !room->is_final_shared)
		return result;
	/* Of two floors on one file system the higher one holds. */
	const uint64_t both = space_add(room->kept_bytes, room->final_kept_bytes > sched->final_free_floor_bytes
								  ? room->final_kept_bytes
								  : sched->final_free_floor_bytes);
	if (fits(twice, space_add(need->node_bytes, need->bytes), both, space_add(room->bytes, shared)))
		return 0;
	return no_space(err, "for the folder twice, in chunks on the nodes and in the final store, which share a disk",
			twice, space_add(need->node_bytes, need->bytes), both, space_add(room->bytes, shared));
}

int sched_space_check(struct sched *sched, const struct plan_facts *facts, unsigned copies,
		      const struct sched_claim *own, const char *except_id, struct err *err)
{
	struct sched_need need;
	struct fs_space final_space = { 0 };
	char final_fs[FS_NAME_SIZE];
	struct space_room room;
	int result = sched_need(sched, NULL, own, except_id, &need, err);

	if (result < 0)
		return result;
	result = fs_space(sched->final_fd, &final_space, err);
	if (result < 0)
		return err_wrap(err, "asking for the space of the final store %s", sched->final_dir);
	fs_name(&final_space, final_fs);
	nodes_room(sched, final_fs, &room);
	if (room.node_count == 0) {
		err_set(err, ERR_NO_NODES, "no node takes work at present");
		err_hint(err, "see GET /api/v1/nodes for what each node says; start one, or free space");
		return -ERR_NO_NODES;
	}
	return check_all(sched, facts, sched_all_copies(facts->total_bytes, copies), &need, &final_space, &room, err);
}
