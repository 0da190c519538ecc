//! Names and numbers of keys in reports of imports and exports.

use std::collections::BTreeMap;

use serde::Serialize;

/// Number of things of one sort, with the names of some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct NameExamples {
    pub(crate) count: u64,
    pub(crate) examples: Vec<String>,
}

impl NameExamples {
    pub(crate) fn add_name(&mut self, name: &[u8]) {
        self.count += 1;
        if self.examples.len() < 5 {
            self.examples.push(printable_key(name));
        }
    }

    pub(crate) fn text(&self) -> String {
        let Self { count, examples } = self;
        let keys = if *count == 1 { "key" } else { "keys" };
        let more = if *count > examples.len() as u64 { ", …" } else { "" };
        format!("{count} {keys}: {}{more}", examples.join(", "))
    }
}

/// Formats a key for people.
pub(crate) fn printable_key(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(&name[..name.len().min(60)]);
    let text: String = text.chars().map(|c| if c.is_control() { '·' } else { c }).collect();
    if name.len() > 60 { format!("{text}…") } else { text }
}

/// Formats counts by type, such as `3 list, 2 set`.
pub(crate) fn format_counts(by: &BTreeMap<String, u64>) -> String {
    by.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}
