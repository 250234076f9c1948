#include "base/conf.h"
#include "base/buf.h"
#include "base/conf_value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>
#include <yaml.h>

#define TEXT_MAX_BYTES (1 * MIB)
#define DEPTH_MAX      16
#define ROWS_MAX       64
#define WORDS_MAX      64 /* of one list of words */
/* Keeps room at the end of the error text for "and N more". */
#define FAULTS_MAX_BYTES (sizeof(((struct err *)0)->text) - 24)

/* One reading of one text. */
struct reading {
	char name[128]; /* the end of the path, for messages */
	struct arena *arena;
	yaml_parser_t parser;
	yaml_event_t event; /* the current one */
	bool has_event;
	unsigned depth;
	bool is_broken; /* nothing after this can be read: stop */
	struct buf faults;
	unsigned fault_count, unsaid_count;
};

/* A row of the table while a mapping is read. */
struct seen {
	size_t line[ROWS_MAX]; /* where the key was given, from 1; 0: not yet */
};

static void PRINTF(3, 4) add_fault(struct reading *reading, yaml_mark_t mark, const char *fmt, ...)
{
	size_t size_before = reading->faults.size;
	char text[400];
	va_list args;

	va_start(args, fmt);
	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	va_end(args);
	reading->fault_count++;
	if (reading->unsaid_count > 0 || !buf_printf(&reading->faults, "%s%s:%zu:%zu: %s", size_before > 0 ? "; " : "",
						     reading->name, mark.line + 1, mark.column + 1, text)) {
		/* The first always fits, as names and texts are bounded. */
		reading->faults.is_failed = false;
		reading->unsaid_count++;
	}
}

/* What cannot be read past. */
static bool PRINTF(3, 4) stop_at(struct reading *reading, yaml_mark_t mark, const char *fmt, ...)
{
	char text[300];
	va_list args;

	va_start(args, fmt);
	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	va_end(args);
	add_fault(reading, mark, "%s", text);
	reading->is_broken = true;
	return false;
}

/* Aliases can make a small text stand for a huge one, tags change what a value is: a configuration needs neither. */
static bool is_plain_event(struct reading *reading)
{
	const yaml_event_t *event = &reading->event;
	const yaml_char_t *anchor = NULL, *tag = NULL;

	switch (event->type) {
	case YAML_ALIAS_EVENT:
		anchor = event->data.alias.anchor;
		break;
	case YAML_SCALAR_EVENT:
		anchor = event->data.scalar.anchor;
		tag = event->data.scalar.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = event->data.sequence_start.anchor;
		tag = event->data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = event->data.mapping_start.anchor;
		tag = event->data.mapping_start.tag;
		break;
	default:
		break;
	}
	if (anchor)
		return stop_at(reading, event->start_mark, "anchors and aliases (& and *) are not allowed here");
	if (tag)
		return stop_at(reading, event->start_mark, "tags (!) are not allowed here");
	return true;
}

/* Advances to the next event. False when there is none that can be used; the fault is noted then. */
static bool next_event(struct reading *reading)
{
	if (reading->is_broken)
		return false;
	if (reading->has_event)
		yaml_event_delete(&reading->event);
	reading->has_event = yaml_parser_parse(&reading->parser, &reading->event) == 1;
	if (!reading->has_event) {
		const yaml_parser_t *parser = &reading->parser;

		/* Errors of the decoder know no line. */
		return stop_at(reading, parser->error == YAML_READER_ERROR ? parser->mark : parser->problem_mark,
			       "this is not YAML: %s", parser->problem ? parser->problem : "out of memory");
	}
	if (!is_plain_event(reading))
		return false;
	switch (reading->event.type) {
	case YAML_MAPPING_START_EVENT:
	case YAML_SEQUENCE_START_EVENT:
		if (++reading->depth > DEPTH_MAX)
			return stop_at(reading, reading->event.start_mark, "nested deeper than %d levels", DEPTH_MAX);
		return true;
	case YAML_MAPPING_END_EVENT:
	case YAML_SEQUENCE_END_EVENT:
		reading->depth--;
		return true;
	default:
		return true;
	}
}

