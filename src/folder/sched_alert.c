/* Alerts of the scheduler's own refusals and of its nodes': rows of kind "alert" in the audit. */
#include "folder/sched_impl.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"

#define ALERTS_BODY_MAX ((uint64_t)256 * KIB)

static int write_row(struct sched *sched, const struct alert *alert, struct err *err)
{
	char detail[ALERT_TEXT_SIZE + 96];
	const struct store_audit row = {
		.at_wall_us = clock_wall_us(),
		.kind = "alert",
		.transfer_id = alert->transfer_id[0] != '\0' ? alert->transfer_id : NULL,
		.user = alert->user[0] != '\0' ? alert->user : NULL,
		.node_id = alert->node_id[0] != '\0' ? alert->node_id : NULL,
		.client_addr = alert->client[0] != '\0' ? alert->client : NULL,
		.request_id = alert->request_id[0] != '\0' ? alert->request_id : NULL,
		.file_id = alert->file_id,
		.chunk_index = alert->chunk_index,
		.outcome = err_word(alert->code),
		.detail = detail,
	};

	alert_detail(alert, detail, sizeof(detail));
	return sched->store->ops->audit(sched->store, &row, err);
}

static int tell(void *owner, const struct alert *alerts, size_t count, struct err *err)
{
	int result = 0;

	for (size_t i = 0; result == 0 && i < count; i++)
		result = write_row(owner, &alerts[i], err);
	return result;
}

int sched_alerts_start(struct sched *sched, struct err *err)
{
	const struct alerts_options options = { .tell = tell, .owner = sched };

	return alerts_start(&options, &sched->alerts, err);
}

void sched_refused(void *app, const struct http_call *call, const struct err *err)
{
	struct sched *sched = app;
	const struct str id = http_param(call, "id");
	struct alert alert = { .code = err->code };
	char client[SOCK_TEXT_SIZE];

	/* Before the parts that it would use are there nothing is served. */
	alerts_count(sched->alerts, err->code);
	if (!alert_is_due(err->code))
		return;
	if (ulid_is_valid(id.data, id.size))
		(void)str_copy(id, alert.transfer_id, sizeof(alert.transfer_id));
	snprintf(alert.request_id, sizeof(alert.request_id), "%s", http_request_id(call));
	str_display(str_from(err->text), alert.text, sizeof(alert.text));
	alerts_note(sched->alerts, &alert, sock_addr_text(http_peer(call), client));
}

void sched_alert_foreign(struct sched_call *c, const struct store_transfer *transfer)
{
	struct alert alert = { .code = ERR_FORBIDDEN };
	char client[SOCK_TEXT_SIZE];

	snprintf(alert.transfer_id, sizeof(alert.transfer_id), "%s", transfer->id);
	snprintf(alert.user, sizeof(alert.user), "%s", c->user->name);
	snprintf(alert.request_id, sizeof(alert.request_id), "%s", http_request_id(c->call));
	snprintf(alert.text, sizeof(alert.text), "user '%s' asked for a transfer of user '%s'", c->user->name,
		 transfer->user);
	alerts_note(c->sched->alerts, &alert, sock_addr_text(http_peer(c->call), client));
}

/* --- those of nodes --- */

static bool text_of(const json_t *root, const char *key, char *target, size_t target_size)
{
	const json_t *value = json_object_get(root, key);

	target[0] = '\0';
	return json_is_string(value) &&
	       str_copy((struct str){ json_string_value(value), json_string_length(value) }, target, target_size);
}

static bool number_of(const json_t *root, const char *key, uint64_t *ret)
{
	const json_t *value = json_object_get(root, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret = (uint64_t)json_integer_value(value);
	return true;
}

static int read_alert(const json_t *root, struct alert *alert, struct err *err)
{
	char word[64];
	uint64_t first_us, last_us;

	memset(alert, 0, sizeof(*alert));
	if (!text_of(root, "error", word, sizeof(word)) || err_from_word(word, strlen(word)) == ERR_INTERNAL ||
	    !text_of(root, "client", alert->client, sizeof(alert->client)) ||
	    !text_of(root, "transfer_id", alert->transfer_id, sizeof(alert->transfer_id)) ||
	    !text_of(root, "request_id", alert->request_id, sizeof(alert->request_id)) ||
	    !text_of(root, "node_id", alert->node_id, sizeof(alert->node_id)) ||
	    !text_of(root, "text", alert->text, sizeof(alert->text)) || !number_of(root, "file_id", &alert->file_id) ||
	    !number_of(root, "chunk_index", &alert->chunk_index) || !number_of(root, "count", &alert->count) ||
	    alert->count == 0 || !number_of(root, "first_us", &first_us) || !number_of(root, "last_us", &last_us) ||
	    (alert->transfer_id[0] != '\0' && !ulid_is_valid(alert->transfer_id, strlen(alert->transfer_id))))
		return err_set(err, ERR_BAD_REQUEST, "an alert lacks a field, or has one that is none");
	alert->code = err_from_word(word, strlen(word));
	alert->first_wall_us = (int64_t)first_us;
	alert->last_wall_us = (int64_t)last_us;
	return 0;
}

static int take_alerts(struct sched_call *c, const json_t *list)
{
	struct alert alert;
	int result = 0;

	/* All are looked at before the first is written. One node speaks of no other's refusals. */
	if (!json_is_array(list) || json_array_size(list) > ALERT_SLOTS)
		return err_set(&c->err, ERR_BAD_REQUEST, "the body is no list of at most %u alerts", ALERT_SLOTS);
	for (size_t i = 0; result == 0 && i < json_array_size(list); i++) {
		result = read_alert(json_array_get(list, i), &alert, &c->err);
		if (result == 0)
			result = sched_check_node(c, alert.node_id);
	}
	for (size_t i = 0; result == 0 && i < json_array_size(list); i++) {
		result = read_alert(json_array_get(list, i), &alert, &c->err);
		if (result == 0)
			result = write_row(c->sched, &alert, &c->err);
	}
	return result;
}

static int run_alerts(struct sched_call *c)
{
	json_t *root = json_loadb(c->body.size != 0 ? c->body.data : "", c->body.size, JSON_REJECT_DUPLICATES, NULL);
	const int result = take_alerts(c, root);

	json_decref(root);
	if (result == 0)
		buf_append(&c->answer, STR("{}"));
	return result;
}

void sched_begin_alerts(struct http_call *call, void *app)
{
	struct sched_call *c = sched_internal_call(call, app, run_alerts);

	if (!c)
		return;
	c->body_limit_bytes = ALERTS_BODY_MAX;
	sched_call_go(c);
}
