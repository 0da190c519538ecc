//! A whole commit performed by bare programs (client, leader and two followers), without a
//! protocol.
//!
//! The leader takes all commands that have arrived, sends them to both followers, writes and
//! flushes them itself, waits for both followers, and replies. Followers also write and flush, and
//! then reply. There is one batch at a time: a system that sends the next batch while the previous
//! one is being flushed can beat this where flushes are slow. There are no ballots, checksums,
//! elections or services, and no failures are handled.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use quorate_testbed::usage::{MachineCpuTime, ResourceUsage};

use super::{
    disk::LogFile,
    part::{PartLauncher, PartProcess, accept_one_client, dial, serve_datagrams},
    wire::{DATAGRAM_BYTES_MAX, ProbeSocket, ProbeTransport},
};
use crate::{
    load::OfferedLoad,
    repetition::{GENERATOR_ROLE, Repetition, RoleUsage},
    row::RowSetting,
    samples::Samples,
    schedule::Nanos,
};

/// System name in rows about the bare program.
pub const SYSTEM_NAME: &str = "bare program";
/// Number of followers, as in a cluster of three.
const FOLLOWER_COUNT: usize = 2;
/// Length of a batch header, which contains the length of the batch.
const HEADER_BYTES: usize = 8;
/// Length of the reply to a command, in bytes.
const REPLY_BYTES: usize = 8;
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Maximum number of outstanding commands and bytes. The client writes without reading, and must
/// not block on a leader that waits for the client to read.
const WINDOW_COMMANDS_MAX: u32 = 1 << 16;
const WINDOW_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommitShape {
    pub value_bytes: usize,
    pub window_commands: u32,
    /// Set if all three nodes write and flush every batch.
    pub is_durable: bool,
    /// Simulated flush time; zero for the real disk.
    pub flush_time: Duration,
    /// Transport between leader and followers. The client always uses a TCP connection.
    pub transport: ProbeTransport,
}

impl CommitShape {
    /// Returns whether the sizes and the window are within the limits of the bare program.
    pub fn is_possible(&self) -> bool {
        let window = usize::try_from(self.window_commands).unwrap_or(usize::MAX);
        (1..=batch_bytes_max(self.transport)).contains(&self.value_bytes)
            && (1..=WINDOW_COMMANDS_MAX).contains(&self.window_commands)
            && self.value_bytes.saturating_mul(window) <= WINDOW_BYTES_MAX
    }

    /// Returns the parameters of the row about this commit.
    pub fn row_setting(&self) -> RowSetting {
        RowSetting {
            system: SYSTEM_NAME.to_owned(),
            disk_flush_ms: if self.is_durable {
                self.flush_time.as_secs_f64() * 1000.0
            } else {
                0.0
            },
            ..RowSetting::new(
                "probe",
                if self.is_durable { "durable" } else { "volatile" },
                "none",
                self.value_bytes,
                OfferedLoad::Closed { outstanding: self.window_commands },
            )
        }
    }
}

/// Returns the maximum batch size in bytes. Over datagrams, the batch and its header must fit into
/// one datagram.
const fn batch_bytes_max(over: ProbeTransport) -> usize {
    match over {
        ProbeTransport::Tcp => BATCH_BYTES_MAX,
        ProbeTransport::Udp => DATAGRAM_BYTES_MAX - HEADER_BYTES,
    }
}

/// Runs a follower, which writes every batch to `file` if given.
pub fn run_follower(file: Option<LogFile>, over: ProbeTransport) -> io::Result<()> {
    match over {
        ProbeTransport::Tcp => serve_leader(file),
        ProbeTransport::Udp => follow_datagrams(file),
    }
}

fn follow_datagrams(mut file: Option<LogFile>) -> io::Result<()> {
    let leader = serve_datagrams()?;
    let mut batch = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let count = leader.recv(&mut batch)?;
        let Some(commands) = batch[..count].get(HEADER_BYTES..) else {
            return Err(ErrorKind::InvalidData.into());
        };
        if let Some(file) = &mut file {
            file.append(commands)?;
        }
        leader.send(&[1; REPLY_BYTES])?;
    }
}

