/* The supervisor behind `heng up`: starts children of this same program, learns where they serve, starts them again when they die, and takes
 * them with it when it dies itself, however that happens. */
#ifndef HENG_APP_BOOT_H
#define HENG_APP_BOOT_H

#include <sys/types.h>

#include "base/err.h"

#define BOOT_NEVER (-1)

struct boot_child {
	char name[16];
	const char *command;        /* the subcommand: "scheduler", "node" */
	char *conf_path, *log_path; /* owned */
	int64_t restart_after_us;   /* 0: at once, with back-off while it keeps dying soon; BOOT_NEVER */
	char addr[64];              /* where it serves; "" until it has said so */
	pid_t pid;                  /* 0: not running */
	int ready_fd;               /* -1: none */
	char ready_text[64];
	int64_t started_us, due_us; /* due: of the next start; 0: none */
	unsigned quick_death_count; /* in a row */
	unsigned start_count;
	int wait_status; /* of the last death */
};

struct boot {
	struct boot_child *children;
	size_t child_count;
	int signal_fd;
	bool is_told_to_stop;
	bool is_settled; /* before that, a child that dies is started again at once, whatever its restart_after_us */
};

int boot_init(struct boot *boot, size_t child_count, struct err *err);
void boot_fini(struct boot *boot); /* children must have been stopped */
int boot_start(struct boot *boot, struct boot_child *child, struct err *err);
/* Waits at most timeout_us for a signal, a child's word or a start that is due, and does what follows. */
int boot_step(struct boot *boot, int64_t timeout_us, struct err *err);
/* SIGTERM to all, SIGKILL to those that are still there after grace_us; returns at most a second later. */
void boot_stop(struct boot *boot, int64_t grace_us);
/* How a child's last end is told: "was killed by signal 9", "exited with 2"; and the last line of its log. */
void boot_describe_end(const struct boot_child *child, char *target, size_t target_size);
/* When a child that died is started again: microseconds from its death, BOOT_NEVER. Pure. */
int64_t boot_restart_delay_us(int64_t restart_after_us, unsigned quick_death_count);

/* For servers: as many open files as the hard limit allows. A chunk being written takes three, and shells give 1,024 unless asked. */
void boot_raise_file_limit(void);
/* For servers: what is in memory, keys too, goes into no core file, nor to a program that gathers them. */
void boot_forbid_core(void);

#endif
