#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "wire/manifest.h"
#include "base/hash.h"
#include "base/rng.h"

static const struct str head_line = { "heng-manifest 1", 15 };

const struct manifest_limits manifest_limits_default = {
	.entry_count_max = 10 * 1000 * 1000,
	.file_bytes_max = (uint64_t)16 << 40,
	.total_bytes_max = (uint64_t)1 << 50,
};

/* --- writing --- */

static void append_encoded(struct buf *buf, struct str raw)
{
	const size_t room = 3 * raw.size + 1;

	/* Encoded in place: a million entries should not be copied twice. */
	if (buf_reserve(buf, room))
		buf->size += percent_encode(raw, true, buf->data + buf->size, room);
}

void manifest_write_head(struct buf *buf)
{
	buf_append(buf, head_line);
	buf_append(buf, STR("\n"));
}

void manifest_write(struct buf *buf, const struct manifest_entry *entry)
{
	buf_printf(buf, "%c %" PRIo32 " %" PRId64 " ", (char)entry->type, entry->mode, entry->mtime_ns);
	if (entry->type == MANIFEST_FILE)
		buf_printf(buf, "%" PRIu64 " ", entry->size_bytes);
	if (entry->type == MANIFEST_LINK) {
		append_encoded(buf, entry->target);
		buf_append(buf, STR(" "));
	}
	append_encoded(buf, entry->path);
	buf_append(buf, STR("\n"));
}

void manifest_write_end(struct buf *buf, uint64_t entry_count, uint64_t total_bytes)
{
	buf_printf(buf, "end %" PRIu64 " %" PRIu64 "\n", entry_count, total_bytes);
}

/* --- the set of paths seen --- */

/* Open addressing over 126 bits of the path's hash; the two lowest bits of `high` say what the entry is, 0 an empty slot: 16 bytes a
 * slot, at most 2/3 full. Two paths with one hash would be refused as duplicates: the safe side. */
enum path_kind { PATH_ABSENT = 0, PATH_DIR = 1, PATH_OTHER = 2 };
struct path_slot {
	uint64_t low, high;
};
struct path_set {
	struct path_slot *slots;
	size_t slot_count; /* a power of two, or 0 */
	size_t used_count;
	uint64_t multiplier; /* odd and random: whoever makes up a manifest cannot aim at one place of the table */
};

static struct path_slot *path_find(const struct path_set *set, struct hash128 hash)
{
	const size_t mask = set->slot_count - 1;
	size_t index = (size_t)(((hash.low ^ (hash.high >> 7)) * set->multiplier) >> 20) & mask;

	for (;; index = (index + 1) & mask) {
		struct path_slot *slot = &set->slots[index];

		if (slot->high == 0 || (slot->low == hash.low && (slot->high | 3) == (hash.high | 3)))
			return slot;
	}
}

static bool path_set_grow(struct path_set *set)
{
	struct path_set bigger = *set;

	bigger.slot_count = set->slot_count ? 2 * set->slot_count : 1024;
	bigger.slots = calloc(bigger.slot_count, sizeof(*bigger.slots));
	if (!bigger.slots)
		return false;
	for (size_t i = 0; i < set->slot_count; i++)
		if (set->slots[i].high != 0)
			*path_find(&bigger, (struct hash128){ set->slots[i].low, set->slots[i].high }) = set->slots[i];
	free(set->slots);
	*set = bigger;
	return true;
}

static enum path_kind path_kind(const struct path_set *set, struct str path)
{
	if (set->slot_count == 0)
		return PATH_ABSENT;
	return (enum path_kind)(path_find(set, hash128(path.data, path.size))->high & 3);
}

/* The path must be absent. False without memory. */
static bool path_add(struct path_set *set, struct str path, enum path_kind kind)
{
	const struct hash128 hash = hash128(path.data, path.size);

	if (set->used_count + 1 > set->slot_count / 3 * 2 && !path_set_grow(set))
		return false;
	*path_find(set, hash) = (struct path_slot){ hash.low, (hash.high & ~(uint64_t)3) | (uint64_t)kind };
	set->used_count++;
	return true;
}

/* --- parsing --- */

