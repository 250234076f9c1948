/* Is the audit what was written? The whole chain is computed again, row by row, from archives, from the scheduler (whose word is not taken for it) or
 * from a database file. Every fault is told, with the row it is in, and the look goes on behind it. */
#ifndef HENG_FOLDER_AUDIT_VERIFY_H
#define HENG_FOLDER_AUDIT_VERIFY_H

#include "folder/client.h"
#include "plug/audit_chain.h"

struct audit_verify {
	/* The caller's. A witness is an end of the chain that somebody kept elsewhere: a row of that id must have that hash. id 0: none. */
	void (*fault)(void *owner, const struct err *fault);
	void *owner;
	struct audit_point witness;
	/* What came of it. */
	struct audit_point after, last; /* looked at are the rows behind `after`, up to `last` */
	uint64_t row_count, fault_count;
	bool is_witness_met; /* its row was seen, and is the same */
	/* Its own. */
	bool is_begun;
	struct audit_point part;  /* the last part began behind it */
	struct audit_point twice; /* rows up to this one were in the part before it too */
	struct audit_hasher *hasher;
};
void audit_verify_init(struct audit_verify *verify);
void audit_verify_fini(struct audit_verify *verify);

/* Any number of archives, in the order of the chain, then one of the other two, or none; audit_verify_end last. Negative: it could not be looked
 * at, which says nothing of the chain. path: a file, or a folder of archives. */
int audit_verify_archive(struct audit_verify *verify, const char *path, struct err *err);
int audit_verify_server(struct audit_verify *verify, const struct client *client, struct err *err);
int audit_verify_store(struct audit_verify *verify, struct store *store, struct err *err);
/* 0, or -ERR_AUDIT_BROKEN when there was a fault. */
int audit_verify_end(struct audit_verify *verify, struct err *err);

#endif
