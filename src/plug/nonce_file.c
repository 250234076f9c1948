#include "plug/nonce.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/fs.h"

#define FILE_TURN_BYTES ((uint64_t)4 * MIB) /* a larger one may become `path`.1 */
#define FILE_MAX_BYTES  ((size_t)256 * MIB) /* of what is read back */
#define LINE_SIZE       352
/* What expires that much later than all that is surely on the disk is synced with all before it; so nothing that a crash takes expires later. */
#define UNWRITTEN_US (35 * SEC_US)
#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_SIZE    64

/* A file is a line "boot <id> <floor>", then lines "<expires, wall us> <nonce>" in the order they came. Two of them: when the older one holds nothing that
 * still counts, it gives way to the newer one. */
struct nonce_file {
	struct nonce_store store;
	struct nonce_store *memory;
	char *path, *former_path;
	char boot[BOOT_SIZE];
	int64_t floor_wall_us; /* what expires until then is refused: it may have been used before the machine stopped */
	pthread_mutex_t lock;  /* protects the rest */
	int fd;
	uint64_t size_bytes;
	int64_t last_wall_us, former_last_wall_us; /* the latest expiry in each file */
	int64_t synced_wall_us;                    /* the latest that is on the disk, of the newer one */
};

static struct nonce_file *file_of(struct nonce_store *store) { return CONTAINER_OF(store, struct nonce_file, store); }

static bool is_plain(struct str nonce)
{
	for (size_t i = 0; i < nonce.size; i++) {
		if ((unsigned char)nonce.data[i] <= ' ' || (unsigned char)nonce.data[i] >= 0x7f)
			return false;
	}
	return nonce.size > 0;
}

/* Opens the file for what comes after its first so many bytes; what follows them is cut off. */
static int open_at(struct nonce_file *file, uint64_t size_bytes, struct err *err)
{
	fs_close(&file->fd);
	file->fd = open(file->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (file->fd < 0 || ftruncate(file->fd, (off_t)size_bytes) < 0)
		return err_sys(err, ERR_DISK, errno, "cannot open the file of nonces '%s'", file->path);
	file->size_bytes = size_bytes;
	return 0;
}

/* A new file in the place of the old one. */
static int begin_file(struct nonce_file *file, struct err *err)
{
	char line[BOOT_SIZE + 32];
	const int size = snprintf(line, sizeof(line), "boot %s %" PRId64 "\n", file->boot, file->floor_wall_us);
	const int r = fs_replace_file(file->path, (struct str){ line, (size_t)size }, 0600, err);

	file->last_wall_us = file->synced_wall_us = 0;
	return r < 0 ? r : open_at(file, (uint64_t)size, err);
}

static int turn(struct nonce_file *file, struct err *err)
{
	if (rename(file->path, file->former_path) < 0)
		return err_sys(err, ERR_DISK, errno, "cannot rename the file of nonces '%s'", file->path);
	file->former_last_wall_us = file->last_wall_us;
	return begin_file(file, err);
}

static int append(struct nonce_file *file, struct str nonce, int64_t expires_wall_us, int64_t now_wall_us,
		  struct err *err)
{
	char line[LINE_SIZE];
	const int size = snprintf(line, sizeof(line), "%" PRId64 " %.*s\n", expires_wall_us, STR_ARG(nonce));
	struct err why = ERR_INIT;
	int r = 0;

	if (file->size_bytes > FILE_TURN_BYTES && file->former_last_wall_us < now_wall_us)
		r = turn(file, &why);
	if (r == 0 && file->fd < 0)
		r = open_at(file, file->size_bytes, &why);
	/* At its own offset: what a full disk cut off is written over by the next. */
	if (r == 0)
		r = fs_write_all(file->fd, line, (size_t)size, (int64_t)file->size_bytes, &why);
	if (r < 0)
		return err_set(err, why.sys_errno == ENOSPC ? ERR_DISK_LOW : ERR_DISK,
			       "the request's nonce could not be written down: %s", why.text);
	file->size_bytes += (uint64_t)size;
	file->last_wall_us = max_i64(file->last_wall_us, expires_wall_us);
	if (expires_wall_us <= file->synced_wall_us + UNWRITTEN_US)
		return 0;
	if (fs_sync_data(file->fd, file->path, &why) < 0)
		return err_set(err, ERR_DISK, "the request's nonce could not be kept: %s", why.text);
	file->synced_wall_us = expires_wall_us;
	return 0;
}

static int nonce_file_use(struct nonce_store *store, struct str nonce, int64_t expires_wall_us, int64_t now_wall_us,
			  struct err *err)
{
	struct nonce_file *file = file_of(store);

	if (!is_plain(nonce))
		return err_set(err, ERR_BAD_REQUEST, "a nonce is of visible ASCII characters");
	if (expires_wall_us <= file->floor_wall_us) {
		err_set(err, ERR_CLOCK_SKEW, "this machine was started anew: what was signed before is not accepted");
		err_hint(err, "sign again");
		return -ERR_CLOCK_SKEW;
	}
	int r = file->memory->ops->use(file->memory, nonce, expires_wall_us, now_wall_us, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&file->lock);
	r = append(file, nonce, expires_wall_us, now_wall_us, err);
	pthread_mutex_unlock(&file->lock);
	return r;
}

static void nonce_file_free(struct nonce_store *store)
{
	struct nonce_file *file = file_of(store);

	fs_close(&file->fd);
	file->memory->ops->free(file->memory);
	pthread_mutex_destroy(&file->lock);
	free(file->path);
	free(file->former_path);
	free(file);
}

static const struct nonce_ops nonce_file_ops = { .name = "file", .use = nonce_file_use, .free = nonce_file_free };

/* What a file says. */
struct content {
	bool is_this_boot;
	int64_t last_wall_us;
	uint64_t good_bytes; /* 0: there is no file, or it is none of ours */
};

/* A line that is none, as the last one after a crash, ends what is good. */
static void read_lines(struct nonce_file *file, struct str text, int64_t now_wall_us, struct content *ret)
{
	struct str rest = text, line, word, boot;
	int64_t at_wall_us;

	while (memchr(rest.data ? rest.data : "", '\n', rest.size) && str_cut(&rest, '\n', &line) &&
	       str_cut(&line, ' ', &word)) {
		if (ret->good_bytes == 0) {
			if (!str_eq_c(word, "boot") || !str_cut(&line, ' ', &boot) || !str_to_i64(line, &at_wall_us))
				return;
			ret->is_this_boot = str_eq_c(boot, file->boot);
			file->floor_wall_us = max_i64(file->floor_wall_us, at_wall_us);
		} else {
			if (!str_to_i64(word, &at_wall_us) || !is_plain(line))
				return;
			ret->last_wall_us = max_i64(ret->last_wall_us, at_wall_us);
			/* Expired ones are refused, and one that stands twice is known: both as it should be. */
			(void)file->memory->ops->use(file->memory, line, at_wall_us, now_wall_us, NULL);
		}
		ret->good_bytes = text.size - rest.size;
	}
}

static int read_file(struct nonce_file *file, const char *path, int64_t now_wall_us, struct content *ret,
		     struct err *err)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(FILE_MAX_BYTES);

	*ret = (struct content){ .is_this_boot = false };
	if (access(path, F_OK) < 0 && errno == ENOENT)
		return 0;
	const int r = fs_read_file(path, FILE_MAX_BYTES, &text, err);
	if (r < 0)
		return err_wrap(err, "reading the nonces that were used before");
	read_lines(file, buf_str(&text), now_wall_us, ret);
	if (!ret->is_this_boot && ret->last_wall_us != 0)
		file->floor_wall_us = max_i64(file->floor_wall_us, ret->last_wall_us + UNWRITTEN_US);
	return 0;
}

