//! Fuzz input decoded as events of a frame client: frames, responses from a node, and time.

use quorate_frame_client::machine::{Act, Machine, Micros, OUTSTANDING_MAX, Outcome, SubmitError};
use quorate_wire::frame_clients::{LentName, NODE_POSITION_BYTES, NodePosition};

pub(crate) const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const NAME: LentName = LentName { origin: 1 << 31 | 5, boot: 3 };
pub(crate) const SUBMIT: u8 = 0;
pub(crate) const FRAME: u8 = 1;
pub(crate) const STAND: u8 = 2;
pub(crate) const TIME: u8 = 3;
pub(crate) const CONNECTED: u8 = 4;
pub(crate) const DISCONNECTED: u8 = 5;
const KINDS: u8 = 6;
/// Maximum number of actions at one instant, when everything outstanding is sent by frames and by
/// the connection.
const ACTS_MAX: usize = 4 * OUTSTANDING_MAX;

/// Runs a client on an input: a window, a log position and events.
pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(window) = input.byte() else { return };
    let Some(stand) = input.stand() else { return };
    let mut seen = Seen {
        machine: Machine::new(NAME, CLIENT, &stand, usize::from(window)),
        now: 0,
        submitted: 0,
        told: 0,
    };
    while let Some(kind) = input.byte() {
        if seen.event(kind % KINDS, &mut input).is_none() {
            break;
        }
        seen.look();
    }
}

/// The client and the outcomes that it reported.
struct Seen {
    machine: Machine,
    now: Micros,
    submitted: u64,
    told: u64,
}

impl Seen {
    fn event(&mut self, kind: u8, input: &mut Input<'_>) -> Option<()> {
        match kind {
            SUBMIT => {
                let length = usize::from(input.byte()?);
                let commands = [&vec![1; length][..], b"second"];
                let taken = self.machine.submit(self.submitted, commands.into_iter());
                self.submitted += u64::from(taken.is_ok());
                assert_eq!(taken == Err(SubmitError::SessionGone), self.machine.is_session_gone());
            }
            FRAME => {
                let length = input.short()?;
                let frame = input.take(length)?;
                self.machine.on_frame(self.now, frame);
            }
            STAND => match NodePosition::read(input.take(NODE_POSITION_BYTES)?) {
                Some(stand) => self.machine.on_position(self.now, &stand),
                // A malformed response ends the connection.
                None => self.machine.on_disconnected(),
            },
            TIME => self.now += input.short()? as Micros,
            CONNECTED => self.machine.on_connected(),
            _ => self.machine.on_disconnected(),
        }
        Some(())
    }

    fn look(&mut self) {
        let mut acts = 0;
        while let Some(act) = self.machine.next_act(self.now) {
            if let Act::SendFrame(frame) | Act::OfferBatch(_, frame) = act {
                assert!(!frame.is_empty());
            }
            acts += 1;
            assert!(acts < ACTS_MAX, "it never has enough");
        }
        while let Some(done) = self.machine.take_completed() {
            assert_eq!(done.tag, self.told, "each has one outcome, in their order");
            assert!(self.machine.is_session_gone() || done.outcome != Outcome::Unknown);
            self.told += 1;
        }
        let open = self.machine.open() as u64;
        assert_eq!(self.submitted, self.told + open, "nothing is lost");
        assert!(!self.machine.is_session_gone() || open == 0);
        let sleeps = self.machine.wake_at().is_none();
        assert!(open == 0 || !sleeps, "what is open is looked after");
    }
}

/// Unread bytes of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn short(&mut self) -> Option<usize> {
        let bytes = self.take(2)?;
        Some(usize::from(bytes[0]) | usize::from(bytes[1]) << 8)
    }

    fn stand(&mut self) -> Option<NodePosition> {
        NodePosition::read(self.take(NODE_POSITION_BYTES)?)
    }
}
