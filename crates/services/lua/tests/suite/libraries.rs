//! Lua libraries: results compared with those of Redis 7.2.

use crate::check;

#[test]
fn strings() {
    check(&[
        (
            "return {('hello'):sub(2, -2), ('hello'):sub(-3), ('x'):sub(5), ('abc'):sub(0, 2)}",
            "[ell llo  ab]",
        ),
        (
            "return {('hello'):sub(1.9, 10 / 3), ('hello'):sub(1, math.huge), ('x'):rep(2.5)}",
            "[hel  xx]",
        ),
        (
            "return {('hello'):find('l', '2'), ('hello'):sub('x')}",
            "! ERR bad argument #1 to 'sub' (number expected, got string)",
        ),
        ("return {('x'):rep(3), ('x'):rep(0), ('x'):rep(-1)}", "[xxx  ]"),
        ("return {('abc'):byte(1, -1)}", "[:97 :98 :99]"),
        ("return string.char(72, '105')", "Hi"),
        (
            "return {('AbC'):lower(), ('AbC'):upper(), ('abc'):reverse(), ('abc'):len()}",
            "[abc ABC cba :3]",
        ),
        ("return {('hello world'):find('wor')}", "[:7 :9]"),
        ("return {('hello'):find('l+')}", "[:3 :4]"),
        ("return {('a.b'):find('.', 1, true)}", "[:2 :2]"),
        ("return {('hello'):find('(l)(.)')}", "[:3 :4 l l]"),
        ("return {('key = value'):match('^(%w+)%s*=%s*(%w+)$')}", "[key value]"),
        ("return ('2026-11-29'):match('%d+-(%d+)')", "11"),
        ("return {('hello'):match('()ll()')}", "[:3 :5]"),
        ("return {('THE (quick) fox'):find('%((%a+)%)')}", "[:5 :11 quick]"),
        ("return ('f(a(b)c)d'):match('%b()')", "(a(b)c)"),
        ("return {('THE (quick) fox'):find('%f[%a]%a+%f[%A]', 5)}", "[:6 :10]"),
        ("return {('hello world'):gsub('o', '0')}", "[hell0 w0rld :2]"),
        ("return {('hello'):gsub('', '-')}", "[-h-e-l-l-o- :6]"),
        ("return ('abc'):gsub('%w', '%0%0', 2)", "aabbc"),
        ("return ('$name is $age'):gsub('%$(%w+)', {name='Bo'})", "Bo is $age"),
        ("return ('abc'):gsub('b', function(x) return x:upper() end)", "aBc"),
        ("return ('a,b,,c'):gsub(',', ';')", "a;b;;c"),
        (
            "local t = {}; for w in ('one two  three'):gmatch('%a+') do t[#t + 1] = w end; return t",
            "[one two three]",
        ),
        (
            "local t = {}; for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t + 1] = k .. v end; return t",
            "[a1 b2]",
        ),
        ("return ('x'):find('[a-z]')", ":1"),
        ("return ('x]'):match('[]]')", "]"),
        ("return ('a^b'):match('[%^]')", "^"),
        ("return ('abab'):match('(ab)%1')", "ab"),
        ("return ('x'):match('%')", "! ERR malformed pattern (ends with '%')"),
        ("return ('x'):match('[a')", "! ERR malformed pattern (missing ']')"),
        ("return ('x'):match('(x')", "! ERR unfinished capture"),
        ("return ('x'):match('x)')", "! ERR invalid pattern capture"),
        ("return ('x'):rep(3, nil) .. ('x'):len()", "xxx1"),
        (
            "return string.format('%5d|%-5s|%05.1f|%x|%s|%%|%q', 42, 'ab', 3.14159, 255, 7, 'a\"b')",
            "   42|ab   |003.1|ff|7|%|\\\"a\\\\\\\"b\\\"",
        ),
        ("return string.format('%s %s %d', 'a')", "! ERR bad argument #3 to 'format' (no value)"),
        (
            "return string.format('%d', 'x')",
            "! ERR bad argument #2 to 'format' (number expected, got string)",
        ),
        (
            "return {tostring(1e15), tostring(0.1), tostring(100), tostring(-0.5), tostring(1/0), tostring(0/0)}",
            "[1e+15 0.1 100 -0.5 inf nan]",
        ),
        ("return {0/0 .. '', -(0/0) .. '', 1/3 .. ''}", "[nan -nan 0.33333333333333]"),
        (
            "return {tonumber('0x10'), tonumber('10', 2), tonumber(' 5 '), tostring(tonumber('x'))}",
            "[:16 :2 :5 nil]",
        ),
    ]);
}