fn serve_leader(mut file: Option<LogFile>) -> io::Result<()> {
    let mut leader = accept_one_client()?;
    let mut batch = vec![0; HEADER_BYTES + BATCH_BYTES_MAX];
    loop {
        let mut have = 0;
        while have < HEADER_BYTES {
            match read_some(&mut leader, &mut batch[have..])? {
                0 => return Ok(()),
                count => have += count,
            }
        }
        let (header, _) = batch.split_first_chunk::<HEADER_BYTES>().expect("it is longer");
        let length = usize::try_from(u64::from_le_bytes(*header)).unwrap_or(usize::MAX);
        if length > BATCH_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let end = HEADER_BYTES + length;
        if have < end {
            leader.read_exact(&mut batch[have..end])?;
        }
        if let Some(file) = &mut file {
            file.append(&batch[HEADER_BYTES..end])?;
        }
        leader.write_all(&[1; REPLY_BYTES])?;
    }
}

/// Runs the leader until the client disconnects.
pub fn run_leader(
    value_bytes: usize,
    (over, followers): (ProbeTransport, &[SocketAddr]),
    file: Option<LogFile>,
) -> io::Result<()> {
    let mut file = file;
    let dial = |address: &SocketAddr| ProbeSocket::dial(*address, over);
    let followers: io::Result<Vec<ProbeSocket>> = followers.iter().map(dial).collect();
    let mut followers = followers?;
    let mut client = accept_one_client()?;
    // Reserves space for the length, so that a batch is sent in one call.
    let mut batch = vec![0; HEADER_BYTES + batch_bytes_max(over)];
    let replies = vec![1; BATCH_BYTES_MAX / value_bytes.max(1) * REPLY_BYTES];
    let mut have = 0;
    loop {
        match read_some(&mut client, &mut batch[HEADER_BYTES + have..])? {
            0 => return Ok(()),
            count => have += count,
        }
        let commands = have / value_bytes;
        if commands == 0 {
            continue;
        }
        let length = commands * value_bytes;
        batch[..HEADER_BYTES].copy_from_slice(&(length as u64).to_le_bytes());
        for follower in &mut followers {
            follower.send(&batch[..HEADER_BYTES + length])?;
        }
        if let Some(file) = &mut file {
            file.append(&batch[HEADER_BYTES..HEADER_BYTES + length])?;
        }
        for follower in &mut followers {
            follower.receive_exact(&mut [0; REPLY_BYTES])?;
        }
        client.write_all(&replies[..commands * REPLY_BYTES])?;
        batch.copy_within(HEADER_BYTES + length..HEADER_BYTES + have, HEADER_BYTES);
        have -= length;
    }
}

