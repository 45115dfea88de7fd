/* BLAKE2b (RFC 7693) of 16 bytes with a salt, as hashlib.blake2b(digest_size=16, salt=...). */
#ifndef HAPAX_BLAKE2B_H
#define HAPAX_BLAKE2B_H
#include <stddef.h>
#include <stdint.h>
/* The digest of `first` followed by `rest`. */
void blake2b_16(const uint8_t salt[16], const uint8_t *first, size_t first_len, const uint8_t *rest, size_t rest_len,
                uint8_t out[16]);
#endif
