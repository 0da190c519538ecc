//! How a folder becomes a node's: the list of the members.

use std::collections::BTreeMap;

use quorate_core::node_id::NodeId;

/// The members as `--cluster` has them.
pub fn list_text(members: &BTreeMap<NodeId, String>) -> String {
    let entry = |(node, address): (&NodeId, &String)| format!("{node}={address}");
    members.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// FNV-1a of the list in its canonical form: tells lists apart that differ by mistake.
pub fn list_hash(members: &BTreeMap<NodeId, String>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    list_text(members).bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_differ_have_other_hashes() {
        let list = |text: &str| {
            let entries = text.split(',').map(|entry| entry.split_once('=').unwrap());
            let nodes =
                entries.map(|(node, address)| (NodeId(node.parse().unwrap()), address.to_owned()));
            list_hash(&nodes.collect())
        };
        assert_eq!(list("1=a:1,2=b:2"), list("2=b:2,1=a:1"));
        assert_ne!(list("1=a:1,2=b:2"), list("1=a:1,2=b:3"));
    }
}