fn read_some(socket: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A running bare commit: three processes, with this process as the client.
#[derive(Debug)]
pub struct BareCommit {
    shape: CommitShape,
    leader: PartProcess,
    followers: Vec<PartProcess>,
    client: TcpStream,
}

impl BareCommit {
    /// Starts the leader and the followers, with their files in `folder`.
    pub fn start(launcher: &PartLauncher, folder: &Path, shape: CommitShape) -> io::Result<Self> {
        if !shape.is_possible() {
            let why = format!("no bare program does {shape:?}");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let file = |name: &str| {
            let path = folder.join(name);
            let shown = if shape.is_durable { path.display().to_string() } else { "-".to_owned() };
            [shown, shape.flush_time.as_micros().to_string()]
        };
        let mut followers = Vec::new();
        for number in 0..FOLLOWER_COUNT {
            let [path, flush] = file(&format!("follower-{number}"));
            let over = shape.transport.name().to_owned();
            followers.push(launcher.start(&["follower".to_owned(), path, flush, over])?);
        }
        let [path, flush] = file("leader");
        let mut arguments = vec![
            "leader".to_owned(),
            path,
            flush,
            shape.value_bytes.to_string(),
            shape.transport.name().to_owned(),
        ];
        arguments.extend(followers.iter().map(|part| part.address.to_string()));
        let leader = launcher.start(&arguments)?;
        let client = dial(leader.address)?;
        Ok(Self { shape, leader, followers, client })
    }

    pub fn set_window(&mut self, window: u32) -> io::Result<()> {
        let shape = CommitShape { window_commands: window, ..self.shape };
        if !shape.is_possible() {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.shape = shape;
        Ok(())
    }

    fn role_usages(&self) -> [ResourceUsage; 3] {
        let followers: Vec<u32> = self.followers.iter().map(PartProcess::id).collect();
        [
            ResourceUsage::of_processes(&[self.leader.id()]),
            ResourceUsage::of_processes(&followers),
            ResourceUsage::of_processes(&[std::process::id()]),
        ]
    }

    /// Commits for `measure` after a `warmup` that does not count, and returns the measurements.
    pub fn run_repetition(
        &mut self,
        warmup: Duration,
        measure: Duration,
    ) -> io::Result<Repetition> {
        self.commit_for(warmup)?;
        let before = (self.role_usages(), MachineCpuTime::now());
        let samples = self.commit_for(measure)?;
        let after = (self.role_usages(), MachineCpuTime::now());
        let mut roles = Vec::new();
        for (index, role) in ["leader", "followers", GENERATOR_ROLE].into_iter().enumerate() {
            roles.push(RoleUsage {
                role: role.to_owned(),
                usage: after.0[index].since(before.0[index]),
            });
        }
        let own: f64 = roles.iter().map(|role| role.usage.cpu_s()).sum();
        let foreign = after.1.zip(before.1);
        Ok(Repetition {
            replies_between_readings: samples.completed,
            samples,
            roles,
            foreign_cpu: foreign.map(|(after, before)| after.other_processes_share(before, own)),
            ..Repetition::default()
        })
    }

    /// Keeps the window full for `time`, then waits for the outstanding commands.
    fn commit_for(&mut self, time: Duration) -> io::Result<Samples> {
        let size = self.shape.value_bytes;
        let window = usize::try_from(self.shape.window_commands.max(1)).expect("a window fits");
        let commands = vec![b'x'; size * window];
        let mut replies = vec![0; window * REPLY_BYTES];
        let mut samples = Samples::default();
        // Number and send time of each command in flight, oldest first.
        let mut outstanding = VecDeque::new();
        let began = Instant::now();
        self.client.write_all(&commands)?;
        outstanding.push_back((window, began));
        let (mut open, mut partial, mut last) = (window, 0, began);
        while open > 0 {
            let count = read_some(&mut self.client, &mut replies)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let now = Instant::now();
            let answered = (partial + count) / REPLY_BYTES;
            partial = (partial + count) % REPLY_BYTES;
            record_replies(&mut outstanding, answered, now, &mut samples);
            open -= answered;
            if now - began < time {
                last = now;
                samples.completed += answered as u64;
                self.client.write_all(&commands[..answered * size])?;
                outstanding.push_back((answered, now));
                open += answered;
            }
        }
        samples.sent_count = samples.latencies.count();
        samples.measured_ns = to_nanos(last - began).max(1);
        Ok(samples)
    }
}

/// Records replies to the `answered` oldest commands.
fn record_replies(
    outstanding: &mut VecDeque<(usize, Instant)>,
    mut answered: usize,
    now: Instant,
    samples: &mut Samples,
) {
    while answered > 0 {
        let Some((count, sent)) = outstanding.front_mut() else {
            return;
        };
        let done = answered.min(*count);
        (0..done).for_each(|_| samples.latencies.record(to_nanos(now - *sent)));
        answered -= done;
        *count -= done;
        if *count == 0 {
            outstanding.pop_front();
        }
    }
}

fn to_nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_beyond_its_limits_is_not_tried() {
        let over = |over, value_bytes, window| CommitShape {
            value_bytes,
            window_commands: window,
            is_durable: true,
            flush_time: Duration::ZERO,
            transport: over,
        };
        let shape = |value_bytes, window| over(ProbeTransport::Tcp, value_bytes, window);
        assert!(over(ProbeTransport::Udp, 50_000, 1).is_possible());
        assert!(!over(ProbeTransport::Udp, 60_000, 1).is_possible());
        assert!(shape(64, 1000).is_possible() && shape(1 << 20, 64).is_possible());
        for (value_bytes, window) in
            [(0, 1), (64, 0), ((1 << 20) + 1, 1), (1 << 20, 65), (1, 65_537)]
        {
            assert!(!shape(value_bytes, window).is_possible(), "{value_bytes} {window}");
        }
    }

    #[test]
    fn replies_complete_the_oldest_commands() {
        let now = Instant::now();
        let mut outstanding = VecDeque::from([(2, now), (3, now)]);
        let mut samples = Samples::default();
        record_replies(&mut outstanding, 4, now, &mut samples);
        assert_eq!((samples.latencies.count(), outstanding), (4, VecDeque::from([(1, now)])));
        let mut nothing = VecDeque::new();
        record_replies(&mut nothing, 1, now, &mut samples);
        assert_eq!(samples.latencies.count(), 4);
    }
}
