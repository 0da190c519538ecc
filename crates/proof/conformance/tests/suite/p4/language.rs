//! Language semantics and program errors: small programs, one aspect each.

use quorate_conformance::p4::{Fault, Machine, Sources, compile};

/// Returns a program with two bytes of input and output, and with `locals` and `body` in its
/// ingress.
fn program(locals: &str, body: &str) -> String {
    format!(
        "#include <core.p4>\n#include <v1model.p4>\n\
header h_t {{ bit<8> a; bit<4> b; bit<4> c; }}\n\
struct headers {{ h_t h; h_t other; }}\n\
struct metadata {{ bit<8> m; bit<16> wide; bool flag; }}\n\
parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t std) {{\n\
  state start {{ packet.extract(hdr.h); transition accept; }}\n}}\n\
control V(inout headers hdr, inout metadata meta) {{ apply {{ }} }}\n\
control Other(inout headers hdr, inout metadata meta) {{\n\
  register<bit<8>>(4) seen;\n\
  apply {{ bit<8> n; seen.read(n, 0); seen.write(0, n + 1); meta.m = n; if (n == 2) {{ return; }} meta.m = n + 10; }}\n}}\n\
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{\n\
{locals}\napply {{\n{body}\n}}\n}}\n\
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {{ apply {{ }} }}\n\
control C(inout headers hdr, inout metadata meta) {{ apply {{ }} }}\n\
control D(packet_out packet, in headers hdr) {{ apply {{ packet.emit(hdr.h); }} }}\n\
V1Switch(P(), V(), I(), E(), C(), D()) main;\n"
    )
}

/// Line in the program at which `locals` begins, and line at which `body` begins.
const LOCALS: u32 = 15;
const BODY: u32 = 17;

fn machine(text: &str) -> Result<Machine, String> {
    let mut sources = Sources::default();
    sources.set_text("t.p4", text.to_owned());
    let program = compile(&sources, "t.p4", &[]).map_err(|error| error.to_string())?;
    Ok(Machine::new(program))
}

