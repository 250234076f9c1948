/* The manifest of a folder, one entry a line, streamed; never held whole. Text, so that an auditor can read it:
 *   heng-manifest 1
 *   D <mode octal> <mtime ns> <path>
 *   F <mode octal> <mtime ns> <size> <path>
 *   L <mode octal> <mtime ns> <target> <path>
 *   end <entry count> <total file bytes>
 * The entry count counts every D, F and L line, the root's too; the total counts the sizes of the F lines. Paths are relative, '/'-separated; bytes other than A-Za-z0-9-._~/ are %XX: every byte of every name is kept and the line stays one
 * line. A folder stands before what is in it, as a D line of its own: so `a` beside `a/b`, duplicates (by a set of 128-bit path
 * hashes) and missing parents are all found while streaming, in 32 bytes an entry. The root itself is the entry "D mode mtime ." and comes first.
 * The CRC-32C is over every byte of the text and travels beside it. */
#ifndef HENG_WIRE_MANIFEST_H
#define HENG_WIRE_MANIFEST_H

#include "base/buf.h"
#include "base/err.h"

#define MANIFEST_PATH_MAX 4096
#define MANIFEST_NAME_MAX 255
#define MANIFEST_LINE_MAX (6 * MANIFEST_PATH_MAX + 128) /* link target and path, each byte as %XX */

enum manifest_type { MANIFEST_DIR = 'D', MANIFEST_FILE = 'F', MANIFEST_LINK = 'L' };

struct manifest_entry {
	uint64_t seq; /* 0 is the root */
	enum manifest_type type;
	uint32_t mode; /* permission bits, 07777 */
	int64_t mtime_ns;
	uint64_t size_bytes;
	struct str path;   /* raw bytes, not encoded; "." for the root */
	struct str target; /* links only, raw bytes */
};

/* NULL when the raw path may be an entry's; else the rule it breaks, in words ("has a component '..'"). "." (the root) is not a path here. */
const char *manifest_path_fault(struct str path);

/* Appends one line. */
void manifest_write_head(struct buf *buf);
void manifest_write(struct buf *buf, const struct manifest_entry *entry);
void manifest_write_end(struct buf *buf, uint64_t entry_count, uint64_t total_bytes);

struct manifest_limits {
	uint64_t entry_count_max;
	uint64_t file_bytes_max;
	uint64_t total_bytes_max;
};
extern const struct manifest_limits manifest_limits_default; /* 10 million, 16 TiB, 1 PiB */

/* A resumable parser: feeding one byte at a time equals feeding all at once. Every rule of the format and of paths (absolute, . .. or empty
 * components, NUL, a component over 255 bytes, a path over 4096, duplicates, file used as a folder, missing parent) is checked; ERR_MANIFEST_BAD for
 * the form, ERR_ENTRY_REFUSED naming entry and rule for the content. entry slices are valid during the callback only; a negative return stops. */
struct manifest_parser;
typedef int manifest_entry_fn(void *owner, const struct manifest_entry *entry, struct err *err);
struct manifest_parser *manifest_parser_new(const struct manifest_limits *limits, manifest_entry_fn *on_entry,
					    void *owner);
void manifest_parser_free(struct manifest_parser **parser);
int manifest_feed(struct manifest_parser *parser, struct str piece, struct err *err);
int manifest_end(struct manifest_parser *parser, struct err *err); /* the end line was there and its counts are right */
uint32_t manifest_crc32c(const struct manifest_parser *parser);    /* of all bytes fed */
void manifest_digest(const struct manifest_parser *parser,
		     char target[33]); /* XXH3-128 of all bytes, hex: to recognise the same folder */

#endif
