//! Checks access rules of `docs/spec/structure.md` in the core and the replica that the compiler
//! does not enforce.

use std::{fs, path::Path};

use super::root;

/// Maximum number of fields of a spine.
const FIELDS_MAX: usize = 12;
/// Maximum number of fields of a replica: the spine and the wings.
const REPLICA_FIELDS_MAX: usize = 14;
/// Maximum number of files in which the replica has methods.
const REPLICA_FILES_MAX: usize = 9;

/// Returns the fields, as written, of the struct whose declaration is `begins`.
fn fields<'a>(source: &'a str, begins: &str) -> Vec<&'a str> {
    let body = source.split(begins).nth(1).and_then(|rest| rest.split("\n}").next());
    let lines = body.unwrap_or_default().lines().map(str::trim);
    lines.filter(|line| line.ends_with(',') && !line.starts_with("//")).collect()
}

/// Returns the violations in the source of the spine's module.
fn faults(source: &str) -> Vec<String> {
    let fields = fields(source, "struct Spine {");
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

/// Returns the names and texts of all Rust files below a folder, or of a single file.
fn sources(path: &Path) -> Vec<(String, String)> {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        return entries.flat_map(|path| sources(&path)).collect();
    }
    match path.extension().is_some_and(|ending| ending == "rs") {
        true => vec![(path.display().to_string(), fs::read_to_string(path).unwrap())],
        false => Vec::new(),
    }
}

/// Returns the names of the sources that contain this text.
fn naming(sources: &[(String, String)], text: &str) -> Vec<String> {
    let naming = sources.iter().filter(|(_, source)| source.contains(text));
    naming.map(|(name, _)| name.clone()).collect()
}

#[test]
fn the_replica_is_a_spine_and_wings() {
    let folder = root().join("crates/node/replica/src");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let spine = fields(&read("spine.rs"), "struct Spine<D: Disk, S: StateMachine> {").len();
    assert!((1..=FIELDS_MAX).contains(&spine), "the spine has {spine} fields");
    let parts = fields(&read("replica.rs"), "struct Replica<D: Disk, S: StateMachine> {").len();
    assert!((1..=REPLICA_FIELDS_MAX).contains(&parts), "the replica has {parts} fields");
    let all = sources(&folder);
    let methods = naming(&all, "impl<D: Disk, S: StateMachine> Replica<D, S>");
    assert!((1..=REPLICA_FILES_MAX).contains(&methods.len()), "{methods:?}");
}

/// A wing has access only to its own state and the spine. A port imports nothing else of the
/// replica.
#[test]
fn wings_and_ports_do_not_know_the_replica() {
    let folder = root().join("crates/node/replica/src");
    for wing in ["members", "streaming", "snapshots", "rollback.rs", "differing.rs", "spine"] {
        let sources = sources(&folder.join(wing));
        assert_ne!(sources, [], "{wing} is gone");
        assert_eq!(naming(&sources, "replica::Replica"), [""; 0]);
    }
    for (name, source) in sources(&folder.join("ports")) {
        let uses = source.lines().filter(|line| line.contains("use crate::"));
        let outside: Vec<_> = uses.filter(|line| !line.contains("use crate::ports::")).collect();
        assert_eq!(outside, [""; 0], "{name}");
    }
}
