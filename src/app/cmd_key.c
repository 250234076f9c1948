#include "app/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/cmd.h"
#include "base/mem.h"
#include "base/rng.h"
#include "folder/users.h"
#include "sys/fs.h"

#define SECRET_SIZE 32

const struct cmd_option cmd_key_options[] = {
	{ "role", 0, "ROLE", "uploader, auditor or operator (uploader)" },
	{ "expires", 0, "DATE", "the last day (2027-03-31) or moment (2027-03-31T18:00:00Z), UTC; never without it" },
	{ "out", 'o', "FILE", "write the key into a new file of mode 0600 instead of printing it" },
	{ .name = NULL },
};

void key_make(char target[KEY_TEXT_SIZE])
{
	uint8_t bytes[4 + SECRET_SIZE];

	rng_secret(bytes, sizeof(bytes));
	hex_encode(bytes, 4, target);
	target[KEY_ID_SIZE - 1] = '.';
	MUST(base64url_encode(bytes + 4, SECRET_SIZE, target + KEY_ID_SIZE, KEY_TEXT_SIZE - KEY_ID_SIZE) ==
	     KEY_TEXT_SIZE - KEY_ID_SIZE - 1);
	mem_wipe(bytes, sizeof(bytes));
}

bool key_id(struct str key, char target[KEY_ID_SIZE])
{
	struct str id;

	return memchr(key.data, '.', key.size) && str_cut(&key, '.', &id) && id.size == KEY_ID_SIZE - 1 &&
	       str_copy(id, target, KEY_ID_SIZE);
}

/* A name in double quotes, as YAML reads it. */
static void print_name(const char *name)
{
	printf("  - name: \"");
	for (const char *c = name; *c != '\0'; c++)
		printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
	printf("\"\n");
}

/* A key that is there is somebody's: never written over. */
static int write_new(const char *path, const char *key, struct err *err)
{
	AUTO(fs_close) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	char line[KEY_TEXT_SIZE + 1];

	if (fd < 0) {
		err_sys(err, ERR_USAGE, errno, "cannot make the key file '%s'", path);
		err_hint(err, "a file that is there is never written over: choose another one");
		return -ERR_USAGE;
	}
	snprintf(line, sizeof(line), "%s\n", key);
	int r = fs_write_all(fd, line, strlen(line), 0, err);
	mem_wipe(line, sizeof(line));
	if (r == 0 && fsync(fd) < 0)
		r = err_sys(err, ERR_SYSTEM, errno, "cannot keep the key file '%s'", path);
	if (r < 0)
		(void)unlink(path);
	return r;
}

static int check(const struct cmd *cmd, int operand_count, char **operands, const char *const *values, int *ret_role,
		 struct err *err)
{
	static const char *const roles[] = { "uploader", "auditor", "operator", NULL };
	const char *expires = cmd_value(cmd, values, "expires");
	int64_t expires_wall_us;

	(void)operand_count;
	if (strcmp(operands[0], "new") != 0)
		return err_set(err, ERR_USAGE, "'%s' is nothing to do with a key: heng key new NAME", operands[0]);
	if (!users_name_is_valid(str_from(operands[1])))
		return err_set(err, ERR_USAGE, "a user's name is 1 to 64 bytes of UTF-8 without control characters");
	if (expires && (expires[0] == '\0' || !users_expiry(str_from(expires), &expires_wall_us)))
		return err_set(err, ERR_USAGE,
			       "--expires '%s' is neither a day such as 2027-03-31 nor a moment such as "
			       "2027-03-31T18:00:00Z",
			       expires);
	return cmd_choice(cmd, values, "role", roles, ret_role, err);
}

int cmd_key_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	static const char *const roles[] = { "uploader", "auditor", "operator" };
	const char *out = cmd_value(cmd, values, "out"), *expires = cmd_value(cmd, values, "expires");
	char key[KEY_TEXT_SIZE], id[KEY_ID_SIZE], hash[ARGON_TEXT_SIZE];
	struct err err = ERR_INIT;
	int role = ROLE_UPLOADER;
	int r = check(cmd, operand_count, operands, values, &role, &err);

	if (r == 0) {
		key_make(key);
		r = argon_hash(str_from(key), hash, &err);
	}
	if (r == 0 && out)
		r = write_new(out, key, &err);
	if (r < 0)
		return cmd_fail(&err, "key");
	MUST(key_id(str_from(key), id));
	if (!out)
		printf("# The key, shown this once; the user keeps it in a file (HENG_KEY_FILE):\n%s\n", key);
	mem_wipe(key, sizeof(key));
	printf("# For `users` of the scheduler's configuration; then SIGHUP:\n");
	print_name(operands[1]);
	printf("    key_id: \"%s\"\n    key_argon2: \"%s\"\n    role: %s\n", id, hash, roles[role]);
	if (expires)
		printf("    expires: \"%s\"\n", expires);
	return CMD_DONE;
}
