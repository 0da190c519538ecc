//! Scripts that broke an earlier engine, and attacks found for this one. Each ends in time, in
//! bounded memory, and with the same result on two interpreters
//! (`docs/notes/2026-11-29-scripts-attacked.md`).

use quorate_lua::{Data, Interpreter, Outcome, Run};

use crate::{Echo, VISITS, eval};

/// Definition of `big`, which returns a string of 2^n bytes.
const BIG: &str =
    "local function big(n) local s = 'x' for i = 1, n do s = s .. s end return s end ";

/// Scripts whose cost exceeds what a machine would charge if it counted instructions only.
const COSTLY: [&str; 30] = [
    // Words of a command, patterns and templates, which a host copies.
    "local s, t = big(23), {} for i = 1, 7000 do t[i] = s end redis.call('mset', unpack(t))",
    "local s = big(22) for i = 1, 1e4 do string.gmatch('', s) end",
    "local s, r = big(20), '%0' for i = 1, 18 do r = r .. r end return s:gsub('.*', r)",
    // Colliding keys of tables and colliding texts.
    "local t, u = {}, 2 ^ -52 - 2 ^ -20 for k = 0, 524287 do t[2 - 2 ^ -20 + k * u] = 1 end",
    "local t = {} for i = 1, 1e6 do t[('%064d'):format(i)] = 1 end",
    // Positions outside the range of C's integers.
    "table.insert({}, 3221225472, 1)",
    "table.insert({}, 0 / 0, 1)",
    "local t = {} for i = 1, 1e5 do t[i] = i end for i = 1, 1e5 do table.remove(t, 4294967297) end",
    "return unpack({}, -2147483648, 2147483647)",
    // Single instructions that process millions of bytes.
    "local a, b = big(22) .. 'a', big(22) .. 'b' local n = 0 for i = 1, 1e6 do if a < b then n = n + 1 end end",
    "local s = big(22) for i = 1, 1e6 do local y = s .. 'y' end",
    "local s = ('1'):rep(2 ^ 20) for i = 1, 1e6 do local n = s + 0 end",
    "local s = ('1'):rep(2 ^ 20) for i = 1, 1e6 do tonumber(s, 10) end",
    "local s = big(22) for i = 1, 1e6 do redis.sha1hex(s) end",
    "local s = big(22) for i = 1, 1e6 do redis.status_reply(s) end",
    "local s = big(22) for i = 1, 1e6 do string.find('', s) end",
    "local s = big(22) for i = 1, 1e6 do table.concat({}, s) end",
    "local s = (' '):rep(2 ^ 22) for i = 1, 1e6 do struct.size(s) end",
    "local s, t = big(22), {} t[s] = 1 for i = 1, 1e6 do next(t) cjson.encode(t) end",
    "local s = ('y'):rep(2 ^ 16) return s:find('[' .. ('x'):rep(2 ^ 20) .. ']z')",
    // Errors, arguments and values in large numbers.
    "for i = 1, 3e5 do pcall(string.rep) end",
    "local function f(...) return select('#', ...) end local t = {} for i = 1, 7000 do t[i] = i end while true do f(unpack(t)) end",
    "local e = {} local a, b = {}, {} for i = 1, 2000 do a[i] = e end for i = 1, 2000 do b[i] = a end return b",
    "local t = {} for i = 1, 7000 do t[i] = 0.1 * i end while true do redis.call('x', unpack(t)) end",
    "while true do redis.call('echo', big(20)) end",
    // Memory near its limit.
    "local s, t = ('x'):rep(2 ^ 19), {} for i = 1, 60 do t[i] = s end return {pcall(cmsgpack.pack, unpack(t))}",
    "local s, t = ('x'):rep(2 ^ 19), {} for i = 1, 60 do t[i] = s end return cjson.encode(t)",
    "local t = {} local co co = coroutine.create(function() pcall(function() while true do t[#t + 1] = {} end end) local u = {} for i = 1, 7000 do u[i] = 1 end coroutine.wrap(function() return coroutine.resume(co, unpack(u)) end)() end) coroutine.resume(co) return 1",
    "local t = setmetatable({}, {__gc = error, __index = function(t, k) return t[k .. 'x'] end}) return t.x",
    "local f = loadstring('local a ' .. ('do '):rep(150) .. ('end '):rep(150)) while true do loadstring(('x = x + '):rep(5000) .. '1') end",
];

fn run(interpreter: &mut Interpreter, text: &str) -> (Outcome, u64) {
    let text = format!("{BIG}{text}");
    let one = Run { text: text.as_bytes(), keys: &[], arguments: &[], seed: 1, visits: VISITS };
    interpreter.run(&one, &mut Echo::default())
}

#[test]
fn costly_scripts_end_alike() {
    let mut used = Interpreter::new();
    for text in COSTLY {
        let first = run(&mut Interpreter::new(), text);
        assert!(first.1 <= VISITS, "{text}");
        assert_eq!(run(&mut used, text), first, "{text}");
    }
}

