#include "folder/push_option.h"

#include "base/bucket.h"

#define PRIORITY_MAX     1000
#define COPIES_MAX       2
#define CHUNK_BYTES_MIN  (64 * KIB)
#define CHUNK_BYTES_MAX  (64 * MIB)
#define GIVE_UP_MAX_S    (7 * 24 * 3600)
#define ALLOWED_SIZE     256
#define VALUE_SHOWN_SIZE 300

static int refuse(const char *label, const char *value, const char *allowed, struct err *err)
{
	char shown[VALUE_SHOWN_SIZE];

	return err_set(err, ERR_USAGE, "%s '%s' is %s", label, str_display(str_from(value), shown, sizeof(shown)),
		       allowed);
}

static int read_number(const char *label, const char *value, uint64_t min, uint64_t max, uint64_t *ret, struct err *err)
{
	char allowed[ALLOWED_SIZE];

	if (str_to_u64(str_from(value), ret) && *ret >= min && *ret <= max)
		return 0;
	snprintf(allowed, sizeof(allowed), "not a number from %llu to %llu", (unsigned long long)min,
		 (unsigned long long)max);
	return refuse(label, value, allowed, err);
}

struct choice {
	const char *word;
	int value;
};

static int read_choice(const char *label, const char *value, const struct choice *choices, int *ret, struct err *err)
{
	char allowed[ALLOWED_SIZE] = "none of: ";

	for (const struct choice *choice = choices; choice->word; choice++) {
		size_t size = strlen(allowed);
		if (strcmp(choice->word, value) == 0) {
			*ret = choice->value;
			return 0;
		}
		if (choice->word[0] != '\0')
			snprintf(allowed + size, sizeof(allowed) - size, "%s%s", choice == choices ? "" : ", ",
				 choice->word);
	}
	return refuse(label, value, allowed, err);
}

static int set_name(struct push_options *options, const char *label, const char *value, struct err *err)
{
	if (value[0] == '\0')
		return err_set(err, ERR_USAGE, "%s is empty", label);
	options->batch = str_from(value);
	return 0;
}

static int set_state_dir(struct push_options *options, const char *label, const char *value, struct err *err)
{
	if (value[0] == '\0')
		return err_set(err, ERR_USAGE, "%s is empty", label);
	options->state_dir = value;
	return 0;
}

static int set_resume(struct push_options *options, const char *label, const char *value, struct err *err)
{
	if (!ulid_is_valid(value, strlen(value)))
		return refuse(label, value, "not a transfer id (26 letters and digits)", err);
	options->resume = value;
	return 0;
}

static int set_parallel(struct push_options *options, const char *label, const char *value, struct err *err)
{
	uint64_t number;
	int result = read_number(label, value, 1, PUSH_PARALLEL_MAX, &number, err);

	if (result == 0)
		options->parallel = (unsigned)number;
	return result;
}

static int set_priority(struct push_options *options, const char *label, const char *value, struct err *err)
{
	uint64_t number;
	int result = read_number(label, value, 0, PRIORITY_MAX, &number, err);

	if (result == 0)
		options->priority = (int)number;
	return result;
}

static int set_copies(struct push_options *options, const char *label, const char *value, struct err *err)
{
	uint64_t number;
	int result = read_number(label, value, 1, COPIES_MAX, &number, err);

	if (result == 0)
		options->copies = (unsigned)number;
	return result;
}

static int set_give_up(struct push_options *options, const char *label, const char *value, struct err *err)
{
	uint64_t seconds;
	int result = read_number(label, value, 1, GIVE_UP_MAX_S, &seconds, err);

	if (result == 0)
		options->give_up_us = (int64_t)seconds * SEC_US;
	return result;
}

static int set_digest(struct push_options *options, const char *label, const char *value, struct err *err)
{
	if (digest_from_name(str_from(value), &options->digest))
		return 0;
	return refuse(label, value, "none of: " DIGEST_NAMES, err);
}

static int set_encrypt(struct push_options *options, const char *label, const char *value, struct err *err)
{
	if (value[0] == '\0')
		return err_set(err, ERR_USAGE, "%s is empty", label);
	options->encrypt = value;
	return 0;
}

