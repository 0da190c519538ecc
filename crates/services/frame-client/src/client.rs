//! The frame client with its sockets: one thread waits for the connection and for frames.

use std::{
    fmt, io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use quorate_packets::ethernet::EthernetError;
use quorate_wire::frame_clients::{LentName, NodePosition, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    desk::{Answer, NodeConnection},
    machine::{Act, CompletedBatch, Counters, Machine, Micros, SubmitError},
    station::FrameSocket,
};

/// Window and timeout for a frame client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of batches in flight.
    pub batches_in_flight_max: usize,
    /// Maximum time to find a leader whose device accepts frames.
    pub leader_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { batches_in_flight_max: 256, leader_timeout: Duration::from_secs(10) }
    }
}

/// Reason why a client cannot be opened or must stop.
#[derive(Debug)]
pub enum Error {
    /// No leader was found in time with a device that receives raw frames and counts votes for a
    /// volatile group. Describes the last failure.
    NoDevice(String),
    /// The network interface cannot be used.
    Interface(EthernetError),
    /// The operating system failed to wait for the sockets.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice(last) => write!(
                to,
                "no leader takes frames ({last}): this needs the log service of a volatile cluster whose nodes have --device kernel, tc or packet"
            ),
            Self::Interface(failed) => write!(to, "{failed}"),
            Self::Io(error) => write!(to, "wait for frames: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<EthernetError> for Error {
    fn from(failed: EthernetError) -> Self {
        Self::Interface(failed)
    }
}

/// Client that submits batches to devices.
#[derive(Debug)]
pub struct FrameClient {
    nodes: Vec<SocketAddr>,
    /// Index of the connected node.
    node_index: usize,
    connection: Option<NodeConnection>,
    /// Earliest time to connect to another node.
    redial_at: Instant,
    name: LentName,
    machine: Machine,
    frame_socket: FrameSocket,
    started_at: Instant,
}

const REDIAL_INTERVAL: Duration = Duration::from_millis(5);

impl FrameClient {
    /// Finds the leader among `nodes` and registers a session, whose name identifies the client.
    /// `interface` must be on the network segment of the devices.
    pub fn open(nodes: &[SocketAddr], interface: &str, options: Options) -> Result<Self, Error> {
        let started = Instant::now();
        let until = started + options.leader_timeout;
        let mut last = "no address was given".to_owned();
        while Instant::now() < until {
            for (at, node) in nodes.iter().enumerate() {
                let found = NodeConnection::connect(*node).and_then(|mut desk| {
                    let found = register_session(&mut desk, until)?;
                    Ok((desk, found))
                });
                let (desk, name, stand) = match found {
                    Ok((desk, Some((name, stand)))) => (desk, name, stand),
                    Ok((_, None)) => {
                        last = format!("{node} leads no group whose device takes frames");
                        continue;
                    }
                    Err(error) => {
                        last = format!("{node}: {error}");
                        continue;
                    }
                };
                let group = stand.device_place.unwrap_or_default().group;
                let station = FrameSocket::open(interface, group)?;
                return Ok(Self {
                    nodes: nodes.to_vec(),
                    node_index: at,
                    connection: Some(desk),
                    redial_at: started,
                    name,
                    machine: Machine::new(
                        name,
                        station.own_mac(),
                        &stand,
                        options.batches_in_flight_max,
                    ),
                    frame_socket: station,
                    started_at: started,
                });
            }
            std::thread::sleep(REDIAL_INTERVAL);
        }
        Err(Error::NoDevice(last))
    }

    /// Returns the counters since the client was opened.
    pub const fn counters(&self) -> Counters {
        self.machine.counters()
    }

    /// Returns the name of this client's batches in the log.
    pub const fn name(&self) -> LentName {
        self.name
    }

    /// Returns whether the session is gone. Outstanding batches have an unknown outcome, and a new
    /// client is needed.
    pub const fn is_session_gone(&self) -> bool {
        self.machine.is_session_gone()
    }

    /// Returns the number of batches without an outcome.
    pub fn outstanding_batches(&self) -> usize {
        self.machine.open()
    }

    /// Returns the bytes available in a batch of `commands` commands, on the device of the last
    /// known leader.
    pub fn batch_capacity(&self, commands: usize) -> usize {
        self.machine.batch_capacity(commands)
    }

