#include "app/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "sys/fs.h"

#define BOOT_BACKOFF_US     (200 * MSEC_US)
#define BOOT_BACKOFF_MAX_US (5 * SEC_US)
/* A child that lived this long has started well: its next death is a new story. */
#define BOOT_WELL_US (10 * SEC_US)
#define BOOT_KILL_US (1 * SEC_US) /* how long SIGKILL may take */

int64_t boot_restart_delay_us(int64_t restart_after_us, unsigned quick_death_count)
{
	if (restart_after_us == BOOT_NEVER)
		return BOOT_NEVER;
	/* The first death is answered at once; when it keeps dying soon after its start, ever later. */
	int64_t backoff_us = 0;
	if (quick_death_count > 1)
		backoff_us = quick_death_count > 6
				     ? BOOT_BACKOFF_MAX_US
				     : min_i64(BOOT_BACKOFF_MAX_US, BOOT_BACKOFF_US << (quick_death_count - 2));
	return max_i64(restart_after_us, backoff_us);
}

void boot_raise_file_limit(void)
{
	struct rlimit limit;
	/* Without it the server works too, with fewer connections. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int boot_init(struct boot *boot, size_t child_count, struct err *err)
{
	sigset_t signals;
	*boot = (struct boot){ .signal_fd = -1 };
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	boot->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (boot->signal_fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "opening a descriptor for signals");
	boot->children = must_zalloc(child_count, sizeof(*boot->children));
	boot->child_count = child_count;
	for (size_t i = 0; i < child_count; i++)
		boot->children[i].ready_fd = -1;
	return 0;
}

void boot_fini(struct boot *boot)
{
	for (size_t i = 0; i < boot->child_count; i++) {
		fs_close(&boot->children[i].ready_fd);
		free(boot->children[i].conf_path);
		free(boot->children[i].log_path);
	}
	free(boot->children);
	fs_close(&boot->signal_fd);
}

/* In the child, between fork and exec: nothing that allocates or locks. */
_Noreturn static void boot_become(const struct boot_child *child, pid_t parent, int log_fd, int ready_fd,
				  char *const *env)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* The children must not outlive their supervisor, even when it is killed with -9. It may have died before this call: then somebody
	 * else is the parent by now, and nobody would ever send the signal. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	if (dup2(log_fd, STDOUT_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0 || fcntl(ready_fd, F_SETFD, 0) < 0)
		_exit(127);
	char *argv[] = { (char[]){ "heng" }, (char *)child->command, (char[]){ "-c" }, child->conf_path, NULL };
	execve("/proc/self/exe", argv, env);
	_exit(127);
}

/* Our environment with HENG_READY_FD in it. The caller frees the list, not the words. */
static char **boot_env(char *ready_word)
{
	size_t count = 0, kept = 0;
	while (environ[count] != NULL)
		count++;
	char **env = must_zalloc(count + 2, sizeof(*env));
	for (size_t i = 0; i < count; i++) {
		if (strncmp(environ[i], "HENG_READY_FD=", 14) != 0)
			env[kept++] = environ[i];
	}
	env[kept] = ready_word;
	return env;
}

int boot_start(struct boot *boot, struct boot_child *child, struct err *err)
{
	(void)boot;
	int pipe_fds[2];
	AUTO(fs_close) int log_fd = open(child->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log_fd < 0)
		return err_sys(err, ERR_SYSTEM, errno, "opening the log '%s'", child->log_path);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_sys(err, ERR_SYSTEM, errno, "making a pipe for %s", child->name);
	char ready_word[40];
	snprintf(ready_word, sizeof(ready_word), "HENG_READY_FD=%d", pipe_fds[1]);
	char **env = boot_env(ready_word);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0)
		boot_become(child, parent, log_fd, pipe_fds[1], env);
	int fork_errno = errno;
	free(env);
	close(pipe_fds[1]);
	if (pid < 0) {
		close(pipe_fds[0]);
		return err_sys(err, ERR_SYSTEM, fork_errno, "starting %s", child->name);
	}
	(void)fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
	fs_close(&child->ready_fd);
	child->ready_fd = pipe_fds[0];
	child->ready_text[0] = '\0';
	child->addr[0] = '\0';
	child->pid = pid;
	child->started_us = clock_mono_us();
	child->due_us = 0;
	child->start_count++;
	return 0;
}

/* The child's word where it serves: one line. */
static void boot_hear(struct boot_child *child)
{
	size_t size = strlen(child->ready_text);
	ssize_t got = read(child->ready_fd, child->ready_text + size, sizeof(child->ready_text) - 1 - size);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0) {
		child->ready_text[size + (size_t)got] = '\0';
		char *end = strchr(child->ready_text, '\n');
		if (end == NULL && size + (size_t)got < sizeof(child->ready_text) - 1)
			return;
		if (end != NULL) {
			*end = '\0';
			memcpy(child->addr, child->ready_text, sizeof(child->addr));
		}
	}
	fs_close(&child->ready_fd);
}

void boot_describe_end(const struct boot_child *child, char *target, size_t target_size)
{
	char last[300] = "";
	struct buf text = BUF_INIT(64 * MIB);
	struct err err = ERR_INIT;
	if (fs_read_file(child->log_path, text.limit, &text, &err) == 0 && text.size > 1) {
		struct str log = buf_str(&text);
		while (log.size > 0 && log.data[log.size - 1] == '\n')
			log.size--;
		/* The last lines, where a failure to start stands with its hint and code. */
		size_t start = log.size;
		for (unsigned lines = 0; start > 0; start--) {
			if (log.data[start - 1] == '\n' && ++lines == 3)
				break;
		}
		str_display((struct str){ log.data + start, log.size - start }, last, sizeof(last));
	}
	buf_fini(&text);
	if (WIFSIGNALED(child->wait_status))
		snprintf(target, target_size, "%s was killed by signal %d; its log ends: %s", child->name,
			 WTERMSIG(child->wait_status), last);
	else
		snprintf(target, target_size, "%s exited with %d; its log ends: %s", child->name,
			 WEXITSTATUS(child->wait_status), last);
}

