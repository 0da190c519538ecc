//! Whole clusters in one thread: what clients see, whatever happens to nodes and messages.

use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
use quorate_replica::{
    front::{Failure, Sequenced, SessionId, Tag},
    service::{CommandId, StateMachine},
    testing::{Cluster, Outcome},
};

/// Keeps every command; replies with its place. The answer to a query is all of them.
#[derive(Default)]
struct Book {
    pages: Vec<Vec<u8>>,
}

impl StateMachine for Book {
    fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.pages.push(command.to_vec());
        reply.extend_from_slice(self.pages.len().to_string().as_bytes());
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(&self.pages.join(&b' '));
    }
}

const N1: NodeId = NodeId(1);

fn books(count: u32, class: Class, seed: u64) -> Cluster<Book> {
    Cluster::new(count, class, seed, |_| Book::default())
}

fn done(cluster: &mut Cluster<Book>, node: NodeId, tag: Tag) -> Outcome {
    assert!(cluster.run_until(10_000, |cluster| cluster.outcome(node, tag).is_some()));
    cluster.outcome(node, tag).unwrap().clone()
}

fn written(text: &str) -> Outcome {
    Outcome::Written(text.as_bytes().to_vec())
}

fn read(text: &str) -> Outcome {
    Outcome::Read(text.as_bytes().to_vec())
}

#[test]
fn group_of_one_writes_and_reads() {
    for class in [Class::Durable, Class::Volatile] {
        let mut cluster = books(1, class, 1);
        let tag = cluster.write(N1, b"a");
        assert_eq!(done(&mut cluster, N1, tag), written("1"));
        let tags = [b"b", b"c"].map(|command| cluster.write(N1, command));
        assert_eq!(done(&mut cluster, N1, tags[1]), written("3"));
        let tag = cluster.read(N1, b"");
        assert_eq!(done(&mut cluster, N1, tag), read("a b c"));
    }
}