#[test]
fn numbers_and_tables() {
    check(&[
        ("return {2^10, 2^0.5 == math.sqrt(2), 7 % 3, -7 % 3, 5.5 % 2}", "[:1024 :1 :1 :2 :1]"),
        (
            "return {math.floor(-1.5), math.ceil(1.2), math.max(1, 5, 3), math.min(4, 2), math.abs(-2)}",
            "[:-2 :2 :5 :2 :2]",
        ),
        (
            "return {math.fmod(7, 3), math.modf(3.7), math.pow(2, 3), math.huge == 1/0 and 1}",
            "[:1 :3 :8 :1]",
        ),
        ("return string.format('%.10f', math.pi)", "3.1415926536"),
        (
            "math.randomseed(5); local a = math.random(1000000); math.randomseed(5); return a == math.random(1000000)",
            ":1",
        ),
        ("local n = math.random(3, 5); return n >= 3 and n <= 5", ":1"),
        ("return math.random(5, 3)", "! ERR bad argument #2 to 'random' (interval is empty)"),
        ("return {unpack({1, 2, 3}, 2)}", "[:2 :3]"),
        ("return table.concat({1, 2, 'x'}, ', ')", "1, 2, x"),
        ("return table.concat({}, 'x')", ""),
        (
            "return table.concat({1, {}})",
            "! ERR invalid value (table) at index 2 in table for 'concat'",
        ),
        (
            "local t = {1, 2}; table.insert(t, 1, 0); table.insert(t, 9); return {table.remove(t), #t, table.remove(t, 1), t[1]}",
            "[:9 :3 :0 :1]",
        ),
        (
            "return {table.maxn({1, 2, [10]=3}), select('#', 1, nil, nil), (select(2, 'a', 'b'))}",
            "[:10 :3 b]",
        ),
    ]);
}

#[test]
fn bit() {
    check(&[
        (
            "return {bit.band(12, 10), bit.bor(12, 10), bit.bxor(12, 10), bit.bnot(0)}",
            "[:8 :14 :6 :-1]",
        ),
        (
            "return {bit.lshift(1, 31), bit.rshift(-1, 28), bit.arshift(-256, 4), bit.rol(0x12345678, 8), bit.ror(1, 1)}",
            "[:-2147483648 :15 :-16 :878082066 :-2147483648]",
        ),
        (
            "return {bit.tobit(2^32 + 5), bit.tobit(0xffffffff), bit.bswap(0x12345678)}",
            "[:5 :-1 :2018915346]",
        ),
        ("return {bit.tohex(1), bit.tohex(-1, 4), bit.tohex(0xabc, -3)}", "[00000001 ffff ABC]"),
        ("return {bit.band(7, 3, 1), bit.bor('1', 2)}", "[:1 :3]"),
        ("return bit.band()", "! ERR bad argument #1 to 'band' (number expected, got no value)"),
        ("return bit.tohex(1, -2^31)", "00000001"),
    ]);
}

#[test]
fn cjson() {
    check(&[
        (
            "return cjson.encode({b=1, a={1, 2, 'x'}, c={}, d=cjson.null})",
            "{\\\"a\\\":[1,2,\\\"x\\\"],\\\"d\\\":null,\\\"c\\\":{},\\\"b\\\":1}",
        ),
        ("return cjson.encode({1.5, 1e20, 0.1, true, false})", "[1.5,1e+20,0.1,true,false]"),
        ("return cjson.encode('a/\"\\\\\\n\\1')", "\\\"a\\\\/\\\\\\\"\\\\\\\\\\\\n\\\\u0001\\\""),
        ("return cjson.encode({[1]=1, [3]=3})", "[1,null,3]"),
        ("return cjson.encode({[1]=1, x=2})", "{\\\"1\\\":1,\\\"x\\\":2}"),
        (
            "return cjson.encode({[1]=1, [100]=2})",
            "! ERR Cannot serialise table: excessively sparse array",
        ),
        ("return cjson.encode(0/0)", "! ERR Cannot serialise number: must not be NaN or Inf"),
        (
            "return cjson.encode(function() end)",
            "! ERR Cannot serialise function: type not supported",
        ),
        (
            "local t = {}; t.t = t; return cjson.encode(t)",
            "! ERR Cannot serialise, excessive nesting (1001)",
        ),
        (
            "local t = cjson.decode('{\"a\": [1, 2.5, \"x\\\\u00e9\\\\ud83d\\\\ude00\"], \"b\": null, \"c\": true}'); return {t.a, t.b == cjson.null, t.c}",
            "[[:1 :2 x\\xc3\\xa9\\xf0\\x9f\\x98\\x80] :1 :1]",
        ),
        ("return cjson.decode('[')", "! ERR Expected value but found T_END at character 2"),
        (
            "return cjson.decode('[1 2]')",
            "! ERR Expected comma or array end but found T_NUMBER at character 4",
        ),
        (
            "return cjson.decode('{1:2}')",
            "! ERR Expected object key string but found T_NUMBER at character 2",
        ),
        (
            "return cjson.decode('\"\\\\ud800\"')",
            "! ERR Expected value but found invalid unicode escape code at character 2",
        ),
        (
            "return cjson.decode('\"\\\\u12')",
            "! ERR Expected value but found invalid unicode escape code at character 2",
        ),
        (
            "return cjson.decode(('['):rep(1001))",
            "! ERR Found too many nested data structures (1001)",
        ),
        ("return #cjson.decode(('['):rep(1000) .. (']'):rep(1000))", ":1"),
        (
            "return cjson.decode('1 x')",
            "! ERR Expected the end but found invalid token at character 3",
        ),
        (
            "local ok, e = pcall(cjson.decode, 'x'); return e",
            "Expected value but found invalid token at character 1",
        ),
        ("return tostring(cjson.null)", "userdata: (nil)"),
    ]);
}

