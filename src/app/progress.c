#include "app/progress.h"
#include "app/progress_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PROGRESS_PLAIN_US   (5 * SEC_US)
#define PROGRESS_RATE_US    (500 * MSEC_US)
#define PROGRESS_JSON_US    (500 * MSEC_US)
#define PROGRESS_JSON_MAX   (64 * KIB)
#define PROGRESS_SHARES_MAX 8

void progress_init(struct progress_view *view, bool is_quiet, bool is_result_json, bool is_json)
{
	const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
	bool is_dumb = term == NULL || strcmp(term, "dumb") == 0;
	*view = (struct progress_view){
		.is_silent = is_quiet, .is_lineless = is_quiet || is_result_json, .is_json = is_json, .phase = ""
	};
	view->is_terminal = !view->is_lineless && !is_json && !is_dumb && isatty(STDERR_FILENO);
	view->is_colored = view->is_terminal && (no_color == NULL || no_color[0] == '\0');
}

/* Appends within the target; what does not fit is cut. */
PRINTF(3, 4) static void progress_add(char *target, size_t target_size, const char *fmt, ...)
{
	size_t size = strlen(target);
	va_list args;
	va_start(args, fmt);
	vsnprintf(target + size, target_size - size, fmt, args);
	va_end(args);
}

static void progress_add_shares(const struct push_progress *progress, char *target, size_t target_size)
{
	uint64_t total = 0;
	for (size_t i = 0; i < progress->share_count; i++)
		total += progress->shares[i].bytes;
	for (size_t i = 0; total > 0 && i < progress->share_count && i < PROGRESS_SHARES_MAX; i++) {
		/* Percent without overflow: bytes stay far below 2^57. */
		progress_add(target, target_size, "%s%s %llu%%", i == 0 ? "  " : " ", progress->shares[i].id,
			     (unsigned long long)(progress->shares[i].bytes * 100 / total));
	}
	if (progress->share_count > PROGRESS_SHARES_MAX)
		progress_add(target, target_size, " +%zu", progress->share_count - PROGRESS_SHARES_MAX);
}

void progress_line(const struct push_progress *progress, uint64_t rate_bytes, size_t width, char *target,
		   size_t target_size)
{
	char done[32], total[32], rate[32];
	target[0] = '\0';
	progress_add(target, target_size, "%s", progress->phase);
	/* What is found is no total yet. */
	if (strcmp(progress->phase, "scan") == 0 && progress->files_total > 0) {
		progress_add(target, target_size, "  files %llu, %s so far", (unsigned long long)progress->files_total,
			     size_display(progress->bytes_total, total, sizeof(total)));
	} else if (strcmp(progress->phase, "merge") == 0 && progress->merging_files > 0) {
		progress_add(target, target_size, "  %s / %s  files %llu/%llu",
			     size_display(progress->merging_bytes, done, sizeof(done)),
			     size_display(progress->bytes_total, total, sizeof(total)),
			     (unsigned long long)progress->merging_files, (unsigned long long)progress->files_total);
	} else if (progress->bytes_total > 0 || progress->files_total > 0) {
		uint64_t percent = progress->bytes_total > 0 ? progress->bytes_done * 100 / progress->bytes_total : 100;
		progress_add(target, target_size, "  %s / %s  %llu%%  files %llu/%llu",
			     size_display(progress->bytes_done, done, sizeof(done)),
			     size_display(progress->bytes_total, total, sizeof(total)), (unsigned long long)percent,
			     (unsigned long long)progress->files_done, (unsigned long long)progress->files_total);
	}
	if (rate_bytes > 0 && progress->bytes_done < progress->bytes_total) {
		uint64_t left_s = (progress->bytes_total - progress->bytes_done) / rate_bytes;
		progress_add(target, target_size, "  %s/s  ETA %llu:%02llu",
			     size_display(rate_bytes, rate, sizeof(rate)), (unsigned long long)(left_s / 60),
			     (unsigned long long)(left_s % 60));
	}
	if (progress->limit_rate_bytes > 0)
		progress_add(target, target_size, "  limit %s/s",
			     size_display(progress->limit_rate_bytes, rate, sizeof(rate)));
	progress_add_shares(progress, target, target_size);
	if (progress->retries > 0)
		progress_add(target, target_size, "  retries %llu", (unsigned long long)progress->retries);
	if (progress->waiting_for != NULL)
		progress_add(target, target_size, "  waiting: %s", progress->waiting_for);
	/* Cut between bytes only where all of them are ASCII: server words may be in it. */
	if (width > 0 && strlen(target) > width) {
		size_t end = width;
		while (end > 0 && ((unsigned char)target[end] & 0xc0) == 0x80)
			end--;
		target[end] = '\0';
	}
}

