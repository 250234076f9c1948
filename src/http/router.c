#include <stdlib.h>
#include <string.h>

#include "http/conn.h"

/* Cuts "/a//b" into "a", "", "b", each percent-decoded into the call's path_text. A decoded segment may hold any byte, a '/' too: it is a value
 * by then, no longer a path. */
static int split_path(struct http_call *call, struct str path, struct str segments[CALL_SEGMENTS_MAX],
		      size_t *ret_count, struct err *err)
{
	struct str rest = { path.data + 1, path.size - 1 };
	size_t count = 0, used = 0;
	call->path_text = must_alloc(path.size + 1);
	for (;;) {
		if (count == CALL_SEGMENTS_MAX)
			return err_set(err, ERR_NO_ROUTE, "no such path: it has more than %d segments",
				       CALL_SEGMENTS_MAX);
		const char *slash = rest.size > 0 ? memchr(rest.data, '/', rest.size) : NULL;
		struct str piece = { rest.data, slash ? (size_t)(slash - rest.data) : rest.size };
		char *target = call->path_text + used;
		size_t size = 0;
		if (piece.size > 0 && !percent_decode(piece, target, piece.size + 1, &size))
			return err_set(err, ERR_BAD_REQUEST,
				       "the path holds a '%%' that is not followed by two hexadecimal digits");
		segments[count++] = (struct str){ target, size };
		used += size;
		if (!slash)
			break;
		rest.size -= piece.size + 1;
		rest.data += piece.size + 1;
	}
	*ret_count = count;
	return 0;
}

static bool match(const char *pattern, const struct str *segments, size_t segment_count, struct http_call *call)
{
	struct str rest = { pattern + 1, strlen(pattern) - 1 }, piece = STR_NONE;
	size_t index = 0;
	call->param_count = 0;
	if (rest.size == 0)
		return segment_count == 1 && segments[0].size == 0;
	for (; str_cut(&rest, '/', &piece); index++) {
		if (index == segment_count)
			return false;
		if (piece.size == 0 || piece.data[0] != ':') {
			if (!str_eq(piece, segments[index]))
				return false;
			continue;
		}
		if (segments[index].size == 0)
			return false;
		MUST(call->param_count < CALL_PARAMS_MAX);
		call->params[call->param_count++] = (struct call_param){ piece.data + 1, piece.size - 1,
									 segments[index] };
	}
	return index == segment_count;
}

static void allow(struct buf *allowed, const char *method)
{
	if (allowed->size > 0)
		buf_append_c(allowed, ", ");
	buf_append_c(allowed, method);
	if (strcmp(method, "GET") == 0)
		buf_append_c(allowed, ", HEAD");
}

int router_find(const struct http_route *routes, struct http_call *call, struct str method, struct str path,
		struct buf *ret_allow, struct err *err)
{
	struct str segments[CALL_SEGMENTS_MAX];
	size_t segment_count = 0;
	if (path.size == 0 || path.data[0] != '/')
		return err_set(err, ERR_NO_ROUTE, "no such path");
	int result = split_path(call, path, segments, &segment_count, err);
	if (result < 0)
		return result;
	struct str wanted = str_eq(method, STR("HEAD")) ? STR("GET") : method;
	for (const struct http_route *route = routes; route->method; route++) {
		if (!match(route->pattern, segments, segment_count, call))
			continue;
		if (str_eq_c(wanted, route->method) || str_eq_c(method, route->method)) {
			call->route = route;
			return 0;
		}
		allow(ret_allow, route->method);
	}
	call->param_count = 0;
	if (ret_allow->size > 0)
		return err_set(err, ERR_METHOD, "this path does not take %.*s, only %s", STR_ARG(method),
			       buf_cstr(ret_allow));
	return err_set(err, ERR_NO_ROUTE, "no such path");
}
