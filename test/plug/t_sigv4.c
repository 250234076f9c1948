#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "plug/sigv4.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* Requests and signatures that AWS publishes: the examples of the S3 API reference, and the general test suite. */
static const struct sigv4_scope s3_scope = { STR("AKIAIOSFODNN7EXAMPLE"),
					     STR("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), "us-east-1", "s3",
					     "20130524T000000Z" };
static const struct sigv4_scope suite_scope = { STR("AKIDEXAMPLE"), STR("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
						"us-east-1", "service", "20150830T123600Z" };
#define S3_HOST                                                    \
	{                                                          \
		STR("Host"), STR("examplebucket.s3.amazonaws.com") \
	}
#define S3_DATE                                            \
	{                                                  \
		STR("x-amz-date"), STR("20130524T000000Z") \
	}
#define SUITE_HOST                                        \
	{                                                 \
		STR("Host"), STR("example.amazonaws.com") \
	}
#define SUITE_DATE                                         \
	{                                                  \
		STR("X-Amz-Date"), STR("20150830T123600Z") \
	}
#define PUT_SHA "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"

struct known {
	const char *what;
	const struct sigv4_scope *scope;
	const char *method, *path, *payload;
	struct sigv4_pair queries[4], headers[6];
	size_t query_count, header_count;
	const char *signature;
};

static const struct known known[] = {
	{ "S3: a range of an object",
	  &s3_scope,
	  "GET",
	  "/test.txt",
	  EMPTY,
	  { { STR_NONE, STR_NONE } },
	  { S3_HOST, { STR("Range"), STR("bytes=0-9") }, { STR("x-amz-content-sha256"), STR(EMPTY) }, S3_DATE },
	  0,
	  4,
	  "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41" },
	{ "S3: an object put",
	  &s3_scope,
	  "PUT",
	  "/test$file.text",
	  PUT_SHA,
	  { { STR_NONE, STR_NONE } },
	  { { STR("Date"), STR("Fri, 24 May 2013 00:00:00 GMT") },
	    S3_HOST,
	    { STR("x-amz-content-sha256"), STR(PUT_SHA) },
	    S3_DATE,
	    { STR("x-amz-storage-class"), STR("REDUCED_REDUNDANCY") } },
	  0,
	  5,
	  "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd" },
	{ "S3: a query without a value",
	  &s3_scope,
	  "GET",
	  "/",
	  EMPTY,
	  { { STR("lifecycle"), STR_NONE } },
	  { S3_HOST, { STR("x-amz-content-sha256"), STR(EMPTY) }, S3_DATE },
	  1,
	  3,
	  "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543" },
	{ "S3: a list",
	  &s3_scope,
	  "GET",
	  "/",
	  EMPTY,
	  { { STR("prefix"), STR("J") }, { STR("max-keys"), STR("2") } },
	  { S3_DATE, { STR("x-amz-content-sha256"), STR(EMPTY) }, S3_HOST },
	  2,
	  3,
	  "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7" },
	{ "suite: get-vanilla",
	  &suite_scope,
	  "GET",
	  "/",
	  EMPTY,
	  { { STR_NONE, STR_NONE } },
	  { SUITE_HOST, SUITE_DATE },
	  0,
	  2,
	  "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31" },
	{ "suite: get-vanilla-query-order-key-case",
	  &suite_scope,
	  "GET",
	  "/",
	  EMPTY,
	  { { STR("Param2"), STR("value2") }, { STR("Param1"), STR("value1") } },
	  { SUITE_HOST, SUITE_DATE },
	  2,
	  2,
	  "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500" },
	{ "suite: post-vanilla",
	  &suite_scope,
	  "POST",
	  "/",
	  EMPTY,
	  { { STR_NONE, STR_NONE } },
	  { SUITE_HOST, SUITE_DATE },
	  0,
	  2,
	  "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b" },
};

static void known_answers(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT_OF(known); i++) {
		const struct known *row = &known[i];
		const struct sigv4_request request = { row->method,           str_from(row->path), row->queries,
						       row->query_count,      row->headers,        row->header_count,
						       str_from(row->payload) };
		char signature[SIGV4_SIGNATURE_SIZE];
		struct err err = ERR_INIT;

		if (sigv4_sign(row->scope, &request, signature, &err) < 0)
			fail_msg("%s: %s", row->what, err.text);
		if (strcmp(signature, row->signature) != 0)
			fail_msg("%s: %s, not %s", row->what, signature, row->signature);
	}
}

static void the_whole_header(void **state UNUSED)
{
	const struct sigv4_request request = { "GET", STR("/"), known[2].queries, 1, known[2].headers, 3, STR(EMPTY) };
	struct buf value = BUF_INIT(KIB);
	struct err err = ERR_INIT;

	assert_int_equal(sigv4_authorization(&s3_scope, &request, &value, &err), 0);
	assert_string_equal(buf_cstr(&value),
			    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
			    "SignedHeaders=host;x-amz-content-sha256;x-amz-date,"
			    "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
	buf_fini(&value);
}

static void canonical_text(void **state UNUSED)
{
	/* Encoded once, '/' of a path only; sorted by encoded name, then value; spaces of values once; a repeated header in the order it came. */
	const struct sigv4_pair queries[] = { { STR("b"), STR("/ +%") },
					      { STR("a"), STR("2") },
					      { STR("a-b"), STR("0") },
					      { STR("a"), STR("10") },
					      { STR("uploads"), STR_NONE } };
	const struct sigv4_pair headers[] = { { STR("X-Amz-Meta-B"), STR("  two   words ") },
					      { STR("x-amz-meta-a"), STR("z") },
					      { STR("HOST"), STR("h:80") },
					      { STR("X-Amz-Meta-A"), STR("y") } };
	const struct sigv4_request request = { "PUT",
					       STR("/bucket/a+b c%\xe4\xbd\xa0/~x.y"),
					       queries,
					       COUNT_OF(queries),
					       headers,
					       COUNT_OF(headers),
					       STR(SIGV4_UNSIGNED) };
	struct buf text = BUF_INIT(4 * KIB), target = BUF_INIT(4 * KIB);
	struct err err = ERR_INIT;

	assert_int_equal(sigv4_canonical(&request, &text, &err), 0);
	assert_string_equal(buf_cstr(&text),
			    "PUT\n/bucket/a%2Bb%20c%25%E4%BD%A0/~x.y\na=10&a=2&a-b=0&b=%2F%20%2B%25&uploads=\n"
			    "host:h:80\nx-amz-meta-a:z,y\nx-amz-meta-b:two words\n\n"
			    "host;x-amz-meta-a;x-amz-meta-b\nUNSIGNED-PAYLOAD");
	assert_int_equal(sigv4_target(&request, &target, &err), 0);
	assert_string_equal(buf_cstr(&target),
			    "/bucket/a%2Bb%20c%25%E4%BD%A0/~x.y?a=10&a=2&a-b=0&b=%2F%20%2B%25&uploads=");
	buf_fini(&text);
	buf_fini(&target);
}

static void refusals(void **state UNUSED)
{
	static const struct {
		struct sigv4_pair header;
		enum err_code code;
	} rows[] = {
		{ { STR("host"), STR("a\nx-amz-date:b") }, ERR_BAD_REQUEST },
		{ { STR("host"), STR("a\rb") }, ERR_BAD_REQUEST },
		{ { STR("ho:st"), STR("a") }, ERR_BAD_REQUEST },
		{ { STR("ho st"), STR("a") }, ERR_BAD_REQUEST },
		{ { STR(""), STR("a") }, ERR_BAD_REQUEST },
	};
	struct sigv4_pair many[SIGV4_PAIRS_MAX + 1];
	struct sigv4_request request = { "GET", STR("/"), NULL, 0, many, 1, STR(EMPTY) };
	struct buf text = BUF_INIT(64 * KIB);
	struct err err = ERR_INIT;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		many[0] = rows[i].header;
		assert_int_equal(sigv4_canonical(&request, &text, &err), -(int)rows[i].code);
	}
	for (size_t i = 0; i < COUNT_OF(many); i++)
		many[i] = (struct sigv4_pair){ STR("a"), STR("b") };
	request.header_count = COUNT_OF(many);
	assert_int_equal(sigv4_canonical(&request, &text, &err), -(int)ERR_LIMIT);
	request.header_count = 0;
	request.queries = many;
	request.query_count = COUNT_OF(many);
	assert_int_equal(sigv4_canonical(&request, &text, &err), -(int)ERR_LIMIT);
	request.query_count = COUNT_OF(many) - 1;
	buf_fini(&text);
	text = BUF_INIT(20);
	assert_int_equal(sigv4_canonical(&request, &text, &err), -(int)ERR_LIMIT);
	buf_fini(&text);
}

static void times(void **state UNUSED)
{
	char text[SIGV4_TIME_SIZE];

	sigv4_time((int64_t)1369353600 * SEC_US + 999999, text);
	assert_string_equal(text, "20130524T000000Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),  cmocka_unit_test(the_whole_header),
		cmocka_unit_test(canonical_text), cmocka_unit_test(refusals),
		cmocka_unit_test(times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
