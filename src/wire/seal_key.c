#include "wire/seal_key.h"

#include <stdio.h>

#include "base/mem.h"

#define MARK         "heng-key"
#define VERSION      "1"
#define HEX_SIZE     ((size_t)2 * SEAL_KEY_SIZE)
#define BASE64_SIZE  43 /* of 32 bytes, without padding */
#define BASE64_WHOLE 44

/* Both alphabets: '+' and '/' are the other's '-' and '_'. */
static bool read_base64(struct str word, uint8_t key[SEAL_KEY_SIZE])
{
	char text[BASE64_SIZE];
	size_t size = 0;
	bool is_good;

	if (word.size == BASE64_WHOLE && word.data[BASE64_WHOLE - 1] == '=')
		word.size--;
	if (word.size != BASE64_SIZE)
		return false;
	for (size_t i = 0; i < BASE64_SIZE; i++)
		text[i] = word.data[i] == '+' ? '-' : word.data[i] == '/' ? '_' : word.data[i];
	is_good = base64url_decode((struct str){ text, BASE64_SIZE }, key, SEAL_KEY_SIZE, &size) &&
		  size == SEAL_KEY_SIZE;
	mem_wipe(text, sizeof(text));
	return is_good;
}

static bool read_key(struct str word, uint8_t key[SEAL_KEY_SIZE])
{
	return word.size == HEX_SIZE ? hex_decode(word, key, SEAL_KEY_SIZE) : read_base64(word, key);
}

/* Cuts at any run of blanks. */
static struct str next_word(struct str *line)
{
	struct str word;

	*line = str_trim(*line);
	for (word = (struct str){ line->data, 0 }; word.size < line->size; word.size++)
		if (line->data[word.size] == ' ' || line->data[word.size] == '\t')
			break;
	*line = (struct str){ line->data + word.size, line->size - word.size };
	return word;
}

static const char *read_line(struct str line, uint8_t key[SEAL_KEY_SIZE], char id[SEAL_ID_SIZE])
{
	struct str word = next_word(&line), told_id = STR_NONE;

	if (str_eq_c(word, MARK)) {
		if (!str_eq_c(next_word(&line), VERSION))
			return "it is of a version that this heng does not know";
		told_id = next_word(&line);
		word = next_word(&line);
	}
	if (str_trim(line).size > 0 || !read_key(word, key))
		return "it holds no key: 32 bytes in hex or base64, like heng keygen writes it";
	seal_key_id(key, id);
	if (told_id.size > 0 && !str_eq_c(told_id, id))
		return "the key is not the one whose id stands before it: some digit is wrong";
	return NULL;
}

const char *seal_key_parse(struct str text, uint8_t ret_key[SEAL_KEY_SIZE], char ret_id[SEAL_ID_SIZE])
{
	const char *fault = "it is empty";
	bool is_found = false;
	struct str line;

	while (str_cut(&text, '\n', &line)) {
		if (line.size > 0 && line.data[line.size - 1] == '\r')
			line.size--;
		line = str_trim(line);
		if (line.size == 0 || line.data[0] == '#')
			continue;
		if (is_found) {
			fault = "it holds more than one key";
			break;
		}
		is_found = true;
		fault = read_line(line, ret_key, ret_id);
		if (fault)
			break;
	}
	if (fault)
		mem_wipe(ret_key, SEAL_KEY_SIZE);
	return fault;
}

size_t seal_key_write(const uint8_t key[SEAL_KEY_SIZE], char *target, size_t target_size)
{
	char id[SEAL_ID_SIZE], hex[HEX_SIZE + 1];
	int size;

	seal_key_id(key, id);
	hex_encode(key, SEAL_KEY_SIZE, hex);
	size = snprintf(target, target_size,
			"# A key of heng push --encrypt. Whoever has it reads what was sent with it; without it nobody "
			"does.\n" MARK " " VERSION " %s %s\n",
			id, hex);
	mem_wipe(hex, sizeof(hex));
	MUST(size > 0 && (size_t)size < target_size);
	return (size_t)size;
}
