//! The frame client with its sockets: one thread waits for the connection and for frames.

use std::{
    fmt, io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use quorate_packets::ethernet::Failed;
use quorate_wire::frame_clients::{Name, NodePosition, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    desk::{Answer, Desk},
    machine::{Act, Counts, Done, Machine, Micros, NotTaken},
    station::Station,
};

/// Window and timeout for a frame client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of batches in flight.
    pub window: usize,
    /// Maximum time to find a leader whose device accepts frames.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { window: 256, patience: Duration::from_secs(10) }
    }
}

/// Reason why a client cannot be opened or must stop.
#[derive(Debug)]
pub enum Error {
    /// No leader was found in time with a device that receives raw frames and counts votes for a
    /// volatile group. Describes the last failure.
    NoDevice(String),
    /// The network interface cannot be used.
    Interface(Failed),
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

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::Interface(failed)
    }
}

/// Client that submits batches to devices.
#[derive(Debug)]
pub struct FrameClient {
    nodes: Vec<SocketAddr>,
    /// Index of the connected node.
    at: usize,
    desk: Option<Desk>,
    /// Earliest time to connect to another node.
    dial_at: Instant,
    name: Name,
    machine: Machine,
    station: Station,
    started: Instant,
}

const DIAL: Duration = Duration::from_millis(5);

