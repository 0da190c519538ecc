/* Memory, and what Lua needs of a C library that is quicker here than in the general case. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"

#define PAGE 65536u
#define GRANULE 16u
#define SMALL_BYTES_MAX 256u
#define SLAB_BYTES 4096u

/* The C library's allocator has the first memory, and takes more here. It never gives any back. */
void *sbrk(intptr_t increment) {
  static uintptr_t top;
  uintptr_t room = __builtin_wasm_memory_size(0) * PAGE;
  uintptr_t before = top == 0 ? room : top;
  if (increment < 0 || (uintptr_t)increment > UINT32_MAX - before) goto none;
  if (before + (uintptr_t)increment > room) {
    uint32_t pages = (uint32_t)((before + (uintptr_t)increment - room + PAGE - 1) / PAGE);
    if (!machine_grow(pages)) goto none;
  }
  top = before + (uintptr_t)increment;
  return (void *)before;
none:
  errno = ENOMEM;
  return (void *)-1;
}

/* Blocks that were freed, by size. */
typedef struct Block {
  struct Block *next;
} Block;
static Block *freed[SMALL_BYTES_MAX / GRANULE + 1];
static char *slab, *slab_end;

static void *allocate_small(size_t granules) {
  Block *block = freed[granules];
  if (block != NULL) {
    freed[granules] = block->next;
    return block;
  }
  size_t size = granules * GRANULE;
  if ((size_t)(slab_end - slab) < size) {
    char *fresh = malloc(SLAB_BYTES);
    if (fresh == NULL) return NULL;
    slab = fresh;
    slab_end = fresh + SLAB_BYTES;
  }
  block = (Block *)slab;
  slab += size;
  return block;
}

static void release(void *at, size_t size) {
  if (size > SMALL_BYTES_MAX) {
    free(at);
  } else if (size > 0) {
    Block *block = at;
    size_t granules = (size + GRANULE - 1) / GRANULE;
    block->next = freed[granules];
    freed[granules] = block;
  }
}

static void *allocate(size_t size) {
  return size > SMALL_BYTES_MAX ? malloc(size) : allocate_small((size + GRANULE - 1) / GRANULE);
}

void *machine_allocate(void *unused, void *block, size_t old_size, size_t new_size) {
  (void)unused;
  if (new_size == 0) {
    if (block != NULL) release(block, old_size);
    return NULL;
  }
  if (block == NULL || old_size == 0) return allocate(new_size);
  if (old_size > SMALL_BYTES_MAX && new_size > SMALL_BYTES_MAX) return realloc(block, new_size);
  size_t granules = (old_size + GRANULE - 1) / GRANULE;
  if (new_size <= SMALL_BYTES_MAX && granules == (new_size + GRANULE - 1) / GRANULE) return block;
  void *fresh = allocate(new_size);
  if (fresh == NULL) return NULL;
  memcpy(fresh, block, old_size < new_size ? old_size : new_size);
  release(block, old_size);
  return fresh;
}

/* One instruction of the machine. */
void *memcpy(void *restrict to, const void *restrict from, size_t length) {
  return __builtin_memcpy(to, from, length);
}
void *memmove(void *to, const void *from, size_t length) {
  return __builtin_memmove(to, from, length);
}
void *memset(void *to, int byte, size_t length) { return __builtin_memset(to, byte, length); }

int memcmp(const void *one, const void *other, size_t length) {
  const unsigned char *left = one, *right = other;
  for (; length >= 8; left += 8, right += 8, length -= 8) {
    uint64_t a, b;
    __builtin_memcpy(&a, left, 8);
    __builtin_memcpy(&b, right, 8);
    if (a != b) break;
  }
  for (; length > 0; left++, right++, length--) {
    if (*left != *right) return *left - *right;
  }
  return 0;
}

/* All bytes, eight at a time. */
unsigned int machine_hash(const char *text, size_t length) {
  uint64_t hash = length, word;
  size_t at = 0;
  for (; at + 8 <= length; at += 8) {
    __builtin_memcpy(&word, text + at, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  __builtin_memcpy(&word, text + length - 8, 8);
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  return (unsigned int)(hash * 0x9e3779b97f4a7c15u >> 32);
}

/* Decimal digits of a whole number that "%.14g" writes without an exponent. */
int machine_number(char *to, double number) {
  int64_t whole = (int64_t)number;
  if ((double)whole != number || whole <= -100000000000000 || whole >= 100000000000000 ||
      (whole == 0 && __builtin_signbit(number))) {
    return snprintf(to, 32, "%.14g", number);
  }
  char digits[20];
  int length = 0, at = 0;
  uint64_t rest = whole < 0 ? (uint64_t)-whole : (uint64_t)whole;
  do {
    digits[length++] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  if (whole < 0) to[at++] = '-';
  while (length > 0) to[at++] = digits[--length];
  to[at] = 0;
  return at;
}

double __real_strtod(const char *text, char **end);

/* At most 15 digits and nothing else make a whole number, exactly. */
double __wrap_strtod(const char *text, char **end) {
  const char *at = text;
  int64_t whole = 0;
  while (*at >= '0' && *at <= '9' && at - text < 15) whole = whole * 10 + (*at++ - '0');
  char after = *at;
  if (at == text || (after >= '0' && after <= '9') || after == '.' || (after | 32) == 'e' ||
      (after | 32) == 'x') {
    return __real_strtod(text, end);
  }
  if (end != NULL) *end = (char *)at;
  return (double)whole;
}
