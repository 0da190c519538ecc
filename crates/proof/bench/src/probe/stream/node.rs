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
    FileId, ZeroFill, open_with,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::UNIT_BYTES;
use crate::probe::part::{accept_one_client, dial};

/// Size of the data file. The file is overwritten repeatedly.
const DATA_FILE_BYTES: u64 = 256 << 20;
const RECORD_FILE_BYTES: u64 = 16 << 20;
const DATA_FILE: FileId = FileId::new(Family::Stream, 1);
const RECORD_FILE: FileId = FileId::new(Family::Log, 1);
const UNITS_MAX: usize = 64;
/// Number of writes in flight below which a partial unit is written, because waiting for more bytes
/// would gain nothing.
const WRITES_MIN: usize = 2;
/// Maximum size of a unit that is stored within its record, so that it needs no separate write.
const INLINE_UNIT_BYTES_MAX: usize = BLOCK - 160;
const ACKNOWLEDGEMENT_BYTES: usize = 4;

/// Serves one client until the client disconnects. Without a folder no data is written.
pub fn run(folder: Option<&Path>, flush: Duration, follower: Option<SocketAddr>) -> io::Result<()> {
    let files = folder.map(|folder| StreamFiles::create(folder, flush));
    let files = files.transpose()?;
    let follower = follower.map(Follower::dial).transpose()?;
    BareStreamNode::new(accept_one_client()?, follower, files)?.serve()
}

struct BareStreamNode {
    client: TcpStream,
    follower: Option<Follower>,
    files: Option<StreamFiles>,
    open_unit: Option<StreamUnit>,
    unit_durability: UnitDurability,
    /// Number of bytes reported to the client as durable.
    reported_bytes: u64,
    has_ended: bool,
}

/// Bytes that are received and forwarded to the follower as one unit.
struct StreamUnit {
    buffer: Buffer,
    received_bytes: usize,
    forwarded_bytes: usize,
}

