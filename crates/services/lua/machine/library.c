/* The functions that Redis gives to scripts.
 *
 * After src/script_lua.c and src/eval.c of Redis 7.0, with the settings of 7.2:
 * Copyright (c) 2009-2021, Redis Ltd. See LICENSES. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include "machine.h"
#include "rand.h"
#include "sha1.h"

#define LOG_DEBUG 0
#define LOG_WARNING 3
#define REPL_AOF 1
#define REPL_REPLICA 2

int luaopen_cjson(lua_State *L);
int luaopen_struct(lua_State *L);
int luaopen_cmsgpack(lua_State *L);
int luaopen_bit(lua_State *L);

/* Pushes a table with an error. "-CODE text" has a code, other texts get ERR. */
static void push_error(lua_State *L, const char *text) {
  size_t length = strlen(text);
  while (length > 0 && (text[length - 1] == '\r' || text[length - 1] == '\n')) length--;
  lua_newtable(L);
  lua_pushliteral(L, "err");
  if (text[0] == '-' && memchr(text, ' ', length) != NULL) {
    lua_pushlstring(L, text + 1, length - 1);
  } else {
    if (text[0] == '-') text++, length--;
    lua_pushliteral(L, "ERR ");
    lua_pushlstring(L, text, length);
    lua_concat(L, 2);
  }
  lua_rawset(L, -3);
}

static int raise(lua_State *L, const char *text) {
  push_error(L, text);
  return lua_error(L);
}

/* A command's words. They point to Lua's arguments, which stay on the stack. */
#define SHORT 16
typedef struct Command {
  Word *words;
  Word few[SHORT];
  double few_numbers[SHORT];
} Command;

/* Describes all arguments. Returns 0 and leaves an error on the stack if one is neither text nor
 * number. */
static int describe(lua_State *L, Command *command, int count) {
  if (count == 0) {
    push_error(L, "Please specify at least one argument for this redis lib call");
    return 0;
  }
  luaL_checkstack(L, 4, "command");
  Word *words = command->few;
  double *numbers = command->few_numbers;
  if (count > SHORT) {
    words = lua_newuserdata(L, (size_t)count * (sizeof(Word) + sizeof(double)));
    numbers = (double *)(words + count);
  }
  command->words = words;
  for (int at = 0; at < count; at++) {
    if (lua_type(L, at + 1) == LUA_TNUMBER) {
      numbers[at] = lua_tonumber(L, at + 1);
      words[at] = (Word){&numbers[at], NUMBER};
    } else if (lua_type(L, at + 1) == LUA_TSTRING) {
      size_t length;
      words[at].at = lua_tolstring(L, at + 1, &length);
      words[at].length = (uint32_t)length;
    } else {
      push_error(L, "Lua redis lib command arguments must be strings or integers");
      return 0;
    }
  }
  return 1;
}

static int execute(lua_State *L, int raises) {
  Command command;
  int count = lua_gettop(L);
  if (!describe(L, &command, count)) return raises ? lua_error(L) : 1;
  uint32_t length = machine_call(command.words, (uint32_t)count, machine_output.version);
  char small[512];
  char *reply = length <= sizeof small ? small : lua_newuserdata(L, length);
  machine_take(reply, length);
  machine_decode(L, reply, length);
  return raises && reply[0] == '-' ? lua_error(L) : 1;
}

static int redis_call(lua_State *L) { return execute(L, 1); }
static int redis_pcall(lua_State *L) { return execute(L, 0); }

/* For scripts older than Redis 7, a table with an error is its text. */
static int protected_call(lua_State *L) {
  int count = lua_gettop(L);
  lua_pushboolean(L, 1);
  lua_insert(L, 1);
  if (lua_pcall(L, count - 1, LUA_MULTRET, 0)) {
    lua_remove(L, 1);
    if (lua_istable(L, -1)) {
      lua_getfield(L, -1, "err");
      if (lua_isstring(L, -1)) lua_replace(L, -2);
    }
    lua_pushboolean(L, 0);
    lua_insert(L, 1);
  }
  return lua_gettop(L);
}

static int redis_sha1hex(lua_State *L) {
  static const char HEX[] = "0123456789abcdef";
  unsigned char hash[20];
  char text[40];
  SHA1_CTX context;
  if (lua_gettop(L) != 1) return raise(L, "wrong number of arguments");
  size_t length = 0;
  const char *bytes = lua_tolstring(L, 1, &length);
  SHA1Init(&context);
  SHA1Update(&context, (const unsigned char *)(bytes == NULL ? "" : bytes), (uint32_t)length);
  SHA1Final(hash, &context);
  for (int at = 0; at < 20; at++) {
    text[2 * at] = HEX[hash[at] >> 4];
    text[2 * at + 1] = HEX[hash[at] & 15];
  }
  lua_pushlstring(L, text, sizeof text);
  return 1;
}

