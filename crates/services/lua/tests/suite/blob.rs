//! Imports, exports and state of the machine's program. Its instructions are checked when it is
//! built: `cargo xtask lua` rejects those for tables, memory growth and saturating conversions.

static PROGRAM: &[u8] = include_bytes!("../../machine/lua.wasm");

/// Returns the sections of the module, each with its number.
fn sections() -> Vec<(u8, &'static [u8])> {
    let (mut rest, mut found) = (&PROGRAM[8..], Vec::new());
    while let Some((&kind, after)) = rest.split_first() {
        let (length, after) = number(after);
        let (content, after) = after.split_at(length);
        found.push((kind, content));
        rest = after;
    }
    found
}

fn number(mut bytes: &[u8]) -> (usize, &[u8]) {
    let (mut value, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        value |= usize::from(byte & 0x7f) << shift;
        (bytes, shift) = (rest, shift + 7);
        if byte & 0x80 == 0 {
            break;
        }
    }
    (value, bytes)
}

fn section(kind: u8) -> Option<&'static [u8]> {
    sections().into_iter().find(|(found, _)| *found == kind).map(|(_, content)| content)
}

fn names(count: usize, from: &[u8], after: usize) -> Vec<String> {
    let (mut rest, mut found) = (from, Vec::new());
    for _ in 0..count {
        let (length, after_length) = number(rest);
        let (name, after_name) = after_length.split_at(length);
        found.push(String::from_utf8(name.to_vec()).unwrap());
        rest = if found.len() % after == 0 { number(&after_name[1..]).1 } else { after_name };
    }
    found
}

/// The program can reach nothing outside of its memory except through five imports.
#[test]
fn five_imports() {
    let (count, rest) = number(section(2).unwrap());
    let mut found = names(2 * count, rest, 2);
    found.retain(|name| name != "host");
    found.sort();
    assert_eq!(found, ["call", "grow", "protect", "take", "throw"]);
}

/// The state of a machine is a memory and one mutable global, the stack pointer.
#[test]
fn one_memory_and_one_global() {
    assert_eq!(section(5).unwrap(), [1, 1, 8, 0x80, 8], "8 pages, at most 1024");
    let (count, globals) = number(section(6).unwrap());
    let changing = globals.windows(2).filter(|pair| *pair == [0x7f, 1]).count();
    assert_eq!((count, changing), (2, 1));
    assert_eq!(section(8), None, "nothing runs by itself");
    let (count, rest) = number(section(7).unwrap());
    let mut found = names(count, rest, 1);
    found.sort();
    let expected = ["__stack_pointer", "compile", "enter", "execute", "memory", "prepare", "room"];
    assert_eq!(found, expected);
}
