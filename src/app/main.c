#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/cmd.h"

/* Where a standard stream is closed, the next file that is opened takes its number, and what is said to people would be written into it. Opened the
 * wrong way round, so that reading and writing still fail. */
static int main_hold_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (main_hold_streams() < 0)
		return CMD_INCOMPLETE;
	/* A reader of our output or a peer that has gone is an error value where it happens, not the end of the process. */
	signal(SIGPIPE, SIG_IGN);
	/* Whoever started us may ignore it, and we would inherit that: then no child's end is ever told. */
	signal(SIGCHLD, SIG_DFL);
	const char *name = argc > 1 ? argv[1] : "help";
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	const struct cmd *cmd = cmd_find(name);
	if (cmd == NULL) {
		struct err err = ERR_INIT;
		err_set(&err, ERR_USAGE, "there is no such command");
		err_hint(&err, "heng help lists them");
		return cmd_fail(&err, "%s", name);
	}
	/* Without a word at all the help is printed, and yet nothing was done. */
	if (argc < 2) {
		char *words[] = { argv[0], NULL };
		(void)cmd_run(cmd, 1, words);
		return CMD_USAGE;
	}
	int code = cmd_run(cmd, argc - 1, argv + 1);
	if (fflush(stdout) != 0 && code == CMD_DONE) {
		fprintf(stderr, "heng: the output could not be written\n");
		return CMD_INCOMPLETE;
	}
	return code;
}
