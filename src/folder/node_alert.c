/* Alerts of the node's refusals, told to the scheduler, which writes them into the audit. */
#include <stdio.h>
#include <string.h>

#include "folder/node_inside.h"
#include "base/json.h"
#include "sys/fetch.h"

#define BODY_MAX   (256 * KIB)
#define ANSWER_MAX (16 * KIB)
#define TIMEOUT_US (3 * SEC_US)
#define URL_SIZE   512

static void write_alerts(struct buf *body, const struct alert *alerts, size_t count)
{
	buf_append(body, STR("["));
	for (size_t i = 0; i < count; i++) {
		const struct alert *alert = &alerts[i];
		struct json json;

		if (i > 0)
			buf_append(body, STR(","));
		json_init(&json, body);
		json_open(&json, NULL);
		json_c(&json, "error", err_word(alert->code));
		json_c(&json, "client", alert->client);
		json_c(&json, "transfer_id", alert->transfer_id);
		json_u64(&json, "file_id", alert->file_id);
		json_u64(&json, "chunk_index", alert->chunk_index);
		json_c(&json, "node_id", alert->node_id);
		json_c(&json, "request_id", alert->request_id);
		json_c(&json, "text", alert->text);
		json_u64(&json, "count", alert->count);
		json_i64(&json, "first_us", alert->first_wall_us);
		json_i64(&json, "last_us", alert->last_wall_us);
		json_close(&json);
	}
	buf_append(body, STR("]"));
}

static int tell(void *owner, const struct alert *alerts, size_t count, struct err *err)
{
	struct node *node = owner;
	struct buf body = BUF_INIT(BODY_MAX);
	struct fetch_call call;
	struct fetch *fetch = NULL;
	char url[URL_SIZE];
	int r = internal_fetch_new(&node->keyring.internal, &fetch, err);

	if (r < 0)
		return r;
	write_alerts(&body, alerts, count);
	snprintf(url, sizeof(url), "%s/internal/v1/alerts", node->scheduler_url);
	call = FETCH_CALL_INIT;
	fetch_call_post(&call, url, internal_key_header(&node->keyring.internal), "Content-Type: application/json",
			buf_str(&body));
	call.connect_timeout_us = call.timeout_us = TIMEOUT_US;
	call.answer = BUF_INIT(ANSWER_MAX);
	r = body.is_failed ? err_set(err, ERR_NO_MEMORY, "no memory for alerts") : fetch_do(fetch, &call, err);
	buf_fini(&call.answer);
	buf_fini(&body);
	fetch_free(&fetch);
	return r < 0 ? err_wrap(err, "telling the scheduler") : 0;
}

int node_alerts_start(struct node *node, struct err *err)
{
	const struct alerts_options options = { .tell = tell, .owner = node };

	return alerts_start(&options, &node->alerts, err);
}

void node_alert(struct node *node, const struct http_call *call, const struct err *err)
{
	const struct str transfer_id = http_param(call, "transfer");
	struct alert alert = { .code = err->code };
	char client[SOCK_TEXT_SIZE];

	if (ulid_is_valid(transfer_id.data, transfer_id.size))
		(void)str_copy(transfer_id, alert.transfer_id, sizeof(alert.transfer_id));
	if (!str_to_u64(http_param(call, "file"), &alert.file_id) || alert.file_id > INT64_MAX)
		alert.file_id = 0;
	if (!str_to_u64(http_param(call, "chunk"), &alert.chunk_index) || alert.chunk_index > INT64_MAX)
		alert.chunk_index = 0;
	snprintf(alert.node_id, sizeof(alert.node_id), "%s", node->id);
	snprintf(alert.request_id, sizeof(alert.request_id), "%s", http_request_id(call));
	str_display(str_from(err->text), alert.text, sizeof(alert.text));
	alerts_note(node->alerts, &alert, sock_addr_text(http_peer(call), client));
}

void node_refused(void *app, const struct http_call *call, const struct err *err)
{
	struct node *node = app;

	alerts_count(node->alerts, err->code);
	if (alert_is_due(err->code))
		node_alert(node, call, err);
}