static int read_all(struct nonce_file *file, int64_t now_wall_us, struct err *err)
{
	struct content former, newest;
	int r = read_file(file, file->former_path, now_wall_us, &former, err);

	if (r == 0)
		r = read_file(file, file->path, now_wall_us, &newest, err);
	if (r < 0)
		return r;
	file->former_last_wall_us = former.last_wall_us;
	if (newest.is_this_boot) {
		file->last_wall_us = newest.last_wall_us;
		return open_at(file, newest.good_bytes, err);
	}
	/* Of an earlier boot: the floor stands for all that is in it. */
	return begin_file(file, err);
}

static void read_boot(struct nonce_file *file)
{
	AUTO(buf_fini) struct buf text = BUF_INIT(BOOT_SIZE);

	/* Where it cannot be told, each start counts as one of the machine: that refuses more, never less. */
	if (fs_read_file(BOOT_ID_PATH, BOOT_SIZE - 1, &text, NULL) < 0 ||
	    !str_copy(str_trim((struct str){ text.data, text.size > 0 ? text.size - 1 : 0 }), file->boot,
		      sizeof(file->boot)))
		snprintf(file->boot, sizeof(file->boot), "unknown-%d", (int)getpid());
}

int nonce_file_open(const char *path, size_t limit_count, int64_t now_wall_us, struct nonce_store **ret_store,
		    struct err *err)
{
	struct nonce_file *file = must_zalloc(1, sizeof(*file));
	char former[PATH_MAX];
	int r = 0;

	*ret_store = NULL;
	file->store.ops = &nonce_file_ops;
	file->fd = -1;
	file->memory = nonce_mem_new(limit_count);
	file->path = must_strdup(path);
	MUST(pthread_mutex_init(&file->lock, NULL) == 0);
	if (snprintf(former, sizeof(former), "%s.1", path) >= (int)sizeof(former))
		r = err_set(err, ERR_CONFIG, "the path '%.200s...' is too long", path);
	file->former_path = must_strdup(former);
	read_boot(file);
	if (r == 0)
		r = read_all(file, now_wall_us, err);
	if (r < 0) {
		nonce_file_free(&file->store);
		return r;
	}
	*ret_store = &file->store;
	return 0;
}
