/* Authorities and certificates for tests of TLS, in a folder of their own. After cmocka.h. */
#ifndef HENG_TEST_SYS_TLS_WORLD_H
#define HENG_TEST_SYS_TLS_WORLD_H

#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/fs.h"
#include "sys/tls.h"
#include "sys/tls_make.h"

#define DAY_US (24 * 3600 * SEC_US)

struct tls_world {
	char dir[64];
	struct buf ca, ca_key, other_ca, other_ca_key; /* two authorities */
};

static inline const char *tls_world_path(const struct tls_world *world, const char *name, char target[128])
{
	snprintf(target, 128, "%s/%s", world->dir, name);
	return target;
}

static inline void tls_world_write(const struct tls_world *world, const char *name, struct str text, mode_t mode)
{
	char path[128];
	struct err err = ERR_INIT;

	if (fs_replace_file(tls_world_path(world, name, path), text, mode, &err) < 0)
		fail_msg("%s", err.text);
}

/* NAME.pem and NAME.key, good from `begin_us` to `end_us` from now. */
static inline void tls_world_make(const struct tls_world *world, const char *name, bool is_other,
				  const char *const *names, int64_t begin_us, int64_t end_us)
{
	AUTO(buf_fini) struct buf certificate = BUF_INIT(64 * KIB);
	AUTO(buf_fini) struct buf key = BUF_INIT(64 * KIB);
	char file[64];
	struct err err = ERR_INIT;
	const struct tls_make facts = {
		.common_name = name,
		.names = names,
		.begin_wall_us = clock_wall_us() + begin_us,
		.end_wall_us = clock_wall_us() + end_us,
		.ca_certificate = buf_str(is_other ? &world->other_ca : &world->ca),
		.ca_key = buf_str(is_other ? &world->other_ca_key : &world->ca_key),
	};

	if (tls_make(&facts, &certificate, &key, &err) < 0)
		fail_msg("%s", err.text);
	snprintf(file, sizeof(file), "%s.pem", name);
	tls_world_write(world, file, buf_str(&certificate), 0644);
	snprintf(file, sizeof(file), "%s.key", name);
	tls_world_write(world, file, buf_str(&key), 0600);
}

static inline void tls_world_init(struct tls_world *world)
{
	struct err err = ERR_INIT;
	struct tls_make facts = { .begin_wall_us = clock_wall_us() - DAY_US,
				  .end_wall_us = clock_wall_us() + 10 * DAY_US };
	static const char *const names[] = { "dns:localhost", "ip:127.0.0.1", "ip:::1", "uri:heng:node:n1", NULL };

	*world = (struct tls_world){ .dir = "/tmp/heng-tls-XXXXXX",
				     .ca = BUF_INIT(64 * KIB),
				     .ca_key = BUF_INIT(64 * KIB),
				     .other_ca = BUF_INIT(64 * KIB),
				     .other_ca_key = BUF_INIT(64 * KIB) };
	assert_non_null(mkdtemp(world->dir));
	facts.common_name = "one authority";
	assert_int_equal(tls_make(&facts, &world->ca, &world->ca_key, &err), 0);
	facts.common_name = "another authority";
	assert_int_equal(tls_make(&facts, &world->other_ca, &world->other_ca_key, &err), 0);
	tls_world_write(world, "ca.pem", buf_str(&world->ca), 0644);
	tls_world_write(world, "other-ca.pem", buf_str(&world->other_ca), 0644);
	tls_world_make(world, "server", false, names, -DAY_US, 5 * DAY_US);
}

static inline void tls_world_fini(struct tls_world *world)
{
	struct err err = ERR_INIT;
	int root_fd = fs_open_dir("/tmp", &err);

	(void)fs_remove_tree(root_fd, world->dir + 5, &err);
	fs_close(&root_fd);
	buf_fini(&world->ca);
	buf_fini(&world->ca_key);
	buf_fini(&world->other_ca);
	buf_fini(&world->other_ca_key);
}

/* A holder of files of the world's folder; NULL names: none. Fails the test when they are not good. */
static inline struct tls *tls_world_open(const struct tls_world *world, const char *name, const char *ca,
					 const char *client_ca)
{
	char certificate[128] = "", key[128] = "", paths[2][128] = { "", "" }, file[64];
	struct tls *tls;
	struct err err = ERR_INIT;

	if (name) {
		snprintf(file, sizeof(file), "%s.pem", name);
		tls_world_path(world, file, certificate);
		snprintf(file, sizeof(file), "%s.key", name);
		tls_world_path(world, file, key);
	}
	const struct tls_files files = {
		.certificate = certificate,
		.key = key,
		.ca = ca ? tls_world_path(world, ca, paths[0]) : NULL,
		.client_ca = client_ca ? tls_world_path(world, client_ca, paths[1]) : NULL,
	};
	if (tls_new(&files, &tls, &err) < 0)
		fail_msg("%s", err.text);
	return tls;
}

#endif
