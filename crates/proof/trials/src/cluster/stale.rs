//! Faulty history that the checker must reject: stale reads presented as linearizable reads.

use quorate_testbed::{
    network::Network,
    resp::RespConnection,
    trial::{
        client::is_ok,
        history::{HistoryClock, Operation, What},
    },
};

use super::{
    NODES,
    check::{Checker, Verdict},
};
use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

const TEST_KEY: &str = "k";

/// Checks the checker. A partitioned node answers READONLY reads from its own, older state, and the
/// checker must refuse that history. The same read without READONLY must return no value.
pub(crate) fn run(network: &Network, checker: &Checker) -> Result<(), Failed> {
    let mut nodes = nodes::start_serving_in(network, NODES, &["--client-timeout-ms", "500"])?;
    let leader = nodes.leader()?;
    let alone = leader % 3 + 1;
    let addresses = nodes.client_addresses();
    let at = |node: u32| addresses[node as usize - 1].as_str();
    let clock = HistoryClock::start();
    let mut history = vec![write_until_acknowledged(at(leader), "old", clock)?];
    nodes.wait_until_equal()?;
    let others = nodes.ids().into_iter().filter(|id| *id != alone);
    let pairs: Vec<_> = others.flat_map(|other| [(alone, other), (other, alone)]).collect();
    network.cut_links(&pairs)?;
    history.push(write_until_acknowledged(at(leader), "new", clock)?);
    let mut link = RespConnection::connect(at(alone))?;
    let fresh = link.run_command(&["GET", TEST_KEY])?;
    link.run_command(&["READONLY"])?;
    let call = clock.nanos_now();
    let stale = link.run_command(&["GET", TEST_KEY])?;
    network.heal_links()?;
    nodes.wait_until_all_serve()?;
    history.push(Operation {
        client: 1,
        key: TEST_KEY.to_owned(),
        what: What::Read { found: stale.text() },
        call,
        end: Some(clock.nanos_now()),
    });
    if let Some(value) = fresh.text() {
        return Err(Failed(format!("an unreachable node answered a read with {value:?}")));
    }
    let (verdict, text) = checker.check_history(&history, nodes.data_folder())?;
    if verdict != Verdict::Violation {
        return Err(Failed(format!(
            "old reads of an isolated node were taken for fresh ones: {text}"
        )));
    }
    println!(
        "- old reads (READONLY) of an isolated node are refused by the checker, as they must be"
    );
    Ok(())
}

/// Writes until the write is acknowledged. Retries write the same value, so that they count as one
/// operation.
fn write_until_acknowledged(
    address: &str,
    value: &str,
    clock: HistoryClock,
) -> Result<Operation, Failed> {
    let call = clock.nanos_now();
    wait_for("a write", || {
        let reply = RespConnection::connect(address)
            .and_then(|mut link| link.run_command(&["SET", TEST_KEY, value]));
        reply.is_ok_and(|reply| is_ok(&reply)).then_some(())
    })?;
    Ok(Operation {
        client: 0,
        key: TEST_KEY.to_owned(),
        what: What::Write { value: Some(value.to_owned()) },
        call,
        end: Some(clock.nanos_now()),
    })
}