#[test]
fn cmsgpack() {
    check(&[
        ("return cmsgpack.pack({1, 2, 3})", "\\x93\\x01\\x02\\x03"),
        ("return cmsgpack.pack({a=1, b='x'})", "\\x82\\xa1a\\x01\\xa1b\\xa1x"),
        (
            "return cmsgpack.pack(-1, 127, 128, -33, 65536, 2^32, -2^31, 1.5, 0.1)",
            "\\xff\\x7f\\xcc\\x80\\xd0\\xdf\\xce\\x00\\x01\\x00\\x00\\xcf\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\xd2\\x80\\x00\\x00\\x00\\xca?\\xc0\\x00\\x00\\xcb?\\xb9\\x99\\x99\\x99\\x99\\x99\\x9a",
        ),
        ("return cmsgpack.pack(nil, true, false, {})", "\\xc0\\xc3\\xc2\\x90"),
        ("return cmsgpack.unpack(cmsgpack.pack({1, 'two', {3}}))", "[:1 two [:3]]"),
        ("local t = cmsgpack.unpack(cmsgpack.pack({a={b={c=1}}})); return t.a.b.c", ":1"),
        ("local s = ('x'):rep(300); return cmsgpack.unpack(cmsgpack.pack(s)) == s", ":1"),
        ("return {cmsgpack.unpack('\\1\\2')}", "[:1 :2]"),
        ("return cmsgpack.unpack('\\147\\1')", "! ERR Missing bytes in input."),
        ("return cmsgpack.unpack('\\221\\255\\255\\255\\255')", "! ERR Missing bytes in input."),
        ("return cmsgpack.unpack('\\193')", "! ERR Bad data format in input."),
        ("return cmsgpack.unpack(('\\145'):rep(300))", "! ERR Missing bytes in input."),
        (
            "return cmsgpack.pack()",
            "! ERR bad argument #0 to 'pack' (MessagePack pack needs input.)",
        ),
        ("return cmsgpack.unpack('\\129\\192\\1')", "! ERR table index is nil"),
    ]);
}

#[test]
fn structures() {
    check(&[
        ("return struct.pack('>I2', 258)", "\\x01\\x02"),
        (
            "return struct.pack('<i4bHs', -2, 1, 515, 'x')",
            "\\xfe\\xff\\xff\\xff\\x01\\x03\\x02x\\x00",
        ),
        ("return {struct.unpack('>I2', '\\1\\2')}", "[:258 :3]"),
        ("return {struct.unpack('<i4', struct.pack('<i4', -7))}", "[:-7 :5]"),
        ("return {struct.unpack('>Bc0', '\\3abcd')}", "[abc :5]"),
        ("return {struct.size('i4i8'), struct.size('!8bi8')}", "[:12 :16]"),
        ("return {struct.unpack('d', struct.pack('d', 2.5)) * 2}", "[:5]"),
        (
            "return struct.unpack('i4', 'abc')",
            "! ERR bad argument #2 to 'unpack' (data string too short)",
        ),
        ("return struct.pack('i99', 1)", "! ERR integral size 99 is larger than limit of 32"),
        ("return struct.pack('!3i4', 1)", "! ERR alignment 3 is not a power of 2"),
        ("return struct.pack('c99999999999', 'x')", "! ERR integral size overflow"),
        (
            "return struct.size('s')",
            "! ERR bad argument #1 to 'size' (option 's' has no fixed size)",
        ),
        (
            "return struct.unpack('I4', 'abcd', -5)",
            "! ERR bad argument #2 to 'unpack' (data string too short)",
        ),
        (
            "return struct.unpack('I4', 'abcd', 2^53)",
            "! ERR bad argument #2 to 'unpack' (data string too short)",
        ),
    ]);
}

/// Numbers that a script passes to commands are formatted as in Redis 7.2.
#[test]
fn words() {
    for (number, text) in [
        ("1e9", "1000000000"),
        ("-1e9", "-1000000000"),
        ("1e15", "1000000000000000"),
        ("1764400000000", "1764400000000"),
        ("2^53", "9007199254740992"),
        ("2^62", "4611686018427387904"),
        ("2^63", "9223372036854776000"),
        ("0.1", "0.1"),
        ("1e-7", "1e-7"),
        ("-1.5e-7", "-1.5e-7"),
        ("123456.789", "123456.789"),
        ("1e100", "1e+100"),
        ("-0", "0"),
        ("1 / 0", "inf"),
    ] {
        check(&[(&format!("return redis.call('echo', {number})"), text)]);
    }
}