static void boot_died(struct boot *boot, struct boot_child *child, int wait_status, int64_t now_us)
{
	child->pid = 0;
	child->wait_status = wait_status;
	if (child->ready_fd >= 0)
		boot_hear(child);
	fs_close(&child->ready_fd);
	child->quick_death_count = now_us - child->started_us < BOOT_WELL_US ? child->quick_death_count + 1 : 0;
	if (boot->is_told_to_stop)
		return;
	int64_t delay_us = boot_restart_delay_us(boot->is_settled ? child->restart_after_us : 0,
						 child->quick_death_count);
	child->due_us = delay_us == BOOT_NEVER ? 0 : now_us + delay_us;
	if (WIFSIGNALED(wait_status)) {
		log_say(LOG_WARN, "%s was killed by signal %d", child->name, WTERMSIG(wait_status));
		return;
	}
	/* Why it gave up is in its log; whoever waits for it to start should not have to look there. */
	char text[400];
	boot_describe_end(child, text, sizeof(text));
	log_say(LOG_WARN, "%s", text);
}

static void boot_reap(struct boot *boot)
{
	int wait_status;
	pid_t pid;
	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
		for (size_t i = 0; i < boot->child_count; i++) {
			if (boot->children[i].pid == pid)
				boot_died(boot, &boot->children[i], wait_status, clock_mono_us());
		}
	}
}

static void boot_take_signals(struct boot *boot)
{
	struct signalfd_siginfo info;
	while (read(boot->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			boot->is_told_to_stop = true;
	}
	boot_reap(boot);
}

int boot_step(struct boot *boot, int64_t timeout_us, struct err *err)
{
	struct pollfd *polls = must_zalloc(boot->child_count + 1, sizeof(*polls));
	int64_t now_us = clock_mono_us();
	polls[0] = (struct pollfd){ .fd = boot->signal_fd, .events = POLLIN };
	for (size_t i = 0; i < boot->child_count; i++) {
		const struct boot_child *child = &boot->children[i];
		polls[i + 1] = (struct pollfd){ .fd = child->ready_fd, .events = POLLIN };
		if (child->due_us != 0)
			timeout_us = timeout_us < 0 ? max_i64(0, child->due_us - now_us)
						    : min_i64(timeout_us, max_i64(0, child->due_us - now_us));
	}
	int timeout_ms = timeout_us < 0 ? -1 : (int)min_i64((timeout_us + 999) / 1000, 60 * 1000);
	int r = poll(polls, boot->child_count + 1, timeout_ms);
	if (r < 0 && errno != EINTR) {
		free(polls);
		return err_sys(err, ERR_SYSTEM, errno, "waiting for the children");
	}
	for (size_t i = 0; r > 0 && i < boot->child_count; i++) {
		if (polls[i + 1].revents != 0)
			boot_hear(&boot->children[i]);
	}
	free(polls);
	boot_take_signals(boot);
	now_us = clock_mono_us();
	for (size_t i = 0; !boot->is_told_to_stop && i < boot->child_count; i++) {
		struct boot_child *child = &boot->children[i];
		if (child->pid != 0 || child->due_us == 0 || child->due_us > now_us)
			continue;
		if (boot_start(boot, child, err) < 0) {
			/* The machine is short of something; the children that live are worth keeping. */
			log_err(LOG_ERROR, err, "starting %s again", child->name);
			child->due_us = now_us + BOOT_BACKOFF_MAX_US;
		}
	}
	return 0;
}

static size_t boot_alive(const struct boot *boot)
{
	size_t count = 0;
	for (size_t i = 0; i < boot->child_count; i++)
		count += boot->children[i].pid != 0;
	return count;
}

static void boot_signal_all(const struct boot *boot, int number)
{
	for (size_t i = 0; i < boot->child_count; i++) {
		if (boot->children[i].pid != 0)
			kill(boot->children[i].pid, number);
	}
}

void boot_stop(struct boot *boot, int64_t grace_us)
{
	struct err err = ERR_INIT;
	int64_t until_us = clock_mono_us() + grace_us;
	boot->is_told_to_stop = true;
	boot_signal_all(boot, SIGTERM);
	for (int64_t now_us = clock_mono_us(); boot_alive(boot) > 0 && now_us < until_us; now_us = clock_mono_us())
		(void)boot_step(boot, until_us - now_us, &err);
	boot_signal_all(boot, SIGKILL);
	/* One that is deep in a sync of its disk ends only when that returns. It does nothing any more, so nobody waits for it without end. */
	until_us = clock_mono_us() + BOOT_KILL_US;
	for (int64_t now_us = clock_mono_us(); boot_alive(boot) > 0 && now_us < until_us; now_us = clock_mono_us())
		(void)boot_step(boot, until_us - now_us, &err);
	if (boot_alive(boot) > 0)
		log_say(LOG_WARN, "%zu children are killed, and have not ended yet", boot_alive(boot));
}

/* One byte: less than any file has, and the limit at which Linux gives nothing to a program either; at 0 it would. */
void boot_forbid_core(void)
{
	const struct rlimit limit = { .rlim_cur = 1, .rlim_max = 1 };
	if (setrlimit(RLIMIT_CORE, &limit) < 0)
		log_say(LOG_WARN, "cannot forbid core files: %s", strerror(errno));
}
