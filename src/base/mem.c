#include "base/mem.h"

#include <sys/mman.h>

#define ALIGNMENT   16
#define BLOCK_BYTES ((size_t)4096)

struct arena_block {
	struct arena_block *next;
	size_t size_bytes;
	size_t used_bytes;
	_Alignas(ALIGNMENT) unsigned char data[];
};

static struct arena_block *block_new(size_t size_bytes)
{
	struct arena_block *block = calloc(1, sizeof(*block) + size_bytes);

	if (block)
		block->size_bytes = size_bytes;
	return block;
}

void *arena_alloc(struct arena *arena, size_t size_bytes)
{
	struct arena_block *block = arena->head;
	size_t need_bytes;
	void *memory;

	if (size_bytes > SIZE_MAX - sizeof(*block) - ALIGNMENT)
		return NULL;
	need_bytes = (max_size(size_bytes, 1) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	if (arena->limit_bytes != 0 &&
	    (arena->used_bytes > arena->limit_bytes || need_bytes > arena->limit_bytes - arena->used_bytes))
		return NULL;
	if (!block || need_bytes > block->size_bytes - block->used_bytes) {
		block = block_new(max_size(need_bytes, BLOCK_BYTES));
		if (!block)
			return NULL;
		/* A large piece gets a block of its own behind the current one, whose free rest stays in use. */
		if (arena->head && need_bytes > BLOCK_BYTES / 4) {
			block->next = arena->head->next;
			arena->head->next = block;
		} else {
			block->next = arena->head;
			arena->head = block;
		}
	}
	memory = block->data + block->used_bytes;
	block->used_bytes += need_bytes;
	arena->used_bytes += need_bytes;
	return memory;
}

char *arena_strdup(struct arena *arena, struct str s)
{
	char *copy = s.size < SIZE_MAX ? arena_alloc(arena, s.size + 1) : NULL;

	if (copy && s.size > 0)
		memcpy(copy, s.data, s.size);
	return copy;
}

void arena_fini(struct arena *arena)
{
	while (arena->head) {
		struct arena_block *next = arena->head->next;

		free(arena->head);
		arena->head = next;
	}
	arena->used_bytes = 0;
}

void mem_wipe(void *data, size_t size_bytes)
{
	if (size_bytes > 0)
		explicit_bzero(data, size_bytes);
}

#define HUGE_PAGE_BYTES (2 * MIB)

static size_t large_bytes(size_t size_bytes)
{
	const size_t page = size_bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 4 * KIB;

	return (size_bytes + page - 1) / page * page;
}

void *mem_large_alloc(size_t size_bytes)
{
	const size_t size = large_bytes(size_bytes);
	char *data;

	if (size < size_bytes || size > SIZE_MAX - HUGE_PAGE_BYTES)
		return NULL;
	if (size < HUGE_PAGE_BYTES) {
		data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		return data == MAP_FAILED ? NULL : data;
	}
	/* Only what begins at a multiple of a huge page can be one: more than is needed, then the ends go back. */
	data = mmap(NULL, size + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return NULL;
	const size_t before = (HUGE_PAGE_BYTES - (uintptr_t)data % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;

	if (before > 0)
		(void)munmap(data, before);
	(void)munmap(data + before + size, HUGE_PAGE_BYTES - before);
	/* A kernel without huge pages gives small ones. */
	(void)madvise(data + before, size, MADV_HUGEPAGE);
	return data + before;
}

void mem_large_free(void *data, size_t size_bytes)
{
	if (data)
		(void)munmap(data, large_bytes(size_bytes));
}
