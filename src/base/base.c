#include "base/base.h"

#include <unistd.h>

void must_failed(const char *claim, const char *file, int line)
{
	char text[512];
	int size = snprintf(text, sizeof(text), "heng: this is a mistake in heng: '%s' does not hold at %s:%d\n", claim,
			    file, line);

	/* Not through stdio: whatever broke the claim may have broken its buffers or hold its lock. */
	if (size > 0 && write(STDERR_FILENO, text, min_size((size_t)size, sizeof(text) - 1)) < 0)
		abort();
	abort();
}

void *must_alloc(size_t size_bytes)
{
	void *memory = malloc(max_size(size_bytes, 1));

	MUST(memory);
	return memory;
}

void *must_zalloc(size_t count, size_t size_bytes)
{
	void *memory = calloc(max_size(count, 1), max_size(size_bytes, 1));

	MUST(memory);
	return memory;
}

char *must_strdup(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(must_alloc(size), text, size);
}