static bool is_start(const yaml_event_t *event)
{
	return event->type == YAML_MAPPING_START_EVENT || event->type == YAML_SEQUENCE_START_EVENT;
}

/* Passes over the rest of the value whose first event is the current one. */
static void skip_value(struct reading *reading)
{
	unsigned depth = reading->depth;

	if (!is_start(&reading->event))
		return;
	while (reading->depth >= depth && next_event(reading))
		;
}

static struct str scalar_text(const yaml_event_t *event)
{
	return (struct str){ (const char *)event->data.scalar.value, event->data.scalar.length };
}

/* `key:` with nothing behind it, or one of YAML's words for nothing. */
static bool is_null(const yaml_event_t *event)
{
	struct str text;

	if (event->type != YAML_SCALAR_EVENT || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	text = scalar_text(event);
	return text.size == 0 || str_eq(text, STR("~")) || str_eq_nocase(text, STR("null"));
}

static void read_mapping(struct reading *reading, const struct conf_row *rows, char *target);

static void read_list(struct reading *reading, const struct conf_row *row, struct conf_list *ret_list)
{
	size_t capacity = 0;
	char *items = NULL;

	/* All entries of a list may be commented out. */
	if (is_null(&reading->event))
		return;
	if (reading->event.type != YAML_SEQUENCE_START_EVENT) {
		add_fault(reading, reading->event.start_mark, "'%s' must be a list (- one, - two)", row->name);
		skip_value(reading);
		return;
	}
	while (next_event(reading) && reading->event.type != YAML_SEQUENCE_END_EVENT) {
		if (reading->event.type != YAML_MAPPING_START_EVENT) {
			add_fault(reading, reading->event.start_mark,
				  "each entry of '%s' must be a mapping (- key: value)", row->name);
			skip_value(reading);
			continue;
		}
		if (ret_list->count == capacity) {
			size_t wanted = capacity == 0 ? 8 : 2 * capacity;
			char *grown = arena_alloc(reading->arena, wanted * row->item_size);

			if (!grown) {
				stop_at(reading, reading->event.start_mark, "'%s' has too many entries (%zu)",
					row->name, capacity);
				return;
			}
			if (items)
				memcpy(grown, items, capacity * row->item_size);
			items = grown;
			capacity = wanted;
		}
		read_mapping(reading, row->item_rows, items + ret_list->count * row->item_size);
		ret_list->count++;
		ret_list->items = items;
	}
}

static void read_words(struct reading *reading, const struct conf_row *row, struct conf_list *ret_list)
{
	const char **words = NULL;

	if (is_null(&reading->event))
		return;
	if (reading->event.type != YAML_SEQUENCE_START_EVENT) {
		add_fault(reading, reading->event.start_mark, "'%s' must be a list of words ([one, two])", row->name);
		skip_value(reading);
		return;
	}
	while (next_event(reading) && reading->event.type != YAML_SEQUENCE_END_EVENT) {
		struct str text = reading->event.type == YAML_SCALAR_EVENT ? scalar_text(&reading->event) : STR_NONE;

		if (reading->event.type != YAML_SCALAR_EVENT || (text.size > 0 && memchr(text.data, '\0', text.size))) {
			add_fault(reading, reading->event.start_mark, "each entry of '%s' must be one word", row->name);
			skip_value(reading);
			continue;
		}
		if (!words)
			words = arena_alloc(reading->arena, WORDS_MAX * sizeof(*words));
		if (!words || ret_list->count == WORDS_MAX ||
		    !(words[ret_list->count] = arena_strdup(reading->arena, text))) {
			stop_at(reading, reading->event.start_mark, "'%s' has too many entries (%zu)", row->name,
				ret_list->count);
			return;
		}
		ret_list->count++;
		ret_list->items = words;
	}
}

static void read_value(struct reading *reading, const struct conf_row *row, char *target)
{
	char why[CONF_WHY_SIZE];

	if (row->type == CONF_WORDS) {
		read_words(reading, row, (void *)(target + row->offset));
		return;
	}
	if (row->type == CONF_LIST) {
		/* Through void, as the offsets in the table are those of aligned members. */
		read_list(reading, row, (void *)(target + row->offset));
		return;
	}
	if (reading->event.type != YAML_SCALAR_EVENT) {
		add_fault(reading, reading->event.start_mark, "'%s' must be one value, not a %s", row->name,
			  reading->event.type == YAML_MAPPING_START_EVENT ? "mapping" : "list");
		skip_value(reading);
		return;
	}
	if (is_null(&reading->event)) {
		add_fault(reading, reading->event.start_mark, "'%s' has no value: %s", row->name,
			  conf_value_allowed(row, why));
		return;
	}
	if (!conf_value_read(row, scalar_text(&reading->event), target, reading->arena, why))
		add_fault(reading, reading->event.start_mark, "'%s' %s", row->name, why);
}

static const struct conf_row *find_row(const struct conf_row *rows, struct str key)
{
	for (size_t i = 0; rows[i].name; i++) {
		MUST(i < ROWS_MAX);
		if (str_eq_c(key, rows[i].name))
			return &rows[i];
	}
	return NULL;
}

/* Reads the key that is the current event. NULL when its value is to be passed over. */
static const struct conf_row *read_key(struct reading *reading, const struct conf_row *rows, struct seen *seen)
{
	yaml_mark_t mark = reading->event.start_mark;
	const struct conf_row *row;
	const char *near;
	struct str key;
	char shown[64];

	if (reading->event.type != YAML_SCALAR_EVENT) {
		add_fault(reading, mark, "a key must be one word");
		skip_value(reading);
		return NULL;
	}
	key = scalar_text(&reading->event);
	str_display(key, shown, sizeof(shown));
	row = find_row(rows, key);
	if (!row) {
		near = conf_value_nearest(rows, key);
		add_fault(reading, mark, near ? "unknown key '%s' (did you mean '%s'?)" : "unknown key '%s'", shown,
			  near);
		return NULL;
	}
	if (seen->line[row - rows] != 0) {
		add_fault(reading, mark, "'%s' is given twice (first on line %zu)", shown, seen->line[row - rows]);
		return NULL;
	}
	seen->line[row - rows] = mark.line + 1;
	return row;
}

/* Gives the keys that were not seen their defaults, or names them as missing. */
static void fill_missing(struct reading *reading, const struct conf_row *rows, const struct seen *seen,
			 yaml_mark_t mark, char *target)
{
	char why[CONF_WHY_SIZE];

	for (size_t i = 0; rows[i].name; i++) {
		MUST(i < ROWS_MAX);
		if (seen->line[i] != 0 || conf_value_default(&rows[i], target, reading->arena))
			continue;
		if (rows[i].fallback)
			add_fault(reading, mark, "no room for the default of '%s'", rows[i].name);
		else
			add_fault(reading, mark, "'%s' is missing: %s", rows[i].name,
				  conf_value_allowed(&rows[i], why));
	}
}

/* The current event is the start of the mapping; on return it is its end. */
static void read_mapping(struct reading *reading, const struct conf_row *rows, char *target)
{
	yaml_mark_t start = reading->event.start_mark;
	struct seen seen = { 0 };

	while (next_event(reading) && reading->event.type != YAML_MAPPING_END_EVENT) {
		const struct conf_row *row = read_key(reading, rows, &seen);

		if (!next_event(reading))
			return;
		if (row)
			read_value(reading, row, target);
		else
			skip_value(reading);
	}
	if (!reading->is_broken)
		fill_missing(reading, rows, &seen, start, target);
}

static void read_document(struct reading *reading, const struct conf_row *rows, char *target)
{
	const struct seen nothing = { 0 };

	/* The start of the stream, then of the document. */
	if (!next_event(reading) || !next_event(reading))
		return;
	if (reading->event.type == YAML_STREAM_END_EVENT) {
		fill_missing(reading, rows, &nothing, reading->event.start_mark, target);
		return;
	}
	if (!next_event(reading))
		return;
	if (is_null(&reading->event)) {
		fill_missing(reading, rows, &nothing, reading->event.start_mark, target);
	} else if (reading->event.type == YAML_MAPPING_START_EVENT) {
		read_mapping(reading, rows, target);
	} else {
		stop_at(reading, reading->event.start_mark, "the file must be a mapping (key: value)");
		return;
	}
	/* The end of the document, then of the stream. */
	if (next_event(reading) && next_event(reading) && reading->event.type != YAML_STREAM_END_EVENT)
		add_fault(reading, reading->event.start_mark, "a second document is not allowed");
}

static int report(struct reading *reading, struct err *err)
{
	if (reading->fault_count == 0)
		return 0;
	if (reading->unsaid_count > 0)
		err_set(err, ERR_CONFIG, "%s; and %u more", buf_cstr(&reading->faults), reading->unsaid_count);
	else
		err_set(err, ERR_CONFIG, "%s", buf_cstr(&reading->faults));
	err_hint(err, "correct the configuration, then start again");
	return -ERR_CONFIG;
}

/* The place of the first byte that is not UTF-8. */
static yaml_mark_t bad_byte_mark(struct str text)
{
	yaml_mark_t mark = { 0 };
	size_t size;

	while ((size = utf8_char_size(text)) > 0) {
		bool is_line_end = text.data[0] == '\n';

		mark.line += is_line_end ? 1 : 0;
		mark.column = is_line_end ? 0 : mark.column + 1;
		text = (struct str){ text.data + size, text.size - size };
	}
	return mark;
}

int conf_parse(const char *name, struct str text, const struct conf_row *rows, void *target, size_t target_size,
	       struct arena *arena, struct err *err)
{
	struct reading reading = { .arena = arena, .faults = BUF_INIT(FAULTS_MAX_BYTES) };
	size_t skipped = strlen(name) < sizeof(reading.name) ? 0 : strlen(name) - sizeof(reading.name) + 1;
	int result;

	/* Of a long path the end says more than the beginning. */
	str_display(str_from(name + skipped), reading.name, sizeof(reading.name));
	memset(target, 0, target_size);
	if (text.size > TEXT_MAX_BYTES)
		return err_set(err, ERR_CONFIG, "%s: a configuration may have at most 1 MiB, this one has more",
			       reading.name);
	if (!utf8_is_valid(text)) {
		add_fault(&reading, bad_byte_mark(text), "this is not UTF-8 text");
	} else if (yaml_parser_initialize(&reading.parser) != 1) {
		return err_set(err, ERR_NO_MEMORY, "%s: no memory to read the configuration", reading.name);
	} else {
		yaml_parser_set_encoding(&reading.parser, YAML_UTF8_ENCODING);
		yaml_parser_set_input_string(&reading.parser, (const unsigned char *)(text.size > 0 ? text.data : ""),
					     text.size);
		read_document(&reading, rows, target);
		if (reading.has_event)
			yaml_event_delete(&reading.event);
		yaml_parser_delete(&reading.parser);
	}
	result = report(&reading, err);
	buf_fini(&reading.faults);
	return result;
}

static int read_file(const char *path, struct buf *buf, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int kept_errno = 0;

	if (fd < 0)
		return err_sys(err, ERR_CONFIG, errno, "cannot open configuration '%s'", path);
	/* One byte more than allowed, so that conf_parse sees what is too long. */
	while (buf->size <= TEXT_MAX_BYTES) {
		ssize_t count;

		if (!buf_reserve(buf, min_size(64 * KIB, buf->limit - buf->size))) {
			kept_errno = ENOMEM;
			break;
		}
		count = read(fd, buf->data + buf->size, min_size(64 * KIB, buf->limit - buf->size));
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			kept_errno = errno;
		if (count <= 0)
			break;
		buf->size += (size_t)count;
	}
	close(fd);
	if (kept_errno != 0)
		return err_sys(err, ERR_CONFIG, kept_errno, "cannot read configuration '%s'", path);
	return 0;
}

int conf_load(const char *path, const struct conf_row *rows, void *target, size_t target_size, struct arena *arena,
	      struct err *err)
{
	struct buf buf = BUF_INIT(TEXT_MAX_BYTES + 1);
	int result = read_file(path, &buf, err);

	if (result == 0)
		result = conf_parse(path, buf_str(&buf), rows, target, target_size, arena, err);
	buf_fini(&buf);
	return result;
}
