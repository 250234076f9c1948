#include "app/up_tls.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/fs.h"
#include "sys/tls_make.h"

#define DAY_US       ((int64_t)24 * 3600 * SEC_US)
#define LIFE_US      (90 * DAY_US)
#define DUE_US       (30 * DAY_US)
#define CA_LIFE_US   (3650 * DAY_US)
#define CA_DUE_US    (2 * LIFE_US)
#define PEM_MAX      (64 * KIB)
#define NAME_SIZE    300
#define NAMES_MAX    8
#define CLOCK_OFF_US (3600 * SEC_US) /* other machines' clocks may be behind */

/* "dns:name" or "ip:address". */
static void name_of(const char *host, char target[NAME_SIZE])
{
	unsigned char address[sizeof(struct in6_addr)];
	bool is_address = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;

	snprintf(target, NAME_SIZE, "%s:%s", is_address ? "ip" : "dns", host);
}

/* The host of "host:port" or "[host]:port"; false when it is every address of the machine, or none that can stand in a certificate. */
static bool host_of(const char *listen, char target[NAME_SIZE])
{
	const char *colon = strrchr(listen, ':');
	struct str host = { listen, colon ? (size_t)(colon - listen) : 0 };

	if (host.size > 2 && host.data[0] == '[' && host.data[host.size - 1] == ']')
		host = (struct str){ host.data + 1, host.size - 2 };
	return str_copy(host, target, NAME_SIZE) && target[0] != '\0' && strcmp(target, "0.0.0.0") != 0 &&
	       strcmp(target, "::") != 0 && !strchr(target, ',');
}

static int file_path(const char *dir, const char *name, const char *suffix, char target[PATH_MAX], struct err *err)
{
	if (snprintf(target, PATH_MAX, "%s/%s.%s", dir, name, suffix) >= PATH_MAX)
		return err_set(err, ERR_USAGE, "the path of --data is too long");
	return 0;
}

/* The key first: a role that looks in between keeps what it has. */
static int write_pair(const char *dir, const char *name, const struct buf *certificate, const struct buf *key,
		      struct err *err)
{
	char path[PATH_MAX];
	int r = file_path(dir, name, "key", path, err);

	if (r == 0)
		r = fs_replace_file(path, buf_str(key), 0600, err);
	if (r == 0)
		r = file_path(dir, name, "pem", path, err);
	return r < 0 ? r : fs_replace_file(path, buf_str(certificate), 0644, err);
}

/* Empty when there is none. */
static int read_pem(const char *dir, const char *name, const char *suffix, struct buf *ret_text, struct err *err)
{
	char path[PATH_MAX];
	int r = file_path(dir, name, suffix, path, err);

	if (r < 0 || access(path, F_OK) < 0)
		return r;
	return fs_read_file(path, PEM_MAX, ret_text, err);
}

static void wipe(struct buf *text)
{
	if (text->data)
		mem_wipe(text->data, text->size);
	buf_fini(text);
}

/* 1: a new one was made. */
static int open_authority(const char *dir, struct buf *certificate, struct buf *key, struct err *err)
{
	int64_t now_us = clock_wall_us();
	const struct tls_make facts = {
		.common_name = "heng up",
		.begin_wall_us = now_us - CLOCK_OFF_US,
		.end_wall_us = now_us + CA_LIFE_US,
	};
	int r = read_pem(dir, "ca", "pem", certificate, err);

	if (r == 0)
		r = read_pem(dir, "ca", "key", key, err);
	if (r < 0)
		return r;
	if (key->size > 0 && tls_pem_expiry_wall_us(buf_str(certificate)) > now_us + CA_DUE_US)
		return 0;
	wipe(certificate);
	wipe(key);
	r = tls_make(&facts, certificate, key, err);
	if (r == 0)
		r = write_pair(dir, "ca", certificate, key, err);
	return r < 0 ? r : 1;
}

static int make_role(const char *dir, const char *role, const char *const *names, const struct buf *ca,
		     const struct buf *ca_key, struct err *err)
{
	struct buf certificate = BUF_INIT(PEM_MAX), key = BUF_INIT(PEM_MAX);
	int64_t now_us = clock_wall_us();
	const struct tls_make facts = {
		.common_name = role,
		.names = names,
		.begin_wall_us = now_us - CLOCK_OFF_US,
		.end_wall_us = now_us + LIFE_US,
		.ca_certificate = buf_str(ca),
		.ca_key = buf_str(ca_key),
	};
	int r = tls_make(&facts, &certificate, &key, err);

	if (r == 0)
		r = write_pair(dir, role, &certificate, &key, err);
	buf_fini(&certificate);
	wipe(&key);
	return r;
}

static int make_roles(const char *dir, const char *listen, uint64_t node_count, const struct buf *ca,
		      const struct buf *ca_key, struct err *err)
{
	char host[NAME_SIZE], machine[NAME_SIZE] = "", words[2][NAME_SIZE], role[32], uri[64];
	const char *names[NAMES_MAX] = { "uri:heng:scheduler", "dns:localhost", "ip:127.0.0.1", "ip:::1" };
	size_t count = 4;

	if (host_of(listen, host)) {
		name_of(host, words[0]);
		names[count++] = words[0];
	}
	if (gethostname(machine, sizeof(machine) - 1) == 0 && machine[0] != '\0' && !strchr(machine, ',')) {
		name_of(machine, words[1]);
		names[count++] = words[1];
	}
	MUST(count < NAMES_MAX);
	int r = make_role(dir, "scheduler", names, ca, ca_key, err);
	for (uint64_t i = 1; r == 0 && i <= node_count; i++) {
		snprintf(role, sizeof(role), "n%llu", (unsigned long long)i);
		snprintf(uri, sizeof(uri), "uri:heng:node:%s", role);
		names[0] = uri;
		r = make_role(dir, role, names, ca, ca_key, err);
	}
	return r;
}

static int is_due(const char *dir, struct err *err)
{
	AUTO(buf_fini) struct buf certificate = BUF_INIT(PEM_MAX);
	int r = read_pem(dir, "scheduler", "pem", &certificate, err);

	/* All of them are made together. */
	return r < 0 ? r : tls_pem_expiry_wall_us(buf_str(&certificate)) < clock_wall_us() + DUE_US;
}

int up_tls_make(const char *dir, const char *listen, uint64_t node_count, bool is_start, struct err *err)
{
	struct buf ca = BUF_INIT(PEM_MAX), ca_key = BUF_INIT(PEM_MAX);
	int r = fs_make_dirs(dir, err);

	if (r == 0)
		r = open_authority(dir, &ca, &ca_key, err);
	if (r == 0 && !is_start)
		r = is_due(dir, err);
	if (r > 0 || (r == 0 && is_start)) {
		r = make_roles(dir, listen, node_count, &ca, &ca_key, err);
		if (r == 0 && !is_start)
			log_say(LOG_INFO, "the certificates were renewed");
	}
	buf_fini(&ca);
	wipe(&ca_key);
	return r < 0 ? err_wrap(err, "making certificates in '%s'", dir) : 0;
}
