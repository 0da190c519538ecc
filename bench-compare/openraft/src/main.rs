//! OpenRaft server with our own log and transport, because the project ships neither.
//!
//! The library writes and flushes one append before it starts the next, so commands that arrive
//! meanwhile share an entry; otherwise each would wait for a flush of its own.
#![forbid(unsafe_code)]

mod log;
mod machine;
mod transport;

use std::{collections::BTreeMap, error::Error, io::Cursor, sync::Arc};

use compare_front::{AppliedCommands, EntryCommands, NodeFlags};
use openraft::{BasicNode, Config, Raft};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Entries in flight. Commands that arrive meanwhile share the next entry.
const ENTRIES_IN_FLIGHT: usize = 4;
/// Entries in flight if commands do not share entries.
const COMMANDS_IN_FLIGHT: usize = 4096;
/// Milliseconds. The defaults (50, and 150 to 300) cause elections whenever a busy machine is late.
const HEARTBEAT_MS: u64 = 500;
const ELECTION_TIMEOUT_MS: (u64, u64) = (1500, 3000);

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

type WaitingCommand = (Vec<u8>, oneshot::Sender<u64>);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = NodeFlags::parse();
    let applied = AppliedCommands::default();
    let config = Config {
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_TIMEOUT_MS.0,
        election_timeout_max: ELECTION_TIMEOUT_MS.1,
        ..Config::default()
    };
    let log = if flags.is_durable {
        log::LogHandle::on_disk(&flags.data_folder)?
    } else {
        log::LogHandle::in_memory()
    };
    let raft = Raft::new(
        flags.node_number,
        Arc::new(config.validate()?),
        transport::ConnectionFactory,
        log,
        machine::StateMachine::new(applied.clone()),
    )
    .await?;
    transport::serve_peers(flags.own_address(), raft.clone()).await?;
    if flags.node_number == 1 {
        let all = (1..).zip(&flags.peer_addresses);
        let members: BTreeMap<u64, BasicNode> =
            all.map(|(id, at)| (id, BasicNode::new(at))).collect();
        raft.initialize(members).await?;
    }
    let (waiting, taken) = mpsc::unbounded_channel();
    tokio::spawn(propose_commands(raft.clone(), taken, flags.commands_per_entry));
    let submit = move |command| {
        let (answer, outcome) = oneshot::channel();
        // If no proposer is left, the sender is dropped, which reports an unknown outcome.
        let _ = waiting.send((command, answer));
        outcome
    };
    compare_front::serve_clients(&flags.client_address, submit).await?;
    let leader = || {
        let raft = raft.clone();
        async move { raft.current_leader().await.unwrap_or(0) }
    };
    compare_front::run(applied, leader).await?;
    Ok(())
}

/// Proposes commands in the order of arrival.
async fn propose_commands(
    raft: Raft<Types>,
    mut waiting: mpsc::UnboundedReceiver<WaitingCommand>,
    commands_per_entry: usize,
) {
    let under_way = match commands_per_entry {
        1 => COMMANDS_IN_FLIGHT,
        _ => ENTRIES_IN_FLIGHT,
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
        let mut commands = EntryCommands::default();
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
