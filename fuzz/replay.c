/* Runs a fuzz target over the files of its corpus: the regression half of fuzzing, part of every test run. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t capacity = 4 * MIB, size = 0;
	uint8_t *data = must_alloc(capacity);
	ssize_t got;
	while (size < capacity && (got = read(fd, data + size, capacity - size)) > 0)
		size += (size_t)got;
	close(fd);
	/* An exact allocation, so that the sanitizers see a read past its end. */
	uint8_t *exact = must_alloc(size + !size);
	memcpy(exact, data, size);
	free(data);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
		return 2;
	}
	DIR *dir = opendir(argv[1]);
	if (!dir) {
		fprintf(stderr, "%s: cannot open corpus %s\n", argv[0], argv[1]);
		return 1;
	}
	size_t count = 0, failed_count = 0;
	struct dirent *item;
	while ((item = readdir(dir)) != NULL) {
		if (item->d_name[0] == '.')
			continue;
		count++;
		if (replay_file(dirfd(dir), item->d_name) < 0)
			failed_count++;
	}
	closedir(dir);
	printf("%zu inputs replayed, %zu unreadable\n", count, failed_count);
	return count == 0 || failed_count ? 1 : 0;
}