/// The compilation time of a text is bounded, both in a run and in the front end.
#[test]
fn texts_that_compile_slowly_are_stopped() {
    let names: Vec<String> = (0..190).map(|number| format!("a{number}")).collect();
    let open = format!("local {} = 1 local function f() ", names.join(","));
    let text = format!("{}{}{}", open.repeat(150), "x=x+x ".repeat(20_000), "end ".repeat(150));
    assert!(text.len() < quorate_lua::TEXT_BYTES_MAX, "{}", text.len());
    let mut interpreter = Interpreter::new();
    let one = Run { text: text.as_bytes(), keys: &[], arguments: &[], seed: 1, visits: VISITS };
    let first = interpreter.run(&one, &mut Echo::default());
    assert!(matches!(first, (Outcome::Stopped(_), VISITS)), "{first:?}");
    assert!(interpreter.check(text.as_bytes()).is_err());
    assert_eq!(interpreter.check(b"return 1"), Ok(()));
}

/// An error is the value that the script raised, and contains no address of the process.
#[test]
fn errors_are_values_of_the_script() {
    for text in [
        "return select(2, pcall(string.gsub, 'a', 'a', function() error({}) end))",
        "return pcall(error, 'x not enough memory')",
        "return {pcall(tostring, setmetatable({}, {__tostring = function() error({}) end}))}",
    ] {
        assert!(matches!(run(&mut Interpreter::new(), text).0, Outcome::Returned(_)), "{text}");
    }
    assert_eq!(eval("return {pcall(error, 'x not enough memory')}"), "[nil x not enough memory]");
}

/// Nested calls of all kinds end on a thread with a small stack.
#[test]
fn nesting_ends_within_a_small_stack() {
    let texts = [
        "local function f() return pcall(f) end return f()",
        "local function f() return xpcall(f, function(e) return f() end) end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() return coroutine.wrap(function() return pcall(f) end)() end return f()",
        "local function f(s) return s:gsub('x', f) end return f('x')",
        "local function f(s) return (s:gsub('x', function() return coroutine.wrap(function() return select(2, pcall(f, 'x')) end)() end)) end return f('x')",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k + 1] end return t[1]",
        "local t = setmetatable({}, {}) getmetatable(t).__add = function(a, b) return a + b end return t + t",
        "local function f() table.sort({1, 2, 3}, f) return true end f()",
        "local function f() return loadstring('return ...')(load(f)) end return f()",
        "local function f() redis.call('echo', 'x') return pcall(f) end return f()",
        "return #cjson.decode(('['):rep(999) .. (']'):rep(999))",
        "local t = {} for i = 1, 998 do t = {t} end return #cjson.encode(t)",
        "return #('a'):rep(500):match(('a?'):rep(500))",
        "return loadstring(('return function() '):rep(190) .. ('end '):rep(190))",
    ];
    let nest = move || texts.map(|text| run(&mut Interpreter::new(), text));
    let small = std::thread::Builder::new().stack_size(1 << 20).spawn(nest).unwrap();
    let deep = std::thread::Builder::new().stack_size(16 << 20).spawn(nest).unwrap();
    let (small, deep) = (small.join().unwrap(), deep.join().unwrap());
    assert_eq!(small, deep);
    for (text, (outcome, _)) in texts.iter().zip(small).skip(11) {
        assert!(matches!(outcome, Outcome::Returned(_)), "{text}: {outcome:?}");
    }
}

#[test]
fn input_is_bounded() {
    let long = vec![b'x'; quorate_lua::INPUT_BYTES_MAX];
    let one = Run { text: b"return 1", keys: &[], arguments: &[&long], seed: 1, visits: VISITS };
    let mut interpreter = Interpreter::new();
    let (outcome, _) = interpreter.run(&one, &mut Echo::default());
    assert!(matches!(&outcome, Outcome::Failed(why) if why.contains("16 MiB")), "{outcome:?}");
    let one = Run { arguments: &[&long[..8 << 20]], visits: 8 * VISITS, ..one };
    assert_eq!(interpreter.run(&one, &mut Echo::default()).0, Outcome::Returned(Data::Integer(1)));
    let text = vec![b' '; quorate_lua::TEXT_BYTES_MAX + 1];
    assert!(interpreter.check(&text).is_err());
    let one = Run { text: &text, arguments: &[], ..one };
    assert!(matches!(interpreter.run(&one, &mut Echo::default()).0, Outcome::Failed(_)));
}

/// Lua's own limits apply before the stack of the machine is exhausted.
#[test]
fn lua_ends_nested_calls_before_the_machine_does() {
    for text in [
        "local function f(s) return s:gsub('x', f) end return f('x')",
        "local function f(s) return (s:gsub('(x)(x)(x)(x)', function() return f(s) end)) end return f('xxxx')",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k + 1] end return t[1]",
        "local function f() return ('%s'):format((('x'):gsub('x', f))) end return f()",
    ] {
        let (outcome, _) = run(&mut Interpreter::new(), text);
        let lua = matches!(&outcome, Outcome::Failed(why) if why.contains("overflow"));
        assert!(lua, "{text}: {outcome:?}");
    }
}
