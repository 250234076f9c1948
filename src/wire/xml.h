/* Reading the few short XML answers of S3: the text of elements by their name, without a tree. Names without a namespace's prefix, attributes passed
 * over, the five entities and character references; no CDATA, no comments within text, nothing that a document type could define. */
#ifndef HENG_WIRE_XML_H
#define HENG_WIRE_XML_H

#include "base/str.h"

/* What stands between the next <name ...> and the first </name> behind it, markup and all; *rest is what follows. False when there is none (any
 * more). An element within one of its own name is not found. */
bool xml_cut(struct str *rest, const char *name, struct str *ret_inner);
/* The text of that, with its entities read and a NUL behind; false when there is markup in it, an unknown entity, a NUL, or no room. */
bool xml_text(struct str inner, char *target, size_t target_size);
/* Both: of the first element of that name. "" and false when there is none. */
bool xml_find(struct str text, const char *name, char *target, size_t target_size);

#endif
