/* Decision logs of any bytes: no crash, and a line that agrees with what is computed from it agrees again, also when it is read for a person. */
#include <string.h>

#include "core/decide.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Rings of millions of points are allowed, and slow to build. */
static bool asks_for_a_large_ring(struct str text)
{
	static const char key[] = "weight_milli";
	const char *at = text.data, *end = text.data + text.size;

	while (at && (at = memmem(at, (size_t)(end - at), key, sizeof(key) - 1)) != NULL) {
		size_t digit_count = 0;

		at += sizeof(key) - 1;
		for (const char *digit = at; digit < end && digit < at + 16; digit++)
			digit_count += *digit >= '0' && *digit <= '9';
		if (digit_count > 5)
			return true;
	}
	return false;
}

static void replay_all(struct str text, const struct profile *what_if, int64_t squeeze_ppm)
{
	struct decide_replay *replay = decide_replay_new(what_if, squeeze_ppm);
	struct decide_replay *reader = decide_replay_new(NULL, PPM);
	struct str line;

	while (str_cut(&text, '\n', &line)) {
		const struct decide_record *record;
		enum decide_result result, again;
		struct decide_change change;
		struct err err = ERR_INIT;
		int code = decide_replay_line(replay, line, &result, &change, &err);

		MUST(code <= 0 && (code == 0 || (err.code == (enum err_code) - code && err.text[0])));
		MUST(code == 0 || result == DECIDE_NO_CHOICE);
		MUST((result == DECIDE_OTHER && !what_if && squeeze_ppm == PPM) == (change.what[0] != 0));
		/* Reading has no memory of choices: it may refuse outputs that replay alone does not look at, but never crashes. */
		(void)decide_read_line(reader, line, &record, &err);
		if (code < 0 || decide_replay_record(replay)->kind == DECIDE_PLACE)
			continue;
		MUST(decide_replay_line(replay, line, &again, &change, &err) == 0 && again == result);
	}
	decide_replay_free(&reader);
	decide_replay_free(&replay);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct str text = { (const char *)data, size };

	if (asks_for_a_large_ring(text))
		return 0;
	replay_all(text, NULL, PPM);
	replay_all(text, profile_builtin("gateway"), PPM / 3);
	return 0;
}
