#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "app/cmd.h"
#include "folder/decrypt.h"

const struct cmd_option cmd_decrypt_options[] = {
	{ "key-file", 0, "FILE", "the key that the files were encrypted with" },
	{ "path", 0, "PATH", "of a single file, within the folder that was pushed (its name)" },
	{ "quiet", 'q', NULL, "say nothing but failures" },
	{ .name = NULL },
};

static atomic_bool decrypt_is_stopped; /* set by the signal handler, read by the work */

static void decrypt_stop(int number)
{
	/* The second Ctrl-C ends the process at once, and leaves the hidden folder beside the target. */
	signal(number, SIG_DFL);
	decrypt_is_stopped = true;
}

static void decrypt_problem(void *owner, struct str path, const char *reason)
{
	char shown[600];

	(void)owner;
	fprintf(stderr, "heng: %s: %s\n", str_display(path, shown, sizeof(shown)), reason);
}

int cmd_decrypt_run(const struct cmd *cmd, int operand_count, char **operands, const char *const *values)
{
	(void)operand_count;
	struct err err = ERR_INIT;
	struct decrypt_result result = { 0 };
	const struct decrypt_options options = { .source = operands[0],
						 .target = operands[1],
						 .key_file = cmd_value(cmd, values, "key-file"),
						 .path = cmd_value(cmd, values, "path"),
						 .is_interrupted = &decrypt_is_stopped,
						 .problem = decrypt_problem };
	int r = 0;

	if (!options.key_file) {
		r = err_set(&err, ERR_USAGE, "no key");
		err_hint(&err, "name the file it is in: --key-file FILE");
	}
	signal(SIGINT, decrypt_stop);
	signal(SIGTERM, decrypt_stop);
	/* A terminal that goes away leaves no half a folder behind, and does not end what nohup started. */
	if (signal(SIGHUP, decrypt_stop) == SIG_IGN)
		signal(SIGHUP, SIG_IGN);
	if (r == 0)
		r = decrypt(&options, &result, &err);
	if (r < 0)
		return cmd_fail(&err, "decrypting '%s' stopped", operands[0]);
	if (!cmd_value(cmd, values, "quiet")) {
		char bytes[32], shown[600];
		printf("'%s' is complete: %llu %s, %s, each as it was sent\n",
		       str_display(str_from(operands[1]), shown, sizeof(shown)), (unsigned long long)result.files,
		       result.files == 1 ? "file" : "files", size_display(result.bytes, bytes, sizeof(bytes)));
	}
	return CMD_DONE;
}
