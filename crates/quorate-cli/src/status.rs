//! `quorate status`: what every node of the cluster says.

use std::{collections::BTreeSet, thread, time::Duration};

use clap::Args;

use crate::{
    config::address_argument,
    http,
    output::{self, Exit, Output, Problem, bytes, span, table},
    view::{Answer, BallotView, ClusterView, NodeView, STARTING},
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
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
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
        if output::reader_goes_within(WATCH_PAUSE) {
            return Ok(Exit::Done);
        }
        if !output.json {
            output::print("");
        }
    }
}

/// Asks the given nodes, and those that they name if only one was given.
pub(crate) fn look(addresses: &[String]) -> Result<ClusterView, Problem> {
    let asked: Vec<(Option<u32>, String)> = addresses
        .iter()
        .take(NODES_MAX)
        .map(|address| (None, address.clone()))
        .collect();
    let mut answers = ask_all(&asked);
    if let ([(_, address)], [Answer::Node(view)]) = (&asked[..], &answers[..]) {
        let (others, unknown) = others(view, address);
        let others = ask_all(&others);
        answers.extend(others);
        answers.extend(unknown);
    }
    let silent = |answer: &Answer| match answer {
        Answer::Unreachable { error, .. } => Some(error.clone()),
        Answer::Node(_) | Answer::Starting { .. } => None,
    };
    if let Some(reasons) = answers.iter().map(silent).collect::<Option<Vec<_>>>() {
        return Err(
            Problem::new(Exit::Unreachable, "unreachable", reasons.join("; "))
                .hint("is a node running? give its address with --admin"),
        );
    }
    Ok(ClusterView::new(answers))
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
        Err(refusal) if refusal.code == STARTING => Answer::Starting {
            node: node.or(refusal.node),
            error: refusal.message,
            progress: refusal.progress.map(|progress| *progress),
        },
        Err(refusal) => failed(format!("{address}: {}", refusal.message)),
    }
}

fn human(cluster: &ClusterView) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut notes = String::new();
    for answer in &cluster.nodes {
        let name = answer
            .node()
            .map_or_else(|| "?".to_owned(), |node| node.to_string());
        match answer {
            Answer::Node(view) => {
                rows.push(row(view, cluster));
                let progress = view.progress.as_ref().map(ToString::to_string);
                for note in view.error.iter().chain(&view.notices).chain(&progress) {
                    notes.push_str(&format!("node {name}: {note}\n"));
                }
            }
            Answer::Starting { error, .. } => {
                rows.push(vec![name.clone(), STARTING.to_owned()]);
                notes.push_str(&format!("node {name} is starting: {error}\n"));
            }
            Answer::Unreachable { error, .. } => {
                rows.push(vec![name, "unreachable".to_owned()]);
                notes.push_str(&format!("{error}\n"));
            }
        }
    }
    let break_before_notes = if notes.is_empty() { "" } else { "\n" };
    format!(
        "{}\n\n{}{break_before_notes}{notes}",
        headline(cluster),
        table(&rows)
    )
}

/// What is the same for all nodes.
fn headline(cluster: &ClusterView) -> String {
    let id = cluster.cluster.as_deref().unwrap_or("unknown");
    let leader = match cluster.leader {
        Some(leader) => format!("node {leader} leads"),
        None => "no leader".to_owned(),
    };
    let mut views = cluster.nodes.iter().filter_map(Answer::view);
    let settings = views.next().map(|view| {
        let NodeView {
            durability, store, ..
        } = view;
        format!(" ({durability}, store {store}, era {})", view.era)
    });
    format!("cluster {id}{}: {leader}", settings.unwrap_or_default())
}

const HEAD: [&str; 11] = [
    "node",
    "role",
    "ballot",
    "decided",
    "applied",
    "durable",
    "lag",
    "log",
    "grows",
    "disk full in",
    "client",
];

fn row(view: &NodeView, cluster: &ClusterView) -> Vec<String> {
    let own = view.members.iter().find(|member| member.node == view.node);
    let client = own.and_then(|member| member.client.clone());
    let BallotView { era, round, node } = view.ballot;
    let rate = view.disk.log_bytes_per_second;
    vec![
        view.node.to_string(),
        view.role.clone(),
        format!("{era}.{round}.{node}"),
        view.decided.to_string(),
        view.applied.to_string(),
        view.durable.to_string(),
        lag(view.node, cluster).map_or_else(String::new, |lag| lag.to_string()),
        bytes(view.log_bytes),
        rate.map_or_else(String::new, |rate| format!("{}/s", bytes(rate))),
        view.disk.full_in_seconds.map_or_else(String::new, span),
        client.unwrap_or_default(),
    ]
}

/// How far a node is behind, as its leader says.
fn lag(node: u32, cluster: &ClusterView) -> Option<u64> {
    let mut views = cluster.nodes.iter().filter_map(Answer::view);
    let leader = views.find(|view| Some(view.node) == cluster.leader)?;
    let mut members = leader.members.iter();
    members.find(|member| member.node == node)?.lag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{DiskView, MemberView, ProgressView};

    fn view(node: u32) -> NodeView {
        let member = |node, lag| MemberView {
            node,
            peer: None,
            client: Some(format!("h:{node}")),
            admin: None,
            role: "follower".to_owned(),
            weight: 1,
            connected: true,
            lag,
        };
        NodeView {
            cluster: "ab".to_owned(),
            node,
            role: if node == 1 { "leader" } else { "follower" }.to_owned(),
            leader: Some(1),
            era: 0,
            ballot: BallotView {
                era: 0,
                round: 3,
                node: 1,
            },
            decided: 90,
            applied: 80,
            durable: 95,
            durability: "durable".to_owned(),
            store: "lsm".to_owned(),
            log_bytes: 128 << 20,
            disk: DiskView::default(),
            version: "0".to_owned(),
            error: None,
            notices: Vec::new(),
            progress: None,
            members: vec![member(1, None), member(2, Some(7))],
        }
    }

    #[test]
    fn a_cluster_is_a_table_with_notes() {
        let mut first = view(1);
        first.disk = DiskView {
            free_bytes: Some(40 << 30),
            log_bytes_per_second: Some(1 << 20),
            full_in_seconds: Some(40 << 10),
        };
        let mut second = view(2);
        second.progress = Some(ProgressView {
            doing: "catching_up".to_owned(),
            unit: "slots".to_owned(),
            from: 0,
            at: 80,
            to: 160,
            percent: 50,
            per_second: None,
            seconds_left: None,
        });
        let cluster = ClusterView::new(vec![
            Answer::Node(Box::new(first)),
            Answer::Node(Box::new(second)),
            Answer::Starting {
                node: Some(3),
                error: "reading the log: 1 GiB of 2 GiB, 50 %".to_owned(),
                progress: None,
            },
            Answer::Unreachable {
                node: Some(4),
                error: "no node answers at h:9: refused".to_owned(),
            },
        ]);
        let expected = "\
cluster ab (durable, store lsm, era 0): node 1 leads

node  role         ballot  decided  applied  durable  lag  log      grows    disk full in  client
1     leader       0.3.1   90       80       95            128 MiB  1 MiB/s  11 h          h:1
2     follower     0.3.1   90       80       95       7    128 MiB                         h:2
3     starting
4     unreachable

node 2: catching up: slot 80 of 160, 50 %
node 3 is starting: reading the log: 1 GiB of 2 GiB, 50 %
no node answers at h:9: refused
";
        assert_eq!(human(&cluster), expected);
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
