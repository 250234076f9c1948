#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "core/profile.h"
#include "core/profile_impl.h"

static const char *const BUILTINS[] = { "kv", "gateway", "folder" };

static int parse(const char *text, struct profile *ret_profile, struct err *err)
{
	*err = ERR_INIT;
	return profile_parse("p.yaml", str_from(text), ret_profile, err);
}

static void assert_same(const struct profile *a, const struct profile *b)
{
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->stale, b->stale);
	for (size_t i = 0; i < PROFILE_NUMBERS; i++)
		assert_int_equal(profile_number_get(a, &profile_numbers[i]),
				 profile_number_get(b, &profile_numbers[i]));
	assert_int_equal(a->dim_count, b->dim_count);
	for (size_t i = 0; i < a->dim_count; i++) {
		assert_string_equal(a->dims[i].name, b->dims[i].name);
		assert_string_equal(a->dims[i].group, b->dims[i].group);
		assert_int_equal(a->dims[i].norm, b->dims[i].norm);
		assert_int_equal(a->dims[i].weight_ppm, b->dims[i].weight_ppm);
		assert_int_equal(a->dims[i].parameter, b->dims[i].parameter);
	}
	assert_int_equal(a->rule_count, b->rule_count);
	for (size_t i = 0; i < a->rule_count; i++) {
		assert_string_equal(a->rules[i].name, b->rules[i].name);
		assert_int_equal(a->rules[i].source, b->rules[i].source);
		assert_int_equal(a->rules[i].kind, b->rules[i].kind);
		assert_int_equal(a->rules[i].low, b->rules[i].low);
		assert_int_equal(a->rules[i].high, b->rules[i].high);
		assert_int_equal(a->rules[i].factor_ppm, b->rules[i].factor_ppm);
	}
	assert_true(a->hash == b->hash);
}

static void test_builtins(void **state)
{
	(void)state;
	assert_null(profile_builtin(""));
	assert_null(profile_builtin("none"));
	assert_null(profile_builtin("KV"));
	for (size_t i = 0; i < COUNT_OF(BUILTINS); i++) {
		const struct profile *profile = profile_builtin(BUILTINS[i]);
		int64_t sum_ppm = 0;

		assert_non_null(profile);
		assert_ptr_equal(profile, profile_builtin(BUILTINS[i]));
		assert_true(profile->hash == profile_hash(profile));
		for (size_t dim = 0; dim < profile->dim_count; dim++)
			sum_ppm += profile->dims[dim].weight_ppm;
		assert_int_equal(sum_ppm, profile->dim_count > 0 ? PPM : 0);
		for (size_t j = 0; j < i; j++)
			assert_true(profile->hash != profile_builtin(BUILTINS[j])->hash);
	}
}

