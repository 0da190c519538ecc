//! `quorate member feature`: shows the feature level in use and the levels that each node supports.

use std::{
    fmt,
    io::{self, IsTerminal as _},
};

use clap::Args;
use quorate_admin::{
    level::{LevelView, NodeLevelView},
    look::query_cluster,
    members::{MembersOutcome, MembersRequest},
    view::{Answer, ClusterView},
};
use serde::Serialize;

use super::group::{GroupClient, Where};
use crate::output::{Exit, Output, Problem, format_table, progress};

/// Arguments of `quorate member feature`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FeatureArgs {
    #[command(flatten)]
    place: Where,
    /// Use the next level now; from then on, the previous release cannot be installed again
    #[arg(long)]
    raise: bool,
    /// With --raise: say whether it is possible, and change nothing
    #[arg(long, requires = "raise")]
    dry_run: bool,
    /// With --raise: do not ask for confirmation
    #[arg(long, requires = "raise")]
    yes: bool,
}

/// Result of `quorate member feature`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Shown {
    /// Set if this command raised the level in use.
    raised: bool,
    /// Node that reported the levels.
    node: u32,
    #[serde(flatten)]
    level: LevelView,
    /// Set if the previous release can still be installed again.
    downgrade: bool,
}

pub(super) fn run(args: &FeatureArgs, output: Output) -> Result<Exit, Problem> {
    let mut raised = false;
    if args.raise {
        if !args.dry_run && !args.yes {
            confirm_raise()?;
        }
        let request =
            MembersRequest { raise: true, dry_run: args.dry_run, ..MembersRequest::default() };
        let asked = GroupClient::new(&args.place.admin).send_request(&request)?;
        raised = asked == MembersOutcome::Done;
    }
    let cluster = query_cluster(&args.place.admin)?;
    let shown = Shown::from_cluster(&cluster, raised)?;
    output.print_result(&shown, || shown.to_string());
    Ok(Exit::Done)
}

/// Asks the operator to confirm the raise. Without a terminal, only `--yes` confirms it.
fn confirm_raise() -> Result<(), Problem> {
    let mut said = String::new();
    if io::stdin().is_terminal() {
        progress(
            "a raise cannot be undone: the previous release cannot be installed again; type yes to raise the level:",
        );
        io::stdin()
            .read_line(&mut said)
            .map_err(|error| Problem::io_error("read the answer", &error))?;
    }
    match said.trim() {
        "yes" => Ok(()),
        _ => Err(Problem::new(
            Exit::Failed,
            "not_confirmed",
            "a raise cannot be undone: the previous release cannot be installed again",
        )
        .with_hint("confirm it with --yes; nothing was changed")),
    }
}

impl Shown {
    /// Creates the output from the leader's view, which includes the reasons that block the next
    /// level. Without a leader, uses the view of the node that has applied most.
    fn from_cluster(cluster: &ClusterView, raised: bool) -> Result<Self, Problem> {
        let views = || cluster.nodes.iter().filter_map(Answer::node_view);
        let leader = views().find(|view| Some(view.node) == cluster.leader);
        let view = leader
            .filter(|view| view.level.level > 0)
            .or_else(|| {
                let knows = views().filter(|view| view.level.level > 0);
                knows.max_by_key(|view| view.applied)
            })
            .ok_or_else(|| {
                let what = "the nodes that answer run a release without feature levels";
                Problem::new(Exit::Failed, "no_levels", what)
                    .with_hint("upgrade them: docs/operate/packages.md#upgrade")
            })?;
        let downgrade = view.level.has_higher_level();
        Ok(Self { raised, node: view.node, level: view.level.clone(), downgrade })
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LevelView { level, nodes, .. } = &self.level;
        let mut rows = vec![["node", "supports"].map(str::to_owned).to_vec()];
        rows.extend(nodes.iter().map(|NodeLevelView { node, newest }| {
            let newest = newest.map_or("not connected".to_owned(), |newest| newest.to_string());
            vec![node.to_string(), newest]
        }));
        let now = if self.raised { " now" } else { "" };
        writeln!(f, "the cluster is at feature level {level}{now}\n")?;
        writeln!(f, "{}\n", format_table(&rows))?;
        writeln!(f, "{}", self.level.raise_outlook())?;
        f.write_str(match self.downgrade {
            true => "until it is raised, the previous release can be installed again",
            false => "a release that does not support this level cannot be installed any more",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(level: u16, held_back: &[&str]) -> Shown {
        let of = |node, newest| NodeLevelView { node, newest };
        Shown {
            raised: level == 9,
            node: 1,
            level: LevelView {
                level,
                supports: 9,
                nodes: vec![of(1, Some(9)), of(2, Some(8)), of(3, None)],
                held_back: held_back.iter().map(|&why| why.to_owned()).collect(),
                raise_in_s: None,
            },
            downgrade: level == 8,
        }
    }

    #[test]
    fn text_names_blockers_and_the_limit_for_a_downgrade() {
        let text = shown(8, &["node 3 is not connected"]).to_string();
        for line in [
            "the cluster is at feature level 8\n",
            "level 9 is held back: node 3 is not connected\n",
            "until it is raised, the previous release can be installed again",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("not connected\n"), "{text}");
        let text = shown(9, &[]).to_string();
        assert!(text.contains("feature level 9 now\n"), "{text}");
        assert!(text.contains("cannot be installed any more"), "{text}");
    }

    /// The field names are fixed, because scripts rely on them.
    #[test]
    fn json_has_the_documented_fields() {
        let json = serde_json::to_value(shown(8, &["why"])).unwrap();
        let expected = serde_json::json!({
            "raised": false, "node": 1, "level": 8, "supports": 9,
            "nodes": [{"node": 1, "newest": 9}, {"node": 2, "newest": 8}, {"node": 3, "newest": null}],
            "held_back": ["why"], "raise_in_s": null, "downgrade": true,
        });
        assert_eq!(json, expected);
    }
}
