/* Inside the library: an operation with its options, callbacks and facts, and how errors leave the house. */
#ifndef HENG_LIB_OP_H
#define HENG_LIB_OP_H

#include <heng.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/str.h"
#include "folder/client.h"

/* Immutable once made, but for the count of those who hold it. */
struct heng_client {
	atomic_uint holder_count;
	struct client client;
};
struct heng_client *client_ref(struct heng_client *client);
void client_drop(struct heng_client *client); /* the last one wipes the key */

/* What is said of a failure, in ret_error when there is one. Returns the enum heng_result. */
int error_give(const struct err *err, struct heng_error **ret_error);

#define FACT_NUMBERS    26 /* keys below */
#define FACT_TEXT_FIRST 100
#define FACT_TEXTS      9
struct facts {
	uint64_t numbers[FACT_NUMBERS];
	char *texts[FACT_TEXTS]; /* NULL: "" */
};
void facts_set(struct facts *facts, enum heng_fact fact, uint64_t number);
/* Copies; what is there already and the same stays where it is. */
void facts_say(struct facts *facts, enum heng_fact fact, const char *text);
void facts_fini(struct facts *facts);

struct op_value {
	struct op_value *next;
	char *value;
	char name[];
};

struct heng_op {
	struct heng_client *client;
	atomic_bool is_stopped; /* the one field that others than the op's thread touch, beside: */
	atomic_bool is_running;
	struct op_value *values; /* each name once */
	heng_progress_fn *progress;
	heng_notice_fn *notice;
	heng_problem_fn *problem;
	void *progress_owner, *notice_owner, *problem_owner;
	struct facts facts;
	struct facts *rows;
	size_t row_count;
};
/* All facts and rows of an earlier call go. */
void op_clear(struct heng_op *op);
/* That many rows, kept as far as there are any already. */
void op_set_rows(struct heng_op *op, size_t row_count);

#endif
