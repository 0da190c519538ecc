//! Device clients served by a replica: their names, and batches that they send over connections.

use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
use quorate_replica::{
    front::Failure,
    service::{CommandId, Imaged, LoadError, MetaChange, StateMachine},
    testing::Cluster,
};
use quorate_wire::frame_clients::{LENT_NAME_BIT, LentName, NodePosition, encode_batch};

/// Stores every command.
#[derive(Default)]
struct Book(Vec<Vec<u8>>);

impl StateMachine for Book {
    fn apply(&mut self, _: CommandId, command: &[u8], _: &mut Vec<u8>) {
        self.0.push(command.to_vec());
    }

    fn query(&self, _: &[u8], _: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(&self.0.join(&b' '));
    }

    fn begin_image(&mut self) -> bool {
        false
    }

    fn next_image(&mut self, _: usize, _: &mut dyn FnMut(&[u8])) -> Imaged {
        Imaged::Failed
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    fn load(&mut self, _: &[u8]) -> Result<(), LoadError> {
        Ok(())
    }

    fn finish_load(&mut self, _: Slot, _: &[MetaChange]) -> Result<(), LoadError> {
        Ok(())
    }
}

type Books = Cluster<Book>;

fn lend(cluster: &mut Books, node: NodeId) -> LentName {
    let mut lent = None;
    cluster.request(node, |requests, _| {
        lent = requests.frame_clients().unwrap().assign_name().ok();
        Ok(())
    });
    lent.unwrap()
}

fn stand(cluster: &mut Books, node: NodeId, name: LentName) -> NodePosition {
    let mut stand = None;
    cluster.request(node, |requests, _| {
        stand = Some(requests.frame_clients().unwrap().node_position(name));
        Ok(())
    });
    stand.unwrap()
}

fn register(cluster: &mut Books, node: NodeId, name: LentName) -> Result<(), Failure> {
    let mut taken = Ok(());
    cluster.request(node, |requests, _| {
        taken = requests.frame_clients().unwrap().register_session(name);
        Ok(())
    });
    taken
}

fn offer(
    cluster: &mut Books,
    node: NodeId,
    name: LentName,
    of: (u64, u64, &str),
) -> Result<(), Failure> {
    let (session, number, text) = of;
    let bytes = encode_batch(session, number, text.split(' ').map(str::as_bytes));
    let mut taken = Ok(());
    cluster.request(node, |requests, _| {
        taken = requests.frame_clients().unwrap().propose_batch(name, number, &bytes);
        Ok(())
    });
    taken
}

fn next_is(cluster: &mut Books, node: NodeId, name: LentName, next: u64) -> bool {
    cluster.run_until(5_000, |cluster| stand(cluster, node, name).next == next)
}

/// [offload-22] [offload-24] Batches execute in the order of their numbers, each once, whichever
/// node they are offered to and however often.
#[test]
fn a_lent_name_has_a_session_in_which_its_batches_execute_once() {
    let mut cluster = Cluster::new(3, Class::Volatile, 5, |_| Book::default());
    let mut leader = None;
    assert!(cluster.run_until(10_000, |cluster| {
        leader = cluster.leader();
        leader.is_some()
    }));
    let leader = leader.unwrap();
    let follower = NodeId(leader.0 % 3 + 1);
    let name = lend(&mut cluster, leader);
    let others = [lend(&mut cluster, leader), lend(&mut cluster, follower)];
    assert!(!others.contains(&name) && others[0] != others[1]);
    let before = stand(&mut cluster, leader, name);
    assert!(before.is_leader && before.device_place.is_none() && before.session_slot == 0);
    assert!(!stand(&mut cluster, follower, name).is_leader);
    assert_eq!(register(&mut cluster, follower, name), Err(Failure::NoQuorum));
    for _ in 0..2 {
        assert_eq!(register(&mut cluster, leader, name), Ok(()));
    }
    assert!(next_is(&mut cluster, leader, name, 1));
    assert!(next_is(&mut cluster, follower, name, 1));
    let session = stand(&mut cluster, leader, name).session_slot;
    assert_eq!(stand(&mut cluster, follower, name).session_slot, session);

    let mut offer = |number, text| offer(&mut cluster, leader, name, (session, number, text));
    // The second batch arrives before the first, so it is not executed yet.
    for (number, text) in [(2, "c d"), (2, "c d"), (1, "a b")] {
        assert_eq!(offer(number, text), Ok(()));
    }
    assert!(next_is(&mut cluster, leader, name, 2));
    for (number, text) in [(1, "a b"), (2, "c d"), (2, "c d"), (3, "e")] {
        let mut taken = Err(Failure::Busy);
        while taken == Err(Failure::Busy) {
            taken = self::offer(&mut cluster, leader, name, (session, number, text));
        }
        assert_eq!(taken, Ok(()));
        cluster.run_until(100, |_| false);
    }
    for node in [leader, follower] {
        assert!(next_is(&mut cluster, node, name, 4));
        let mut pages = Vec::new();
        let now = cluster.now();
        let replica = cluster.replica_mut(node);
        quorate_replica::Requests::query(&mut replica.requests(now, 0), b"", &mut pages).unwrap();
        assert_eq!(String::from_utf8_lossy(&pages), "a b c d e");
    }
}

/// A client can bind only names that were assigned to clients, not those of nodes.
#[test]
fn a_node_s_name_is_nobody_else_s() {
    let mut cluster = Cluster::new(1, Class::Volatile, 6, |_| Book::default());
    let node = NodeId(1);
    assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
    for origin in [1, LENT_NAME_BIT - 1] {
        let name = LentName { origin, boot: 1 };
        assert_eq!(register(&mut cluster, node, name), Err(Failure::Unavailable));
        let offered = offer(&mut cluster, node, name, (1, 1, "x"));
        assert_eq!(offered, Err(Failure::Unavailable));
    }
}
