/* Pushes a folder with libheng, shows how far it is, and says what came of it. Ctrl-C stops it; the same command again continues.
 *
 *   cc -std=c99 push.c -o push $(pkg-config --cflags --libs heng)
 *   ./push http://127.0.0.1:7080 /srv/heng/uploader.key /path/to/batch */
#include <heng.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct heng_op *running;

/* heng_stop may be called here: it only sets a flag. */
static void on_interrupt(int number)
{
	(void)number;
	heng_stop(running);
}

/* In this thread, about ten times a second. What a progress line needs is asked for by key. */
static void on_progress(void *owner, const struct heng_op *op)
{
	const char *waiting = heng_text(op, HENG_WAITING_FOR);

	(void)owner;
	fprintf(stderr, "\r%-6s %llu of %llu bytes %s", heng_text(op, HENG_PHASE),
		(unsigned long long)heng_number(op, HENG_BYTES_DONE), (unsigned long long)heng_number(op, HENG_BYTES),
		waiting);
}

static void on_notice(void *owner, const char *line)
{
	(void)owner;
	fprintf(stderr, "\n%s\n", line);
}

/* An entry that cannot be sent. A path is bytes: whoever shows it on a terminal should escape what is not printable. */
static void on_problem(void *owner, const char *kind, const char *path, size_t path_size, const char *words)
{
	(void)owner;
	(void)kind;
	fprintf(stderr, "\n");
	fwrite(path, 1, path_size, stderr);
	fprintf(stderr, ": %s", words);
}

/* Every failure says what happened, what to do, and which of five kinds it is: the exit code of the heng command. */
static int fail(const char *what, struct heng_error *error)
{
	int result = heng_error_result(error);

	fprintf(stderr, "\n%s: %s\n", what, heng_error_text(error));
	if (heng_error_hint(error)[0] != '\0')
		fprintf(stderr, "hint: %s\n", heng_error_hint(error));
	fprintf(stderr, "code: HENG-%d (%s)\n", heng_error_code(error), heng_error_word(error));
	heng_error_free(error);
	return result;
}

int main(int argc, char **argv)
{
	struct heng_client *client;
	struct heng_op *op;
	struct heng_error *error;
	int result;

	if (argc != 4) {
		fprintf(stderr, "usage: push URL KEY_FILE FOLDER\n");
		return HENG_USAGE;
	}
	if (heng_client_new_key_file(&client, argv[1], argv[2], &error) != HENG_DONE)
		return fail("the scheduler's address or the key", error);
	op = heng_op_new(client);
	heng_client_free(client); /* op keeps what it needs */
	if (op == NULL)
		return HENG_INCOMPLETE;
	heng_op_on_progress(op, on_progress, NULL);
	heng_op_on_notice(op, on_notice, NULL);
	heng_op_on_problem(op, on_problem, NULL);
	running = op;
	signal(SIGINT, on_interrupt);

	if (heng_op_set(op, "parallel", "4", &error) != HENG_DONE)
		result = fail("an option", error);
	else if (heng_push(op, argv[3], &error) != HENG_DONE)
		result = fail("the push", error);
	else {
		printf("transfer %s: %llu files at %s\n", heng_text(op, HENG_TRANSFER_ID),
		       (unsigned long long)heng_number(op, HENG_FILES), heng_text(op, HENG_FINAL));
		result = HENG_DONE;
	}
	signal(SIGINT, SIG_DFL); /* before what it would stop is gone */
	heng_op_free(op);
	return result;
}
