/* Values between Lua and the host: a tag and what belongs to it, numbers with the lowest byte first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lauxlib.h"
#include "lua.h"
#include "machine.h"

#define OUTPUT_BYTES_MAX (32u << 20)
#define ELEMENTS_MAX (OUTPUT_BYTES_MAX / 32)
#define DEPTH_MAX 7

static uint32_t elements;

/* Ends the run with another status than a script's error has. */
static void give_up(lua_State *L, uint32_t status) {
  machine_output.status = status;
  lua_pushliteral(L, "");
  lua_error(L);
}

void machine_write(lua_State *L, const void *bytes, size_t length) {
  Output *output = &machine_output;
  if (length > OUTPUT_BYTES_MAX - output->length) give_up(L, TOO_LARGE);
  if (length > output->room - output->length) {
    uint32_t room = output->length + (uint32_t)length;
    room = room < 256 ? 256 : room + room / 2;
    char *at = realloc(output->at, room);
    if (at == NULL) luaL_error(L, "not enough memory");
    output->at = at;
    output->room = room;
  }
  memcpy(output->at + output->length, bytes, length);
  output->length += (uint32_t)length;
}

void machine_write_text(lua_State *L, const char *bytes, size_t length) {
  uint32_t short_length = (uint32_t)length;
  machine_write(L, &short_length, sizeof short_length);
  machine_write(L, bytes, length);
}

static void write_tag(lua_State *L, char tag) { machine_write(L, &tag, 1); }

static void write_string(lua_State *L, char tag, int index) {
  size_t length;
  const char *bytes = lua_tolstring(L, index, &length);
  write_tag(L, tag);
  machine_write_text(L, bytes, length);
}

/* A type of reply that is a table with one field. */
static int has(lua_State *L, const char *name, int type) {
  lua_pushstring(L, name);
  lua_rawget(L, -2);
  if (lua_type(L, -1) == type) return 1;
  lua_pop(L, 1);
  return 0;
}

static void encode(lua_State *L, int depth);

/* Writes the number of elements that were written since `at`. */
static void write_count(uint32_t at, uint32_t count) {
  memcpy(machine_output.at + at, &count, sizeof count);
}

static void encode_pairs(lua_State *L, char tag, int depth) {
  uint32_t count = 0;
  write_tag(L, tag);
  uint32_t at = machine_output.length;
  machine_write(L, &count, sizeof count);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_pushvalue(L, -2);
    encode(L, depth);
    if (tag == '%') {
      encode(L, depth);
    } else {
      lua_pop(L, 1);
    }
    count++;
  }
  write_count(at, count);
}

static void encode_array(lua_State *L, int depth) {
  uint32_t count = 0;
  write_tag(L, '*');
  uint32_t at = machine_output.length;
  machine_write(L, &count, sizeof count);
  for (;;) {
    lua_rawgeti(L, -1, (int)count + 1);
    if (lua_isnil(L, -1)) break;
    encode(L, depth);
    count++;
  }
  lua_pop(L, 1);
  write_count(at, count);
}

/* The inner string of a verbatim reply. Redis wants a format, too. */
static int encode_verbatim(lua_State *L) {
  int top = lua_gettop(L);
  if (has(L, "format", LUA_TSTRING)) {
    lua_pushvalue(L, -2);
    if (has(L, "string", LUA_TSTRING)) {
      write_string(L, '=', -1);
      lua_settop(L, top);
      return 1;
    }
  }
  lua_settop(L, top);
  return 0;
}

static void encode_table(lua_State *L, int depth) {
  if (depth > DEPTH_MAX) give_up(L, TOO_DEEP);
  if (has(L, "err", LUA_TSTRING)) {
    write_string(L, '-', -1);
  } else if (has(L, "ok", LUA_TSTRING)) {
    write_string(L, '+', -1);
  } else if (has(L, "double", LUA_TNUMBER)) {
    double value = lua_tonumber(L, -1);
    write_tag(L, ',');
    machine_write(L, &value, sizeof value);
  } else if (has(L, "big_number", LUA_TSTRING)) {
    write_string(L, '(', -1);
  } else {
    if (has(L, "verbatim_string", LUA_TTABLE)) {
      if (encode_verbatim(L)) return;
      lua_pop(L, 1);
    }
    if (has(L, "map", LUA_TTABLE)) {
      encode_pairs(L, '%', depth);
    } else if (has(L, "set", LUA_TTABLE)) {
      encode_pairs(L, '~', depth);
    } else {
      encode_array(L, depth);
    }
  }
}

