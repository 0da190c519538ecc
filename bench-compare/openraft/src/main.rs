//! OpenRaft server with our own log and transport, because the project ships neither.
//!
//! The library writes and flushes one append before it starts the next, so commands that arrive
//! meanwhile share an entry; otherwise each would wait for a flush of its own.
#![forbid(unsafe_code)]

mod log;
mod machine;
mod transport;

use std::{collections::BTreeMap, error::Error, io::Cursor, sync::Arc};

use compare_front::{Applied, Commands, Flags};
use openraft::{BasicNode, Config, Raft};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Entries in flight. Commands that arrive meanwhile share the next entry.
const ENTRIES_UNDER_WAY: usize = 4;
/// Entries in flight if commands do not share entries.
const COMMANDS_UNDER_WAY: usize = 4096;
/// Milliseconds. The defaults (50, and 150 to 300) cause elections whenever a busy machine is late.
const HEARTBEAT: u64 = 500;
const ELECTION: (u64, u64) = (1500, 3000);

openraft::declare_raft_types!(
    /// Type parameters of the library.
    pub Types:
        D = Commands,
        R = u64,
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = openraft::TokioRuntime,
);

type Waiting = (Vec<u8>, oneshot::Sender<u64>);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    let applied = Applied::default();
    let config = Config {
        heartbeat_interval: HEARTBEAT,
        election_timeout_min: ELECTION.0,
        election_timeout_max: ELECTION.1,
        ..Config::default()
    };
    let log = if flags.durable { log::Log::on_disk(&flags.folder)? } else { log::Log::in_memory() };
    let raft = Raft::new(
        flags.node,
        Arc::new(config.validate()?),
        transport::Factory,
        log,
        machine::Machine::new(applied.clone()),
    )
    .await?;
    transport::listen(flags.own(), raft.clone()).await?;
    if flags.node == 1 {
        let all = (1..).zip(&flags.peers);
        let members: BTreeMap<u64, BasicNode> =
            all.map(|(id, at)| (id, BasicNode::new(at))).collect();
        raft.initialize(members).await?;
    }
    let (waiting, taken) = mpsc::unbounded_channel();
    tokio::spawn(propose(raft.clone(), taken, flags.commands_per_entry));
    let submit = move |command| {
        let (answer, outcome) = oneshot::channel();
        // If no proposer is left, the sender is dropped, which reports an unknown outcome.
        let _ = waiting.send((command, answer));
        outcome
    };
    compare_front::serve(&flags.client, submit).await?;
    let leader = || {
        let raft = raft.clone();
        async move { raft.current_leader().await.unwrap_or(0) }
    };
    compare_front::run(applied, leader).await?;
    Ok(())
}

/// Proposes commands in the order of arrival.
async fn propose(
    raft: Raft<Types>,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    commands_per_entry: usize,
) {
    let under_way = match commands_per_entry {
        1 => COMMANDS_UNDER_WAY,
        _ => ENTRIES_UNDER_WAY,
    };
    let room = Arc::new(Semaphore::new(under_way));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let mut taken = Vec::new();
        if waiting.recv_many(&mut taken, commands_per_entry).await == 0 {
            return;
        }
        let mut commands = Commands::default();
        let mut answers = Vec::with_capacity(taken.len());
        for (command, answer) in taken {
            commands.push(&command);
            answers.push(answer);
        }
        let Ok(outcome) = raft.client_write_ff(commands).await else {
            continue;
        };
        tokio::spawn(async move {
            if let Ok(Ok(response)) = outcome.await {
                for answer in answers {
                    // The client may have disconnected.
                    let _ = answer.send(response.log_id.index);
                }
            }
            drop(permit);
        });
    }
}