    /// Queues commands as one batch, which the next [`FrameClient::poll`] sends.
    pub fn submit<'c>(
        &mut self,
        tag: u64,
        commands: impl Iterator<Item = &'c [u8]>,
    ) -> Result<(), SubmitError> {
        self.machine.submit(tag, commands)
    }

    /// Returns the oldest outcome that has not been returned yet.
    pub fn take_completed(&mut self) -> Option<CompletedBatch> {
        self.machine.take_completed()
    }

    /// Sends what is due and handles what has arrived. If nothing has, waits for up to `patience`.
    pub fn poll(&mut self, patience: Duration) -> Result<(), Error> {
        self.perform_due_acts()?;
        if !self.handle_input()? {
            self.wait_for_input(patience)?;
            self.handle_input()?;
        }
        self.perform_due_acts()
    }

    fn now(&self) -> Micros {
        // The range is half a million years.
        Micros::try_from(self.started_at.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }

    fn perform_due_acts(&mut self) -> Result<(), Error> {
        let now = self.now();
        self.dial_node();
        while let Some(act) = self.machine.next_act(now) {
            let asked = match (act, &mut self.connection) {
                (Act::SendFrame(frame), _) => {
                    self.frame_socket.send(frame)?;
                    continue;
                }
                (Act::RequestPosition, Some(desk)) => {
                    desk.send_request(&Request::QueryPosition(self.name))
                }
                (Act::OfferBatch(counter, bytes), Some(desk)) => {
                    desk.send_request(&Request::OfferBatch {
                        name: self.name,
                        batch_number: counter,
                        bytes,
                    })
                }
                (Act::RequestPosition | Act::OfferBatch(..), None) => break,
            };
            if asked.is_err() {
                self.leave_node();
                break;
            }
        }
        Ok(())
    }

    /// Handles all input that has arrived, and returns whether there was any.
    fn handle_input(&mut self) -> Result<bool, Error> {
        let mut came = false;
        let now = self.now();
        while let Some(frame) = self.frame_socket.receive()? {
            self.machine.on_frame(now, frame);
            came = true;
        }
        while let Some(desk) = self.connection.as_mut().filter(|desk| desk.has_pending_request()) {
            match desk.flush().and_then(|()| desk.next_answer()) {
                Ok(None) => break,
                Ok(Some(Answer::Position(stand))) => {
                    came = true;
                    self.machine.on_position(now, &stand);
                    if !stand.is_leader {
                        self.leave_node();
                    }
                }
                Ok(Some(Answer::Acceptance(_) | Answer::SessionName(_))) => came = true,
                Err(_) => self.leave_node(),
            }
        }
        Ok(came)
    }

    /// Moves on from a node that does not lead or does not respond.
    fn leave_node(&mut self) {
        self.connection = None;
        self.node_index = (self.node_index + 1) % self.nodes.len().max(1);
        self.redial_at = Instant::now() + REDIAL_INTERVAL;
        self.machine.on_disconnected();
    }

    fn dial_node(&mut self) {
        if self.connection.is_some() || Instant::now() < self.redial_at {
            return;
        }
        let node = self.nodes.get(self.node_index);
        self.connection = node.and_then(|node| NodeConnection::connect(*node).ok());
        match self.connection {
            Some(_) => self.machine.on_connected(),
            None => self.leave_node(),
        }
    }

    fn wait_for_input(&mut self, patience: Duration) -> Result<(), Error> {
        let wake = self.machine.wake_at().map(|at| at.saturating_sub(self.now()));
        let late =
            self.connection.as_ref().map_or(Some(self.redial_at), NodeConnection::answer_deadline);
        let late = late.map(|at| at.saturating_duration_since(Instant::now()));
        let wake = wake.map(Duration::from_micros);
        let patience = [wake, late].into_iter().flatten().fold(patience, Duration::min);
        let mut waits = vec![PollFd::new(&self.frame_socket, PollFlags::IN)];
        if let Some(desk) = self.connection.as_ref().filter(|desk| desk.has_pending_request()) {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, desk.has_unsent_output());
            waits.push(PollFd::new(desk, flags));
        }
        let patience = Timespec::try_from(patience).ok();
        match poll(&mut waits, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Io(error.into())),
        }
    }
}

/// Registers a session. Returns its name and the state of the log; `None` if the node does not
/// lead, accepts no frames, or registers no session until `until`.
fn register_session(
    desk: &mut NodeConnection,
    until: Instant,
) -> io::Result<Option<(LentName, NodePosition)>> {
    desk.send_request(&Request::QueryPosition(LentName::default()))?;
    if !query_position(desk)?.is_some_and(|stand| stand.is_leader && stand.device_place.is_some()) {
        return Ok(None);
    }
    desk.send_request(&Request::LendName)?;
    let Answer::SessionName(name) = wait_for_answer(desk)? else {
        return Ok(None);
    };
    while Instant::now() < until {
        desk.send_request(&Request::Register(name))?;
        if wait_for_answer(desk)? == Answer::Acceptance(true) {
            std::thread::sleep(Duration::from_millis(2));
        }
        desk.send_request(&Request::QueryPosition(name))?;
        match query_position(desk)? {
            Some(stand) if stand.session_slot != 0 && stand.is_leader => {
                return Ok(Some((name, stand)).filter(|_| stand.device_place.is_some()));
            }
            Some(stand) if stand.is_leader => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn query_position(desk: &mut NodeConnection) -> io::Result<Option<NodePosition>> {
    Ok(match wait_for_answer(desk)? {
        Answer::Position(stand) => Some(stand),
        Answer::SessionName(_) | Answer::Acceptance(_) => None,
    })
}

/// Waits for the next response until the desk's deadline.
fn wait_for_answer(desk: &mut NodeConnection) -> io::Result<Answer> {
    loop {
        desk.flush()?;
        if let Some(answer) = desk.next_answer()? {
            return Ok(answer);
        }
        let mut waits = [PollFd::new(&*desk, PollFlags::IN)];
        let step = Timespec::try_from(Duration::from_millis(20)).ok();
        let _ = poll(&mut waits, step.as_ref());
    }
}
