/* Between Lua and its host. All imports of the machine are declared here. */
#ifndef QUORATE_MACHINE_H
#define QUORATE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "lua.h"

#define IMPORT(name) __attribute__((import_module("host"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

/* Calls the export `enter`. Returns 1 if `machine_throw` ended it, else 0. */
IMPORT("protect")
int machine_protect(void (*function)(lua_State *, void *), lua_State *L, void *data, void *handler);
/* Ends all calls up to the `machine_protect` with this handler. */
IMPORT("throw") _Noreturn void machine_throw(void *handler);
/* Makes the memory larger by whole pages. Returns 0 where the limit does not allow it. */
IMPORT("grow") int machine_grow(uint32_t pages);

/* One word of a command. */
typedef struct Word {
  const void *at; /* bytes, or a double */
  uint32_t length; /* NUMBER if it is a double */
} Word;
#define NUMBER UINT32_MAX

/* Executes a command. Returns the length of the reply. */
IMPORT("call") uint32_t machine_call(const Word *words, uint32_t count, uint32_t version);
/* Copies the reply of the last command. */
IMPORT("take") void machine_take(void *to, uint32_t length);

/* Ends of compilation and execution. */
enum Status { DONE, FAILED, BROKEN, MALFORMED, TOO_LARGE, TOO_DEEP };

/* Bytes for the host. */
typedef struct Output {
  uint32_t status;
  char *at;
  uint32_t length;
  uint32_t room;
  uint32_t version; /* of the protocol that the script chose */
} Output;
extern Output machine_output;

void *machine_allocate(void *unused, void *block, size_t old_size, size_t new_size);
void machine_library(lua_State *L);
int machine_on_error(lua_State *L);
/* Encodes the value on top of the stack and removes it. */
void machine_encode(lua_State *L);
void machine_write(lua_State *L, const void *bytes, size_t length);
void machine_write_text(lua_State *L, const char *bytes, size_t length);
/* Decodes a reply, which stays on top of the stack. */
void machine_decode(lua_State *L, const char *from, uint32_t length);

#endif
