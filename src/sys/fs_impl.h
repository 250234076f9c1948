/* What the sources of fs share. For src/sys/fs*.c alone. */
#ifndef HENG_SYS_FS_IMPL_H
#define HENG_SYS_FS_IMPL_H

#include "sys/fs.h"

#define FS_UNIQUE_SIZE 17

/* Adds to err what to do about those failures that an operator can cure. Returns -code. */
int fs_fail(struct err *err, enum err_code code, int number);
/* Which file system that is: fs_id and is_network. (fs_name.c) */
int fs_identify(int fd, struct fs_space *space, struct err *err);
/* Letters for a name that nobody else has. */
void fs_unique(char target[FS_UNIQUE_SIZE]);

#endif
