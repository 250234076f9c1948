/* What the readers tell the pushing thread beside chunks: entries that are not what the manifest says, and what ends the push. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder/push_impl.h"

void push_note_fatal(struct push *push, const struct err *err)
{
	struct push_shared *shared = &push->shared;
	pthread_mutex_lock(&shared->lock);
	if (shared->fatal.code == ERR_NONE)
		shared->fatal = *err;
	pthread_mutex_unlock(&shared->lock);
	fetch_wake(push->fetch);
}

static struct push_note *note_new(const struct push_object *object, const struct manifest_entry *entry, bool is_final,
				  const char *reason)
{
	bool is_inside = entry->seq >= object->first_seq && entry->seq <= object->last_seq;
	struct push_note *note = must_zalloc(1, sizeof(*note) + entry->path.size + 1);
	memcpy(note->text, entry->path.data, entry->path.size);
	note->path = (struct str){ note->text, entry->path.size };
	note->seq = entry->seq;
	note->first_seq = is_inside ? object->first_seq : entry->seq;
	note->last_seq = is_inside ? object->last_seq : entry->seq;
	note->is_final = is_final;
	snprintf(note->reason, sizeof(note->reason), "%s", reason);
	return note;
}

void push_note_add(struct push *push, const struct push_object *object, const struct manifest_entry *entry,
		   bool is_other, bool is_final, const char *reason)
{
	struct push_shared *shared = &push->shared;
	struct push_note *note = note_new(object, entry, is_final, reason);
	pthread_mutex_lock(&shared->lock);
	bool is_room = !is_other || atomic_load(&shared->changed_count) < PUSH_REVISE_MAX;
	if (is_room) {
		*shared->note_tail = note;
		shared->note_tail = &note->next;
	}
	if (is_room && is_other)
		atomic_fetch_add(&shared->changed_count, 1);
	pthread_mutex_unlock(&shared->lock);
	if (is_room)
		return;
	/* They can never be sent as they are now, so nothing more is read, nor remembered, of a folder that changes all over. */
	free(note);
	struct err err = ERR_INIT;
	err_set(&err, ERR_SOURCE_CHANGED,
		"more than %d entries changed, vanished or could not be read while the folder was sent",
		PUSH_REVISE_MAX);
	err_hint(&err, "push again when nothing writes to the folder any more; it is scanned anew then");
	push_note_fatal(push, &err);
}

void push_take_notes(struct push *push)
{
	struct push_shared *shared = &push->shared;
	pthread_mutex_lock(&shared->lock);
	*shared->note_tail = push->notes;
	push->notes = shared->note_head;
	shared->note_head = NULL;
	shared->note_tail = &shared->note_head;
	pthread_mutex_unlock(&shared->lock);
}