enum parser_state { WANT_HEAD, WANT_ROOT, WANT_ENTRY, WANT_NOTHING };
struct manifest_parser {
	struct manifest_limits limits;
	manifest_entry_fn *on_entry;
	void *owner;
	enum parser_state state;
	struct buf line; /* the beginning of a line whose end has not come yet */
	uint64_t line_count, entry_count, total_bytes;
	struct path_set paths;
	uint32_t crc;
	XXH3_state_t *digest;
	int result; /* of the first failure: sticky */
	struct err fault;
	/* Decoded bytes of the current entry. */
	char path[MANIFEST_PATH_MAX + 1], target[MANIFEST_PATH_MAX + 1];
};

struct manifest_parser *manifest_parser_new(const struct manifest_limits *limits, manifest_entry_fn *on_entry,
					    void *owner)
{
	struct manifest_parser *parser = must_zalloc(1, sizeof(*parser));

	parser->limits = *limits;
	parser->on_entry = on_entry;
	parser->owner = owner;
	parser->line = BUF_INIT(MANIFEST_LINE_MAX);
	rng_secret(&parser->paths.multiplier, sizeof(parser->paths.multiplier));
	parser->paths.multiplier |= 1;
	parser->digest = XXH3_createState();
	MUST(parser->digest != NULL);
	XXH3_128bits_reset(parser->digest);
	return parser;
}

void manifest_parser_free(struct manifest_parser **parser)
{
	if (!*parser)
		return;
	buf_fini(&(*parser)->line);
	free((*parser)->paths.slots);
	XXH3_freeState((*parser)->digest);
	free(*parser);
	*parser = NULL;
}

static int form_fault(const struct manifest_parser *parser, const char *rule, struct err *err)
{
	return err_set(err, ERR_MANIFEST_BAD, "manifest line %" PRIu64 ": %s", parser->line_count, rule);
}

static int entry_fault(const struct manifest_parser *parser, struct str path, const char *rule, struct err *err)
{
	char shown[320];

	return err_set(err, ERR_ENTRY_REFUSED, "manifest line %" PRIu64 ": entry '%s' %s", parser->line_count,
		       str_display(path, shown, sizeof(shown)), rule);
}

const char *manifest_path_fault(struct str path)
{
	if (path.size == 0)
		return "has an empty path";
	if (path.size > MANIFEST_PATH_MAX)
		return "has a path longer than 4096 bytes";
	if (path.data[0] == '/')
		return "has an absolute path";
	if (memchr(path.data, '\0', path.size))
		return "has a NUL in its path";
	for (size_t start = 0; start <= path.size;) {
		const char *name = path.data + start;
		const char *slash = start < path.size ? memchr(name, '/', path.size - start) : NULL;
		const size_t size = slash ? (size_t)(slash - name) : path.size - start;

		if (size == 0)
			return "has an empty component in its path";
		if (size == 1 && name[0] == '.')
			return "has a component '.'";
		if (size == 2 && name[0] == '.' && name[1] == '.')
			return "has a component '..'";
		if (size > MANIFEST_NAME_MAX)
			return "has a component longer than 255 bytes";
		start += size + 1;
	}
	return NULL;
}

/* Only what manifest_write would write raw may stand raw. */
static bool is_encoded_text(struct str text)
{
	for (size_t i = 0; i < text.size; i++) {
		const char c = text.data[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      memchr("-._~/%", c, 6)))
			return false;
	}
	return true;
}

static int decode(const struct manifest_parser *parser, struct str encoded, const char *what, char *target,
		  struct str *ret, struct err *err)
{
	size_t size;

	if (!is_encoded_text(encoded))
		return err_set(err, ERR_MANIFEST_BAD,
			       "manifest line %" PRIu64 ": the %s has a byte that is not percent-encoded",
			       parser->line_count, what);
	/* One byte more than allowed, so that "too long" is told by the rules for paths, which name the entry. */
	if (!percent_decode(encoded, target, MANIFEST_PATH_MAX + 1, &size))
		return err_set(err, ERR_MANIFEST_BAD,
			       "manifest line %" PRIu64 ": the %s is not percent-encoded text of at most %d bytes",
			       parser->line_count, what, MANIFEST_PATH_MAX);
	*ret = (struct str){ target, size };
	return 0;
}

