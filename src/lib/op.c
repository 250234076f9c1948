#include "lib/op.h"

#include <stdlib.h>
#include <string.h>

#include "folder/push_option.h"

/* --- facts --- */

void facts_set(struct facts *facts, enum heng_fact fact, uint64_t number)
{
	MUST((size_t)fact < FACT_NUMBERS);
	facts->numbers[fact] = number;
}

void facts_say(struct facts *facts, enum heng_fact fact, const char *text)
{
	MUST(fact >= FACT_TEXT_FIRST && fact - FACT_TEXT_FIRST < FACT_TEXTS);
	char **there = &facts->texts[fact - FACT_TEXT_FIRST];
	if (*there && text && strcmp(*there, text) == 0)
		return;
	free(*there);
	*there = text && text[0] != '\0' ? must_strdup(text) : NULL;
}

void facts_fini(struct facts *facts)
{
	for (size_t i = 0; i < FACT_TEXTS; i++)
		free(facts->texts[i]);
	memset(facts, 0, sizeof(*facts));
}

static uint64_t number_of(const struct facts *facts, int fact)
{
	return facts && fact >= 0 && fact < FACT_NUMBERS ? facts->numbers[fact] : 0;
}

static const char *text_of(const struct facts *facts, int fact)
{
	if (!facts || fact < FACT_TEXT_FIRST || fact - FACT_TEXT_FIRST >= FACT_TEXTS ||
	    !facts->texts[fact - FACT_TEXT_FIRST])
		return "";
	return facts->texts[fact - FACT_TEXT_FIRST];
}

static const struct facts *row_of(const struct heng_op *op, size_t row)
{
	return op && row < op->row_count ? &op->rows[row] : NULL;
}

uint64_t heng_number(const struct heng_op *op, int fact) { return number_of(op ? &op->facts : NULL, fact); }

const char *heng_text(const struct heng_op *op, int fact) { return text_of(op ? &op->facts : NULL, fact); }

size_t heng_row_count(const struct heng_op *op) { return op ? op->row_count : 0; }

uint64_t heng_row_number(const struct heng_op *op, size_t row, int fact) { return number_of(row_of(op, row), fact); }

const char *heng_row_text(const struct heng_op *op, size_t row, int fact) { return text_of(row_of(op, row), fact); }

void op_set_rows(struct heng_op *op, size_t row_count)
{
	struct facts *rows;

	while (op->row_count > row_count)
		facts_fini(&op->rows[--op->row_count]);
	if (op->row_count == row_count)
		return;
	rows = must_zalloc(row_count, sizeof(*rows));
	if (op->row_count > 0)
		memcpy(rows, op->rows, op->row_count * sizeof(*rows));
	free(op->rows);
	op->rows = rows;
	op->row_count = row_count;
}

void op_clear(struct heng_op *op)
{
	op_set_rows(op, 0);
	facts_fini(&op->facts);
}

/* --- the handle --- */

struct heng_op *heng_op_new(struct heng_client *client)
{
	struct heng_op *op = client ? calloc(1, sizeof(*op)) : NULL;

	if (op)
		op->client = client_ref(client);
	return op;
}

void heng_op_free(struct heng_op *op)
{
	if (!op)
		return;
	op_clear(op);
	free(op->rows);
	for (struct op_value *value = op->values, *next; value; value = next) {
		next = value->next;
		free(value->value);
		free(value);
	}
	client_drop(op->client);
	free(op);
}

void heng_stop(struct heng_op *op)
{
	if (op)
		atomic_store(&op->is_stopped, true);
}

void heng_op_on_progress(struct heng_op *op, heng_progress_fn *progress, void *owner)
{
	if (!op)
		return;
	op->progress = progress;
	op->progress_owner = owner;
}

void heng_op_on_notice(struct heng_op *op, heng_notice_fn *notice, void *owner)
{
	if (!op)
		return;
	op->notice = notice;
	op->notice_owner = owner;
}

void heng_op_on_problem(struct heng_op *op, heng_problem_fn *problem, void *owner)
{
	if (!op)
		return;
	op->problem = problem;
	op->problem_owner = owner;
}

/* --- options --- */

static void forget_value(struct heng_op *op, const char *name)
{
	struct op_value **at = &op->values;

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	if (*at) {
		struct op_value *gone = *at;
		*at = gone->next;
		free(gone->value);
		free(gone);
	}
}

static int set_value(struct heng_op *op, const char *name, const char *value, struct err *err)
{
	struct push_options tried = { .folder = NULL };
	int result = 0;

	if (!op || !name)
		return err_set(err, ERR_USAGE, "an option needs an operation and a name: one of them is NULL");
	if (atomic_load(&op->is_running))
		return err_set(err, ERR_USAGE, "the operation is running: no option can be set");
	if (value || !push_option_exists(name))
		result = push_option_set(&tried, name, name, value ? value : "", err);
	if (result < 0)
		return result;
	size_t name_size = strlen(name) + 1;
	struct op_value *kept = value ? malloc(sizeof(*kept) + name_size) : NULL;
	char *copy = kept ? strdup(value) : NULL;
	if (value && !copy) {
		free(kept);
		return err_set(err, ERR_NO_MEMORY, "no memory for an option");
	}
	forget_value(op, name);
	if (kept) {
		memcpy(kept->name, name, name_size);
		kept->value = copy;
		kept->next = op->values;
		op->values = kept;
	}
	return 0;
}

int heng_op_set(struct heng_op *op, const char *name, const char *value, struct heng_error **ret_error)
{
	struct err err = ERR_INIT;

	(void)set_value(op, name, value, &err);
	return error_give(&err, ret_error);
}
