//! Results and costs of scripts, which must not change without a new version of the format.

use sha1_smol::Sha1;

use crate::outcome;

/// Scripts and their costs in visits. Loops magnify a small change in the cost of an instruction.
const SCRIPTS: &[(&str, u64)] = &[
    ("return 1", 365),
    ("local x = 0 for i = 1, 10000 do x = x + i end return x", 12451),
    (
        "local t = {} for i = 1, 1000 do t[#t + 1] = i % 7.3 + i ^ 0.37 + math.sin(i) end return cjson.encode(t) .. cmsgpack.pack(t)",
        48923,
    ),
    (
        "local s = {} for i = 1, 500 do s[i] = tostring(i / 3) .. ('%g %e %.3f'):format(i / 7, i * 1e10, -i) end return s",
        60045,
    ),
    (
        "local n = 0 for i = 1, 3000 do n = bit.bxor(bit.rol(n, 5), math.random(1000)) end return n",
        59369,
    ),
    (
        "local s = ('the quick brown fox '):rep(200) return {s:gsub('(%w+) (%w+)', '%2 %1'), s:find('fox (.-) quick')}",
        8256,
    ),
    (
        "local t = {} for i = 1, 2000 do t[i] = (i * 7919) % 1009 end table.sort(t) return table.concat(t, ',')",
        66137,
    ),
    (
        "local t = {} for i = 1, 2000 do t['key:' .. i] = {i} end local n = 0 for k, v in pairs(t) do n = n + #k * v[1] end return n",
        63194,
    ),
    (
        "for i = 1, 500 do redis.call('echo', 'key', i, i / 3) redis.pcall('error', 'ERR x') end",
        37885,
    ),
    (
        "for i = 1, 500 do redis.call('map', 'x') redis.call('array', ('y'):rep(i)) end redis.setresp(3) for i = 1, 500 do redis.call('map', 'x') redis.call('set', i) end",
        144068,
    ),
    (
        "for i = 1, 500 do pcall(error, {i}) coroutine.wrap(function() coroutine.yield(i) end)() end",
        38349,
    ),
    (
        "local s = ('x'):rep(1e4) for i = 1, 20 do local a, b = s .. i, s:upper() .. s:reverse() if a < b then s = s:sub(2) end end return redis.sha1hex(s)",
        151560,
    ),
    (
        "local t = {} for i = 1, 20000 do t[i] = {i} end return {#t, collectgarbage('count')}",
        163400,
    ),
    (
        "return {struct.pack('>I4dhs', 7, 0.1, -3, 'x'), struct.unpack('<i8', struct.pack('<i8', -7)), cjson.decode('[1.5,{\"a\":[]}]')[1]}",
        759,
    ),
    (
        "local n = 0 for i = 1, 50 do n = n + loadstring('return ' .. ('1 + '):rep(i) .. '1')() end return n",
        13043,
    ),
    ("error('x')", 496),
    ("return +", 354),
    ("while true do end", 1048576),
    ("local s = 'x' while true do s = s .. s end", 764589),
    ("local function f(s) return s:gsub('x', f) end return f('x')", 3752),
    ("return ('a'):rep(300000):match(('a?'):rep(100000))", 242907),
];
/// Hash of all outcomes.
const OUTCOMES: &str = "691befeff7a25fa3dbdbd92401d55f12225ef8f9";

#[test]
fn results_and_costs_are_those_of_this_version() {
    let (mut all, mut costs) = (String::new(), String::new());
    for (text, expected) in SCRIPTS {
        let (ended, visits) = outcome(text);
        all.push_str(&format!("{ended:?}\n"));
        if visits != *expected {
            costs.push_str(&format!("{visits}, not {expected}: {text}\n"));
        }
    }
    let found = Sha1::from(all.as_bytes()).digest().to_string();
    let meaning = "scripts compute or cost something else than before: a change of the replicated \
                   format (decision 33), which needs a feature level and the old machine for old \
                   entries";
    assert!(costs.is_empty(), "{meaning}\n{costs}");
    assert_eq!(found, OUTCOMES, "{meaning}");
}
