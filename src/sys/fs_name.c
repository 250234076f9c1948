/* A name for a file system that two processes can compare over the network. */
#include "base/digest.h"
#include "sys/fs.h"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_MAX  64

/* The kernel hands out device numbers, so they mean something together with the kernel alone. Its boot id is the same in all its containers and no
 * other kernel's; a machine-id is neither, as containers have their own and images are copied with theirs. Hashed, since anyone may ask a node. */
void fs_name(const struct fs_space *space, char target[FS_NAME_SIZE])
{
	AUTO(buf_fini) struct buf boot_id = BUF_INIT(BOOT_ID_MAX);
	char text[BOOT_ID_MAX + 64], hex[DIGEST_HEX_SIZE];

	target[0] = '\0';
	if (fs_read_file(BOOT_ID_FILE, BOOT_ID_MAX, &boot_id, NULL) < 0 || boot_id.size == 0)
		return;
	snprintf(text, sizeof(text), "file system %llu of %s", (unsigned long long)space->fs_id, buf_cstr(&boot_id));
	digest_of(DIGEST_SHA256, text, strlen(text), hex);
	memcpy(target, hex, FS_NAME_SIZE - 1);
	target[FS_NAME_SIZE - 1] = '\0';
}
