//! Derives node ids from host names, so that all pods of a StatefulSet can be started with the same
//! flags. They are named `NAME-0`, `NAME-1` and so on.

use quorate_core::node_id::NodeId;

use super::{layers::Layers, parse_node};
use crate::output::Problem;

/// Value of `--node` that requests an id derived from the host name.
const FROM_HOSTNAME: &str = "from-hostname";

/// Resolves `--node`, and derives the id from the host name if requested.
pub(super) fn resolve_node(layers: &Layers<'_>) -> Result<Option<NodeId>, Problem> {
    let what = "a node id (1, 2, …) or from-hostname";
    let given = layers.optional("node", what, |text| match text {
        FROM_HOSTNAME => Some(None),
        text => parse_node(text).map(Some),
    })?;
    match given {
        None => Ok(None),
        Some(Some(node)) => Ok(Some(node)),
        Some(None) => {
            let system = rustix::system::uname();
            id_of_hostname(&system.nodename().to_string_lossy()).map(Some)
        }
    }
}

/// Returns the node id for a host name, ignoring the domain. `quorate-0` is node 1, because
/// ordinals start at 0 and ids at 1.
fn id_of_hostname(name: &str) -> Result<NodeId, Problem> {
    let host = name.split('.').next().unwrap_or_default();
    let ordinal = host.rsplit_once('-').map_or("", |(_, ordinal)| ordinal);
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    let ordinal: Option<u32> = ordinal.parse().ok().filter(|_| is_number);
    let node = ordinal.and_then(|ordinal| ordinal.checked_add(1));
    node.map(NodeId).ok_or_else(|| {
        let message = format_args!("--node {FROM_HOSTNAME}: the host name {name} does not end with - and a number");
        Problem::usage_error(message)
            .with_hint("name the machines NAME-0, NAME-1, … as a StatefulSet does, or give each node its own --node N")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_id_is_the_host_number_plus_one() {
        let node = |name: &str| id_of_hostname(name).ok().map(|NodeId(node)| node);
        assert_eq!(node("quorate-0"), Some(1));
        assert_eq!(node("db-quorate-2"), Some(3));
        assert_eq!(node("quorate-11.quorate.default.svc.cluster.local"), Some(12));
        for other in
            ["", "quorate", "quorate-", "quorate-a", "quorate-+1", "7", "a.b-1", "q-4294967295"]
        {
            assert_eq!(node(other), None, "{other}");
        }
    }

    #[test]
    fn host_name_without_a_number_is_one_error() {
        let problem = id_of_hostname("laptop").unwrap_err();
        assert_eq!(
            problem.message,
            "--node from-hostname: the host name laptop does not end with - and a number"
        );
        assert!(problem.hint.contains("--node N"), "{}", problem.hint);
    }
}
