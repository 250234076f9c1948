/* Which file system it is, and a name for it that two processes can compare over the network. */
#include <errno.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/digest.h"
#include "base/hash.h"
#include "sys/fs_impl.h"
#include "sys/host_inside.h"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_MAX  64
#define MOUNTS_FILE  "/proc/self/mountinfo"
#define MOUNTS_MAX   (4 * MIB)

/* What is mounted there, by the words it was mounted with: "10.0.0.5:/export". 0: not found. */
static uint64_t source_of(dev_t device)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(MOUNTS_MAX);
	struct host_mount mount;
	struct str rest;

	if (fs_read_file(MOUNTS_FILE, MOUNTS_MAX, &text, NULL) < 0)
		return 0;
	rest = buf_str(&text);
	while (host_mount_next(&rest, &mount))
		if (mount.major == major(device) && mount.minor == minor(device))
			return hash64(mount.source, strlen(mount.source));
	return 0;
}

static bool is_network_type(const struct statfs *fs)
{
	switch ((uint32_t)fs->f_type) {
	case NFS_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case CEPH_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/* The kernel mixes the subvolume into what it tells of btrfs. 0: it does not say which file system it is. */
static uint64_t btrfs_id(int fd)
{
	struct btrfs_ioctl_fs_info_args info = { .flags = 0 };

	return ioctl(fd, BTRFS_IOC_FS_INFO, &info) == 0 ? hash64(info.fsid, sizeof(info.fsid)) : 0;
}

int fs_identify(int fd, struct fs_space *space, struct err *err)
{
	struct statfs fs;
	struct stat info;
	uint64_t id = 0;

	if (fstatfs(fd, &fs) < 0 || fstat(fd, &info) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot ask the file system which one it is");
	_Static_assert(sizeof(fs.f_fsid) == sizeof(id), "a file system's id has 64 bits");
	if ((uint32_t)fs.f_type == BTRFS_SUPER_MAGIC)
		id = btrfs_id(fd);
	else
		memcpy(&id, &fs.f_fsid, sizeof(id));
	space->is_network = is_network_type(&fs);
	if (space->is_network && id == 0)
		id = source_of(info.st_dev);
	/* Whoever does not say has a device of its own, or shares one with its other mounts; but only with those of this kernel. */
	space->is_network &= id != 0;
	space->fs_id = id != 0 ? id : info.st_dev;
	return 0;
}

/* The kernel hands out device numbers, and disks are copied with their ids, so these mean something together with the kernel alone. Its boot id is the same in all its containers and no
 * other kernel's; a machine-id is neither, as containers have their own and images are copied with theirs. Hashed, since anyone may ask a node. */
void fs_name(const struct fs_space *space, char target[FS_NAME_SIZE])
{
	AUTO(buf_fini) struct buf boot_id = BUF_INIT(BOOT_ID_MAX);
	char text[BOOT_ID_MAX + 64], hex[DIGEST_HEX_SIZE];

	target[0] = '\0';
	if (!space->is_network && (fs_read_file(BOOT_ID_FILE, BOOT_ID_MAX, &boot_id, NULL) < 0 || boot_id.size == 0))
		return;
	snprintf(text, sizeof(text), "file system %llu of %s", (unsigned long long)space->fs_id,
		 space->is_network ? "a network" : buf_cstr(&boot_id));
	digest_of(DIGEST_SHA256, text, strlen(text), hex);
	memcpy(target, hex, FS_NAME_SIZE - 1);
	target[FS_NAME_SIZE - 1] = '\0';
}
