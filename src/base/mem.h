/* Memory with a purpose of its own: arenas (one per request or transfer, dropped whole), large buffers, secrets. */
#ifndef HENG_BASE_MEM_H
#define HENG_BASE_MEM_H

#include "base/str.h"

struct arena_block;
struct arena {
	struct arena_block *head;
	size_t used_bytes;
	size_t limit_bytes; /* 0: no ceiling */
};

#define ARENA_INIT(limit) ((struct arena){ .limit_bytes = (limit) })

/* Aligned to 16 and zeroed. NULL when the ceiling is reached. Freed by arena_fini only. */
void *arena_alloc(struct arena *arena, size_t size_bytes);
char *arena_strdup(struct arena *arena, struct str s); /* NUL-terminated */
void arena_fini(struct arena *arena);

/* A buffer of megabytes, on huge pages where the kernel has them: 4 KiB at a time, filling a new one for the first time costs more than what is
 * read into it. NULL when there is no memory; not zeroed by promise. Freed with the same size; NULL is fine. */
void *mem_large_alloc(size_t size_bytes);
void mem_large_free(void *data, size_t size_bytes);

/* Overwrites memory that held a secret in a way the compiler may not leave out. */
void mem_wipe(void *data, size_t size_bytes);

#endif
