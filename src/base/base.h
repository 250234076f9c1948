/* What every file may rely on: attributes, assertions, and the refusal of unbounded string calls. */
#ifndef HENG_BASE_BASE_H
#define HENG_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HENG_VERSION "0.1.0"

#define UNUSED                        __attribute__((unused))
#define PRINTF(fmt_index, args_index) __attribute__((format(printf, fmt_index, args_index)))
#define NODISCARD                     __attribute__((warn_unused_result))
/* Runs FN(&variable) when the variable leaves its scope. */
#define AUTO(fn)                        __attribute__((cleanup(fn)))
#define COUNT_OF(array)                 (sizeof(array) / sizeof((array)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define KIB     ((size_t)1024)
#define MIB     (1024 * KIB)
#define GIB     (1024 * MIB)
#define MSEC_US ((int64_t)1000)
#define SEC_US  ((int64_t)1000000)

/* MUST: our own mistake. Always on; prints where and aborts. Nothing that a peer, a disk, a clock or an operator
 * can cause may reach it. */
#define MUST(claim) ((claim) ? (void)0 : must_failed(#claim, __FILE__, __LINE__))
_Noreturn void must_failed(const char *claim, const char *file, int line);

/* Allocation that cannot be refused sensibly (small, bounded): aborts when the machine has none left. */
void *must_alloc(size_t size_bytes) __attribute__((malloc, returns_nonnull));
void *must_zalloc(size_t count, size_t size_bytes) __attribute__((malloc, returns_nonnull));
char *must_strdup(const char *text) __attribute__((malloc, returns_nonnull));

/* Unbounded by design, so not to be called at all. The headers that declare them are included above, so that the order of includes
 * does not matter; the C library makes macros of some when it checks sizes. */
#undef sprintf
#undef vsprintf
#pragma GCC poison strcpy strcat sprintf vsprintf gets strtok atoi atol

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

#endif