/* Redis on x86 converts what is no 64-bit integer to the lowest one. */
static void encode_number(lua_State *L) {
  double number = lua_tonumber(L, -1);
  int64_t whole = fabs(number) < 0x1p63 ? (int64_t)number : INT64_MIN;
  write_tag(L, ':');
  machine_write(L, &whole, sizeof whole);
}

static void encode(lua_State *L, int depth) {
  int top = lua_gettop(L);
  luaL_checkstack(L, 8, "reply");
  if (++elements > ELEMENTS_MAX) give_up(L, TOO_LARGE);
  switch (lua_type(L, -1)) {
  case LUA_TSTRING: write_string(L, '$', -1); break;
  case LUA_TNUMBER: encode_number(L); break;
  case LUA_TBOOLEAN: write_tag(L, lua_toboolean(L, -1) ? 't' : 'f'); break;
  case LUA_TTABLE: encode_table(L, depth + 1); break;
  default: write_tag(L, 'n');
  }
  lua_settop(L, top - 1);
}

void machine_encode(lua_State *L) { encode(L, 0); }

typedef struct Reader {
  const char *at;
  const char *end;
} Reader;

/* The next bytes of a reply. The host writes whole replies. */
static const char *next(Reader *from, uint32_t length) {
  const char *at = from->at;
  if (length > (uint32_t)(from->end - at)) __builtin_trap();
  from->at += length;
  return at;
}

static uint32_t next_number(Reader *from) {
  uint32_t value;
  memcpy(&value, next(from, sizeof value), sizeof value);
  return value;
}

static double next_double(Reader *from) {
  double value;
  memcpy(&value, next(from, sizeof value), sizeof value);
  return value;
}

static void push_text(lua_State *L, Reader *from) {
  uint32_t length = next_number(from);
  lua_pushlstring(L, next(from, length), length);
}

static void decode(lua_State *L, Reader *from, int depth);

static void decode_list(lua_State *L, Reader *from, int depth) {
  uint32_t count = next_number(from);
  lua_createtable(L, (int)count, 0);
  for (uint32_t at = 1; at <= count; at++) {
    decode(L, from, depth);
    lua_rawseti(L, -2, (int)at);
  }
}

static void decode_pairs(lua_State *L, Reader *from, char tag, int depth) {
  uint32_t count = next_number(from);
  lua_newtable(L);
  lua_pushstring(L, tag == '%' ? "map" : "set");
  lua_newtable(L);
  while (count-- > 0) {
    decode(L, from, depth);
    if (tag == '%') {
      decode(L, from, depth);
    } else {
      lua_pushboolean(L, 1);
    }
    if (lua_isnil(L, -2)) {
      lua_pop(L, 2); /* no key of a table */
    } else {
      lua_rawset(L, -3);
    }
  }
  lua_rawset(L, -3);
}

static void decode_verbatim(lua_State *L, Reader *from) {
  lua_newtable(L);
  lua_pushliteral(L, "verbatim_string");
  lua_newtable(L);
  lua_pushliteral(L, "string");
  push_text(L, from);
  lua_rawset(L, -3);
  lua_pushliteral(L, "format");
  lua_pushliteral(L, "txt");
  lua_rawset(L, -3);
  lua_rawset(L, -3);
}

/* A table with one field: the text, or a double. */
static void decode_single(lua_State *L, Reader *from, const char *name) {
  lua_newtable(L);
  lua_pushstring(L, name);
  if (strcmp(name, "double") == 0) {
    lua_pushnumber(L, next_double(from));
  } else {
    push_text(L, from);
  }
  lua_rawset(L, -3);
}

static void decode(lua_State *L, Reader *from, int depth) {
  if (depth > DEPTH_MAX) __builtin_trap();
  luaL_checkstack(L, 8, "reply");
  char tag = *next(from, 1);
  switch (tag) {
  case 'n': lua_pushnil(L); break;
  case 't': lua_pushboolean(L, 1); break;
  case 'f': lua_pushboolean(L, 0); break;
  case ':': lua_pushnumber(L, next_double(from)); break;
  case '$': push_text(L, from); break;
  case '+': decode_single(L, from, "ok"); break;
  case ',': decode_single(L, from, "double"); break;
  case '(': decode_single(L, from, "big_number"); break;
  case '=': decode_verbatim(L, from); break;
  case '-':
    decode_single(L, from, "err");
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "ignore_error_stats_update");
    break;
  case '*': decode_list(L, from, depth + 1); break;
  case '%':
  case '~': decode_pairs(L, from, tag, depth + 1); break;
  default: __builtin_trap();
  }
}

void machine_decode(lua_State *L, const char *from, uint32_t length) {
  Reader reader = {from, from + length};
  decode(L, &reader, 0);
}
