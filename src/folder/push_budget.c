#include "folder/push_budget.h"

/* Counted in the time in which it comes by itself, so that nothing is lost in rounding, however often it is looked at. */
#define RETRY_US (PUSH_BUDGET_WINDOW_US / PUSH_BUDGET_FLOOR)
#define FLOOR_US (RETRY_US * PUSH_BUDGET_FLOOR)
#define MOST_US  (RETRY_US * PUSH_BUDGET_MOST)
#define SHARE_US (RETRY_US * PUSH_BUDGET_SHARE_MILLI / 1000)

void push_budget_init(struct push_budget *budget, int64_t now_us)
{
	*budget = (struct push_budget){ .left_us = FLOOR_US, .filled_us = now_us };
}

void push_budget_earn(struct push_budget *budget) { budget->left_us = min_i64(budget->left_us + SHARE_US, MOST_US); }

bool push_budget_take(struct push_budget *budget, int64_t now_us, int64_t *ret_due_us)
{
	int64_t passed_us = max_i64(now_us - budget->filled_us, 0);

	/* Time never fills it above the floor: what is above was earned. */
	if (budget->left_us < FLOOR_US)
		budget->left_us = passed_us < FLOOR_US ? min_i64(budget->left_us + passed_us, FLOOR_US) : FLOOR_US;
	budget->filled_us = now_us;
	if (budget->left_us >= RETRY_US) {
		budget->left_us -= RETRY_US;
		return true;
	}
	*ret_due_us = now_us + RETRY_US - budget->left_us;
	return false;
}
