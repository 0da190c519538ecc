//! Requests from other threads to the reactor: answers, leadership transfers, and shutdown.

use crate::common::{Task, lone};
use quorate_core::{
    effect::Refusal,
    node_id::{Member, NodeId},
    slot::Slot,
};
use quorate_net::{GroupError, Limits, SnapshotError, TransferError, Unanswered};
use quorate_replica::{
    ProbeOutcome,
    group::asking::{GroupAnswer, GroupRefusal, GroupRequest},
    status::Snapshot,
};

#[test]
fn questions_are_answered_from_any_thread() {
    let node = lone(Limits::default(), &[]);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let handle = node.handle.clone();
            std::thread::spawn(move || (0..50).all(|_| handle.status().is_ok()))
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    assert_eq!(node.handle.status().unwrap().member, Member::first(1));
    let metrics = node.handle.metrics().unwrap();
    assert!(metrics.text.contains("fake_host 1\n"));
    assert!(metrics.text.contains("quorate_net_turns_total "));
}

#[test]
fn a_transfer_reports_its_end_and_a_second_one_is_refused_meanwhile() {
    let node = lone(Limits::default(), &[2]);
    let handle = node.handle.clone();
    let first = std::thread::spawn(move || handle.transfer(Some(NodeId(2))));
    node.shared.wait_until("the transfer", |world| world.transfers == [Some(NodeId(2))]);
    let second = node.handle.transfer(None);
    assert_eq!(second, Err(TransferError::Refused(Refusal::Transferring)));
    node.shared.change(|world| world.tasks.push_back(Task::EndTransfer(Ok(NodeId(2)))));
    assert_eq!(first.join().unwrap(), Ok(NodeId(2)));
    // Afterwards another transfer may begin.
    let handle = node.handle.clone();
    let third = std::thread::spawn(move || handle.transfer(None));
    node.shared.wait_until("the next transfer", |world| world.transfers.len() == 2);
    let refused = Err(Refusal::NotLeader);
    node.shared.change(|world| world.tasks.push_back(Task::EndTransfer(refused)));
    assert_eq!(third.join().unwrap(), Err(TransferError::Refused(Refusal::NotLeader)));
}

/// Callers that request a snapshot while an attempt is in progress share it.
#[test]
fn all_who_ask_for_a_snapshot_hear_its_end() {
    let node = lone(Limits::default(), &[]);
    let ask = |at: Option<u64>| {
        let handle = node.handle.clone();
        std::thread::spawn(move || handle.snapshot(at.map(Slot)))
    };
    let asked = [ask(None), ask(Some(7))];
    node.shared.wait_until("the orders", |world| world.snapshots.len() == 2);
    let taken = Snapshot { slot: Slot(9), bytes: 100 };
    node.shared.change(|world| world.tasks.push_back(Task::EndSnapshot(Ok(taken))));
    for thread in asked {
        assert_eq!(thread.join().unwrap(), Ok(taken));
    }
    let again = ask(None);
    node.shared.wait_until("the next order", |world| world.snapshots.len() == 3);
    let why = || "no room".to_owned();
    node.shared.change(|world| world.tasks.push_back(Task::EndSnapshot(Err(why()))));
    assert_eq!(again.join().unwrap(), Err(SnapshotError::Failed(why())));
}

/// Each caller gets the outcome of its own request. Outcomes without a waiting caller are skipped.
#[test]
fn everybody_who_asks_the_group_hears_what_came_of_it() {
    let limits = Limits { waiting_requests_max: 2, ..Limits::default() };
    let node = lone(limits, &[]);
    let ask = |ask: GroupRequest, dry_run| {
        let handle = node.handle.clone();
        std::thread::spawn(move || handle.ask_group(ask, dry_run))
    };
    let first = ask(GroupRequest::Cancel, false);
    node.shared.wait_until("the first order", |world| world.operator_requests.len() == 1);
    let second = ask(GroupRequest::Promote(NodeId(4)), true);
    node.shared.wait_until("the second order", |world| world.operator_requests.len() == 2);
    let busy = Err(GroupError::Unanswered(Unanswered::Busy));
    assert_eq!(node.handle.ask_group(GroupRequest::Cancel, false), busy);
    let numbers: Vec<u64> = {
        let world = node.shared.lock();
        let asks = world.operator_requests.iter().map(|(_, ask, dry)| (ask.clone(), *dry));
        let expected = [(GroupRequest::Cancel, false), (GroupRequest::Promote(NodeId(4)), true)];
        assert!(asks.eq(expected), "the third is not ordered");
        world.operator_requests.iter().map(|(asked, ..)| *asked).collect()
    };
    assert_ne!(numbers[0], numbers[1]);
    let refused = || GroupRefusal::new("not_leader", "node 2 leads", "ask it");
    node.shared.change(|world| {
        let ends = [
            (numbers[1], Err(refused())),
            (777, Ok(GroupAnswer::AlreadyDone)),
            (numbers[0], Ok(GroupAnswer::Done)),
            (numbers[0], Ok(GroupAnswer::AlreadyDone)),
        ];
        for (asked, end) in ends {
            world.tasks.push_back(Task::EndGroup(asked, end));
        }
    });
    let refused = Err(GroupError::Refused(refused()));
    assert_eq!(second.join().unwrap(), refused);
    assert_eq!(first.join().unwrap(), Ok(GroupAnswer::Done));
    // There is capacity again, and no request number is reused.
    let third = ask(GroupRequest::Cancel, false);
    node.shared.wait_until("the third order", |world| world.operator_requests.len() == 3);
    let number = node.shared.lock().operator_requests[2].0;
    assert!(!numbers.contains(&number));
    node.shared.change(|world| {
        let end = Task::EndGroup(number, Ok(GroupAnswer::Node(NodeId(5))));
        world.tasks.push_back(end);
    });
    assert_eq!(third.join().unwrap(), Ok(GroupAnswer::Node(NodeId(5))));
    assert_eq!(node.handle.members().unwrap().removed_nodes, [NodeId(9)]);
}

#[test]
fn probes_share_an_attempt_and_all_hear_its_end() {
    let node = lone(Limits::default(), &[2]);
    let ask = || {
        let handle = node.handle.clone();
        std::thread::spawn(move || handle.probe())
    };
    let asking = [ask(), ask(), ask()];
    node.shared.wait_until("the probes", |world| world.probes == 3);
    node.shared.change(|world| world.tasks.push_back(Task::EndProbe(ProbeOutcome::Unconfirmed)));
    for asked in asking {
        assert_eq!(asked.join().unwrap(), Ok(ProbeOutcome::Unconfirmed));
    }
}

#[test]
fn who_waits_when_the_reactor_ends_hears_it_at_once() {
    let node = lone(Limits::default(), &[2]);
    let handle = node.handle.clone();
    let waiting = std::thread::spawn(move || handle.transfer(None));
    node.shared.wait_until("the transfer", |world| world.transfers.len() == 1);
    let handle = node.handle.clone();
    node.stop();
    let stopped = Err(TransferError::Unanswered(Unanswered::Stopped));
    assert_eq!(waiting.join().unwrap(), stopped);
    assert_eq!(handle.status(), Err(Unanswered::Stopped));
    assert_eq!(handle.transfer(None), stopped);
    handle.stop(); // of no effect
}

#[test]
fn too_many_questions_are_refused_and_not_queued() {
    let node = lone(Limits { waiting_requests_max: 0, ..Limits::default() }, &[]);
    assert_eq!(node.handle.status(), Err(Unanswered::Busy));
}