/* "<type> <mode> <mtime> [<size>|<target>] <path>" */
static int parse_fields(struct manifest_parser *parser, struct str line, struct manifest_entry *ret, struct err *err)
{
	struct str type, mode, mtime, extra = STR_NONE;

	*ret = (struct manifest_entry){ .seq = parser->entry_count };
	if (!str_cut(&line, ' ', &type) || type.size != 1 || !memchr("DFL", type.data[0], 3))
		return form_fault(parser, "it begins with none of 'D ', 'F ', 'L ', 'end '", err);
	ret->type = (enum manifest_type)type.data[0];
	if (!str_cut(&line, ' ', &mode) || !str_to_octal(mode, &ret->mode) || ret->mode > 07777)
		return form_fault(parser, "the mode is not an octal number up to 7777", err);
	if (!str_cut(&line, ' ', &mtime) || !str_to_i64(mtime, &ret->mtime_ns))
		return form_fault(parser, "the time is not a number of nanoseconds", err);
	if (ret->type != MANIFEST_DIR && !str_cut(&line, ' ', &extra))
		return form_fault(parser, "a field is missing", err);
	if (ret->type == MANIFEST_FILE && !str_to_u64(extra, &ret->size_bytes))
		return form_fault(parser, "the size is not a number of bytes", err);
	if (decode(parser, line, "path", parser->path, &ret->path, err) < 0)
		return -ERR_MANIFEST_BAD;
	if (ret->type == MANIFEST_LINK)
		return decode(parser, extra, "link target", parser->target, &ret->target, err);
	return 0;
}

static int check_limits(const struct manifest_parser *parser, const struct manifest_entry *entry, struct err *err)
{
	if (parser->entry_count >= parser->limits.entry_count_max)
		return entry_fault(parser, entry->path, "is one more than the number of entries allowed", err);
	if (entry->size_bytes > parser->limits.file_bytes_max)
		return entry_fault(parser, entry->path, "is larger than a file may be", err);
	if (entry->size_bytes > parser->limits.total_bytes_max - parser->total_bytes)
		return entry_fault(parser, entry->path, "makes the folder larger than it may be", err);
	return 0;
}

static int check_place(struct manifest_parser *parser, const struct manifest_entry *entry, struct err *err)
{
	const char *fault = manifest_path_fault(entry->path);

	if (fault)
		return entry_fault(parser, entry->path, fault, err);
	if (entry->type == MANIFEST_LINK && (entry->target.size == 0 || entry->target.size >= MANIFEST_PATH_MAX ||
					     memchr(entry->target.data, '\0', entry->target.size)))
		return entry_fault(parser, entry->path,
				   "is a link whose target is empty, over 4095 bytes or holds a NUL", err);
	if (path_kind(&parser->paths, entry->path) != PATH_ABSENT)
		return entry_fault(parser, entry->path, "is there twice", err);
	const char *slash = memrchr(entry->path.data, '/', entry->path.size);
	if (slash) {
		const struct str parent = { entry->path.data, (size_t)(slash - entry->path.data) };
		const enum path_kind kind = path_kind(&parser->paths, parent);

		if (kind == PATH_ABSENT)
			return entry_fault(parser, entry->path, "comes before the folder it is in", err);
		if (kind != PATH_DIR)
			return entry_fault(parser, entry->path, "lies in something that is not a folder", err);
	}
	if (!path_add(&parser->paths, entry->path, entry->type == MANIFEST_DIR ? PATH_DIR : PATH_OTHER))
		return err_set(err, ERR_NO_MEMORY,
			       "no memory for the paths of a manifest of more than %" PRIu64 " entries",
			       parser->entry_count);
	return 0;
}

static int take_entry(struct manifest_parser *parser, struct str line, struct err *err)
{
	struct manifest_entry entry;
	int r;

	if (parse_fields(parser, line, &entry, err) < 0)
		return -ERR_MANIFEST_BAD;
	r = check_limits(parser, &entry, err);
	if (r < 0)
		return r;
	if (parser->state == WANT_ROOT) {
		if (entry.type != MANIFEST_DIR || !str_eq(entry.path, STR(".")))
			return form_fault(parser, "the first entry is not the root, 'D <mode> <mtime> .'", err);
		parser->state = WANT_ENTRY;
	} else {
		r = check_place(parser, &entry, err);
		if (r < 0)
			return r;
	}
	parser->entry_count++;
	parser->total_bytes += entry.size_bytes;
	return parser->on_entry ? parser->on_entry(parser->owner, &entry, err) : 0;
}

