#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include "sys/fs.h"
#include "sys/host_inside.h"

/* Mount tables and lists of interfaces of machines full of containers stay below it by far. */
#define TEXT_MAX (4 * MIB)

PRINTF(3, 0)
static bool make_path(const struct host_files *files, char target[PATH_MAX], const char *fmt, va_list args)
{
	const size_t root_size = strlen(files->root);
	int size;

	memcpy(target, files->root, root_size);
	size = vsnprintf(target + root_size, PATH_MAX - root_size, fmt, args);
	return size >= 0 && (size_t)size < PATH_MAX - root_size;
}

bool host_path(const struct host_files *files, char target[PATH_MAX], const char *fmt, ...)
{
	va_list args;
	bool is_whole;

	va_start(args, fmt);
	is_whole = make_path(files, target, fmt, args);
	va_end(args);
	return is_whole;
}

static bool read_path(struct host_files *files, const char *path, struct str *ret_text)
{
	*ret_text = STR_NONE;
	buf_fini(&files->text);
	if (fs_read_file(path, TEXT_MAX, &files->text, NULL) < 0)
		return false;
	*ret_text = buf_str(&files->text);
	return true;
}

bool host_read(struct host_files *files, struct str *ret_text, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list args;
	bool is_whole;

	va_start(args, fmt);
	is_whole = make_path(files, path, fmt, args);
	va_end(args);
	return is_whole && read_path(files, path, ret_text);
}

bool host_read_number(struct host_files *files, int64_t *ret_value, const char *fmt, ...)
{
	char path[PATH_MAX];
	struct str text;
	va_list args;
	bool is_whole;

	va_start(args, fmt);
	is_whole = make_path(files, path, fmt, args);
	va_end(args);
	return is_whole && read_path(files, path, &text) && host_number_next(&text, ret_value);
}

bool host_link(const struct host_files *files, char target[PATH_MAX], const char *path)
{
	char from[PATH_MAX];
	ssize_t size;

	if (!host_path(files, from, "%s", path))
		return false;
	size = readlink(from, target, PATH_MAX);
	if (size <= 0 || size >= PATH_MAX)
		return false;
	target[size] = '\0';
	return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

bool host_word(struct str *rest, struct str *ret_word)
{
	size_t size = 0;

	while (rest->size > 0 && is_blank(rest->data[0]))
		*rest = (struct str){ rest->data + 1, rest->size - 1 };
	while (size < rest->size && !is_blank(rest->data[size]))
		size++;
	*ret_word = (struct str){ rest->data, size };
	if (size == 0)
		return false;
	*rest = (struct str){ rest->data + size, rest->size - size };
	return true;
}

bool host_number(struct str word, int64_t *ret_value)
{
	uint64_t value;

	if (word.size == 0)
		return false;
	for (size_t i = 0; i < word.size; i++) {
		if (word.data[i] < '0' || word.data[i] > '9')
			return false;
	}
	*ret_value = str_to_u64(word, &value) && value <= INT64_MAX ? (int64_t)value : INT64_MAX;
	return true;
}

bool host_number_next(struct str *rest, int64_t *ret_value)
{
	struct str word;

	return host_word(rest, &word) && host_number(word, ret_value);
}

bool host_keyed(struct str text, const char *key, int64_t *ret_value)
{
	const struct str wanted = str_from(key);
	struct str line;

	while (str_cut(&text, '\n', &line)) {
		if (!str_starts(line, wanted) || line.size == wanted.size)
			continue;
		line = (struct str){ line.data + wanted.size, line.size - wanted.size };
		if (line.data[0] == ':')
			line = (struct str){ line.data + 1, line.size - 1 };
		else if (!is_blank(line.data[0]))
			continue;
		return host_number_next(&line, ret_value);
	}
	return false;
}

int64_t host_scale(int64_t value, int64_t multiplier, int64_t divisor)
{
	__int128 product = (__int128)value * multiplier;

	if (value < 0 || divisor <= 0)
		return HOST_UNKNOWN;
	product /= divisor;
	return product > INT64_MAX ? INT64_MAX : (int64_t)product;
}

int64_t host_delta(int64_t *former, int64_t now)
{
	const int64_t before = *former;

	*former = now;
	return before < 0 || now < before ? HOST_UNKNOWN : now - before;
}
