/* Between seal.c (keys and segments) and seal_form.c (names and sizes). */
#ifndef HENG_WIRE_SEAL_IMPL_H
#define HENG_WIRE_SEAL_IMPL_H

#include "wire/seal.h"

size_t seal_header_bytes(enum seal_cipher cipher);
size_t seal_tag_bytes(enum seal_cipher cipher);
enum seal_cipher seal_cipher_of(const struct seal *seal);
/* What every header of this cipher begins with, before the salt; returns its size. */
size_t seal_header_begin(enum seal_cipher cipher, uint8_t *target);
bool seal_cipher_is_here(enum seal_cipher cipher); /* in this OpenSSL */

#endif
