/* Completion for bash (4 or later), made from the rows that --help prints. */
#ifndef HENG_APP_COMPLETION_H
#define HENG_APP_COMPLETION_H

#include "app/cmd.h"
#include "base/buf.h"

#define COMPLETION_BYTES_MAX (1 * MIB)

/* Appends the script. buf->is_failed tells whether it fitted. */
void completion_script(struct buf *buf);

/* Appends what may stand for a value or an operand, read from how the help writes it: `file`, `folder`, '=md5 sha256' (these words), or
 * `any`. FILE, LOG and NAME.yaml are files; DIR and FOLDER folders; COMMAND is a command; words in lower case between bars stand for
 * themselves. */
void completion_kind(struct str written, struct buf *buf);

#endif