impl BareStreamNode {
    fn new(
        client: TcpStream,
        follower: Option<Follower>,
        files: Option<StreamFiles>,
    ) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        Ok(Self {
            client,
            follower,
            files,
            open_unit: None,
            unit_durability: UnitDurability::default(),
            reported_bytes: 0,
            has_ended: false,
        })
    }

    fn serve(mut self) -> io::Result<()> {
        loop {
            let mut moved = self.handle_completions()?;
            if let Some(follower) = &mut self.follower {
                moved |= follower.receive_acknowledgement()?;
            }
            moved |= self.report_durable()?;
            moved |= self.receive_and_forward()?;
            if self.has_ended
                && self.open_unit.is_none()
                && self.reported_bytes == self.unit_durability.received_count
            {
                return match &self.follower {
                    Some(follower) => follower.socket.shutdown(Shutdown::Write),
                    None => Ok(()),
                };
            }
            if !moved {
                self.wait_ready()?;
            }
        }
    }

    /// Receives bytes from the client and forwards them. Writes the unit once it is full, or
    /// earlier if the disk is idle.
    fn receive_and_forward(&mut self) -> io::Result<bool> {
        if self.open_unit.is_none() {
            if self.has_ended || self.unit_durability.open() >= UNITS_MAX {
                return Ok(false);
            }
            let buffer = match &mut self.files {
                Some(files) => files.disk.allocate(UNIT_BYTES),
                None => Buffer::new(UNIT_BYTES),
            };
            self.open_unit = Some(StreamUnit { buffer, received_bytes: 0, forwarded_bytes: 0 });
        }
        let Some(unit) = &mut self.open_unit else {
            return Ok(false);
        };
        let mut moved = false;
        let mut dry = self.has_ended;
        if !dry && unit.received_bytes < UNIT_BYTES {
            match unless_would_block(
                self.client.read(&mut unit.buffer[unit.received_bytes..UNIT_BYTES]),
            )? {
                Some(0) => self.has_ended = true,
                Some(count) => unit.received_bytes += count,
                None => dry = true,
            }
            moved |= !dry;
        }
        if let Some(follower) = &mut self.follower {
            let rest = &unit.buffer[unit.forwarded_bytes..unit.received_bytes];
            if !rest.is_empty()
                && let Some(count) = unless_would_block(follower.socket.write(rest))?
            {
                unit.forwarded_bytes += count;
                moved = true;
            }
        } else {
            unit.forwarded_bytes = unit.received_bytes;
        }
        let idle = self.files.is_none() || self.unit_durability.open() < WRITES_MIN;
        let whole = unit.received_bytes == UNIT_BYTES || (unit.received_bytes > 0 && dry && idle);
        let empty = unit.received_bytes == 0 && self.has_ended;
        if (whole || empty)
            && unit.forwarded_bytes == unit.received_bytes
            && let Some(unit) = self.open_unit.take()
        {
            self.write_unit(unit);
            moved = true;
        }
        Ok(moved)
    }

    fn write_unit(&mut self, unit: StreamUnit) {
        let StreamUnit { buffer, received_bytes: have, .. } = unit;
        match &mut self.files {
            Some(files) if have > 0 => {
                let number = self.unit_durability.begin_unit(have);
                files.write_unit(number, buffer, have);
            }
            Some(files) => files.disk.release(buffer),
            None => {
                let number = self.unit_durability.begin_unit(have);
                self.unit_durability.mark_durable(number);
            }
        }
    }

    fn handle_completions(&mut self) -> io::Result<bool> {
        let Some(files) = &mut self.files else {
            return Ok(false);
        };
        let mut moved = false;
        while let Some(completed) = files.disk.poll() {
            moved = true;
            if let Some(number) = files.handle_completed(completed)? {
                self.unit_durability.mark_durable(number);
            }
        }
        Ok(moved)
    }

    /// Reports to the client the bytes that became durable both here and at the follower.
    fn report_durable(&mut self) -> io::Result<bool> {
        let there = self.follower.as_ref().map(|follower| follower.durable_bytes);
        let durable = there.map_or(self.unit_durability.durable_bytes, |there| {
            there.min(self.unit_durability.durable_bytes)
        });
        let count = u32::try_from(durable - self.reported_bytes).unwrap_or(u32::MAX);
        if count == 0 {
            return Ok(false);
        }
        match unless_would_block(self.client.write(&count.to_le_bytes()))? {
            Some(ACKNOWLEDGEMENT_BYTES) => self.reported_bytes += u64::from(count),
            Some(_) => return Err(io::Error::other("half a count")),
            // The client's socket is full, so the report follows later.
            None => return Ok(false),
        }
        Ok(true)
    }

    fn wait_ready(&self) -> io::Result<()> {
        let mut sources = Vec::with_capacity(3);
        let takes = self.open_unit.as_ref().map(|unit| unit.received_bytes < UNIT_BYTES);
        if takes.unwrap_or(self.unit_durability.open() < UNITS_MAX) && !self.has_ended {
            sources.push(PollFd::new(&self.client, PollFlags::IN));
        }
        if let Some(follower) = &self.follower {
            let mut flags = PollFlags::IN;
            let unsent = self
                .open_unit
                .as_ref()
                .is_some_and(|unit| unit.forwarded_bytes < unit.received_bytes);
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
struct UnitDurability {
    /// Size and durability of each unit, starting with the first one that is not durable.
    open: VecDeque<(usize, bool)>,
    /// Number of the first unit in `open`.
    first_open: u64,
    received_count: u64,
    durable_bytes: u64,
}

impl UnitDurability {
    fn open(&self) -> usize {
        self.open.len()
    }

    fn begin_unit(&mut self, bytes: usize) -> u64 {
        let number = self.first_open + self.open.len() as u64;
        self.open.push_back((bytes, false));
        self.received_count += bytes as u64;
        number
    }

    fn mark_durable(&mut self, number: u64) {
        let place = usize::try_from(number - self.first_open).expect("there are few");
        self.open[place].1 = true;
        while let Some((bytes, _)) = self.open.pop_front_if(|(_, durable)| *durable) {
            self.first_open += 1;
            self.durable_bytes += bytes as u64;
        }
    }
}

struct Follower {
    socket: TcpStream,
    /// Received bytes of an incomplete acknowledgement.
    partial_acknowledgement: Vec<u8>,
    /// Size of the follower's durable prefix, in bytes.
    durable_bytes: u64,
}

impl Follower {
    fn dial(address: SocketAddr) -> io::Result<Self> {
        let socket = dial(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, partial_acknowledgement: Vec::new(), durable_bytes: 0 })
    }

    fn receive_acknowledgement(&mut self) -> io::Result<bool> {
        let mut input = [0; 1024];
        let count = match unless_would_block(self.socket.read(&mut input))? {
            None => return Ok(false),
            Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Some(count) => count,
        };
        self.partial_acknowledgement.extend_from_slice(&input[..count]);
        let (counts, rest) = self.partial_acknowledgement.as_chunks::<ACKNOWLEDGEMENT_BYTES>();
        let sum: u64 = counts.iter().map(|count| u64::from(u32::from_le_bytes(*count))).sum();
        self.partial_acknowledgement = rest.to_vec();
        self.durable_bytes += sum;
        Ok(true)
    }
}

/// Data and records file, with their next write positions.
struct StreamFiles {
    disk: FileDisk,
    data_offset: u64,
    record_offset: u64,
}

impl StreamFiles {
    /// Creates both files, filled and flushed.
    fn create(folder: &Path, flush: Duration) -> io::Result<Self> {
        let buffers = Buffers {
            // Each unit needs two buffers, for its data and for its record.
            preallocated_count: 2 * u16::try_from(UNITS_MAX).expect("few"),
            bytes: UNIT_BYTES,
        };
        let (mut disk, _) =
            open_with(folder, DriverChoice::Auto, buffers).map_err(io::Error::other)?;
        for (file, bytes) in [(DATA_FILE, DATA_FILE_BYTES), (RECORD_FILE, RECORD_FILE_BYTES)] {
            disk.start_prepare(file, bytes, ZeroFill::Written);
            disk.hurry_file_creation(file.family);
            Self::wait_prepared(&mut disk)?;
            disk.open_next_file(file).map_err(io::Error::other)?;
        }
        Ok(Self {
            disk: disk.with_min_flush_time(flush).map_err(io::Error::other)?,
            data_offset: 0,
            record_offset: 0,
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
    fn write_unit(&mut self, number: u64, buffer: Buffer, bytes: usize) {
        if bytes <= INLINE_UNIT_BYTES_MAX {
            return self.write_record(number, buffer);
        }
        let bytes = bytes.next_multiple_of(BLOCK);
        if self.data_offset + bytes as u64 > DATA_FILE_BYTES {
            self.data_offset = 0;
        }
        let at = DATA_FILE.position_at(self.data_offset);
        self.data_offset += bytes as u64;
        self.disk.start_write(number, at, buffer.into(), bytes, Durability::Flushed);
    }

    /// Handles a completed write. The record of a unit is written after its data. Returns the
    /// number of a unit whose record has become durable.
    fn handle_completed(&mut self, completed: Completed) -> io::Result<Option<u64>> {
        let Completed::Written { token, file, output, result, .. } = completed else {
            return Ok(None);
        };
        result.map_err(io::Error::other)?;
        if let Some(buffer) = output.into_buffer() {
            self.disk.release(buffer);
        }
        if file == RECORD_FILE {
            return Ok(Some(token));
        }
        let record = self.disk.allocate(BLOCK);
        self.write_record(token, record);
        Ok(None)
    }

    fn write_record(&mut self, number: u64, record: Buffer) {
        let at = RECORD_FILE.position_at(self.record_offset);
        self.record_offset = (self.record_offset + BLOCK as u64) % RECORD_FILE_BYTES;
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
        let mut units = UnitDurability::default();
        let numbers = [10, 20, 30].map(|bytes| units.begin_unit(bytes));
        units.mark_durable(numbers[1]);
        assert_eq!((units.durable_bytes, units.open()), (0, 3));
        units.mark_durable(numbers[0]);
        assert_eq!((units.durable_bytes, units.open()), (30, 1));
        assert_eq!(units.begin_unit(5), 3);
        units.mark_durable(numbers[2]);
        assert_eq!((units.durable_bytes, units.received_count, units.open()), (60, 65, 1));
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
            let node = BareStreamNode::new(client, Some(follower), None).unwrap();
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
        let mut count = [0; ACKNOWLEDGEMENT_BYTES];
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
        let mut files = StreamFiles::create(folder.path(), Duration::ZERO).unwrap();
        let mut buffer = files.disk.allocate(UNIT_BYTES);
        buffer[..bytes].fill(b'x');
        files.write_unit(7, buffer, bytes);
        let mut seen = Vec::new();
        while seen.last() != Some(&Some(7)) {
            if let Some(completed) = files.disk.poll() {
                assert_eq!(files.disk.counters().flushes, 1 + seen.len() as u64);
                seen.push(files.handle_completed(completed).unwrap());
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
        let (seen, written) = write(INLINE_UNIT_BYTES_MAX + 1, Family::Stream, DATA_FILE);
        assert_eq!(seen, [None, Some(7)]);
        let (data, behind) = written.split_at(INLINE_UNIT_BYTES_MAX + 1);
        assert_eq!((data, behind), (&[b'x'; INLINE_UNIT_BYTES_MAX + 1][..], &[0][..]));
    }

    #[test]
    fn small_unit_is_written_with_its_record() {
        let (seen, written) = write(5, Family::Log, RECORD_FILE);
        assert_eq!((seen, &written[..]), (vec![Some(7)], &b"xxxxx\0"[..]));
    }
}
