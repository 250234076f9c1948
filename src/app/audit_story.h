/* The life of a file's chunks, told from the audit in the order in which it happened. */
#ifndef HENG_APP_AUDIT_STORY_H
#define HENG_APP_AUDIT_STORY_H

#include "app/audit_show.h"
#include "folder/client.h"

struct audit_story_options {
	const char *transfer_id, *path;
	uint64_t chunk_index; /* UINT64_MAX: all of the file's */
	enum audit_form form;
};
/* Prints it: as text what the file is, where each chunk was planned to go and is now, and every row of it and of its transfer; as JSON or CSV the rows. */
int audit_story(const struct client *client, const struct audit_story_options *options, struct err *err);

#endif
