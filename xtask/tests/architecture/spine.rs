//! Holds the rights of `docs/spec/structure.md` in the core: what the compiler allows, but the page
//! does not.

use std::fs;

use super::root;

/// Maximum number of fields of the spine.
const FIELDS_MAX: usize = 12;

/// Returns what breaks the page in the source of the spine's module.
fn faults(source: &str) -> Vec<String> {
    let body = source.split("struct Spine {").nth(1).and_then(|rest| rest.split("\n}").next());
    let lines = body.unwrap_or_default().lines().map(str::trim);
    let fields: Vec<&str> =
        lines.filter(|line| line.ends_with(',') && !line.starts_with("//")).collect();
    let mut faults = Vec::new();
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        faults.push(format!("the spine has {} fields, not 1 to {FIELDS_MAX}", fields.len()));
    }
    let visible = fields.iter().filter(|field| field.starts_with("pub"));
    faults.extend(visible.map(|field| format!("{field} is visible outside of the spine")));
    for function in source.split("fn ").skip(1) {
        let signature = function.split('{').next().unwrap_or_default();
        if signature.split("->").nth(1).is_some_and(|result| result.contains("&mut")) {
            let name = signature.split('(').next().unwrap_or_default();
            faults.push(format!("{name} gives out a mutable reference into the spine"));
        }
    }
    faults
}

#[test]
fn the_spine_is_small_and_closed() {
    let path = root().join("crates/protocol/core/src/node/spine.rs");
    assert_eq!(faults(&fs::read_to_string(path).unwrap()), [""; 0]);
}

#[test]
fn an_open_spine_is_seen() {
    let source = "struct Spine {\n    /// Votes, promises,\n    acceptor: Acceptor,\n    pub(crate) peers: Peers,\n}\n\
        impl Spine {\n    fn peers(&mut self) -> &mut Peers {\n    }\n}\n";
    let expected = [
        "pub(crate) peers: Peers, is visible outside of the spine",
        "peers gives out a mutable reference into the spine",
    ];
    assert_eq!(faults(source), expected);
    assert_eq!(faults(""), ["the spine has 0 fields, not 1 to 12"]);
}