/* The numbers of the specification, each where it belongs. */
static void test_numbers(void **state)
{
	static const struct {
		const char *profile, *dim, *group;
		enum profile_norm norm;
		int64_t weight_ppm;
	} dims[] = {
		{ "kv", "health", "", NORM_health, 300000 },
		{ "kv", "cpu", "load", NORM_cpu_per_core, 100000 },
		{ "kv", "memory", "load", NORM_memory, 75000 },
		{ "kv", "disk", "load", NORM_disk_queue, 75000 },
		{ "kv", "latency", "", NORM_latency, 250000 },
		{ "kv", "data_ready", "", NORM_data_ready, 200000 },
		{ "gateway", "cpu", "", NORM_cpu_per_core, 400000 },
		{ "gateway", "memory", "", NORM_memory, 100000 },
		{ "gateway", "conn_share", "", NORM_conn_share, 300000 },
		{ "gateway", "rt_ratio", "", NORM_rt_ratio, 200000 },
	};
	const struct profile *kv = profile_builtin("kv"), *gateway = profile_builtin("gateway");
	const struct profile *folder = profile_builtin("folder");
	size_t next = 0;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(dims); i++) {
		const struct profile *profile = profile_builtin(dims[i].profile);

		next = i > 0 && strcmp(dims[i].profile, dims[i - 1].profile) == 0 ? next + 1 : 0;
		assert_true(next < profile->dim_count);
		assert_string_equal(profile->dims[next].name, dims[i].dim);
		assert_string_equal(profile->dims[next].group, dims[i].group);
		assert_int_equal(profile->dims[next].norm, dims[i].norm);
		assert_int_equal(profile->dims[next].weight_ppm, dims[i].weight_ppm);
	}
	assert_int_equal(kv->dim_count, 6);
	assert_int_equal(gateway->dim_count, 4);
	assert_int_equal(folder->dim_count, 0);
	assert_int_equal(kv->decay.life_us, 9 * SEC_US);
	assert_int_equal(kv->decay.step_us, 5 * SEC_US);
	assert_int_equal(kv->decay.factor_ppm, 900000);
	assert_int_equal(kv->decay.zero_below_ppm, 50000);
	assert_int_equal(kv->warmup.start_ppm, 400000);
	assert_int_equal(kv->warmup.unverified_ppm, 500000);
	assert_int_equal(kv->warmup.hold_us, 300 * SEC_US);
	assert_int_equal(kv->warmup.step_us, 30 * SEC_US);
	assert_int_equal(kv->warmup.step_ppm, 100000);
	assert_int_equal(kv->warmup.fast_progress_ppm, 800000);
	assert_int_equal(kv->start.floor_ppm, PPM);
	assert_int_equal(kv->lead_ppm, 100000);
	assert_int_equal(kv->hold_ppm, 800000);
	assert_int_equal(kv->band_ppm, 800000);
	assert_int_equal(kv->flat_ppm, 20000);
	assert_int_equal(kv->flat_us, 300 * SEC_US);
	assert_int_equal(gateway->stale, PROFILE_DRIFT);
	assert_int_equal(gateway->blackout_us, 10 * SEC_US);
	assert_int_equal(gateway->step_up_ppm, 200000);
	assert_int_equal(gateway->start.floor_ppm, 100000);
	assert_int_equal(gateway->start.hold_us, 30 * SEC_US);
	assert_true(gateway->floor_ppm > 0);
	assert_int_equal(gateway->warmup.start_ppm, 0);
	assert_int_equal(folder->warmup.start_ppm, 0);
	assert_int_equal(folder->start.floor_ppm, PPM);
}

static void test_write_and_read(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(BUILTINS); i++) {
		const struct profile *profile = profile_builtin(BUILTINS[i]);
		struct buf text = BUF_INIT(PROFILE_TEXT_MAX), again = BUF_INIT(PROFILE_TEXT_MAX);
		struct profile read;
		struct err err;

		profile_write(&text, profile);
		if (parse(buf_cstr(&text), &read, &err) != 0)
			fail_msg("%s: %s", BUILTINS[i], err.text);
		assert_same(profile, &read);
		profile_write(&again, &read);
		assert_string_equal(buf_cstr(&text), buf_cstr(&again));
		buf_fini(&text);
		buf_fini(&again);
	}
}

/* As much as can be in one, and each number as far up as it goes: it must still fit and come back. */
static void test_largest(void **state)
{
	struct profile profile = profile_neutral, read;
	struct buf text = BUF_INIT(PROFILE_TEXT_MAX);
	struct err err;

	(void)state;
	memset(profile.name, 'n', sizeof(profile.name) - 1);
	for (size_t i = 0; i < PROFILE_NUMBERS; i++)
		memcpy((char *)&profile + profile_numbers[i].offset, &profile_numbers[i].max, sizeof(int64_t));
	profile.dim_count = PROFILE_DIMS_MAX;
	profile.rule_count = PROFILE_RULES_MAX;
	for (size_t i = 0; i < PROFILE_DIMS_MAX; i++) {
		struct profile_dim *dim = &profile.dims[i];
		struct profile_rule *rule = &profile.rules[i];

		snprintf(dim->name, sizeof(dim->name), "a-dimension-whose-name-is-31-%02zu", i);
		snprintf(dim->group, sizeof(dim->group), "null");
		dim->norm = (enum profile_norm)(i % NORM_COUNT);
		dim->weight_ppm = i == 0 ? PPM : 0;
		dim->parameter = 1000000000000000;
		snprintf(rule->name, sizeof(rule->name), "%zu", i);
		rule->source = (enum profile_source)(i % RULE_COUNT);
		rule->kind = i % 2 == 0 ? PROFILE_RAMP : PROFILE_STEP;
		rule->low = (int64_t)i;
		rule->high = 1000000000000000;
		rule->factor_ppm = PPM;
	}
	profile.hash = profile_hash(&profile);
	profile_write(&text, &profile);
	if (parse(buf_cstr(&text), &read, &err) != 0)
		fail_msg("%s", err.text);
	assert_same(&profile, &read);
	buf_fini(&text);
}