static int redis_error_reply(lua_State *L) {
  if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TSTRING) {
    push_error(L, "wrong number or type of arguments");
    return 1;
  }
  const char *text = lua_tostring(L, 1);
  if (text[0] != '-') {
    lua_pushliteral(L, "-");
    lua_insert(L, 1);
    lua_concat(L, 2);
    text = lua_tostring(L, 1);
  }
  push_error(L, text);
  return 1;
}

static int redis_status_reply(lua_State *L) {
  if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TSTRING) {
    push_error(L, "wrong number or type of arguments");
    return 1;
  }
  lua_newtable(L);
  lua_pushvalue(L, 1);
  lua_setfield(L, -2, "ok");
  return 1;
}

static int redis_set_repl(lua_State *L) {
  if (lua_gettop(L) != 1) return raise(L, "redis.set_repl() requires two arguments.");
  int flags = (int)lua_tonumber(L, -1);
  if ((flags & ~(REPL_AOF | REPL_REPLICA)) != 0) {
    return raise(L, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
  }
  return 0;
}

/* A user who may execute a script may execute all that it calls. */
static int redis_acl_check_cmd(lua_State *L) {
  Command command;
  if (!describe(L, &command, lua_gettop(L))) return lua_error(L);
  lua_pushboolean(L, 1);
  return 1;
}

/* Checks its arguments. Nothing is written, as if the level were off. */
static int redis_log(lua_State *L) {
  int count = lua_gettop(L);
  if (count < 2) return raise(L, "redis.log() requires two arguments or more.");
  if (!lua_isnumber(L, 1)) return raise(L, "First argument must be a number (log level).");
  int level = (int)lua_tonumber(L, 1);
  if (level < LOG_DEBUG || level > LOG_WARNING) return raise(L, "Invalid debug level.");
  return 0;
}

static int redis_setresp(lua_State *L) {
  if (lua_gettop(L) != 1) return raise(L, "redis.setresp() requires one argument.");
  int version = (int)lua_tonumber(L, 1);
  if (version != 2 && version != 3) return raise(L, "RESP version must be 2 or 3.");
  machine_output.version = (uint32_t)version;
  return 0;
}

static int redis_breakpoint(lua_State *L) {
  lua_pushboolean(L, 0);
  return 1;
}
static int redis_debug(lua_State *L) {
  (void)L;
  return 0;
}
static int redis_replicate_commands(lua_State *L) {
  lua_pushboolean(L, 1);
  return 1;
}

static int math_random(lua_State *L) {
  double part = (double)(redisLrand48() % REDIS_LRAND48_MAX) / (double)REDIS_LRAND48_MAX;
  switch (lua_gettop(L)) {
  case 0: lua_pushnumber(L, part); break;
  case 1: {
    int high = luaL_checkint(L, 1);
    luaL_argcheck(L, 1 <= high, 1, "interval is empty");
    lua_pushnumber(L, floor(part * high) + 1);
    break;
  }
  case 2: {
    int low = luaL_checkint(L, 1);
    int high = luaL_checkint(L, 2);
    luaL_argcheck(L, low <= high, 2, "interval is empty");
    int width = (int)((uint32_t)high - (uint32_t)low + 1);
    lua_pushnumber(L, floor(part * width) + low);
    break;
  }
  default: return luaL_error(L, "wrong number of arguments");
  }
  return 1;
}

static int math_randomseed(lua_State *L) {
  redisSrand48(luaL_checkint(L, 1));
  return 0;
}

/* There is no time in a script but redis.call('TIME'). */
static int os_clock(lua_State *L) {
  lua_pushnumber(L, 0);
  return 1;
}

/* Makes a table of an error, with the line of the script that raised it. */
int machine_on_error(lua_State *L) {
  lua_Debug frame;
  int known = 0;
  if (lua_getstack(L, 1, &frame)) {
    known = lua_getinfo(L, "Sl", &frame);
    if (strcmp(frame.what, "C") == 0) {
      known = lua_getstack(L, 2, &frame) && lua_getinfo(L, "Sl", &frame);
    }
  }
  lua_settop(L, 1);
  if (!lua_istable(L, 1)) {
    lua_newtable(L);
    lua_pushliteral(L, "ERR ");
    lua_getglobal(L, "tostring");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_concat(L, 2);
    lua_setfield(L, 2, "err");
    lua_replace(L, 1);
  }
  if (known) {
    lua_pushstring(L, frame.source);
    lua_setfield(L, 1, "source");
    lua_pushinteger(L, frame.currentline);
    lua_setfield(L, 1, "line");
  }
  return 1;
}

static int no_global(lua_State *L) {
  if (lua_gettop(L) != 2) luaL_error(L, "Wrong number of arguments to luaProtectedTableError");
  if (!lua_isstring(L, -1)) {
    luaL_error(L, "Second argument to luaProtectedTableError must be a string or number");
  }
  return luaL_error(L, "Script attempted to access nonexistent global variable '%s'",
                    lua_tostring(L, -1));
}

static void open(lua_State *L, const char *name, lua_CFunction library) {
  lua_pushcfunction(L, library);
  lua_pushstring(L, name);
  lua_call(L, 1, 0);
}

static const luaL_Reg REDIS[] = {
    {"call", redis_call},
    {"pcall", redis_pcall},
    {"log", redis_log},
    {"setresp", redis_setresp},
    {"sha1hex", redis_sha1hex},
    {"error_reply", redis_error_reply},
    {"status_reply", redis_status_reply},
    {"set_repl", redis_set_repl},
    {"acl_check_cmd", redis_acl_check_cmd},
    {"breakpoint", redis_breakpoint},
    {"debug", redis_debug},
    {"replicate_commands", redis_replicate_commands},
    {NULL, NULL},
};

static const struct {
  const char *name;
  int value;
} CONSTANTS[] = {
    {"LOG_DEBUG", LOG_DEBUG}, {"LOG_VERBOSE", 1},  {"LOG_NOTICE", 2},
    {"LOG_WARNING", LOG_WARNING}, {"REPL_NONE", 0},    {"REPL_AOF", REPL_AOF},
    {"REPL_SLAVE", REPL_REPLICA}, {"REPL_REPLICA", REPL_REPLICA}, {"REPL_ALL", REPL_AOF | REPL_REPLICA},
    {"REDIS_VERSION_NUM", 0x00070200},
};

static const char *const ABSENT[] = {"newproxy", "getfenv", "setfenv"};

static void redis_table(lua_State *L) {
  lua_newtable(L);
  luaL_register(L, NULL, REDIS);
  for (size_t at = 0; at < sizeof CONSTANTS / sizeof CONSTANTS[0]; at++) {
    lua_pushinteger(L, CONSTANTS[at].value);
    lua_setfield(L, -2, CONSTANTS[at].name);
  }
  lua_pushliteral(L, "7.2.0");
  lua_setfield(L, -2, "REDIS_VERSION");
  lua_setglobal(L, "redis");
}

/* Makes a table on top of the stack and all that it refers to read-only. */
static void protect(lua_State *L) {
  if (lua_isreadonlytable(L, -1)) return;
  lua_enablereadonlytable(L, -1, 1);
  luaL_checkstack(L, 3, "globals");
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    if (lua_istable(L, -1)) protect(L);
    lua_pop(L, 1);
  }
  if (lua_getmetatable(L, -1)) {
    protect(L);
    lua_pop(L, 1);
  }
}

