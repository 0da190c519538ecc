//! One node of the bare stream program: a single thread that never blocks on one socket or write.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsFd,
    path::Path,
    time::Duration,
};

use quorate_log::disk::{
    BLOCK, Buffer, Buffers, Completed, Disk as _, DriverChoice, Durability, Family, FileDisk,
    FileId, Zeros, open_with,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::UNIT_BYTES;
use crate::probe::part::{accept_one, dial};

/// Size of the data file. The file is overwritten repeatedly.
const DATA_BYTES: u64 = 256 << 20;
const RECORDS_BYTES: u64 = 16 << 20;
const DATA: FileId = FileId::new(Family::Stream, 1);
const RECORDS: FileId = FileId::new(Family::Log, 1);
const UNITS_MAX: usize = 64;
/// Number of writes in flight below which a partial unit is written, because waiting for more bytes
/// would gain nothing.
const WRITES_MIN: usize = 2;
/// Maximum size of a unit that is stored within its record, so that it needs no separate write.
const RIDING_MAX: usize = BLOCK - 160;
const COUNT_BYTES: usize = 4;

/// Serves one client until the client disconnects. Without a folder no data is written.
pub fn run(folder: Option<&Path>, flush: Duration, follower: Option<SocketAddr>) -> io::Result<()> {
    let files = folder.map(|folder| Files::create(folder, flush));
    let files = files.transpose()?;
    let follower = follower.map(Follower::dial).transpose()?;
    Node::new(accept_one()?, follower, files)?.serve()
}

struct Node {
    client: TcpStream,
    follower: Option<Follower>,
    files: Option<Files>,
    unit: Option<Unit>,
    units: Units,
    /// Number of bytes reported to the client as durable.
    reported_bytes: u64,
    has_ended: bool,
}

/// Bytes that are received and forwarded to the follower as one unit.
struct Unit {
    buffer: Buffer,
    received: usize,
    forwarded: usize,
}

impl Node {
    fn new(
        client: TcpStream,
        follower: Option<Follower>,
        files: Option<Files>,
    ) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        Ok(Self {
            client,
            follower,
            files,
            unit: None,
            units: Units::default(),
            reported_bytes: 0,
            has_ended: false,
        })
    }

    fn serve(mut self) -> io::Result<()> {
        loop {
            let mut moved = self.written()?;
            if let Some(follower) = &mut self.follower {
                moved |= follower.receive_acknowledgement()?;
            }
            moved |= self.report_durable()?;
            moved |= self.receive_and_forward()?;
            if self.has_ended
                && self.unit.is_none()
                && self.reported_bytes == self.units.received_units
            {
                return match &self.follower {
                    Some(follower) => follower.socket.shutdown(Shutdown::Write),
                    None => Ok(()),
                };
            }
            if !moved {
                self.wait()?;
            }
        }
    }

    /// Receives bytes from the client and forwards them. Writes the unit once it is full, or
    /// earlier if the disk is idle.
    fn receive_and_forward(&mut self) -> io::Result<bool> {
        if self.unit.is_none() {
            if self.has_ended || self.units.open() >= UNITS_MAX {
                return Ok(false);
            }
            let buffer = match &mut self.files {
                Some(files) => files.disk.allocate(UNIT_BYTES),
                None => Buffer::new(UNIT_BYTES),
            };
            self.unit = Some(Unit { buffer, received: 0, forwarded: 0 });
        }
        let Some(unit) = &mut self.unit else {
            return Ok(false);
        };
        let mut moved = false;
        let mut dry = self.has_ended;
        if !dry && unit.received < UNIT_BYTES {
            match unless_would_block(self.client.read(&mut unit.buffer[unit.received..UNIT_BYTES]))?
            {
                Some(0) => self.has_ended = true,
                Some(count) => unit.received += count,
                None => dry = true,
            }
            moved |= !dry;
        }
        if let Some(follower) = &mut self.follower {
            let rest = &unit.buffer[unit.forwarded..unit.received];
            if !rest.is_empty()
                && let Some(count) = unless_would_block(follower.socket.write(rest))?
            {
                unit.forwarded += count;
                moved = true;
            }
        } else {
            unit.forwarded = unit.received;
        }
        let idle = self.files.is_none() || self.units.open() < WRITES_MIN;
        let whole = unit.received == UNIT_BYTES || (unit.received > 0 && dry && idle);
        let empty = unit.received == 0 && self.has_ended;
        if (whole || empty)
            && unit.forwarded == unit.received
            && let Some(unit) = self.unit.take()
        {
            self.write(unit);
            moved = true;
        }
        Ok(moved)
    }

    fn write(&mut self, unit: Unit) {
        let Unit { buffer, received: have, .. } = unit;
        match &mut self.files {
            Some(files) if have > 0 => {
                let number = self.units.begin(have);
                files.write(number, buffer, have);
            }
            Some(files) => files.disk.release(buffer),
            None => {
                let number = self.units.begin(have);
                self.units.mark_durable(number);
            }
        }
    }

    fn written(&mut self) -> io::Result<bool> {
        let Some(files) = &mut self.files else {
            return Ok(false);
        };
        let mut moved = false;
        while let Some(completed) = files.disk.poll() {
            moved = true;
            if let Some(number) = files.completed(completed)? {
                self.units.mark_durable(number);
            }
        }
        Ok(moved)
    }

    /// Reports to the client the bytes that became durable both here and at the follower.
    fn report_durable(&mut self) -> io::Result<bool> {
        let there = self.follower.as_ref().map(|follower| follower.durable);
        let durable = there.map_or(self.units.durable, |there| there.min(self.units.durable));
        let count = u32::try_from(durable - self.reported_bytes).unwrap_or(u32::MAX);
        if count == 0 {
            return Ok(false);
        }
        match unless_would_block(self.client.write(&count.to_le_bytes()))? {
            Some(COUNT_BYTES) => self.reported_bytes += u64::from(count),
            Some(_) => return Err(io::Error::other("half a count")),
            // The client's socket is full, so the report follows later.
            None => return Ok(false),
        }
        Ok(true)
    }

    fn wait(&self) -> io::Result<()> {
        let mut sources = Vec::with_capacity(3);
        let takes = self.unit.as_ref().map(|unit| unit.received < UNIT_BYTES);
        if takes.unwrap_or(self.units.open() < UNITS_MAX) && !self.has_ended {
            sources.push(PollFd::new(&self.client, PollFlags::IN));
        }
        if let Some(follower) = &self.follower {
            let mut flags = PollFlags::IN;
            let unsent = self.unit.as_ref().is_some_and(|unit| unit.forwarded < unit.received);
            flags.set(PollFlags::OUT, unsent);
            sources.push(PollFd::new(&follower.socket, flags));
        }
        let disk = self.files.as_ref().and_then(|files| files.disk.wait_fd());
        if let Some(disk) = &disk {
            sources.push(PollFd::new(disk, PollFlags::IN));
        }
        match poll(&mut sources, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Durability of the units on this node. Units become durable in any order.
#[derive(Debug, Default)]
struct Units {
    /// Size and durability of each unit, starting with the first one that is not durable.
    open: VecDeque<(usize, bool)>,
    /// Number of the first unit in `open`.
    first: u64,
    received_units: u64,
    durable: u64,
}

impl Units {
    fn open(&self) -> usize {
        self.open.len()
    }

    fn begin(&mut self, bytes: usize) -> u64 {
        let number = self.first + self.open.len() as u64;
        self.open.push_back((bytes, false));
        self.received_units += bytes as u64;
        number
    }

    fn mark_durable(&mut self, number: u64) {
        let place = usize::try_from(number - self.first).expect("there are few");
        self.open[place].1 = true;
        while let Some((bytes, _)) = self.open.pop_front_if(|(_, durable)| *durable) {
            self.first += 1;
            self.durable += bytes as u64;
        }
    }
}

struct Follower {
    socket: TcpStream,
    /// Received bytes of an incomplete acknowledgement.
    partial: Vec<u8>,
    /// Size of the follower's durable prefix, in bytes.
    durable: u64,
}

impl Follower {
    fn dial(address: SocketAddr) -> io::Result<Self> {
        let socket = dial(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, partial: Vec::new(), durable: 0 })
    }

    fn receive_acknowledgement(&mut self) -> io::Result<bool> {
        let mut input = [0; 1024];
        let count = match unless_would_block(self.socket.read(&mut input))? {
            None => return Ok(false),
            Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Some(count) => count,
        };
        self.partial.extend_from_slice(&input[..count]);
        let (counts, rest) = self.partial.as_chunks::<COUNT_BYTES>();
        let sum: u64 = counts.iter().map(|count| u64::from(u32::from_le_bytes(*count))).sum();
        self.partial = rest.to_vec();
        self.durable += sum;
        Ok(true)
    }
}

/// Data and records file, with their next write positions.
struct Files {
    disk: FileDisk,
    data_at: u64,
    record_at: u64,
}

impl Files {
    /// Creates both files, filled and flushed.
    fn create(folder: &Path, flush: Duration) -> io::Result<Self> {
        let buffers = Buffers {
            // Each unit needs two buffers, for its data and for its record.
            count: 2 * u16::try_from(UNITS_MAX).expect("few"),
            bytes: UNIT_BYTES,
        };
        let (mut disk, _) =
            open_with(folder, DriverChoice::Auto, buffers).map_err(io::Error::other)?;
        for (file, bytes) in [(DATA, DATA_BYTES), (RECORDS, RECORDS_BYTES)] {
            disk.start_prepare(file, bytes, Zeros::Written);
            disk.hurry_prepare(file.family);
            Self::wait_prepared(&mut disk)?;
            disk.open_ahead(file).map_err(io::Error::other)?;
        }
        Ok(Self {
            disk: disk.with_flush(flush).map_err(io::Error::other)?,
            data_at: 0,
            record_at: 0,
        })
    }

    fn wait_prepared(disk: &mut FileDisk) -> io::Result<()> {
        loop {
            if let Some(Completed::Prepared { result, .. }) = disk.poll() {
                return result.map_err(io::Error::other);
            }
            if let Some(news) = disk.wait_fd() {
                let _ = poll(&mut [PollFd::new(&news.as_fd(), PollFlags::IN)], None);
            }
        }
    }

    /// Writes a unit in whole blocks. A small unit is stored within its record.
    fn write(&mut self, number: u64, buffer: Buffer, bytes: usize) {
        if bytes <= RIDING_MAX {
            return self.record(number, buffer);
        }
        let bytes = bytes.next_multiple_of(BLOCK);
        if self.data_at + bytes as u64 > DATA_BYTES {
            self.data_at = 0;
        }
        let at = DATA.at(self.data_at);
        self.data_at += bytes as u64;
        self.disk.start_write(number, at, buffer.into(), bytes, Durability::Flushed);
    }

    /// Handles a completed write. The record of a unit is written after its data. Returns the
    /// number of a unit whose record has become durable.
    fn completed(&mut self, completed: Completed) -> io::Result<Option<u64>> {
        let Completed::Written { token, file, output, result, .. } = completed else {
            return Ok(None);
        };
        result.map_err(io::Error::other)?;
        if let Some(buffer) = output.into_buffer() {
            self.disk.release(buffer);
        }
        if file == RECORDS {
            return Ok(Some(token));
        }
        let record = self.disk.allocate(BLOCK);
        self.record(token, record);
        Ok(None)
    }

    fn record(&mut self, number: u64, record: Buffer) {
        let at = RECORDS.at(self.record_at);
        self.record_at = (self.record_at + BLOCK as u64) % RECORDS_BYTES;
        self.disk.start_write(number, at, record.into(), BLOCK, Durability::Flushed);
    }
}

/// Converts an error of kind `WouldBlock` to `None`.
fn unless_would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn a_unit_is_durable_when_all_before_it_are() {
        let mut units = Units::default();
        let numbers = [10, 20, 30].map(|bytes| units.begin(bytes));
        units.mark_durable(numbers[1]);
        assert_eq!((units.durable, units.open()), (0, 3));
        units.mark_durable(numbers[0]);
        assert_eq!((units.durable, units.open()), (30, 1));
        assert_eq!(units.begin(5), 3);
        units.mark_durable(numbers[2]);
        assert_eq!((units.durable, units.received_units, units.open()), (60, 65, 1));
    }

    /// Returns a connection to a node that runs in its own thread, with a listener for its follower
    /// connection.
    fn played() -> (TcpStream, TcpListener) {
        let clients = TcpListener::bind("127.0.0.1:0").unwrap();
        let followers = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
        let follower = followers.local_addr().unwrap();
        thread::spawn(move || {
            let client = clients.accept().unwrap().0;
            let follower = Follower::dial(follower).unwrap();
            let node = Node::new(client, Some(follower), None).unwrap();
            node.serve().unwrap();
        });
        (client, followers)
    }

    /// The leader discards all bytes, so only the follower's count is missing.
    #[test]
    fn bytes_count_only_once_the_follower_has_them() {
        let (mut client, followers) = played();
        let mut follower = followers.accept().unwrap().0;
        client.write_all(&[b'x'; 1000]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut taken = [0; 1000];
        follower.read_exact(&mut taken).unwrap();
        assert_eq!(taken, [b'x'; 1000]);
        let mut count = [0; COUNT_BYTES];
        for said in [400_u32, 600] {
            follower.write_all(&said.to_le_bytes()).unwrap();
            client.read_exact(&mut count).unwrap();
            assert_eq!(u32::from_le_bytes(count), said);
        }
        assert_eq!(client.read(&mut count).unwrap(), 0, "that was all");
    }

    /// Writes a unit of `bytes` bytes. Returns the results of its writes, and the beginning of the
    /// file `file` in `family`.
    fn write(bytes: usize, family: Family, file: FileId) -> (Vec<Option<u64>>, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::create(folder.path(), Duration::ZERO).unwrap();
        let mut buffer = files.disk.allocate(UNIT_BYTES);
        buffer[..bytes].fill(b'x');
        files.write(7, buffer, bytes);
        let mut seen = Vec::new();
        while seen.last() != Some(&Some(7)) {
            if let Some(completed) = files.disk.poll() {
                assert_eq!(files.disk.counters().flushes, 1 + seen.len() as u64);
                seen.push(files.completed(completed).unwrap());
            }
        }
        let path = files.disk.path(family).join(file.name());
        let mut written = std::fs::read(path).unwrap();
        written.truncate(bytes + 1);
        (seen, written)
    }

    /// A unit is complete when its record is, and the record is written after the data.
    #[test]
    fn record_is_written_after_the_data() {
        let (seen, written) = write(RIDING_MAX + 1, Family::Stream, DATA);
        assert_eq!(seen, [None, Some(7)]);
        let (data, behind) = written.split_at(RIDING_MAX + 1);
        assert_eq!((data, behind), (&[b'x'; RIDING_MAX + 1][..], &[0][..]));
    }

    #[test]
    fn small_unit_is_written_with_its_record() {
        let (seen, written) = write(5, Family::Log, RECORDS);
        assert_eq!((seen, &written[..]), (vec![Some(7)], &b"xxxxx\0"[..]));
    }
}
