/* Answers of any bytes: what is cut out lies within the text and gets shorter, what is read fits, and text that we write ourselves comes back. */
#include <string.h>

#include "base/buf.h"
#include "wire/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round(struct str text)
{
	struct buf written = BUF_INIT(MIB);
	char back[256];

	if (text.size > 30 || text.size == 0 || memchr(text.data, '\0', text.size))
		return;
	buf_append_c(&written, "<?xml version=\"1.0\"?><A><Key>");
	for (size_t i = 0; i < text.size; i++) {
		switch (text.data[i]) {
		case '&':
			buf_append_c(&written, "&amp;");
			break;
		case '<':
			buf_append_c(&written, "&#60;");
			break;
		case '>':
			buf_append_c(&written, "&#x3E;");
			break;
		default:
			buf_append(&written, (struct str){ text.data + i, 1 });
		}
	}
	buf_append_c(&written, "</Key></A>");
	MUST(xml_find(buf_str(&written), "Key", back, sizeof(back)));
	MUST(str_eq_c(text, back));
	buf_fini(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = { "Key", "Contents", "a" };
	struct str text = { (const char *)data, size }, inner;
	char target[64];

	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct str rest = text;
		size_t before = rest.size + 1;

		while (xml_cut(&rest, names[i], &inner)) {
			MUST(rest.size < before);
			MUST(inner.data >= text.data && inner.data + inner.size <= text.data + text.size);
			if (xml_text(inner, target, sizeof(target)))
				MUST(strlen(target) <= inner.size);
			before = rest.size;
		}
	}
	check_round(text);
	return 0;
}
