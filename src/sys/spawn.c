#include "sys/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/fs.h"

#define LOOK_US  (100 * MSEC_US)
#define GRACE_US (2 * SEC_US)
#define PIECE    ((size_t)16 * KIB)
/* Read before its time is looked at again: one that writes without end is not listened to without end. */
#define PIECES_MAX 16

/* A program that runs. */
struct child {
	pid_t pid;
	int pid_fd, input_fd, output_fd;
	size_t input_at;
};

static int make_pipe(int *ret_read_fd, int *ret_write_fd, struct err *err)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "cannot make a pipe");
	*ret_read_fd = fds[0];
	*ret_write_fd = fds[1];
	return 0;
}

/* Returns errno. */
static int start_with(const struct spawn *spawn, int input_fd, int output_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	int number = posix_spawn_file_actions_adddup2(&actions, input_fd, STDIN_FILENO);
	if (number == 0)
		number = posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO);
	if (number == 0)
		number = posix_spawn_file_actions_adddup2(&actions, output_fd, STDERR_FILENO);
	if (number == 0)
		number = posix_spawn_file_actions_addchdir_np(&actions, "/");
	/* What the process leaves open on purpose (a descriptor from its own parent, say) is not the program's business. */
	if (number == 0)
		number = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	if (number == 0)
		number = posix_spawn(ret_pid, spawn->argv[0], &actions, &attributes, (char *const *)spawn->argv,
				     (char *const *)spawn->env);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return number;
}

static int start(const struct spawn *spawn, struct child *child, struct err *err)
{
	AUTO(fs_close) int input_fd = -1;
	AUTO(fs_close) int output_fd = -1;

	int result = make_pipe(&input_fd, &child->input_fd, err);
	if (result == 0)
		result = make_pipe(&child->output_fd, &output_fd, err);
	if (result < 0)
		return result;
	(void)fcntl(child->input_fd, F_SETFL, O_NONBLOCK);
	(void)fcntl(child->output_fd, F_SETFL, O_NONBLOCK);
	int number = start_with(spawn, input_fd, output_fd, &child->pid);
	if (number != 0)
		return err_sys(err, ERR_SYSTEM, number, "cannot start '%.200s'", spawn->argv[0]);
	child->pid_fd = pidfd_open(child->pid, 0);
	return 0;
}

static void give_input(const struct spawn *spawn, struct child *child)
{
	ssize_t count = 0;

	if (child->input_fd < 0)
		return;
	while (child->input_at < spawn->input.size &&
	       (count = write(child->input_fd, spawn->input.data + child->input_at,
			      spawn->input.size - child->input_at)) > 0)
		child->input_at += (size_t)count;
	/* It need not read any of it. */
	if (child->input_at == spawn->input.size || (count < 0 && errno != EAGAIN && errno != EINTR))
		fs_close(&child->input_fd);
}

static void take_output(struct spawn *spawn, struct child *child)
{
	char piece[PIECE];
	ssize_t count = 0;

	if (child->output_fd < 0)
		return;
	for (unsigned i = 0; i < PIECES_MAX && (count = read(child->output_fd, piece, sizeof(piece))) > 0; i++) {
		size_t room = spawn->output.limit - spawn->output.size;

		spawn->is_output_cut |= (size_t)count > room;
		(void)buf_append(&spawn->output, (struct str){ piece, min_size((size_t)count, room) });
	}
	if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
		fs_close(&child->output_fd);
}

/* Until something happens, at most that long. */
static void wait_for_child(const struct child *child, int64_t wait_us)
{
	struct pollfd polls[] = { { .fd = child->pid_fd, .events = POLLIN },
				  { .fd = child->input_fd, .events = POLLOUT },
				  { .fd = child->output_fd, .events = POLLIN } };

	(void)poll(polls, COUNT_OF(polls), (int)(min_i64(wait_us, LOOK_US) / MSEC_US) + 1);
}

static int judge(const struct spawn *spawn, int status, struct err *err)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status))
		return err_set(err, ERR_REFUSED, "'%.200s' was ended by signal %d", spawn->argv[0], WTERMSIG(status));
	return err_set(err, ERR_REFUSED, "'%.200s' ended with %d", spawn->argv[0], WEXITSTATUS(status));
}

static int run(struct spawn *spawn, struct child *child, struct err *err)
{
	int64_t deadline_us = clock_mono_us() + spawn->timeout_us, kill_us = 0;
	int status = 0, result = 0;
	pid_t ended;

	/* What it started may hold its output open for ever: its own end is what counts. */
	while ((ended = waitpid(child->pid, &status, WNOHANG)) == 0) {
		int64_t now_us = clock_mono_us();
		bool is_interrupted = spawn->is_interrupted && atomic_load(spawn->is_interrupted);

		if (kill_us == 0 && (now_us >= deadline_us || is_interrupted)) {
			result = is_interrupted ? err_set(err, ERR_WAITING, "'%.200s' was interrupted", spawn->argv[0])
						: err_set(err, ERR_TIMEOUT, "'%.200s' did not end within %lld ms",
							  spawn->argv[0], (long long)(spawn->timeout_us / MSEC_US));
			(void)kill(-child->pid, SIGTERM);
			kill_us = now_us + GRACE_US;
		} else if (kill_us != 0 && now_us >= kill_us) {
			(void)kill(-child->pid, SIGKILL);
		}
		give_input(spawn, child);
		take_output(spawn, child);
		wait_for_child(child, kill_us != 0 ? max_i64(kill_us - now_us, MSEC_US) : deadline_us - now_us);
	}
	take_output(spawn, child);
	if (result < 0)
		(void)kill(-child->pid, SIGKILL); /* what it has started, where that is in its group */
	/* Where SIGCHLD is ignored the kernel keeps no child's end: what nobody knows is no success. */
	if (result == 0 && ended < 0)
		return err_set(err, ERR_SYSTEM, "how '%.200s' ended is not known: is SIGCHLD ignored?", spawn->argv[0]);
	return result < 0 ? result : judge(spawn, status, err);
}

int spawn_run(struct spawn *spawn, struct err *err)
{
	struct child child = { .pid_fd = -1, .input_fd = -1, .output_fd = -1 };

	buf_clear(&spawn->output);
	spawn->is_output_cut = false;
	int result = start(spawn, &child, err);
	if (result == 0)
		result = run(spawn, &child, err);
	fs_close(&child.pid_fd);
	fs_close(&child.input_fd);
	fs_close(&child.output_fd);
	return result;
}
