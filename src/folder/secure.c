#include "folder/secure.h"

#include "base/clock.h"
#include "base/log.h"
#include "folder/peer.h"

#define DAY_US   (24 * 3600 * SEC_US)
#define WARN_US  (30 * DAY_US)
#define AGAIN_US DAY_US

static bool is_given(const char *path) { return path && path[0] != '\0'; }

int secure_open(const struct secure_conf *conf, struct tls **ret_tls, struct err *err)
{
	const struct tls_files files = {
		.certificate = conf->certificate,
		.key = conf->key,
		.ca = conf->ca,
		.client_ca = conf->client_ca,
	};

	*ret_tls = NULL;
	if (!is_given(conf->certificate) && !is_given(conf->key) && !is_given(conf->ca) && !is_given(conf->client_ca))
		return 0;
	if (is_given(conf->client_ca) && !is_given(conf->certificate)) {
		err_set(err, ERR_CONFIG,
			"tls_client_ca without tls_certificate: nobody can show a certificate without TLS");
		return -ERR_CONFIG;
	}
	return tls_new(&files, ret_tls, err) < 0 ? err_wrap(err, "setting up TLS") : 0;
}

int secure_check_listen(const struct sock_addr *addr, const char *text, struct tls *tls, bool is_insecure,
			const char *what, struct err *err)
{
	if (sock_addr_is_loopback(addr) || is_insecure || (tls && tls_is_server(tls)))
		return 0;
	err_set(err, ERR_CONFIG, "listening on %s would show %s to a network without TLS", text, what);
	err_hint(err, "give it tls_certificate and tls_key, or listen on 127.0.0.1, or say 'insecure: true' where the "
		      "network "
		      "itself is trusted");
	return -ERR_CONFIG;
}

int secure_check_name(struct tls *tls, const char *node_id, struct err *err)
{
	struct tls_peer *own = tls && tls_has_ca(tls) ? tls_own(tls) : NULL;
	bool is_good = !own || (node_id ? peer_is_node(own, node_id) : peer_is_scheduler(own));

	free(own);
	if (is_good)
		return 0;
	err_set(err, ERR_CONFIG,
		"tls_certificate does not name the URI heng:%s%s, so that nobody in the cluster would believe it",
		node_id ? "node:" : "scheduler", node_id ? node_id : "");
	err_hint(err, "have it issued with that subjectAltName; docs/security.md shows how");
	return -ERR_CONFIG;
}

static void warn_of_expiry(struct secure_watch *watch, struct tls *tls)
{
	int64_t now_us = clock_wall_us(), left_us = tls_expiry_wall_us(tls) - now_us;
	char when[CLOCK_TEXT_SIZE];

	if (!tls_is_server(tls) || left_us > WARN_US ||
	    (watch->warned_wall_us != 0 && now_us - watch->warned_wall_us < AGAIN_US))
		return;
	watch->warned_wall_us = now_us;
	clock_text(now_us + left_us, when);
	if (left_us > 0)
		log_say(LOG_WARN, "the TLS certificate expires in %lld days, at %s", (long long)(left_us / DAY_US),
			when);
	else
		log_say(LOG_ERROR, "the TLS certificate has expired, at %s: it is refused from now on", when);
}

int secure_look(struct secure_watch *watch, struct tls *tls, bool is_forced)
{
	struct err err = ERR_INIT;
	char when[CLOCK_TEXT_SIZE];
	int result;

	if (!tls)
		return 0;
	result = tls_reload(tls, is_forced, &err);
	if (result < 0)
		log_err(LOG_ERROR, &err, "new TLS files cannot be used");
	if (result > 0) {
		watch->warned_wall_us = 0;
		if (tls_is_server(tls))
			log_say(LOG_INFO, "the TLS files were read anew; the certificate is good until %s",
				clock_text(tls_expiry_wall_us(tls), when));
		else
			log_say(LOG_INFO, "the TLS files were read anew");
	}
	warn_of_expiry(watch, tls);
	return result;
}
