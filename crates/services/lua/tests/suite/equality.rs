//! Isolation of runs: a result depends only on the script and its input, not on earlier runs.

use quorate_lua::{Interpreter, Outcome, Run};

use crate::{Echo, VISITS};

/// Scripts that end in every possible way and use all parts of the memory.
const JUNK: [&str; 12] = [
    "return 1",
    "error('x')",
    "return +",
    "while true do end",
    "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(i) end return #table.concat(t)",
    "local s = 'x' while true do s = s .. s end",
    "local function f() return pcall(f) end f()",
    "local function f(s) return s:gsub('x', f) end f('x')",
    "redis.setresp(3) return redis.call('map', 'x')",
    "redis.call('echo', ('x'):rep(1e5)) while true do redis.call('echo', 'x') end",
    "return ('a'):rep(300000):match(('a?'):rep(100000))",
    "math.randomseed(7) cjson.encode_max_depth(1) local c = coroutine.wrap(function() error('y') end) c()",
];

/// Scripts whose result would reveal addresses, sizes, table order, random numbers or settings.
const SHOWN: [&str; 8] = [
    "return tostring({}) .. tostring(function() end) .. tostring(coroutine.create(error))",
    "local t = {} for i = 1, 64 do t[{}] = i end local s = '' for _, v in pairs(t) do s = s .. v .. ' ' end return s",
    "local k, t = {}, {} for i = 1, 64 do k[i] = {} t[k[i]] = 1 end for i = 1, 64, 2 do t[k[i]] = nil end for i = 1, 40 do if i % 7 ~= 0 then t[i] = i end end return #t",
    "return {collectgarbage('count') * 1024, math.random(1e6), math.random(1e6), gcinfo()}",
    "return {pcall(string.gsub, 'a', 'a', function() error({}) end)}",
    "return cjson.encode({{{1}}}) .. cmsgpack.pack({a = 1, b = 2}) .. redis.sha1hex('x')",
    "local n = 0 while pcall(string.rep, 'x', 2 ^ n) do n = n + 1 end return n",
    "local t = setmetatable({}, {__mode = 'k'}) for i = 1, 5000 do t[{}] = i end local n = 0 for _ in pairs(t) do n = n + 1 end return n",
];

fn run(interpreter: &mut Interpreter, text: &str, visits: u64) -> (Outcome, u64) {
    let one = Run { text: text.as_bytes(), keys: &[b"k"], arguments: &[b"a"], seed: 9, visits };
    interpreter.run(&one, &mut Echo::default())
}

#[test]
fn earlier_runs_leave_nothing() {
    let mut used = Interpreter::new();
    for text in SHOWN.into_iter().chain(JUNK) {
        let first = run(&mut Interpreter::new(), text, VISITS);
        for junk in JUNK {
            run(&mut used, junk, VISITS / 4);
            assert_eq!(run(&mut used, text, VISITS), first, "{text}\nafter {junk}");
        }
    }
}

/// A run stopped at any point leaves no trace, even within a command or an allocation.
#[test]
fn runs_that_are_cut_short_leave_nothing() {
    let mut used = Interpreter::new();
    let expected = run(&mut Interpreter::new(), SHOWN[3], VISITS);
    let text = "local t = {} for i = 1, 50 do t[i] = {redis.call('array', ('y'):rep(i * 100))} pcall(error, t) end return cjson.encode(t)";
    for visits in (200..3000).step_by(37) {
        run(&mut used, text, visits);
        assert_eq!(run(&mut used, SHOWN[3], VISITS), expected, "{visits}");
    }
}

#[test]
fn threads_agree() {
    let expected: Vec<_> = SHOWN.map(|text| run(&mut Interpreter::new(), text, VISITS)).into();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let mut own = Interpreter::new();
                SHOWN.map(|text| run(&mut own, text, VISITS)).to_vec()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), expected);
    }
}

/// A text that has been compiled before has the same cost, and reaches limits at the same points.
#[test]
fn compiled_scripts_cost_what_compilation_costs() {
    let text = format!("local n = 0 {} return n", "n = n + 1 ".repeat(100));
    let mut used = Interpreter::new();
    let (_, all) = run(&mut used, &text, VISITS);
    assert!(all > 600, "compilation is most of it: {all}");
    for visits in (0..all + 20).step_by(7).chain(all - 3..all + 3) {
        let expected = run(&mut Interpreter::new(), &text, visits);
        assert_eq!(run(&mut used, &text, visits), expected, "{visits}");
        assert_eq!(matches!(expected.0, Outcome::Returned(_)), visits >= all, "{visits}");
    }
    for number in 0..300 {
        let other = format!("return {number} {}", " ".repeat(number * 800));
        assert_eq!(run(&mut used, &other, VISITS), run(&mut used, &other, VISITS));
    }
    assert_eq!(run(&mut used, &text, VISITS).1, all, "also after others took its place");
}
