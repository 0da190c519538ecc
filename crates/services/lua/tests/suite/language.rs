//! The Lua language: conversion of values, globals, errors.

use crate::{check, eval};

#[test]
fn what_a_script_returns_becomes_a_reply() {
    check(&[
        ("return 3.99", ":3"),
        ("return -3.99", ":-3"),
        ("return 'a'", "a"),
        ("return true", ":1"),
        ("return false", "nil"),
        ("return nil", "nil"),
        ("", "nil"),
        ("return {1, 2, {3, 'x'}, nil, 4}", "[:1 :2 [:3 x]]"),
        ("return {ok='fine'}", "+fine"),
        ("return {err='ERR no'}", "-ERR no"),
        ("return redis.error_reply('My Err')", "-My Err"),
        ("return redis.error_reply('-MY err')", "-MY err"),
        ("return redis.error_reply('ALONE')", "-ERR ALONE"),
        ("return redis.status_reply('fine')", "+fine"),
        ("return {double=3.5}", ",3.5"),
        ("return {map={b=1, a=2, [3]=4}}", "{a=:2 :3=:4 b=:1}"),
        ("return {set={b=true, a=true}}", "~[a b]"),
        ("return {verbatim_string={string='x', format='txt'}}", "=x"),
        ("return {big_number='123'}", "(123"),
        ("redis.setresp(3); return {true, false}", "[true false]"),
        ("return {KEYS[1], KEYS[2], KEYS[3], ARGV[1]}", "[k1 k2]"),
        ("return {#KEYS, #ARGV, ARGV[2]}", "[:2 :2 a2]"),
        ("return 1e300", ":-9223372036854775808"),
        ("return 0/0", ":-9223372036854775808"),
        ("return {{{{{{{1}}}}}}}", "[[[[[[[:1]]]]]]]"),
        (
            "return {{{{{{{{1}}}}}}}}",
            "! ERR the reply of the script is nested too deeply: at most 7 levels",
        ),
        (
            "local t = {}; t[1] = t; return t",
            "! ERR the reply of the script is nested too deeply: at most 7 levels",
        ),
        ("#!lua flags=no-writes\nreturn 1", ":1"),
    ]);
    let large = eval(
        "local s = string.rep('x', 2^20); local t = {}; for i = 1, 40 do t[i] = s end; return t",
    );
    assert!(large.starts_with("! TOOBIG the reply"), "{large}");
}

#[test]
fn replies_become_values() {
    check(&[
        ("return type(redis.call('null', 'x'))", "boolean"),
        ("return redis.call('true', 'x')", ":1"),
        ("return redis.call('integer', 'x') + 1", ":8"),
        ("return redis.call('double', '1.5')", "1.5"),
        ("return redis.call('status', 'OK').ok", "OK"),
        ("return redis.call('array', 'x')", "[:1 x]"),
        ("return redis.call('set', 'x')", "[:1 x]"),
        ("return redis.call('map', 'x')", "[name x]"),
        ("return redis.call('pairs', 'x')", "[name x]"),
        ("return redis.call('nested', 'x')[1]", "[name x]"),
        ("return redis.call('verbatim', 'x')", "x"),
        ("redis.setresp(3); return type(redis.call('null', 'x'))", "nil"),
        ("redis.setresp(3); return redis.call('true', 'x')", "true"),
        ("redis.setresp(3); return redis.call('double', '1.5').double * 2", ":3"),
        ("redis.setresp(3); return redis.call('map', 'x').map.name", "x"),
        ("redis.setresp(3); return redis.call('set', 'x').set.x", "true"),
        ("redis.setresp(3); return redis.call('pairs', 'x')[1]", "[name x]"),
        ("redis.setresp(3); return redis.call('nested', 'x').map.name", "x"),
        ("redis.setresp(3); return redis.call('verbatim', 'x').verbatim_string.string", "x"),
        ("return redis.call('echo', 3)", "3"),
        ("return redis.call('echo', 3.5)", "3.5"),
        ("return redis.call('echo', 0.1 + 0.2)", "0.30000000000000004"),
        ("return redis.call('echo', 2^53)", "9007199254740992"),
        ("return redis.pcall('error', 'ERR bad').err", "ERR bad"),
        (
            "return redis.pcall('echo', {}).err",
            "ERR Lua redis lib command arguments must be strings or integers",
        ),
        (
            "return redis.pcall().err",
            "ERR Please specify at least one argument for this redis lib call",
        ),
        (
            "local ok, e = pcall(redis.call, 'error', 'ERR bad'); return {tostring(ok), e.err}",
            "[false]",
        ),
        ("redis.setresp(4)", "! ERR RESP version must be 2 or 3."),
    ]);
}

#[test]
fn errors_say_where() {
    check(&[
        (
            "local x = 1\nx = redis.call('error', 'WRONGTYPE no')",
            "! WRONGTYPE no script: 23e2454a94600d98be51a6f07efcb31ed8dd9046, on @user_script:2.",
        ),
        ("error('x')", "! ERR x"),
        ("error({err='MY own'})", "! MY own script: "),
        (
            "return nothing.x",
            "! ERR Script attempted to access nonexistent global variable 'nothing'",
        ),
        ("x = 1", "! ERR Attempt to modify a readonly table"),
        ("function f() end", "! ERR Attempt to modify a readonly table"),
        ("return 1 +", "! ERR Error compiling script (new function): "),
        ("return \u{1b}Lua", "! ERR Error compiling"),
        ("return print", "! ERR Script attempted to access nonexistent global variable 'print'"),
        ("local a; a.b = 1", "! ERR attempt to index local 'a' (a nil value)"),
    ]);
}

