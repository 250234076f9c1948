/* Refusals of the security kind (a wrong key, a forged ticket, a nonce seen again, ...) as alerts. The first of its kind is told at once; what is the same
 * within a while (error, caller's address, transfer) is counted, and told as one more with the number, so that whoever causes them cannot fill a log or
 * a database. Nothing that was noted is lost while the other side is away: what is kept for it is counts, in bounded memory. */
#ifndef HENG_FOLDER_ALERT_H
#define HENG_FOLDER_ALERT_H

#include "base/err.h"
#include "base/rng.h"
#include "plug/store.h"

#define ALERT_SLOTS     64u /* kinds of refusals that are told apart at a time; beyond them only by their error */
#define ALERT_FRESH     16u /* new kinds in that time; more are told apart by their error alone */
#define ALERT_EVERY_US  (10 * SEC_US) /* of one kind, a row at most */
#define ALERT_TEXT_SIZE 320

struct alert {
	enum err_code code;
	char client[64];             /* the address that called, without its port; "": several */
	char transfer_id[ULID_SIZE]; /* "": none, or several */
	uint64_t file_id, chunk_index;
	char user[STORE_USER_SIZE]; /* "": not known */
	char node_id[STORE_NODE_ID_SIZE];
	char request_id[40];        /* of the first */
	char text[ALERT_TEXT_SIZE]; /* what the first one was told */
	uint64_t count;             /* so many since the last row, the first one of this too */
	int64_t first_wall_us, last_wall_us;
};

/* Is a refusal by this error one of the security kind? */
bool alert_is_due(enum err_code code);

/* --- gathering: pure, time is an argument --- */
struct alert_slot {
	struct alert alert;   /* count: not yet told */
	int64_t told_mono_us; /* 0: never */
};
struct alert_table {
	struct alert_slot slots[ALERT_SLOTS];
	int64_t fresh_mono_us; /* when the present while began, and how many new kinds there were in it */
	unsigned fresh_count;
};
void alert_table_add(struct alert_table *table, const struct alert *alert, int64_t now_mono_us);
/* What is due now, at most `limit`; -1 as time: whatever there is. */
size_t alert_table_due(const struct alert_table *table, int64_t now_mono_us, struct alert *ret_alerts, size_t limit);
/* It was told: its count is taken off. */
void alert_table_told(struct alert_table *table, const struct alert *alert, int64_t now_mono_us);

/* --- telling: a thread --- */
struct alerts;
struct alerts_options {
	/* On the thread. Negative: not told; the same and more comes again. */
	int (*tell)(void *owner, const struct alert *alerts, size_t count, struct err *err);
	void *owner;
};
int alerts_start(const struct alerts_options *options, struct alerts **ret_alerts, struct err *err);
void alerts_stop(struct alerts **alerts); /* tells what there is, once */
/* Any thread; waits for nothing. client_addr: with its port, which is left out. */
void alerts_note(struct alerts *alerts, const struct alert *alert, const char *client_addr);
/* Any thread: counts an error that was answered, whatever its kind. */
void alerts_count(struct alerts *alerts, enum err_code code);
/* Each error that was answered since the start. */
void alerts_each(const struct alerts *alerts, void (*each)(void *owner, enum err_code code, uint64_t count),
		 void *owner);
/* "…: text (and 12 more of the same since TIME)" */
void alert_detail(const struct alert *alert, char *target, size_t target_size);

#endif
