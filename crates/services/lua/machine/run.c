/* Makes the interpreter, compiles a script, executes it. */
#include <stdlib.h>
#include <string.h>

#include "lauxlib.h"
#include "lua.h"
#include "machine.h"
#include "rand.h"

Output machine_output;

static lua_State *state;
static const char SCRIPT = 0; /* its address is the script's key in the registry */

EXPORT("enter") void enter(void (*function)(lua_State *, void *), lua_State *L, void *data) {
  function(L, data);
}

static int panic(lua_State *L) {
  (void)L;
  __builtin_trap();
}

static int initialize(lua_State *L) {
  machine_library(L);
  return 0;
}

/* Everything that all runs have in common. */
EXPORT("prepare") void prepare(void) {
  state = lua_newstate(machine_allocate, NULL);
  if (state == NULL) __builtin_trap();
  lua_atpanic(state, panic);
  machine_output.version = 2;
  if (lua_cpcall(state, initialize, NULL) != 0) __builtin_trap();
  lua_gc(state, LUA_GCCOLLECT, 0);
}

/* Room for the host's bytes, which the machine frees when it has read them. */
EXPORT("room") void *room(uint32_t length) { return malloc(length == 0 ? 1 : length); }

/* Sets the output to a status and the text on top of the stack, as far as there is memory. */
static Output *end(uint32_t status) {
  size_t length;
  const char *text = lua_tolstring(state, -1, &length);
  if (text == NULL) text = "unknown error", length = 13;
  machine_output.status = status;
  machine_output.length = (uint32_t)length;
  machine_output.at = (char *)text;
  return &machine_output;
}

typedef struct Text {
  char *at;
  uint32_t length;
} Text;

static int load(lua_State *L) {
  Text *text = lua_touserdata(L, 1);
  lua_settop(L, 0);
  if (luaL_loadbuffer(L, text->at, text->length, "@user_script") != 0) {
    machine_output.status = MALFORMED;
    return lua_error(L);
  }
  lua_pushlightuserdata(L, (void *)&SCRIPT);
  lua_insert(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return 0;
}

/* Compiles a script and keeps it. */
EXPORT("compile") Output *compile(char *at, uint32_t length) {
  Text text = {at, length};
  machine_output.status = BROKEN;
  if (lua_cpcall(state, load, &text) != 0) return end(machine_output.status);
  free(at);
  machine_output.status = DONE;
  machine_output.length = 0;
  return &machine_output;
}

static uint32_t number(const char **from) {
  uint32_t value;
  memcpy(&value, *from, sizeof value);
  *from += sizeof value;
  return value;
}

/* A global table of texts. */
static void list(lua_State *L, const char *name, const char **from) {
  uint32_t count = number(from);
  lua_pushstring(L, name);
  lua_createtable(L, (int)count, 0);
  for (uint32_t at = 1; at <= count; at++) {
    uint32_t length = number(from);
    lua_pushlstring(L, *from, length);
    lua_rawseti(L, -2, (int)at);
    *from += length;
  }
  lua_enablereadonlytable(L, LUA_GLOBALSINDEX, 0);
  lua_rawset(L, LUA_GLOBALSINDEX);
  lua_enablereadonlytable(L, LUA_GLOBALSINDEX, 1);
}

static void field(lua_State *L, int table, const char *name) {
  lua_pushstring(L, name);
  lua_rawget(L, table);
}

/* An error's text and place, for the host. */
static void write_error(lua_State *L, int error) {
  size_t length;
  field(L, error, "err");
  const char *text = lua_isstring(L, -1) ? lua_tolstring(L, -1, &length) : NULL;
  if (text == NULL) text = "ERR unknown error", length = 17;
  machine_write_text(L, text, length);
  field(L, error, "source");
  field(L, error, "line");
  if (lua_isstring(L, -1) && lua_isstring(L, -2)) {
    lua_pushfstring(L, "%s:%s", lua_tostring(L, -2), lua_tostring(L, -1));
  } else {
    lua_pushliteral(L, "");
  }
  text = lua_tolstring(L, -1, &length);
  machine_write_text(L, text, length);
}

static int script(lua_State *L) {
  char *input = lua_touserdata(L, 1);
  const char *from = input;
  lua_settop(L, 0);
  redisSrand48((int32_t)number(&from));
  list(L, "KEYS", &from);
  list(L, "ARGV", &from);
  free(input);
  lua_pushcfunction(L, machine_on_error);
  lua_pushlightuserdata(L, (void *)&SCRIPT);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_pcall(L, 0, 1, 1) == 0) {
    machine_encode(L);
    machine_output.status = DONE;
  } else if (lua_istable(L, -1)) {
    write_error(L, lua_gettop(L));
    machine_output.status = FAILED;
  } else {
    return lua_error(L);
  }
  return 0;
}

/* Executes the script that was compiled. */
EXPORT("execute") Output *execute(char *input) {
  machine_output.status = BROKEN;
  if (lua_cpcall(state, script, input) != 0) return end(machine_output.status);
  return &machine_output;
}
