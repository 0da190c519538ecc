//! Hostile scripts. Each reaches a limit or fails, at the same cost every time.

use quorate_lua::{Data, Interpreter, Outcome, Run};

use crate::{Echo, VISITS, outcome};

/// Scripts that must reach a limit on work or memory.
const ENDLESS: [&str; 21] = [
    "while true do end",
    "repeat until false",
    "local function f() return f() end f()",
    "while true do pcall(function() while true do end end) end",
    "local function f() pcall(f) return f() end f()",
    "while true do xpcall(function() while true do end end, function(e) while true do end end) end",
    "local s = 'x'; while true do s = s .. s end",
    "while true do pcall(function() local s = 'x'; while true do s = s .. s end end) end",
    "local t = {}; for i = 1, 1e9 do t[i] = i end",
    "local t = {}; while true do t = {t} end",
    "return string.rep('x', 1e9)",
    "local s = string.rep('a', 100000); return s:find('a-a-a-a-a-a-a-b')",
    "local s = string.rep('a', 30); return s:match(string.rep('a?', 30) .. string.rep('a', 30))",
    "local s = string.rep('a', 2^20); while true do s:find('b', 1, true) end",
    "while true do string.rep('x', 2^20) end",
    "local t = {}; for i = 1, 50000 do table.insert(t, 1, i) end",
    "local t = {}; for i = 1, 50000 do t[i] = i end; while true do table.remove(t, 1); table.insert(t, 1) end",
    "local t = {}; for i = 1, 50000 do t[i] = i end; while true do next(t, 1) end",
    "local t = {}; for i = 1, 20000 do t[i] = 'x' end; while true do table.concat(t) end",
    "while true do redis.call('echo', 'x') end",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}); while true do pcall(function() return t[1] end) end",
];

/// Scripts that must fail with an error of their own.
const FAILING: [&str; 11] = [
    "local function f() return 1 + f() end return f()",
    "local t = setmetatable({}, {}); getmetatable(t).__index = t; return t.x",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}); return t[1]",
    "return ('x'):gsub('x', function() return error('e') end)",
    "local function f(s) return s:gsub('x', f) end return f('x')",
    "return ('a'):rep(300000):match(('a?'):rep(100000))",
    "return ('('):rep(40):match(('('):rep(40))",
    "return unpack({}, 1, 1e8)",
    "return unpack({}, -2^31, 2^31 - 1)",
    "local s = '{'; for i = 1, 300 do s = s .. '{' end; return cjson.decode(s)",
    "return redis.call(unpack(redis.call))",
];

#[test]
fn endless_scripts_end_at_the_same_place() {
    for text in ENDLESS {
        let first = outcome(text);
        match &first.0 {
            Outcome::Stopped(limit) => assert!(limit.starts_with("its limit of work"), "{limit}"),
            Outcome::Failed(why) => assert!(why.contains("not enough memory"), "{text}: {why}"),
            Outcome::Returned(_) => panic!("{text}: {first:?}"),
        }
        assert!(first.1 <= VISITS, "{text}");
        assert_eq!(outcome(text), first, "{text}");
    }
}

/// A limit of the machine ends the run, even if the script tries to catch the error.
#[test]
fn limits_are_not_caught() {
    for text in [
        "return pcall(string.match, ('a'):rep(300000), ('a?'):rep(100000))",
        "return coroutine.wrap(function() return pcall(string.match, ('a'):rep(300000), ('a?'):rep(100000)) end)()",
        "return xpcall(function() while true do end end, function() return 1 end)",
    ] {
        assert!(matches!(outcome(text).0, Outcome::Stopped(_)), "{text}");
    }
}

#[test]
fn recursion_and_nonsense_fail() {
    for text in FAILING {
        let first = outcome(text);
        let machine = "the limits of its machine: nested calls of a pattern, or memory of a library; use simpler ones";
        let ended = matches!(first.0, Outcome::Failed(_)) || first.0 == Outcome::Stopped(machine);
        assert!(ended, "{text}: {first:?}");
        assert_eq!(outcome(text), first, "{text}");
    }
    // Nesting depth of the parser, and length of an expression.
    for (open, close) in [("(", ")"), ("{", "}"), ("function() return ", " end")] {
        let text = format!("return {}1{}", open.repeat(5000), close.repeat(5000));
        assert!(matches!(outcome(&text).0, Outcome::Failed(_)), "{open}");
    }
}

/// Calls with the maximum number of values on the stack do not panic.
#[test]
fn long_lists_are_no_panic() {
    for call in [
        "redis.call('echo', unpack(t))",
        "redis.log(1, unpack(t))",
        "string.format(('%s'):rep(7990), unpack(t))",
        "string.char(unpack(n))",
        "math.max(unpack(n))",
        "bit.bor(unpack(n))",
        "cmsgpack.pack(unpack(t, 1, 4000))",
        "cmsgpack.unpack(cmsgpack.pack(unpack(t, 1, 4000)))",
        "table.sort(t)",
        "cjson.encode(t)",
        "cjson.decode(cjson.encode(t))",
        "select('#', unpack(t))",
        "next(t)",
        "tostring(unpack(t))",
        "error(unpack(t))",
        "pcall(unpack(t))",
    ] {
        let text = format!(
            "local t, n = {{}}, {{}}; for i = 1, 7990 do t[i] = 'x' .. i; n[i] = tostring(i % 200) end; {call}; return 5"
        );
        let (outcome, _) = outcome(&text);
        let failed = (call.starts_with("error") || call.starts_with("pcall"))
            && matches!(outcome, Outcome::Failed(_));
        assert!(failed || outcome == Outcome::Returned(Data::Integer(5)), "{call}: {outcome:?}");
    }
}

/// A value of 8 MiB can be an argument, go to a command and return, within the limit of one script.
#[test]
fn large_values_pass() {
    let value = vec![b'x'; 8 << 20];
    let text = b"return #redis.call('echo', ARGV[1])";
    let one = Run { text, keys: &[], arguments: &[&value], seed: 1, visits: VISITS };
    let (outcome, visits) = Interpreter::new().run(&one, &mut Echo::default());
    assert_eq!(outcome, Outcome::Returned(Data::Integer(8 << 20)), "{visits}");
    assert!(visits < VISITS, "{visits}");
}
