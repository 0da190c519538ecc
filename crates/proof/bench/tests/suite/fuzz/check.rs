//! Properties that hold for arbitrary bytes from a log service client, and for arbitrary replies to
//! the query of a server's properties.

use quorate_bench::{introduction, log_service::FrameFront};
use quorate_replica::{
    frame_clients::FrameClients,
    front::{Completion, ConnectionId, Endpoints, Failure, Front as _, Requests, Sequenced, Tag},
    status::Status,
};
use quorate_wire::frame_clients::{LentName, NodePosition};

pub(crate) const COMMAND_BYTES_MAX: usize = 1000;

const CLIENT: ConnectionId = ConnectionId(1);

/// A replica that accepts every request and executes it when the test asks for it.
#[derive(Default)]
struct Replica {
    taken: Vec<(Tag, Vec<u8>)>,
}

impl Requests for Replica {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.taken.push((tag, command.to_vec()));
        Ok(())
    }

    fn write_once(&mut self, _: Tag, _: Sequenced, _: &[u8]) -> Result<(), Failure> {
        unreachable!("frames know no sessions")
    }

    fn register(&mut self, _: Tag) -> Result<(), Failure> {
        unreachable!("frames know no sessions")
    }

    fn read(&mut self, _: Tag) -> Result<(), Failure> {
        unreachable!("frames know no reads")
    }

    fn queue_read(&mut self, _: Tag) -> Result<(), Failure> {
        unreachable!("frames know no reads")
    }

    fn drop_requests(&mut self, _: Tag) {}

    fn query(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }

    fn status(&self) -> Status {
        unreachable!("the front knows what it says")
    }

    fn wall_ms(&self) -> u64 {
        0
    }

    fn command_bytes_max(&self) -> usize {
        COMMAND_BYTES_MAX
    }

    fn frame_clients(&mut self) -> Option<&mut dyn FrameClients> {
        Some(self)
    }
}

impl FrameClients for Replica {
    fn assign_name(&mut self) -> Result<LentName, Failure> {
        LentName::lend(1, 2, 3).ok_or(Failure::Unavailable)
    }

    fn node_position(&self, name: LentName) -> NodePosition {
        NodePosition { next: name.boot.into(), ..NodePosition::default() }
    }

    fn register_session(&mut self, _: LentName) -> Result<(), Failure> {
        Err(Failure::NoQuorum)
    }

    fn propose_batch(&mut self, _: LentName, counter: u64, bytes: &[u8]) -> Result<(), Failure> {
        assert!(bytes.len() <= COMMAND_BYTES_MAX + 100);
        counter.is_multiple_of(2).then_some(()).ok_or(Failure::Busy)
    }
}

/// Outcome of serving a byte stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) commands: Vec<Vec<u8>>,
    pub(crate) output: Vec<u8>,
    pub(crate) ended: bool,
}

/// Checks arbitrary input. The first byte selects the sizes of the pieces in which the rest
/// arrives, which must not affect the meaning.
pub(crate) fn check(bytes: &[u8]) {
    let Some((piece, stream)) = bytes.split_first() else {
        return;
    };
    let piece = 1 + usize::from(*piece);
    let whole = serve(std::iter::once(stream));
    let pieces = serve(stream.chunks(piece));
    assert_eq!(pieces, whole, "in pieces of {piece}");
    assert!(whole.commands.iter().all(|command| command.len() <= COMMAND_BYTES_MAX));
    answer(stream, piece);
}

/// Passes pieces to the front as the reactor does, repeating bytes that the front did not use.
pub(crate) fn serve<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Seen {
    let (mut front, mut replica) = (FrameFront::new("0.1.0", "durable"), Replica::default());
    let (mut seen, mut held) = (Seen::default(), Vec::new());
    front.handle_opened(CLIENT, Endpoints::default(), &mut replica);
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            let used = front.receive_bytes(CLIENT, &held, &mut replica);
            assert!(used <= held.len(), "uses what is not there");
            held.drain(..used);
            for (tag, command) in std::mem::take(&mut replica.taken) {
                front.handle_completion(Completion::Written(tag, &[0; 8]), &mut replica);
                seen.commands.push(command);
            }
            seen.output.extend(front.take_output(CLIENT));
            if used == 0 || held.is_empty() {
                break;
            }
        }
        if front.should_close(CLIENT) {
            seen.ended = true;
            break;
        }
    }
    seen
}

/// Checks that the interpretation of a reply's prefix never changes when more bytes arrive, and
/// that the reply is safe to display.
fn answer(stream: &[u8], piece: usize) {
    let mut known = None;
    for end in (piece..stream.len()).step_by(piece).chain([stream.len()]) {
        let read = introduction::read(&stream[..end.min(stream.len())]);
        match known {
            None if read == Ok(None) => {}
            None => known = Some(read),
            Some(ref known) => assert_eq!(&read, known, "at {end}"),
        }
    }
    if let Some(Ok(Some(said))) = known {
        for word in [said.durability, said.store, said.version].into_iter().flatten() {
            assert!((1..=64).contains(&word.len()) && word.is_ascii(), "{word:?}");
            assert!(!word.contains(|letter: char| letter.is_control()));
        }
    }
}
