#include "folder/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sys/fs.h"
#include "sys/secret.h"
#include "wire/seal_key.h"

static int refused(const char *path, const char *why, struct err *err)
{
	return err_set(err, ERR_USAGE, "the key file '%.300s': %s", path, why);
}

static int check_access(const char *path, int fd, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, ERR_USAGE, errno, "looking at the key file '%.300s'", path);
	if (!S_ISREG(st.st_mode))
		return refused(path, "it is not a file", err);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return refused(path, "it belongs to another user, who knows the key and could change it", err);
	if ((st.st_mode & 077) == 0)
		return 0;
	(void)refused(path, "others than its owner may open it", err);
	err_hint(err, "chmod 600 it; if others could read it, make another key");
	return -(int)ERR_USAGE;
}

int key_file_load(const char *path, struct key_file **ret_file, struct err *err)
{
	size_t size = 0;
	char *text = NULL;
	/* O_NONBLOCK: a named pipe must not hang us. */
	AUTO(fs_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	*ret_file = NULL;
	if (fd < 0)
		return err_sys(err, ERR_USAGE, errno, "opening the key file '%.300s'", path);
	int result = check_access(path, fd, err);
	if (result < 0)
		return result;
	text = secret_new(SEAL_KEY_TEXT_MAX);
	result = fs_read_all(fd, text, SEAL_KEY_TEXT_MAX, 0, &size, err);
	if (result < 0) {
		err_wrap(err, "reading the key file '%.300s'", path);
	} else {
		struct key_file *file = secret_new(sizeof(*file));
		const char *fault = size == SEAL_KEY_TEXT_MAX
					    ? "it is too large for one"
					    : seal_key_parse((struct str){ text, size }, file->key, file->id);
		if (fault) {
			result = refused(path, fault, err);
			key_file_free(&file);
		}
		*ret_file = file;
	}
	secret_free((void **)&text, SEAL_KEY_TEXT_MAX);
	return result;
}

void key_file_free(struct key_file **file)
{
	void *secret = *file;

	secret_free(&secret, sizeof(**file));
	*file = NULL;
}

/* Durable before it is used: what is encrypted with a key that a crash took with it is lost. */
static int sync_place(const char *path, struct err *err)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');
	const size_t size = slash ? (size_t)(slash - path) : 0;

	if (!str_copy(slash == NULL ? STR(".")
		      : size == 0   ? STR("/")
				    : (struct str){ path, size },
		      folder, sizeof(folder)))
		return refused(path, "the path is too long", err);
	AUTO(fs_close) int fd = fs_open_dir(folder, err);
	return fd < 0 ? fd : fs_sync_dir(fd, folder, err);
}

int key_file_make(const char *path, char ret_id[SEAL_ID_SIZE], struct err *err)
{
	AUTO(fs_close) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 && errno == EEXIST)
		return err_set(err, ERR_REFUSED, "'%.300s' exists already; a key is never written over", path);
	if (fd < 0)
		return err_sys(err, ERR_REFUSED, errno, "making the key file '%.300s'", path);
	uint8_t *key = secret_new(SEAL_KEY_SIZE);
	char *text = secret_new(SEAL_KEY_TEXT_MAX);
	rng_secret(key, SEAL_KEY_SIZE);
	seal_key_id(key, ret_id);
	const size_t size = seal_key_write(key, text, SEAL_KEY_TEXT_MAX);
	int result = fs_write_all(fd, text, size, 0, err);
	if (result == 0)
		result = fs_sync_data(fd, path, err);
	if (result == 0)
		result = sync_place(path, err);
	if (result < 0)
		(void)unlink(path);
	secret_free((void **)&key, SEAL_KEY_SIZE);
	secret_free((void **)&text, SEAL_KEY_TEXT_MAX);
	return result;
}
