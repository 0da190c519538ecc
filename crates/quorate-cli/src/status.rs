//! `quorate status`: what every node of the cluster says.

use std::{collections::BTreeSet, thread, time::Duration};

use clap::Args;

use crate::{
    http,
    output::{Exit, Output, Problem, table},
    view::{Answer, ClusterView, NodeView},
};

/// One node has this long to answer.
const WAIT: Duration = Duration::from_secs(3);
/// Between two looks of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// Nodes that are asked at most; a hostile members list must not start a flood.
const NODES_MAX: usize = 64;

/// Flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// Admin addresses; the other members are found if one is given
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN)]
    pub(crate) admin: Vec<String>,
    /// Go on looking, once a second
    #[arg(long)]
    watch: bool,
}

/// Where a node listens for operators by default.
pub(crate) const DEFAULT_ADMIN: &str = "127.0.0.1:7452";

/// Runs the command.
pub(crate) fn run(args: &StatusArgs, output: Output) -> Result<Exit, Problem> {
    if !args.watch {
        return look(&args.admin).map(|cluster| {
            output.result(&cluster, || human(&cluster));
            Exit::Done
        });
    }
    crate::signals::exit_when_interrupted()?;
    loop {
        match look(&args.admin) {
            Ok(cluster) => output.result(&cluster, || human(&cluster)),
            Err(problem) => {
                output.problem(&problem);
            }
        }
        thread::sleep(WATCH_PAUSE);
    }
}

/// Asks the given nodes, and those that they name if only one was given.
pub(crate) fn look(addresses: &[String]) -> Result<ClusterView, Problem> {
    let addresses: Vec<String> = addresses
        .iter()
        .map(|address| address.trim().to_owned())
        .filter(|a| !a.is_empty())
        .collect();
    let asked: Vec<(Option<u32>, String)> = addresses
        .into_iter()
        .take(NODES_MAX)
        .map(|address| (None, address))
        .collect();
    let mut answers = ask_all(&asked);
    if let ([(_, address)], [Answer::Node(view)]) = (&asked[..], &answers[..]) {
        let (others, unknown) = others(view, address);
        let others = ask_all(&others);
        answers.extend(others);
        answers.extend(unknown);
    }
    if answers.iter().all(|answer| answer.view().is_none()) {
        let reasons: Vec<String> = answers.iter().map(unreachable_text).collect();
        return Err(
            Problem::new(Exit::Unreachable, "unreachable", reasons.join("; "))
                .hint("is a node running? give its address with --admin"),
        );
    }
    Ok(ClusterView::new(answers))
}

fn unreachable_text(answer: &Answer) -> String {
    match answer {
        Answer::Node(view) => format!("node {} answers", view.node),
        Answer::Unreachable { error, .. } => error.clone(),
    }
}

/// The other members: where to ask them, and those of whom that is not known.
fn others(view: &NodeView, asked: &str) -> (Vec<(Option<u32>, String)>, Vec<Answer>) {
    let mut places = Vec::new();
    let mut unknown = Vec::new();
    let mut seen = BTreeSet::from([view.node]);
    for member in view.members.iter().take(NODES_MAX) {
        if !seen.insert(member.node) {
            continue;
        }
        match &member.admin {
            Some(admin) if admin != asked => places.push((Some(member.node), admin.clone())),
            _ => unknown.push(Answer::Unreachable {
                node: Some(member.node),
                error: format!("node {} does not know its admin address", view.node),
            }),
        }
    }
    (places, unknown)
}

fn ask_all(asked: &[(Option<u32>, String)]) -> Vec<Answer> {
    thread::scope(|scope| {
        let ask = |(node, address)| scope.spawn(move || ask(node, address));
        let threads: Vec<_> = asked
            .iter()
            .map(|(node, address)| ask((*node, address)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("asking does not panic"))
            .collect()
    })
}

fn ask(node: Option<u32>, address: &str) -> Answer {
    let failed = |error: String| Answer::Unreachable { node, error };
    let response = match http::get(address, "/status", WAIT) {
        Ok(response) => response,
        Err(error) => return failed(format!("no node answers at {address}: {error}")),
    };
    match response.json::<NodeView>() {
        Ok(view) if node.is_some_and(|node| node != view.node) => {
            failed(format!("node {} answers at {address}", view.node))
        }
        Ok(view) => Answer::Node(Box::new(view)),
        Err(refusal) => failed(format!("{address}: {}", refusal.message)),
    }
}

fn human(cluster: &ClusterView) -> String {
    let leader = match cluster.leader {
        Some(leader) => format!("node {leader} leads"),
        None => "no leader".to_owned(),
    };
    let id = cluster.cluster.as_deref().unwrap_or("unknown");
    let head = [
        "node", "role", "era", "ballot", "decided", "applied", "durable", "log", "class", "store",
        "client",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = String::new();
    for answer in &cluster.nodes {
        match answer {
            Answer::Node(view) => {
                rows.push(row(view));
                for note in view.error.iter().chain(&view.notices) {
                    notes.push_str(&format!("node {}: {note}\n", view.node));
                }
            }
            Answer::Unreachable { node, error } => {
                let name = node.map_or_else(|| "?".to_owned(), |node| node.to_string());
                rows.push(vec![name, "unreachable".to_owned()]);
                notes.push_str(&format!("{error}\n"));
            }
        }
    }
    format!("cluster {id}: {leader}\n{}{notes}", table(&rows))
}

fn row(view: &NodeView) -> Vec<String> {
    let own = view.members.iter().find(|member| member.node == view.node);
    let client = own.and_then(|member| member.client.clone());
    vec![
        view.node.to_string(),
        view.role.clone(),
        view.era.to_string(),
        format!(
            "{}.{}.{}",
            view.ballot.era, view.ballot.round, view.ballot.node
        ),
        view.decided.to_string(),
        view.applied.to_string(),
        view.durable.to_string(),
        bytes(view.log_bytes),
        view.durability.clone(),
        view.store.clone(),
        client.unwrap_or_default(),
    ]
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut count, mut unit) = (count, 0);
    while count >= 10 * 1024 && unit + 1 < UNITS.len() {
        count /= 1024;
        unit += 1;
    }
    format!("{count} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(bytes(4096), "4096 B");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(20 << 30), "20 GiB");
    }

    /// Exit 3, and every address with its reason.
    #[test]
    fn a_cluster_without_a_reachable_node_is_an_error() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let problem = look(&[nobody.to_string()]).unwrap_err();
        assert_eq!(
            (problem.exit, problem.code),
            (Exit::Unreachable, "unreachable")
        );
        assert!(
            problem.message.contains(&nobody.to_string()),
            "{}",
            problem.message
        );
    }
}