static void test_every_field_is_in_the_hash(void **state)
{
	const struct profile *kv = profile_builtin("kv");
	struct profile other;

	(void)state;
	for (size_t i = 0; i < PROFILE_NUMBERS; i++) {
		int64_t value = profile_number_get(kv, &profile_numbers[i]) + 1;

		other = *kv;
		memcpy((char *)&other + profile_numbers[i].offset, &value, sizeof(value));
		assert_true(profile_hash(&other) != kv->hash);
	}
#define CHANGE(statement)                                      \
	do {                                                   \
		other = *kv;                                   \
		statement;                                     \
		assert_true(profile_hash(&other) != kv->hash); \
	} while (0)
	CHANGE(other.name[0] = 'x');
	CHANGE(other.stale = PROFILE_DRIFT);
	CHANGE(other.dim_count--);
	CHANGE(other.rule_count--);
	CHANGE(other.dims[5].name[0] = 'x');
	CHANGE(other.dims[1].group[0] = 'x');
	CHANGE(other.dims[2].norm = NORM_wal_lag);
	CHANGE(other.dims[3].weight_ppm++);
	CHANGE(other.dims[4].parameter++);
	CHANGE(other.rules[0].name[0] = 'x');
	CHANGE(other.rules[1].source = RULE_rt);
	CHANGE(other.rules[2].kind = PROFILE_RAMP);
	CHANGE(other.rules[2].low++);
	CHANGE(other.rules[2].high++);
	CHANGE(other.rules[2].factor_ppm++);
#undef CHANGE
	/* What it does not name does not count: not the hash itself, not what lies beyond the counts. */
	other = *kv;
	other.hash++;
	other.dims[PROFILE_DIMS_MAX - 1].weight_ppm = 7;
	assert_true(profile_hash(&other) == kv->hash);
}

static void test_tuning(void **state)
{
	const struct profile *kv = profile_builtin("kv"), *gateway = profile_builtin("gateway");
	struct profile read;
	struct err err;

	(void)state;
	assert_int_equal(parse("base: kv\n", &read, &err), 0);
	assert_same(kv, &read);
	/* The base may come last. */
	assert_int_equal(parse("dwell: 7s\nname: mine\nbase: gateway\n", &read, &err), 0);
	assert_string_equal(read.name, "mine");
	assert_int_equal(read.dwell_us, 7 * SEC_US);
	assert_int_equal(read.blackout_us, gateway->blackout_us);
	assert_int_equal(read.stale, PROFILE_DRIFT);
	assert_int_equal(read.dim_count, gateway->dim_count);
	assert_true(read.hash != gateway->hash);
	/* Dimensions replace the base's, rules stay. */
	assert_int_equal(parse("base: kv\ndims:\n- {name: c, norm: cpu_per_core, weight_ppm: 1000000}\n", &read, &err),
			 0);
	assert_int_equal(read.dim_count, 1);
	assert_string_equal(read.dims[0].group, "");
	assert_int_equal(read.dims[0].parameter, 0);
	assert_int_equal(read.rule_count, kv->rule_count);
	/* Rules replace the base's, dimensions stay. */
	assert_int_equal(parse("base: kv\nrules: [{name: r, source: rt, high: 5, low: 2, factor_ppm: 0}]", &read, &err),
			 0);
	assert_int_equal(read.dim_count, kv->dim_count);
	assert_int_equal(read.rule_count, 1);
	assert_int_equal(read.rules[0].kind, PROFILE_STEP);
	assert_int_equal(read.rules[0].high, 5);
	/* No base: nothing but what is said. */
	assert_int_equal(parse("name: bare", &read, &err), 0);
	assert_int_equal(read.dim_count + read.rule_count, 0);
	assert_int_equal(read.warmup.start_ppm, 0);
	assert_int_equal(read.start.floor_ppm, PPM);
	assert_int_equal(read.lead_ppm, 100000);
}

