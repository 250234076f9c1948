/* Lines of any bytes become a request: method, path, payload, then "?name=value" for queries and "name: value" for headers. The text that is signed
 * has a fixed number of lines whatever comes in, so that nothing in one part can pass for another; the order of what comes does not matter; and what
 * goes over the wire is what was signed. */
#include <string.h>

#include "plug/sigv4.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sigv4_pair queries[SIGV4_PAIRS_MAX + 1], headers[SIGV4_PAIRS_MAX + 1], turned[SIGV4_PAIRS_MAX + 1];

static void read_pairs(struct str rest, struct sigv4_request *request)
{
	struct str line, name;

	while (str_cut(&rest, '\n', &line)) {
		if (line.size > 0 && line.data[0] == '?' && request->query_count < COUNT_OF(queries)) {
			struct str value = { line.data + 1, line.size - 1 };
			if (!str_cut(&value, '=', &name))
				name = STR_NONE;
			queries[request->query_count++] = (struct sigv4_pair){ name, value };
		} else if (request->header_count < COUNT_OF(headers)) {
			struct str value = line;
			if (!str_cut(&value, ':', &name))
				name = STR_NONE;
			headers[request->header_count++] = (struct sigv4_pair){ name, value };
		}
	}
}

static size_t line_count(struct str text)
{
	size_t count = 1;

	for (size_t i = 0; i < text.size; i++)
		count += text.data[i] == '\n';
	return count;
}

/* The second and third line are the path and the query of the target. */
static void check_target(const struct sigv4_request *request, struct str canonical)
{
	struct buf target = BUF_INIT(MIB);
	struct str method, path, query = STR_NONE;

	MUST(sigv4_target(request, &target, NULL) == 0);
	MUST(str_cut(&canonical, '\n', &method) && str_cut(&canonical, '\n', &path));
	MUST(str_cut(&canonical, '\n', &query));
	MUST(target.size == path.size + query.size + (request->query_count > 0));
	MUST(path.size == 0 || memcmp(target.data, path.data, path.size) == 0);
	MUST(query.size == 0 || memcmp(target.data + target.size - query.size, query.data, query.size) == 0);
	buf_fini(&target);
}

static size_t distinct_count(const struct sigv4_request *request)
{
	size_t count = 0;

	for (size_t i = 0; i < request->header_count; i++) {
		bool is_first = true;
		for (size_t k = 0; k < i && is_first; k++)
			is_first = !str_eq_nocase(request->headers[k].name, request->headers[i].name);
		count += is_first;
	}
	return count;
}

static void check_order(const struct sigv4_request *request, struct str canonical)
{
	struct sigv4_request other = *request;
	struct buf text = BUF_INIT(MIB);

	for (size_t i = 0; i < request->query_count; i++)
		turned[i] = queries[request->query_count - 1 - i];
	other.queries = turned;
	MUST(sigv4_canonical(&other, &text, NULL) == 0 && str_eq(buf_str(&text), canonical));
	buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = { (const char *)data, size }, method = STR_NONE;
	struct sigv4_request request = { .queries = queries, .headers = headers, .path = STR("/"), .payload = STR("") };
	const struct sigv4_scope scope = { STR("id"), STR("secret"), "us-east-1", "s3", "20130524T000000Z" };
	struct buf text = BUF_INIT(MIB), value = BUF_INIT(MIB);
	struct err err = ERR_INIT;
	char method_text[32];

	(void)str_cut(&rest, '\n', &method);
	(void)str_cut(&rest, '\n', &request.path);
	(void)str_cut(&rest, '\n', &request.payload);
	request.method = str_copy(method, method_text, sizeof(method_text)) ? method_text : "GET";
	read_pairs(rest, &request);
	int result = sigv4_canonical(&request, &text, &err);
	MUST((sigv4_authorization(&scope, &request, &value, &err) == 0) == (result == 0));
	if (result == 0) {
		MUST(line_count(buf_str(&text)) == 6 + distinct_count(&request));
		MUST(!memchr(value.data, '\n', value.size));
		check_target(&request, buf_str(&text));
		check_order(&request, buf_str(&text));
	}
	buf_fini(&text);
	buf_fini(&value);
	return 0;
}