impl FrameClient {
    /// Finds the leader among `nodes` and registers a session, whose name identifies the client.
    /// `interface` must be on the network segment of the devices.
    pub fn open(nodes: &[SocketAddr], interface: &str, options: Options) -> Result<Self, Error> {
        let started = Instant::now();
        let until = started + options.patience;
        let mut last = "no address was given".to_owned();
        while Instant::now() < until {
            for (at, node) in nodes.iter().enumerate() {
                let found = Desk::connect(*node).and_then(|mut desk| {
                    let found = register(&mut desk, until)?;
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
                let group = stand.place.unwrap_or_default().group;
                let station = Station::open(interface, group)?;
                return Ok(Self {
                    nodes: nodes.to_vec(),
                    at,
                    desk: Some(desk),
                    dial_at: started,
                    name,
                    machine: Machine::new(name, station.own(), &stand, options.window),
                    station,
                    started,
                });
            }
            std::thread::sleep(DIAL);
        }
        Err(Error::NoDevice(last))
    }

    /// Returns the counters since the client was opened.
    pub const fn counts(&self) -> Counts {
        self.machine.counts()
    }

    /// Returns the name of this client's batches in the log.
    pub const fn name(&self) -> Name {
        self.name
    }

    /// Returns whether the session is gone. Outstanding batches have an unknown outcome, and a new
    /// client is needed.
    pub const fn is_over(&self) -> bool {
        self.machine.is_over()
    }

    /// Returns the number of batches without an outcome.
    pub fn open_batches(&self) -> usize {
        self.machine.open()
    }

    /// Returns the bytes available in a batch of `commands` commands, on the device of the last
    /// known leader.
    pub fn room(&self, commands: usize) -> usize {
        self.machine.room(commands)
    }

    /// Queues commands as one batch, which the next [`FrameClient::turn`] sends.
    pub fn submit<'c>(
        &mut self,
        tag: u64,
        commands: impl Iterator<Item = &'c [u8]>,
    ) -> Result<(), NotTaken> {
        self.machine.submit(tag, commands)
    }

    /// Returns the oldest outcome that has not been returned yet.
    pub fn take_done(&mut self) -> Option<Done> {
        self.machine.take_done()
    }

    /// Sends what is due and handles what has arrived. If nothing has, waits for up to `patience`.
    pub fn turn(&mut self, patience: Duration) -> Result<(), Error> {
        self.act()?;
        if !self.take()? {
            self.wait(patience)?;
            self.take()?;
        }
        self.act()
    }

    fn now(&self) -> Micros {
        // The range is half a million years.
        Micros::try_from(self.started.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }

    fn act(&mut self) -> Result<(), Error> {
        let now = self.now();
        self.dial();
        while let Some(act) = self.machine.next_act(now) {
            let asked = match (act, &mut self.desk) {
                (Act::Send(frame), _) => {
                    self.station.send(frame)?;
                    continue;
                }
                (Act::Ask, Some(desk)) => desk.ask(&Request::Stand(self.name)),
                (Act::Offer(counter, bytes), Some(desk)) => {
                    desk.ask(&Request::Offer { name: self.name, counter, bytes })
                }
                (Act::Ask | Act::Offer(..), None) => break,
            };
            if asked.is_err() {
                self.leave();
                break;
            }
        }
        Ok(())
    }

    /// Handles all input that has arrived, and returns whether there was any.
    fn take(&mut self) -> Result<bool, Error> {
        let mut came = false;
        let now = self.now();
        while let Some(frame) = self.station.receive()? {
            self.machine.on_frame(now, frame);
            came = true;
        }
        while let Some(desk) = self.desk.as_mut().filter(|desk| desk.is_asked()) {
            match desk.flush().and_then(|()| desk.answer()) {
                Ok(None) => break,
                Ok(Some(Answer::Stand(stand))) => {
                    came = true;
                    self.machine.on_stand(now, &stand);
                    if !stand.leads {
                        self.leave();
                    }
                }
                Ok(Some(Answer::Taken(_) | Answer::Name(_))) => came = true,
                Err(_) => self.leave(),
            }
        }
        Ok(came)
    }

    /// Moves on from a node that does not lead or does not respond.
    fn leave(&mut self) {
        self.desk = None;
        self.at = (self.at + 1) % self.nodes.len().max(1);
        self.dial_at = Instant::now() + DIAL;
        self.machine.on_disconnected();
    }

    fn dial(&mut self) {
        if self.desk.is_some() || Instant::now() < self.dial_at {
            return;
        }
        let node = self.nodes.get(self.at);
        self.desk = node.and_then(|node| Desk::connect(*node).ok());
        match self.desk {
            Some(_) => self.machine.on_connected(),
            None => self.leave(),
        }
    }

    fn wait(&mut self, patience: Duration) -> Result<(), Error> {
        let wake = self.machine.wake_at().map(|at| at.saturating_sub(self.now()));
        let late = self.desk.as_ref().map_or(Some(self.dial_at), Desk::late_at);
        let late = late.map(|at| at.saturating_duration_since(Instant::now()));
        let wake = wake.map(Duration::from_micros);
        let patience = [wake, late].into_iter().flatten().fold(patience, Duration::min);
        let mut waits = vec![PollFd::new(&self.station, PollFlags::IN)];
        if let Some(desk) = self.desk.as_ref().filter(|desk| desk.is_asked()) {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, desk.is_blocked());
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
fn register(desk: &mut Desk, until: Instant) -> io::Result<Option<(Name, NodePosition)>> {
    desk.ask(&Request::Stand(Name::default()))?;
    if !stand(desk)?.is_some_and(|stand| stand.leads && stand.place.is_some()) {
        return Ok(None);
    }
    desk.ask(&Request::Lend)?;
    let Answer::Name(name) = wait_for(desk)? else {
        return Ok(None);
    };
    while Instant::now() < until {
        desk.ask(&Request::Register(name))?;
        if wait_for(desk)? == Answer::Taken(true) {
            std::thread::sleep(Duration::from_millis(2));
        }
        desk.ask(&Request::Stand(name))?;
        match stand(desk)? {
            Some(stand) if stand.session != 0 && stand.leads => {
                return Ok(Some((name, stand)).filter(|_| stand.place.is_some()));
            }
            Some(stand) if stand.leads => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn stand(desk: &mut Desk) -> io::Result<Option<NodePosition>> {
    Ok(match wait_for(desk)? {
        Answer::Stand(stand) => Some(stand),
        Answer::Name(_) | Answer::Taken(_) => None,
    })
}

/// Waits for the next response until the desk's deadline.
fn wait_for(desk: &mut Desk) -> io::Result<Answer> {
    loop {
        desk.flush()?;
        if let Some(answer) = desk.answer()? {
            return Ok(answer);
        }
        let mut waits = [PollFd::new(&*desk, PollFlags::IN)];
        let step = Timespec::try_from(Duration::from_millis(20)).ok();
        let _ = poll(&mut waits, step.as_ref());
    }
}