static void test_faults(void **state)
{
	static const struct {
		const char *text, *says[4];
	} rows[] = {
		{ "", { "'name' is missing" } },
		{ "base: kvv", { "p.yaml:1:7: 'base' must be one of none, kv, gateway, folder, not 'kvv'" } },
		{ "base: kv\nleed_ppm: 5", { "p.yaml:2:1: unknown key 'leed_ppm' (did you mean 'lead_ppm'?)" } },
		{ "base: kv\nlead_ppm: 1000001", { "p.yaml:2:11: ", "0 to 1000000, not '1000001'" } },
		{ "base: kv\nlead_ppm: -1", { "0 to 1000000, not '-1'" } },
		{ "base: kv\nlead_ppm: 0.1", { "a whole number" } },
		{ "base: kv\ndwell: 31d", { "'dwell' must be a time" } },
		{ "base: kv\nwarmup_step: 0s", { "'warmup_step' must be a time" } },
		{ "base: kv\nstart_floor_ppm: 0", { "1 to 1000000" } },
		{ "base: kv\nname: a/b",
		  { "p.yaml:2: the name of a profile must be 1 to 31 of A-Za-z0-9._-, not 'a/b'" } },
		{ "base: kv\nname: ''", { "not ''" } },
		{ "base: kv\nname: abcdefghijklmnopqrstuvwxyz012345", { "1 to 31" } },
		{ "base: kv\ndims:\n  - {name: a, norm: cpu, weight_ppm: 1}",
		  { "p.yaml:3:21: 'norm' must be one of health, cpu_per_core, memory, disk_queue, latency, stability, "
		    "conn_share, rt_ratio, wal_lag, data_ready, not 'cpu'" } },
		{ "base: kv\nrules:\n  - {name: a, source: disk, factor_ppm: 1}",
		  { "p.yaml:3:23: 'source' must be one of load, cpu, memory_pressure, disk_io, disk_free, tcp_conns, "
		    "write_failures, rt, migrating, leaving, dirs_failed, not 'disk'" } },
		{ "base: kv\n\ndims:\n- {name: a, norm: health, weight_ppm: 1}\n- {name: b, norm: health, weight_ppm: "
		  "2}\n",
		  { "p.yaml:3: the weights of 'dims' must add up to 1000000, these add up to 3" } },
		/* All in one go: two of the values, three of the whole. */
		{ "base: kv\nlead_ppm: x\ndims:\n  # two\n  - name: a\n    norm: health\n    weight_ppm: 1000000\n\n"
		  "  - name: a\n    norm: health\n    weight_ppm: y\nrules:\n  - name: 'b b'\n    source: rt\n    "
		  "factor_ppm: 0\n",
		  { "p.yaml:2:11: 'lead_ppm'", "p.yaml:11:17: 'weight_ppm'", "p.yaml:9: dimension 'a' is given twice",
		    "p.yaml:13: the name of a rule" } },
		{ "base: kv\nrules:\n- {name: a, source: rt, low: 6, high: 5, factor_ppm: 1}\n"
		  "- {name: a, source: rt, low: 5, high: 5, factor_ppm: 1}",
		  { "p.yaml:3: rule 'a': 'low' (6) must not be above 'high' (5)",
		    "p.yaml:4: rule 'a' is given twice" } },
		{ "base: kv\nrules:\n- {name: a, source: rt}", { "'factor_ppm' is missing" } },
		/* Laid out so that no line can be told. */
		{ "{base: kv, dims: [{name: a, norm: health, weight_ppm: 1}]}", { "p.yaml: the weights of 'dims'" } },
		{ "base: &a kv\nname: *a", { "anchors and aliases" } },
		{ "base: kv\n\tx: [", { "this is not YAML" } },
		{ "[[[[[[[[[[[[[[[[[[[[", { "p.yaml:" } },
	};
	struct profile read;
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		memset(&read, 0x5a, sizeof(read));
		assert_int_equal(parse(rows[i].text, &read, &err), -ERR_CONFIG);
		assert_int_equal(err.code, ERR_CONFIG);
		for (size_t j = 0; j < COUNT_OF(rows[i].says) && rows[i].says[j]; j++) {
			if (!strstr(err.text, rows[i].says[j]))
				fail_msg("row %zu: \"%s\" does not say \"%s\"", i, err.text, rows[i].says[j]);
		}
		assert_true(err.hint[0] != '\0');
		/* Nothing half read gets out; and an error may go unheard. */
		assert_int_equal(read.name[0], 0x5a);
		assert_int_equal(profile_parse("p.yaml", str_from(rows[i].text), &read, NULL), -ERR_CONFIG);
	}
}