/// The visible order of a table depends on its keys only, not on addresses or its history.
#[test]
fn order_is_that_of_keys() {
    check(&[
        (
            "local s = ''; for k, v in pairs({b=1, a=2, [2]=3, [1]=4, [true]=5, [0.5]=6}) do s = s .. tostring(k) .. v end; return s",
            "a223b1140.56true5",
        ),
        (
            "local t = {}; for i = 100, 1, -1 do t['k' .. i] = i end; local a = next(t); return {a, next(t, a)}",
            "[k35 k32 :32]",
        ),
        ("return {next({}), tostring(next({}) == nil)}", "[]"),
        (
            "local n = 0; local t = {1, 2, 3, x=4}; for k in pairs(t) do t[k] = nil; n = n + 1 end; return {n, tostring(next(t))}",
            "[:4 nil]",
        ),
        ("local n = 0; for k in next, {a=1, b=2} do n = n + 1 end; return n", ":2"),
        ("return {tostring({}), tostring(print_ or nil)}", "! ERR Script attempted"),
        ("return tostring({}):match('^table: 0x%x+$') and 'yes'", "yes"),
        ("for k in pairs({[{}]=1, a=2}) do return k end", "[]"),
        ("return next({[print or function() end]=1})", "! ERR Script attempted"),
        ("return next({[function() end]=1})", "nil"),
        (
            "local t = setmetatable({}, {__tostring=function() return 'mine' end}); return tostring(t)",
            "mine",
        ),
        ("local t = {3, 1, 2}; table.sort(t); return t", "[:1 :2 :3]"),
        (
            "local t = {3, 1, 2}; table.sort(t, function(a, b) return a > b end); return t",
            "[:3 :2 :1]",
        ),
        ("local t = {'b', 'a'}; table.sort(t, function(a, b) return true end); return #t", ":2"),
        ("local t = {1, 'a'}; table.sort(t)", "! ERR attempt to compare string with number"),
    ]);
}

/// Functions that access files, clocks or the interpreter are absent, as in Redis.
#[test]
fn absent_functions() {
    for name in [
        "dofile",
        "loadfile",
        "require",
        "module",
        "getfenv",
        "setfenv",
        "newproxy",
        "debug",
        "io",
        "package",
        "print",
        "os.time",
        "os.getenv",
        "os.exit",
    ] {
        let text = format!("return tostring({name})");
        let reply = eval(&text);
        assert!(reply.contains("nonexistent global") || reply == "nil", "{name}: {reply}");
    }
}

#[test]
fn code_that_a_script_compiles() {
    check(&[
        ("return loadstring('return 1 + 1')()", ":2"),
        (
            "local f, e = loadstring('return +'); return e",
            "[string \\\"return +\\\"]:1: unexpected symbol near \\'+\\'",
        ),
        (
            "local n = 0; return load(function() n = n + 1; return ({'return ', '7'})[n] end)()",
            ":7",
        ),
        ("return loadstring(string.dump(function() return 1 end))", "nil"),
        ("return load(function() return '\\27Lua' end)", "nil"),
        (
            "local c = coroutine.wrap(function(a) local b = coroutine.yield(a + 1); return b * 2 end); return {c(1), c(5)}",
            "[:2 :10]",
        ),
        ("return os.clock()", ":0"),
    ]);
}

#[test]
fn globals_are_protected() {
    for text in [
        "string.len = nil",
        "table.insert = 1",
        "redis.call = nil",
        "KEYS = 1",
        "_G.x = 1",
        "getmetatable('').__index = nil",
        "rawset(_G, 'x', 1)",
        "getmetatable(_G).__index = nil",
        "setmetatable(_G, {})",
        "rawset(redis, 'call', 1)",
        "cjson.null = 1",
    ] {
        let reply = eval(text);
        assert!(reply.contains("Attempt to modify a readonly table"), "{text}: {reply}");
    }
    check(&[("KEYS[1] = 'other'; return KEYS[1]", "other")]);
}

#[test]
fn first_lines() {
    check(&[
        ("#!lua\nreturn 1", ":1"),
        ("#!lua flags=no-writes,allow-stale\nreturn 1", ":1"),
        ("#!lua\n\nerror('x')", "! ERR user_script:3: x"),
        ("#!lua", "! ERR Invalid script shebang"),
        ("#!js\nreturn 1", "! ERR Unexpected engine in script shebang: #!js"),
        ("#!lua flags=fast\nreturn 1", "! ERR Unexpected flag in script shebang: fast"),
        ("#!lua name=x\nreturn 1", "! ERR Unknown lua shebang option: name=x"),
    ]);
    let flags = quorate_lua::flags(b"#!lua flags=no-writes,allow-cross-slot-keys\n").unwrap();
    assert!(flags.no_writes && flags.allow_cross_slot_keys && !flags.allow_oom);
    assert_eq!(quorate_lua::flags(b"return 1"), Ok(quorate_lua::Flags::default()));
}