static void progress_rate(struct progress_view *view, const struct push_progress *progress)
{
	int64_t passed_us = progress->elapsed_us - view->seen_us;
	/* A new round over the plan starts counting anew. */
	if (progress->bytes_done < view->seen_bytes) {
		view->seen_bytes = progress->bytes_done;
		view->seen_us = progress->elapsed_us;
		return;
	}
	if (passed_us < PROGRESS_RATE_US)
		return;
	uint64_t moved = progress->bytes_done - view->seen_bytes;
	uint64_t now_bytes = moved / (uint64_t)passed_us * (uint64_t)SEC_US +
			     moved % (uint64_t)passed_us * (uint64_t)SEC_US / (uint64_t)passed_us;
	view->rate_bytes = view->rate_bytes == 0 ? now_bytes : (3 * view->rate_bytes + now_bytes) / 4;
	view->seen_bytes = progress->bytes_done;
	view->seen_us = progress->elapsed_us;
}

void progress_clear(struct progress_view *view)
{
	if (view->is_drawn)
		fputs("\r\033[K", stderr);
	view->is_drawn = false;
}

/* One write for a line, so that lines of other processes do not come between. */
static void progress_put(struct buf *text)
{
	if (buf_append_c(text, "\n"))
		fwrite(text->data, 1, text->size, stderr);
	buf_fini(text);
}

static void progress_show_json(struct progress_view *view, const struct push_progress *progress)
{
	bool is_new_phase = strcmp(view->phase, progress->phase) != 0;
	if (!is_new_phase && progress->elapsed_us - view->told_us < PROGRESS_JSON_US)
		return;
	view->phase = progress->phase;
	view->told_us = progress->elapsed_us;
	struct buf text = BUF_INIT(PROGRESS_JSON_MAX);
	progress_json(&text, progress, view->rate_bytes);
	progress_put(&text);
}

void progress_show(struct progress_view *view, const struct push_progress *progress)
{
	char raw[1024], line[2048];
	progress_rate(view, progress);
	if (view->is_json) {
		progress_show_json(view, progress);
		return;
	}
	if (view->is_lineless)
		return;
	if (!view->is_terminal) {
		if (view->told_us != 0 && progress->elapsed_us - view->told_us < PROGRESS_PLAIN_US)
			return;
		/* Quick pushes say nothing before their end. */
		if (view->told_us == 0 && progress->elapsed_us < PROGRESS_PLAIN_US)
			return;
		view->told_us = progress->elapsed_us;
		progress_line(progress, view->rate_bytes, 0, raw, sizeof(raw));
		fprintf(stderr, "%s\n", str_display(str_from(raw), line, sizeof(line)));
		return;
	}
	struct winsize size = { 0 };
	size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? (size_t)size.ws_col - 1 : 79;
	progress_line(progress, view->rate_bytes, width, raw, sizeof(raw));
	str_display(str_from(raw), line, sizeof(line));
	size_t phase_size = strlen(progress->phase);
	if (view->is_colored && strlen(line) >= phase_size)
		fprintf(stderr, "\r\033[1;36m%.*s\033[0m%s\033[K", (int)phase_size, line, line + phase_size);
	else
		fprintf(stderr, "\r%s\033[K", line);
	fflush(stderr);
	view->is_drawn = true;
}

void progress_note(struct progress_view *view, const char *text)
{
	if (view->is_silent)
		return;
	if (view->is_json) {
		struct buf object = BUF_INIT(PROGRESS_JSON_MAX);
		progress_json_notice(&object, text);
		progress_put(&object);
		return;
	}
	char line[2048];
	progress_clear(view);
	fprintf(stderr, "%s\n", str_display(str_from(text), line, sizeof(line)));
}

void progress_problem(struct progress_view *view, struct str path, const char *reason)
{
	char shown[3 * 4096], why[1024];
	if (view->is_json) {
		struct buf object = BUF_INIT(PROGRESS_JSON_MAX);
		progress_json_problem(&object, path, reason);
		progress_put(&object);
		return;
	}
	progress_clear(view);
	fprintf(stderr, "%s: %s\n", str_display(path, shown, sizeof(shown)),
		str_display(str_from(reason), why, sizeof(why)));
}