static const luaL_Reg RANDOM[] = {{"random", math_random}, {"randomseed", math_randomseed}, {NULL, NULL}};
static const luaL_Reg CLOCK[] = {{"clock", os_clock}, {NULL, NULL}};

static void remove_absent(lua_State *L) {
  for (size_t at = 0; at < sizeof ABSENT / sizeof ABSENT[0]; at++) {
    lua_pushnil(L);
    lua_setglobal(L, ABSENT[at]);
  }
}

/* Lua's libraries and Redis' own. */
static void open_all(lua_State *L) {
  open(L, "", luaopen_base);
  open(L, LUA_TABLIBNAME, luaopen_table);
  open(L, LUA_STRLIBNAME, luaopen_string);
  open(L, LUA_MATHLIBNAME, luaopen_math);
  open(L, "cjson", luaopen_cjson);
  open(L, "struct", luaopen_struct);
  open(L, "cmsgpack", luaopen_cmsgpack);
  open(L, "bit", luaopen_bit);
  luaL_register(L, LUA_MATHLIBNAME, RANDOM);
  luaL_register(L, LUA_OSLIBNAME, CLOCK);
  lua_settop(L, 0);
  redis_table(L);
}

void machine_library(lua_State *L) {
  open_all(L);
  remove_absent(L);
  lua_pushcfunction(L, protected_call);
  lua_setglobal(L, "pcall");
  lua_pushcfunction(L, machine_on_error);
  lua_setglobal(L, "__redis__err__handler");
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_newtable(L);
  lua_pushcfunction(L, no_global);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  protect(L);
  lua_pushliteral(L, "");
  if (lua_getmetatable(L, -1)) protect(L);
}
