/* Manual pages in roff (man(7) macros), made from the rows that --help prints. */
#ifndef HENG_APP_MAN_H
#define HENG_APP_MAN_H

#include "app/cmd.h"
#include "base/buf.h"

#define MAN_PAGE_BYTES_MAX (1 * MIB)

/* Appends the page of a command, heng-<name>(1); of heng as a whole, heng(1), when cmd is NULL. buf->is_failed tells whether it fitted. */
void man_page(const struct cmd *cmd, struct buf *buf);

/* Appends text as roff that shows it exactly, whatever is in it: backslashes, minus signs, quotes, characters beyond ASCII. Blanks may become
 * line breaks; no line begins with what roff would take for a request. */
void man_text(struct str text, struct buf *buf);

#endif