fn run(locals: &str, body: &str, bytes: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Fault> {
    let machine = machine(&program(locals, body));
    machine.unwrap_or_else(|error| panic!("{error}")).process(0, bytes)
}

/// Checks the output for the packet 0x21 0x43.
fn check(body: &str, expected: &[u8]) {
    let sent = run("", body, &[0x21, 0x43]).unwrap();
    assert_eq!(sent, [(0, expected.to_vec())], "{body}");
}

#[test]
fn expressions_are_those_of_p4() {
    check("", &[0x21, 0x43]);
    check("hdr.h.a = hdr.h.a + 0xff;", &[0x20, 0x43]);
    check("hdr.h.a = hdr.h.a - 0x22;", &[0xff, 0x43]);
    check("hdr.h.a = hdr.h.a |+| 0xff;", &[0xff, 0x43]);
    check("hdr.h.a = hdr.h.a |-| 0x22;", &[0, 0x43]);
    check("hdr.h.a = ~hdr.h.a;", &[0xde, 0x43]);
    check("hdr.h.a = -hdr.h.a;", &[0xdf, 0x43]);
    check("hdr.h.a = hdr.h.b ++ hdr.h.c;", &[0x43, 0x43]);
    check("hdr.h.a = hdr.h.c ++ hdr.h.a[7:4];", &[0x32, 0x43]);
    check("hdr.h.a[3:0] = 0xf;", &[0x2f, 0x43]);
    check("hdr.h.a[7:4] = hdr.h.b;", &[0x41, 0x43]);
    check("hdr.h.a = hdr.h.a << 4;", &[0x10, 0x43]);
    check("hdr.h.a = hdr.h.a << 8;", &[0, 0x43]);
    check("hdr.h.a = hdr.h.a >> hdr.h.b;", &[0x02, 0x43]);
    check("hdr.h.a = (bit<8>)(hdr.h.a ++ hdr.h.a)[11:4];", &[0x12, 0x43]);
    check("hdr.h.a = (bit<8>)hdr.h.b;", &[0x04, 0x43]);
    check("hdr.h.b = (bit<4>)hdr.h.a;", &[0x21, 0x13]);
    check("hdr.h.a = 8w0b1010_0101;", &[0xa5, 0x43]);
    check("hdr.h.a = hdr.h.a == 0x21 ? 8w1 : 2;", &[1, 0x43]);
    check("hdr.h.a = hdr.h.a & 0xf | 0x40 ^ 0x80;", &[0xc1, 0x43]);
    check("hdr.h.a = 1 + 2 * 3;", &[7, 0x43]);
    check(
        "meta.flag = hdr.h.a > 3 && !(hdr.h.b < hdr.h.c) || false; if (meta.flag) { hdr.h.a = 9; }",
        &[9, 0x43],
    );
    check("meta.wide = 0x1234; hdr.h.a = meta.wide[11:4];", &[0x23, 0x43]);
}

/// The right operand of `&&` and `||` is not evaluated if the left one decides the result. Here its
/// evaluation would be a fault.
#[test]
fn conditions_are_cut_short() {
    check("if (hdr.other.isValid() && hdr.other.a == 1) { hdr.h.a = 1; }", &[0x21, 0x43]);
    check("if (!hdr.other.isValid() || hdr.other.a == 1) { hdr.h.a = 1; }", &[1, 0x43]);
}

#[test]
fn statements_and_scopes() {
    check("bit<8> x = 1; { bit<8> x = 2; hdr.h.a = x; } hdr.h.c = x[3:0];", &[2, 0x41]);
    check(
        "if (hdr.h.a == 0) hdr.h.a = 1; else if (hdr.h.a == 0x21) { hdr.h.a = 2; } else hdr.h.a = 3;",
        &[2, 0x43],
    );
    check("hdr.h.a = 1; return; hdr.h.a = 2;", &[1, 0x43]);
    check("hdr.h.a = 1; exit; hdr.h.a = 2;", &[1, 0x43]);
    check("hdr.h.setInvalid();", &[]);
    check("std.egress_spec = 3; if (std.egress_spec == 3) { std.egress_spec = 0; }", &[0x21, 0x43]);
    let dropped = run("", "mark_to_drop(std);", &[0x21, 0x43]).unwrap();
    assert!(dropped.is_empty());
    let port = run("", "std.egress_spec = 7;", &[0x21, 0x43, 9, 9]).unwrap();
    assert_eq!(port, [(7, vec![0x21, 0x43, 9, 9])]);
}

#[test]
fn actions_copy_what_they_are_given() {
    let swap = "action swap(bit<4> x, bit<4> y) { hdr.h.b = y; hdr.h.c = x; if (x == 4) { return; } hdr.h.c = 0; }";
    let sent = run(swap, "swap(hdr.h.b, hdr.h.c); hdr.h.a = 5;", &[0x21, 0x43]).unwrap();
    assert_eq!(sent, [(0, vec![5, 0x34])]);
}

#[test]
fn registers_stay_and_controls_have_their_own() {
    let text = program(
        "Other() one; Other() two;",
        "one.apply(hdr, meta); hdr.h.a = meta.m; two.apply(hdr, meta); two.apply(hdr, meta); hdr.h.b = meta.m[3:0];",
    );
    let mut machine = machine(&text).unwrap();
    let mut step = || machine.process(0, &[0, 0]).unwrap()[0].1.clone();
    assert_eq!(step(), [10, 0xb0]);
    assert_eq!(step(), [11, 0xd0]);
    assert_eq!(step(), [2, 0xf0]);
    machine.reset();
    assert_eq!(machine.process(0, &[0, 0]).unwrap()[0].1, [10, 0xb0]);
}

#[test]
fn tables_match_their_constant_entries() {
    let table = "action set(bit<8> to) { hdr.h.a = to; }\n\
        table t { key = { hdr.h.b: exact; hdr.h.c: ternary; } actions = { set; NoAction; }\n\
        const entries = { (1, _): set(1); (2, 4 &&& 12): set(2); } default_action = set(9); size = 4; }";
    for (byte, expected) in [(0x15, 1), (0x24, 2), (0x27, 2), (0x28, 9), (0x31, 9)] {
        let sent = run(table, "t.apply();", &[0, byte]).unwrap();
        assert_eq!(sent, [(0, vec![expected, byte])]);
        let hit = run(table, "if (t.apply().hit) { hdr.h.b = 0; }", &[0, byte]).unwrap();
        assert_eq!(hit[0].1[1] >> 4 == 0, expected != 9);
    }
}

/// A packet for a group is copied to each of its ports, and the copies can be changed
/// independently.
#[test]
fn groups_get_copies() {
    let text = program("", "std.mcast_grp = 5;").replace(
        "control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply {",
        "control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) { apply { hdr.h.a = hdr.h.a + std.egress_port[7:0]; if (std.egress_port == 2) { mark_to_drop(std); }",
    );
    let mut machine = machine(&text).unwrap();
    assert!(machine.process(0, &[1, 2]).unwrap().is_empty());
    machine.set_group(5, &[4, 2, 1]);
    assert_eq!(machine.process(0, &[1, 2]).unwrap(), [(4, vec![5, 2]), (1, vec![2, 2])]);
}

#[test]
fn a_packet_that_is_too_short_reaches_ingress() {
    let body = "if (std.parser_error == error.PacketTooShort) { std.egress_spec = 3; }";
    assert_eq!(run("", body, &[7]).unwrap(), [(3, vec![7])]);
    assert_eq!(run("", body, &[7, 8]).unwrap(), [(0, vec![7, 8])]);
}

/// A result that P4 leaves undefined is a fault of the program.
#[test]
fn undefined_results_are_faults() {
    for (locals, body, expected) in [
        ("", "hdr.h.a = hdr.other.a;", "hdr.other.a of a header that is not valid"),
        ("", "hdr.other.a = 1;", "hdr.other.a of a header that is not valid"),
        ("", "bit<8> x; hdr.h.a = x;", "x has no value"),
        ("bit<8> x;", "hdr.h.a = x;", "x has no value"),
        ("", "bit<8> x; x[3:0] = 1;", "a part of x, which has no value"),
        (
            "register<bit<8>>(4) r;",
            "r.write((bit<32>)hdr.h.a, 1);",
            "index 33 of r, which has 4 elements",
        ),
        ("", "hdr.other.setValid(); hdr.h.a = hdr.other.a;", "hdr.other.a has no value"),
    ] {
        let fault = run(locals, body, &[0x21, 0x43]).unwrap_err();
        assert_eq!(fault.message, expected, "{body}");
        assert_eq!(fault.place.map(|place| place.line), Some(BODY), "{body}");
    }
}

#[test]
fn a_parser_that_never_ends_is_a_fault() {
    let text = program("", "")
        .replace("transition accept; }", "transition again; } state again { transition again; }");
    let fault = machine(&text).unwrap().process(0, &[1, 2]).unwrap_err();
    assert!(fault.message.contains("did not end"), "{fault}");
}

/// An error names line and column of the first token that is not allowed.
#[test]
fn errors_have_their_place() {
    for (locals, body, line, column, what) in [
        ("", "hdr.h.a = 256;", BODY, 11, "256 is no bit<8>"),
        ("", "hdr.h.a = hdr.h.b;", BODY, 11, "expected bit<8>, found bit<4>"),
        ("", "hdr.h.a = hdr.h.a + hdr.h.b;", BODY, 21, "expected bit<8>, found bit<4>"),
        ("", "  hdr.h.x = 1;", BODY, 9, "there is no field x"),
        ("", "hdr.h.a = y;", BODY, 11, "there is no y"),
        ("", "hdr.h.a = 1", BODY + 1, 1, "expected \";\", found \"}\""),
        ("", "hdr.h.a = 1 +;", BODY, 14, "expected an expression, found \";\""),
        ("", "if (hdr.h.a) { }", BODY, 5, "expected bool, found bit<8>"),
        ("", "hdr.h.a[8:0] = 1;", BODY, 9, "[8:0] does not lie in bit<8>"),
        ("", "hdr.h = 1;", BODY, 1, "a header as a whole is not in the subset"),
        ("", "switch (1) { }", BODY, 1, "\"switch\" is not in the subset"),
        ("", "bit<129> x;", BODY, 1, "a bit string of the subset has 1 to 128 bits"),
        ("", "bit<8> x; bit<8> x;", BODY, 18, "x is declared twice"),
        ("", "foo(1);", BODY, 1, "there is no foo with these arguments"),
        ("", "$", BODY, 1, "'$' begins no word"),
        ("", "hdr.h.a = 5w40;", BODY, 11, "40 is no bit<5>"),
        ("", "hdr.h.a = 0xg;", BODY, 11, "0xg: no number of at most 128 bits"),
        (
            "",
            "hdr.h.a = 1 << hdr.h.b;",
            BODY,
            11,
            "this operator is not for a number without a width and bit<4>",
        ),
        ("action a() { a(); }", "a();", LOCALS, 8, "a contains itself"),
        ("action a(bit<8> x) { x = 1; }", "a(1);", LOCALS, 22, "this must not be written to"),
        (
            "I() again;",
            "again.apply(hdr, meta, std);",
            LOCALS,
            5,
            "a control within a control within a control is not in the subset",
        ),
        (
            "table t { key = { hdr.h.a: lpm; } actions = { } }",
            "",
            LOCALS,
            28,
            "a key of the subset is exact or ternary",
        ),
        ("extern x;", "", LOCALS, 1, "there is no type extern"),
        ("register<bit<8>>(100000000) r;", "", LOCALS, 29, "registers are too large"),
    ] {
        let error = machine(&program(locals, body)).err().unwrap_or_default();
        assert_eq!(error, format!("t.p4:{line}:{column}: {what}"), "{locals} {body}");
    }
}

#[test]
fn files_are_included_and_names_defined() {
    let mut sources = Sources::default();
    let text = program("", "hdr.h.a = SIX;");
    sources.set_text("main.p4", format!("#include \"more.p4\"\n{text}"));
    sources.set_text("more.p4", "#ifndef SIX\n#define SIX (TWO * 3)\n#endif\n".to_owned());
    let run = |defines: &[(&str, &str)]| {
        let program = compile(&sources, "main.p4", defines).map_err(|error| error.to_string())?;
        let sent = Machine::new(program).process(0, &[0, 0]).unwrap();
        Ok::<u8, String>(sent[0].1[0])
    };
    assert_eq!(run(&[("SIX", "7")]), Ok(7));
    assert_eq!(run(&[]), Err("main.p4:18:11: there is no TWO".to_owned()));
    let mut broken = sources.clone();
    broken.set_text("more.p4", "#define SIX 6\nconst bit<3> X = 8;\n".to_owned());
    let error = compile(&broken, "main.p4", &[]).unwrap_err();
    assert_eq!(error.to_string(), "more.p4:2:18: 8 is no bit<3>");
    broken.set_text("more.p4", "#include \"main.p4\"\n".to_owned());
    let error = compile(&broken, "main.p4", &[]).unwrap_err();
    assert_eq!(error.message, "too many files are included");
}

/// A checksum over data that includes the correct checksum is zero, and a computed checksum is
/// correct.
#[test]
fn checksums_are_those_of_the_internet() {
    let text = program("", "if (std.checksum_error == 1) { std.egress_spec = 1; }")
        .replace(
            "control V(inout headers hdr, inout metadata meta) { apply {",
            "control V(inout headers hdr, inout metadata meta) { apply { verify_checksum(hdr.h.isValid(), { hdr.h.a, hdr.h.b, hdr.h.c }, meta.wide, HashAlgorithm.csum16);",
        )
        .replace(
            "control C(inout headers hdr, inout metadata meta) { apply {",
            "control C(inout headers hdr, inout metadata meta) { apply { update_checksum(true, { hdr.h.a, 8w1, 16w0xfffe }, meta.wide, HashAlgorithm.csum16); hdr.h.a = meta.wide[15:8]; hdr.h.b = meta.wide[7:4]; hdr.h.c = meta.wide[3:0];",
        );
    let mut machine = machine(&text).unwrap();
    // The complement of the sum 0xffff is 0, as expected. 0xff01 + 0xfffe folds to 0xff00.
    assert_eq!(machine.process(0, &[0xff, 0xff]).unwrap(), [(0, vec![0, 0xff])]);
    assert_eq!(machine.process(0, &[0x12, 0x34]).unwrap(), [(1, vec![0xed, 0xff])]);
}