static int set_cipher(struct push_options *options, const char *label, const char *value, struct err *err)
{
	if (seal_cipher_from_name(str_from(value), &options->cipher))
		return 0;
	return refuse(label, value, "none of: " SEAL_CIPHER_NAMES, err);
}

static int set_links(struct push_options *options, const char *label, const char *value, struct err *err)
{
	static const struct choice choices[] = {
		{ "keep", WALK_LINKS_KEEP },
		{ "skip", WALK_LINKS_SKIP },
		{ "follow", WALK_LINKS_FOLLOW },
		{ .word = NULL },
	};
	int links;
	int result = read_choice(label, value, choices, &links, err);

	if (result == 0)
		options->links = (enum walk_links)links;
	return result;
}

static int set_network(struct push_options *options, const char *label, const char *value, struct err *err)
{
	static const struct choice choices[] = {
		{ "lan", PUSH_NETWORK_LAN },
		{ "wan", PUSH_NETWORK_WAN },
		{ "auto", PUSH_NETWORK_AUTO },
		{ .word = NULL },
	};
	int network;
	int result = read_choice(label, value, choices, &network, err);

	if (result == 0)
		options->network = (enum push_network)network;
	return result;
}

static int set_dry_run(struct push_options *options, const char *label, const char *value, struct err *err)
{
	static const struct choice choices[] = {
		{ "yes", true }, { "no", false }, { "1", true }, { "0", false }, { "", true }, { .word = NULL },
	};
	int is_set;
	int result = read_choice(label, value, choices, &is_set, err);

	if (result == 0)
		options->is_dry_run = is_set;
	return result;
}

static int set_chunk_size(struct push_options *options, const char *label, const char *value, struct err *err)
{
	uint64_t bytes;

	if (!str_to_size(str_from(value), &bytes) || bytes < CHUNK_BYTES_MIN || bytes > CHUNK_BYTES_MAX) {
		(void)refuse(label, value, "not a size from 64KiB to 64MiB", err);
		err_hint(err, "like 8MiB");
		return -(int)ERR_USAGE;
	}
	options->chunk_bytes = bytes;
	return 0;
}

static int set_limit_rate(struct push_options *options, const char *label, const char *value, struct err *err)
{
	uint64_t rate_bytes;

	if (!str_to_size(str_from(value), &rate_bytes) ||
	    (rate_bytes > 0 && (rate_bytes < BUCKET_RATE_MIN_BYTES || rate_bytes > BUCKET_RATE_MAX_BYTES))) {
		(void)refuse(label, value, "not a size from 4KiB to 1TiB, nor 0", err);
		err_hint(err, "bytes a second, like 20MiB; 0 sets no limit");
		return -(int)ERR_USAGE;
	}
	options->limit_rate_bytes = rate_bytes;
	return 0;
}

static const struct option_row {
	const char *name;
	int (*set)(struct push_options *options, const char *label, const char *value, struct err *err);
} ROWS[] = {
	{ "name", set_name },
	{ "resume", set_resume },
	{ "parallel", set_parallel },
	{ "priority", set_priority },
	{ "give-up", set_give_up }, /* seconds without any acknowledgement */
	{ "copies", set_copies },
	{ "digest", set_digest },
	{ "encrypt", set_encrypt },
	{ "cipher", set_cipher },
	{ "links", set_links },
	{ "network", set_network },
	{ "dry-run", set_dry_run },
	{ "chunk-size", set_chunk_size },
	{ "limit-rate", set_limit_rate }, /* bytes a second */
	{ "state-dir", set_state_dir },   /* the command takes its own from the environment */
};

static const struct option_row *find(const char *name)
{
	for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
		if (strcmp(ROWS[i].name, name) == 0)
			return &ROWS[i];
	}
	return NULL;
}

bool push_option_exists(const char *name) { return find(name) != NULL; }

int push_option_set(struct push_options *options, const char *name, const char *label, const char *value,
		    struct err *err)
{
	const struct option_row *row = find(name);

	if (!row)
		return err_set(err, ERR_USAGE, "%s is no option of a push", label);
	return row->set(options, label, value, err);
}
