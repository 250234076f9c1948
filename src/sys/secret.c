#include "sys/secret.h"

#include <sys/mman.h>

#include "base/mem.h"

void *secret_new(size_t size_bytes)
{
	void *secret = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(secret != MAP_FAILED);
	/* Each is one more lock on the door: without it the key is still the process's own. */
	(void)mlock(secret, size_bytes);
	(void)madvise(secret, size_bytes, MADV_DONTDUMP);
	(void)madvise(secret, size_bytes, MADV_WIPEONFORK);
	return secret;
}

void secret_free(void **secret, size_t size_bytes)
{
	if (!*secret)
		return;
	mem_wipe(*secret, size_bytes);
	(void)munmap(*secret, size_bytes);
	*secret = NULL;
}
