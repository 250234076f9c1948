/* What the scheduler's calls about the audit share. */
#ifndef HENG_FOLDER_SCHED_AUDIT_H
#define HENG_FOLDER_SCHED_AUDIT_H

#include "folder/sched_impl.h"
#include "plug/audit_chain.h"

/* An entry of a transfer, and the chunks of its object in which its bytes lie. */
struct sched_entry {
	bool is_found;
	char type;
	uint64_t seq, size_bytes;
	uint64_t file_id, offset; /* file_id 0: it has no bytes that are sent */
	uint64_t first_chunk, last_chunk;
	char digest[DIGEST_HEX_SIZE];
};

/* A row that tells what the call's user did, from where and with what. The room must live as long as the row. */
struct sched_audit_room {
	char client_addr[SOCK_TEXT_SIZE], user_agent[128];
};
void sched_audit_note(const struct sched_call *c, const char *kind, const char *outcome, const char *transfer_id,
		      const char *detail, struct store_audit *ret_row, struct sched_audit_room *room);

#endif
