#include <linux/fs.h>
#include <sys/ioctl.h>

#include "sys/fs.h"

bool fs_clone_range(int from_fd, int64_t from_offset, uint64_t size, int to_fd, int64_t to_offset)
{
	struct file_clone_range range = { .src_fd = from_fd,
					  .src_offset = (uint64_t)from_offset,
					  .src_length = size,
					  .dest_offset = (uint64_t)to_offset };

	/* A length of 0 would mean "up to the end". Every failure has the same cure, an ordinary copy, which says what is really wrong. */
	return size > 0 && ioctl(to_fd, FICLONERANGE, &range) == 0;
}
