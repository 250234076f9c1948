/* How often a push may repeat itself. Each retry of a chunk spends one; a little comes back with time and with every chunk that is
 * acknowledged, so that nodes in trouble are not met by a storm, while a push that gets on may repeat what it must. A spent budget slows the
 * push to the pace at which it fills again; it never ends it. Pure: time in, yes or no out. */
#ifndef HENG_FOLDER_PUSH_BUDGET_H
#define HENG_FOLDER_PUSH_BUDGET_H

#include "base/base.h"

#define PUSH_BUDGET_FLOOR       64            /* retries in a window, however little gets through */
#define PUSH_BUDGET_WINDOW_US   (10 * SEC_US) /* in which time alone fills an empty budget to the floor */
#define PUSH_BUDGET_SHARE_MILLI 200           /* of a retry, for each acknowledged chunk: 20 % of them */
#define PUSH_BUDGET_MOST        256           /* what can be saved up */

struct push_budget {
	int64_t left_us; /* in the time that time alone takes to bring it */
	int64_t filled_us;
};
void push_budget_init(struct push_budget *budget, int64_t now_us);
void push_budget_earn(struct push_budget *budget); /* a chunk was acknowledged */
/* Takes one retry. False: there is none; *ret_due_us says when there will be one by time alone. */
bool push_budget_take(struct push_budget *budget, int64_t now_us, int64_t *ret_due_us);

#endif