static int take_end(struct manifest_parser *parser, struct str counts, struct err *err)
{
	struct str entries;
	uint64_t entry_count, total_bytes;

	if (!str_cut(&counts, ' ', &entries) || !str_to_u64(entries, &entry_count) || !str_to_u64(counts, &total_bytes))
		return form_fault(parser, "the last line is not 'end <entries> <bytes>'", err);
	if (entry_count != parser->entry_count || total_bytes != parser->total_bytes)
		return err_set(err, ERR_MANIFEST_BAD,
			       "manifest: its last line says %" PRIu64 " entries and %" PRIu64
			       " bytes, but there are %" PRIu64 " and %" PRIu64,
			       entry_count, total_bytes, parser->entry_count, parser->total_bytes);
	parser->state = WANT_NOTHING;
	return 0;
}

static int take_line(struct manifest_parser *parser, struct str line, struct err *err)
{
	parser->line_count++;
	switch (parser->state) {
	case WANT_HEAD:
		if (!str_eq(line, head_line))
			return form_fault(parser, "it is not 'heng-manifest 1'", err);
		parser->state = WANT_ROOT;
		return 0;
	case WANT_ROOT:
		return take_entry(parser, line, err);
	case WANT_ENTRY:
		if (str_starts(line, STR("end ")))
			return take_end(parser, (struct str){ line.data + 4, line.size - 4 }, err);
		return take_entry(parser, line, err);
	case WANT_NOTHING:
		break;
	}
	return form_fault(parser, "something follows the end line", err);
}

static int fail(struct manifest_parser *parser, int result, struct err *err)
{
	parser->result = result;
	if (err)
		parser->fault = *err;
	return result;
}

static int feed_lines(struct manifest_parser *parser, struct str piece, struct err *err)
{
	while (piece.size > 0) {
		const char *end = memchr(piece.data, '\n', piece.size);
		struct str line = { piece.data, end ? (size_t)(end - piece.data) : piece.size };

		if (line.size > MANIFEST_LINE_MAX - parser->line.size) {
			parser->line_count++;
			return form_fault(parser, "it is longer than any line may be", err);
		}
		if ((!end || parser->line.size > 0) && !buf_append(&parser->line, line))
			return err_set(err, ERR_NO_MEMORY, "no memory for a line of the manifest");
		if (!end)
			return 0;
		const bool is_gathered = parser->line.size > 0;
		const int r = take_line(parser, is_gathered ? buf_str(&parser->line) : line, err);
		if (r < 0)
			return r;
		buf_clear(&parser->line);
		piece = (struct str){ end + 1, piece.size - line.size - 1 };
	}
	return 0;
}

int manifest_feed(struct manifest_parser *parser, struct str piece, struct err *err)
{
	struct err local = ERR_INIT;
	int r;

	if (parser->result < 0) {
		if (err)
			*err = parser->fault;
		return parser->result;
	}
	if (piece.size == 0)
		return 0;
	parser->crc = crc32c(parser->crc, piece.data, piece.size);
	XXH3_128bits_update(parser->digest, piece.data, piece.size);
	r = feed_lines(parser, piece, err ? err : &local);
	return r < 0 ? fail(parser, r, err ? err : &local) : 0;
}

int manifest_end(struct manifest_parser *parser, struct err *err)
{
	struct err local = ERR_INIT;
	struct err *to = err ? err : &local;

	if (parser->result < 0) {
		*to = parser->fault;
		return parser->result;
	}
	if (parser->state != WANT_NOTHING || parser->line.size > 0)
		return fail(parser,
			    err_set(to, ERR_MANIFEST_BAD,
				    "the manifest ends after line %" PRIu64 ", before its end line",
				    parser->line_count),
			    to);
	return 0;
}

uint32_t manifest_crc32c(const struct manifest_parser *parser) { return parser->crc; }

void manifest_digest(const struct manifest_parser *parser, char target[33])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(parser->digest));
	hex_encode(canonical.digest, sizeof(canonical.digest), target);
}
