#include <stdatomic.h>

#include <jansson.h>

#include "folder/courier_inside.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

#define PROBE_SILENCE_US (10 * SEC_US)
#define INTERVAL_MIN_US  (SEC_US / 10)
#define INTERVAL_MAX_US  (60 * SEC_US)

static void fill_register_call(struct courier *courier)
{
	struct json json;

	buf_clear(&courier->register_body);
	json_init(&json, &courier->register_body);
	json_open(&json, NULL);
	json_c(&json, "node_id", courier->node.id);
	json_c(&json, "addr", courier->node.addr);
	json_c(&json, "incarnation", courier->node.incarnation);
	json_u64(&json, "weight_milli", courier->node.weight_milli);
	json_c(&json, "domain", courier->node.domain);
	json_close(&json);
	fetch_call_post(&courier->register_call, courier->register_url, internal_key_header(courier->internal_key),
			"Content-Type: application/json", buf_str(&courier->register_body));
	courier->register_call.connect_timeout_us = COURIER_CONNECT_TIMEOUT_US;
	courier->register_call.timeout_us = COURIER_CALL_TIMEOUT_US;
	courier->register_call.owner = courier;
	courier->registered_mono_us = clock_mono_us();
}

static void take_interval(struct courier *courier, struct str body)
{
	json_t *root = json_loadb(body.data ? body.data : "", body.size, JSON_REJECT_DUPLICATES, NULL);
	const json_t *interval = json_object_get(root, "probe_interval_us");

	if (json_is_integer(interval))
		courier->interval_us = max_i64(INTERVAL_MIN_US, min_i64(json_integer_value(interval), INTERVAL_MAX_US));
	json_decref(root);
}

static void register_done(struct fetch *fetch UNUSED, struct fetch_call *call)
{
	struct courier *courier = call->owner;

	courier->is_registering = false;
	if (call->status >= 200 && call->status < 300 && call->err.code == ERR_NONE) {
		if (!courier->is_registered)
			log_say(LOG_INFO, "registered with the scheduler as '%s' at %s", courier->node.id,
				courier->node.addr);
		courier->is_registered = true;
		take_interval(courier, buf_str(&call->answer));
		courier_post_hurry(courier);
		return;
	}
	/* Said at each attempt when the scheduler itself refuses: an operator has to do something about it. */
	if (call->status != 0)
		log_err(LOG_ERROR, &call->err, "the scheduler refused to register this node");
	courier->is_registered = false;
}

static bool should_register(const struct courier *courier, int64_t now_us)
{
	const int64_t since_us = now_us - courier->registered_mono_us;

	if (courier->is_registering)
		return false;
	if (!courier->is_registered)
		return since_us >= courier->interval_us;
	return since_us >= PROBE_SILENCE_US && now_us - atomic_load(&courier->probed_mono_us) >= PROBE_SILENCE_US;
}

int courier_register_first(struct courier *courier, struct err *err)
{
	int r;

	fill_register_call(courier);
	r = fetch_do(courier->fetch, &courier->register_call, err);
	if (r == 0) {
		courier->is_registered = true;
		take_interval(courier, buf_str(&courier->register_call.answer));
		return 0;
	}
	/* No answer, or a scheduler that is in trouble itself: it may be back later. Anything else is about us. */
	if (courier->register_call.status == 0 || courier->register_call.status >= 500) {
		log_err(LOG_WARN, err, "cannot register with the scheduler yet, trying on");
		courier->is_reachable = false;
		courier_note_failure(courier, err, false, clock_mono_us());
		return 0;
	}
	return err_wrap(err, "the scheduler at %s refused to register node '%s'", courier->register_url,
			courier->node.id);
}

void courier_register_step(struct courier *courier, int64_t now_us)
{
	if (!should_register(courier, now_us))
		return;
	fill_register_call(courier);
	courier->register_call.done = register_done;
	courier->is_registering = true;
	fetch_start(courier->fetch, &courier->register_call);
}
