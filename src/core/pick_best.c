#include "core/pick_impl.h"

static int choose(const struct pick_view *view, enum reason *ret_reason)
{
	*ret_reason = view->set->reason;
	return 0;
}

const struct pick_kind pick_kind_best = { .choose = choose };