static void test_too_much(void **state)
{
	struct buf text = BUF_INIT(1 * MIB);
	struct profile read;
	struct err err;

	(void)state;
	buf_append_c(&text, "base: kv\nrules:\n");
	for (size_t i = 0; i <= PROFILE_RULES_MAX; i++)
		buf_printf(&text, " - {name: r%zu, source: rt, factor_ppm: 1}\n", i);
	assert_int_equal(parse(buf_cstr(&text), &read, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "p.yaml:2: 'rules' may have at most 12 entries, not 13"));
	buf_clear(&text);
	buf_append_c(&text, "base: kv\ndims:\n");
	for (size_t i = 0; i <= PROFILE_DIMS_MAX; i++)
		buf_printf(&text, " - {name: r%zu, norm: health, weight_ppm: 0}\n", i);
	assert_int_equal(parse(buf_cstr(&text), &read, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "at most 12 entries, not 13"));
	buf_clear(&text);
	buf_append_c(&text, "base: kv\ndims:\n");
	while (text.size < PROFILE_TEXT_MAX - 8)
		buf_append_c(&text, "- {}\n");
	assert_int_equal(parse(buf_cstr(&text), &read, &err), -ERR_CONFIG);
	while (text.size <= PROFILE_TEXT_MAX)
		buf_append_c(&text, "#");
	assert_int_equal(parse(buf_cstr(&text), &read, &err), -ERR_CONFIG);
	assert_non_null(strstr(err.text, "at most 64 KiB"));
	buf_fini(&text);
}

/* Damage a good text at random: it is refused, or is a profile that can be written and read again. */
static void test_damaged(void **state)
{
	struct buf good = BUF_INIT(PROFILE_TEXT_MAX), again = BUF_INIT(PROFILE_TEXT_MAX);
	unsigned read_count = 0;
	struct rng rng;

	(void)state;
	rng_seed(&rng, 42);
	profile_write(&good, profile_builtin("folder"));
	for (unsigned round = 0; round < 600; round++) {
		struct profile first, second;
		char *text = must_alloc(good.size);
		size_t size = good.size - (size_t)rng_below(&rng, round % 3 == 0 ? good.size : 1);

		memcpy(text, good.data, good.size);
		for (uint64_t i = rng_below(&rng, 3); i > 0; i--)
			text[rng_below(&rng, good.size)] = (char)rng_below(&rng, 128);
		if (profile_parse("p.yaml", (struct str){ text, size }, &first, NULL) == 0) {
			read_count++;
			buf_clear(&again);
			profile_write(&again, &first);
			assert_int_equal(profile_parse("p.yaml", buf_str(&again), &second, NULL), 0);
			assert_same(&first, &second);
		}
		free(text);
	}
	assert_true(read_count > 50);
	buf_fini(&good);
	buf_fini(&again);
}

static void read_file(const char *path, struct buf *ret_text)
{
	FILE *file = fopen(path, "r");
	size_t count;

	if (!file)
		fail_msg("cannot open %s (tests run in the top folder)", path);
	while (buf_reserve(ret_text, 4096) && (count = fread(ret_text->data + ret_text->size, 1, 4096, file)) > 0)
		ret_text->size += count;
	(void)fclose(file);
}

/* What we hand out as examples works. */
static void test_examples(void **state)
{
	struct buf text = BUF_INIT(1 * MIB);
	struct profile read;
	struct err err;
	char *block, *end;

	(void)state;
	read_file("etc/profile-kv.yaml", &text);
	if (parse(buf_cstr(&text), &read, &err) != 0)
		fail_msg("etc/profile-kv.yaml: %s", err.text);
	assert_string_equal(read.name, "kv-memory");
	assert_int_equal(read.warmup.start_ppm, profile_builtin("kv")->warmup.start_ppm);
	buf_clear(&text);
	read_file("docs/scoring.md", &text);
	block = strstr(buf_cstr(&text), "```yaml\n");
	assert_non_null(block);
	block += strlen("```yaml\n");
	end = strstr(block, "```");
	assert_non_null(end);
	*end = '\0';
	if (parse(block, &read, &err) != 0)
		fail_msg("the example in docs/scoring.md: %s", err.text);
	buf_fini(&text);
}

/* The manual names everything that can be written. */
static void test_manual(void **state)
{
	struct buf text = BUF_INIT(1 * MIB);
	char word[64];

	(void)state;
	read_file("docs/scoring.md", &text);
#define SAYS(name)                                                             \
	do {                                                                   \
		snprintf(word, sizeof(word), "`%s`", name);                    \
		if (!strstr(buf_cstr(&text), word))                            \
			fail_msg("docs/scoring.md does not tell of %s", word); \
	} while (0)
	for (size_t i = 0; i < NORM_COUNT; i++)
		SAYS(profile_norm_names[i]);
	for (size_t i = 0; i < RULE_COUNT; i++)
		SAYS(profile_source_names[i]);
	for (size_t i = 0; i < PROFILE_NUMBERS; i++)
		SAYS(profile_numbers[i].name);
#undef SAYS
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_builtins),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_write_and_read),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_every_field_is_in_the_hash),
		cmocka_unit_test(test_tuning),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_too_much),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_examples),
		cmocka_unit_test(test_manual),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
