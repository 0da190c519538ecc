/* Included before each file of Lua and its libraries. */
#ifndef QUORATE_SETTINGS_H
#define QUORATE_SETTINGS_H

#include <stdio.h>
#include <stdlib.h>

/* 64 bits wherever Lua on a server has them, and the libraries as Redis builds them. */
#define LUA_USELONGLONG
#define LUA_ANSI
#define ENABLE_CJSON_GLOBAL
#define STRUCT_INT long long

/* The machine has no files, and to end the program is to end the run. */
#define fprintf(...) ((void)0)
#define vfprintf(...) ((void)0)
#define exit(status) __builtin_trap()
#define abort() __builtin_trap()

struct lua_State;

/* Errors unwind in the host. */
__attribute__((import_module("host"), import_name("protect"))) int
machine_protect(void (*function)(struct lua_State *, void *), struct lua_State *L, void *data,
                void *handler);
__attribute__((import_module("host"), import_name("throw"))) _Noreturn void
machine_throw(void *handler);

/* Hash of a text of more than 64 bytes. */
unsigned int machine_hash(const char *text, size_t length);
/* Writes a number as "%.14g" does. */
int machine_number(char *to, double number);

#endif
