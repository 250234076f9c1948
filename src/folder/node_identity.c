/* Who a node is: its name, and the random word that tells it from a replacement with the same name. Both are kept in its state folder. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "folder/node_inside.h"
#include "sys/fs.h"

#define SMALL_FILE_MAX 256
#define FILE_MODE      0600

bool node_id_is_valid(const char *id)
{
	const size_t size = strlen(id);

	return size > 0 && size < STORE_NODE_ID_SIZE &&
	       strspn(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-") == size;
}

/* Reads dir/name into target (one line); when it is not there, writes `fresh` there durably and takes that. */
static int keep_text(const char *dir, const char *name, const char *fresh, char *target, size_t target_size,
		     struct err *err)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(SMALL_FILE_MAX);
	char path[PATH_MAX], line[SMALL_FILE_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return err_set(err, ERR_CONFIG, "state_dir is too long");
	if (fs_read_file(path, SMALL_FILE_MAX, &text, err) < 0) {
		if (!err || err->sys_errno != ENOENT)
			return -ERR_SYSTEM;
		(void)snprintf(line, sizeof(line), "%s\n", fresh);
		if (fs_replace_file(path, str_from(line), FILE_MODE, err) < 0)
			return -(int)err->code;
		*err = ERR_INIT;
		return str_copy(str_from(fresh), target, target_size)
			       ? 0
			       : err_set(err, ERR_INTERNAL, "'%s' does not fit", name);
	}
	struct str rest = buf_str(&text), first = STR_NONE;
	(void)str_cut(&rest, '\n', &first);
	if (first.size == 0 || !str_copy(first, target, target_size)) {
		err_set(err, ERR_CONFIG, "'%s' does not hold what this node once wrote there", path);
		err_hint(err, "restore it, or remove it to make this a new node");
		return -ERR_CONFIG;
	}
	return 0;
}

int node_open_identity(struct node *node, const struct node_conf *conf, struct err *err)
{
	uint8_t secret[16];
	char hex[2 * sizeof(secret) + 1], made[32];
	int r;

	rng_secret(secret, sizeof(secret));
	hex_encode(secret, sizeof(secret), hex);
	(void)snprintf(made, sizeof(made), "node-%.10s", hex);
	if (conf->node_id[0] != '\0' && !node_id_is_valid(conf->node_id))
		return err_set(err, ERR_CONFIG, "node_id is not 1 to 64 of A-Z a-z 0-9 . _ -");
	r = keep_text(conf->state_dir, "node_id", conf->node_id[0] != '\0' ? conf->node_id : made, node->id,
		      sizeof(node->id), err);
	if (r < 0)
		return r;
	if (!node_id_is_valid(node->id) || (conf->node_id[0] != '\0' && strcmp(conf->node_id, node->id) != 0)) {
		char shown[128];

		err_set(err, ERR_CONFIG, "the state_dir '%s' is that of node '%s'", conf->state_dir,
			str_display(str_from(node->id), shown, sizeof(shown)));
		err_hint(err, "give each node a state_dir of its own, or node_id its old value");
		return -ERR_CONFIG;
	}
	rng_secret(secret, sizeof(secret));
	hex_encode(secret, sizeof(secret), hex);
	r = keep_text(conf->state_dir, "incarnation", hex, node->incarnation, sizeof(node->incarnation), err);
	if (r == 0 && !hex_decode(str_from(node->incarnation), secret, sizeof(secret)))
		r = err_set(err, ERR_CONFIG, "'%s/incarnation' is not 32 hex digits", conf->state_dir);
	rng_secret(secret, sizeof(secret));
	hex_encode(secret, sizeof(secret), node->start_id);
	return r;
}
