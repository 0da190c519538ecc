//! Table of all commands in docs/commands.md, which must match the command table. `REWRITE=1 cargo
//! test -p quorate-kv page` regenerates it.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use quorate_kv::{command::Spec, commands::FAMILIES};

const PAGE: &str = "../../../docs/commands.md";
const BEGIN: &str =
    "<!-- made from the table of commands: REWRITE=1 cargo test -p quorate-kv page -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// Commands of Redis 7.2 that are not supported, each with the reason.
const MISSING: [(&str, &str); 6] = [
    (
        "bgrewriteaof bgsave failover lastsave psync replconf replicaof save shutdown slaveof sync waitaof",
        "persistence and replication need no managing",
    ),
    ("debug pfdebug pfselftest", "for tests of Redis itself"),
    ("dump migrate restore restore-asking", "Redis' format of files is not spoken"),
    ("fcall fcall_ro", "no functions yet: `EVAL`"),
    ("lolwut", "draws Redis' version"),
    ("module", "there are no modules"),
];

fn table() -> String {
    let specs = FAMILIES.iter().flat_map(|family| family.commands);
    let mut rows: BTreeMap<&str, String> = BTreeMap::new();
    for Spec { name, doc, .. } in specs {
        let here = doc.redis_difference.unwrap_or_default();
        let row = format!("{} | {here}", doc.group);
        assert!(rows.insert(name, row).is_none(), "{name} is there twice");
    }
    for (names, why) in MISSING {
        for name in names.split(' ') {
            let row = format!("– | **missing**: {why}");
            assert!(rows.insert(name, row).is_none(), "{name} is not missing");
        }
    }
    let mut table = "| Command | Group | Here |\n|---|---|---|\n".to_owned();
    for (name, row) in rows {
        assert!(!row.contains('\n'), "{name}: not one line");
        let name = name.to_ascii_uppercase();
        writeln!(table, "| `{name}` | {row} |").unwrap();
    }
    table
}

#[test]
fn page_has_all_commands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page says where it is");
    let (now, after) = rest.split_once(END).expect("the page says where it ends");
    let table = table();
    if env::var_os("REWRITE").is_some_and(|value| value == "1") {
        fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
        return;
    }
    assert!(now == table, "docs/commands.md is out of date; REWRITE=1 writes it again");
}
