//! Device made of external processes, one per program, with fixed addresses in a fixed group.
//!
//! Any program that passes the conformance tests can be used unchanged: switch programs in an
//! interpreter, simulated cores, or anything else that maps frames to frames. Addresses and group
//! are built into such a device. [`Translated`] translates between the cluster's frames and the
//! device's, and truncates or pads the value area.

use std::{
    fmt, io,
    time::{Duration, Instant},
};

use quorate_offload::{
    Address, Counters, Descriptor, Form, Header, Port, Type,
    header::{COORDINATOR, HEADER_BYTES, ROOM_BYTES_MAX},
    port::Program,
};

use crate::{
    Settings,
    pipe::{Event, FRAME_BYTES_MAX},
    process::{Leash, Process, leash},
    programs::Programs,
    wire::{Arrived, Wire},
};

/// Group number built into external devices.
pub const GROUP: u32 = 0x0a0b_0c0d;
/// UDP port of all addresses on the device's side.
const PORT: u16 = 47_100;

const fn station(last: u8) -> Address {
    Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: PORT }
}

const fn group(last: u8) -> Address {
    Address { mac: [3, 0, 0, 0, 0, last], ip: [239, 0, 0, last], port: PORT }
}

/// Address of an external device, in its own frames.
const OWN: Address = station(1);
/// Address of the owner, in the device's frames.
const OWNER: Address = station(2);
/// Multicast address on which the device receives.
const HEARD: Address = group(0x55);
/// Multicast addresses to which the device sends: first votes and proposals, then decisions.
const ROUTES: [Address; 2] = [group(3), group(4)];
/// Bit flipped in the addresses of other devices when they are translated, so that they differ from
/// the fixed addresses above.
const OTHERS: u8 = 0x40;
/// Sizes of the value area to try when querying a device, in bytes.
pub const ROOMS: [usize; 8] = [32, 64, 128, 256, 512, 1024, 1400, ROOM_BYTES_MAX];
/// Maximum number of frames queued for the owner, per program.
const TAP_FRAMES: usize = 1 << 13;
/// Maximum time for a device to start and report its state.
const STARTS_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub enum OpenBoxedError {
    Start(io::Error),
    /// A program did not report its state.
    Silent(Program),
    /// The two programs differ in the number of cells or the size of the value area.
    Unlike,
}

impl fmt::Display for OpenBoxedError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(to, "it cannot be started: {error}"),
            Self::Silent(program) => write!(
                to,
                "its {} does not answer (this node's log has what it says): a device maps frames to frames, as docs/operate/devices.md says",
                name(*program)
            ),
            Self::Unlike => {
                to.write_str("its coordinator and its acceptor have other cells or rooms")
            }
        }
    }
}

impl std::error::Error for OpenBoxedError {}

const fn name(program: Program) -> &'static str {
    match program {
        Program::Acceptor => "acceptor",
        Program::Coordinator => "coordinator",
    }
}

/// An external device, with a process for each program.
pub struct Boxed {
    acceptor: Process,
    coordinator: Process,
    room: usize,
    /// Number of times that a process ended unexpectedly.
    forgot: u64,
    /// Leash to be passed to the handle of the device's thread.
    leash: Option<Leash>,
}

impl Boxed {
    /// Starts a process for each program by running the command with `{}` replaced by the program's
    /// name, or with the name as an additional last argument. Then queries the capacity of each.
    /// Returns the device and the settings for its thread.
    pub fn open(words: &[String]) -> Result<(Self, Settings), OpenBoxedError> {
        let (leash, held) = leash().map_err(OpenBoxedError::Start)?;
        let start = |program| {
            let name = name(program);
            let has_place = words.iter().any(|word| word.contains("{}"));
            let named = words.iter().map(|word| word.replace("{}", name));
            let last = (!has_place).then(|| name.to_owned());
            Process::start(named.chain(last).collect(), held.clone()).map_err(OpenBoxedError::Start)
        };
        let mut boxed = Self {
            acceptor: start(Program::Acceptor)?,
            coordinator: start(Program::Coordinator)?,
            room: 0,
            forgot: 0,
            leash: Some(leash),
        };
        let mut ask = |program| boxed.ask(program).ok_or(OpenBoxedError::Silent(program));
        let (cells, room) = ask(Program::Acceptor)?;
        if ask(Program::Coordinator)? != (cells, room) {
            return Err(OpenBoxedError::Unlike);
        }
        boxed.room = room;
        let settings = Settings {
            group: GROUP,
            cells,
            room,
            form: Form::Udp,
            own: OWN,
            all_hosts: HEARD,
            decisions: HEARD,
            tap_frames: TAP_FRAMES,
        };
        Ok((boxed, settings))
    }

    /// Queries the number of cells and the size of the value area. Returns `None` if there is no
    /// valid response.
    fn ask(&mut self, program: Program) -> Option<(u32, usize)> {
        let until = Instant::now() + STARTS_WITHIN;
        let mut header = Header::submit(GROUP, Descriptor::NONE, 0);
        header.kind = Type::Ask;
        if program == Program::Coordinator {
            header.flags = COORDINATOR;
        }
        ROOMS.into_iter().find_map(|room| {
            let mut buffer = [0; FRAME_BYTES_MAX];
            let empty = [0; ROOM_BYTES_MAX];
            let frame = Form::Udp.write(&mut buffer, &OWNER, &OWN, &header, &empty[..room])?;
            let event = Event::Frame(Port::Owner, frame.to_vec());
            let sent = self.process(program).step(&event, Some(until)).ok()?;
            let said = sent.iter().find_map(|(_, frame)| read(frame))?;
            let (cells, said_room) = (said.value.crc, usize::from(said.value.length));
            let whole = said.kind == Type::Done && said_room == room && cells.is_power_of_two();
            (whole && cells <= 1 << 20).then_some((cells, room))
        })
    }

    fn process(&mut self, program: Program) -> &mut Process {
        match program {
            Program::Acceptor => &mut self.acceptor,
            Program::Coordinator => &mut self.coordinator,
        }
    }
}

/// Decodes the header of a frame on the device's side.
fn read(frame: &[u8]) -> Option<Header> {
    read_at(frame, PORT).map(|(_, header)| header)
}

/// Decodes the form and the header of a frame whose addresses have this UDP port.
fn read_at(frame: &[u8], port: u16) -> Option<(Form, Header)> {
    let form = Form::of(frame, port).ok()?;
    let header = frame.get(form.header_at()..)?.first_chunk::<HEADER_BYTES>()?;
    Some((form, Header::read(header)?))
}

impl Programs for Boxed {
    fn step(
        &mut self,
        program: Program,
        from: Port,
        frame: &[u8],
        sent: &mut dyn FnMut(Port, &[u8]),
    ) {
        let event = Event::Frame(from, frame.to_vec());
        let running = self.process(program).is_running();
        let Ok(said) = self.process(program).step(&event, None) else {
            // A process that has ended sends nothing. The two processes form one device, so if one
            // loses its memory, the other must forget as well. A process that is merely late is
            // waited for.
            if running {
                self.forgot += 1;
                Program::ALL.into_iter().for_each(|program| self.process(program).end());
            }
            return;
        };
        let mut buffer = [0; FRAME_BYTES_MAX];
        for (port, said) in said {
            // A frame that the program did not handle is returned unchanged, and dropped here.
            if said == frame {
                continue;
            }
            let routed = ROUTES.iter().any(|route| said.starts_with(&route.mac));
            match routed {
                // Replace the group number by the one built into the device.
                true => {
                    if let Some(said) = again(&said, &HEARD, self.room, &mut buffer) {
                        sent(port, said);
                    }
                }
                false => sent(port, &said),
            }
        }
    }

    fn forget(&mut self) {
        for program in Program::ALL {
            // A process that has ended has already lost its memory.
            let _ = self.process(program).step(&Event::Power, None);
        }
    }

    fn forgot(&self) -> u64 {
        self.forgot
    }

    fn leash(&mut self) -> Option<Leash> {
        self.leash.take()
    }

    fn counters(&self) -> [Counters; 2] {
        <[Counters; 2]>::default()
    }
}

/// Returns a copy of a frame with another destination address.
fn again<'a>(frame: &[u8], to: &Address, room: usize, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let at = Form::Udp.room_at();
    let header = read(frame)?;
    let bytes = frame.get(at..at + room)?;
    Form::Udp.write(buffer, &OWN, to, &header, bytes).map(|frame| &*frame)
}

/// A wire of the cluster that translates frames for an external device.
pub struct Translated<W> {
    wire: W,
    /// Settings of this device in the cluster.
    place: Settings,
    /// Size of the value area on the device's side, in bytes.
    room: usize,
    arrived: Arrived,
    buffer: Box<[u8]>,
}

impl<W: Wire> Translated<W> {
    /// Wraps a wire. `place` contains this device's settings in the cluster, including the size of
    /// the value area there.
    pub fn new(wire: W, place: Settings, room: usize) -> Self {
        Self {
            wire,
            place,
            room,
            arrived: Arrived::default(),
            buffer: vec![0; FRAME_BYTES_MAX].into(),
        }
    }
}

impl<W: Wire> Wire for Translated<W> {
    fn send(&mut self, frame: &[u8]) {
        let to = |to: Address| match to.mac {
            mac if mac == HEARD.mac => self.place.all_hosts,
            _ => other_side(to),
        };
        let outer = (self.place.form, self.place.group, self.place.room);
        let form = Form::Udp;
        let made = carry(frame, form, outer, (self.place.own, to), &mut self.buffer);
        if let Some(frame) = made {
            self.wire.send(frame);
        }
    }

    fn receive(&mut self, arrived: &mut Arrived) {
        self.arrived.clear();
        self.wire.receive(&mut self.arrived);
        let Settings { own, all_hosts: all, decisions, group, form, .. } = self.place;
        let inner = (Form::Udp, GROUP, self.room);
        for frame in self.arrived.iter().take(Arrived::MAX) {
            // Frames of other groups are not translated, because the device would drop them.
            let ours = read_at(frame, own.port)
                .is_some_and(|(seen, header)| seen == form && header.group == group);
            let to = match frame.first_chunk::<6>() {
                Some(mac) if *mac == own.mac => OWN,
                Some(mac) if [all.mac, decisions.mac].contains(mac) => HEARD,
                _ => continue,
            };
            let Some(from) = source(frame, form).map(other_side).filter(|_| ours) else {
                continue;
            };
            if let Some(made) = carry(frame, form, inner, (from, |_| to), &mut self.buffer) {
                arrived.push().extend_from_slice(made);
            }
        }
    }

    fn strangers(&self) -> u64 {
        self.wire.strangers()
    }

    fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wire.socket()
    }
}

/// Returns another device's address on the other side of the translation.
const fn other_side(mut station: Address) -> Address {
    station.mac[0] ^= OTHERS;
    station
}

/// Returns the source address of a frame. In a raw frame it has no IP address.
fn source(frame: &[u8], form: Form) -> Option<Address> {
    address(frame, 6, form, (26, 34))
}

fn destination(frame: &[u8], form: Form) -> Option<Address> {
    address(frame, 0, form, (30, 36))
}

fn address(frame: &[u8], mac: usize, form: Form, (ip, port): (usize, usize)) -> Option<Address> {
    let mac = *frame.get(mac..)?.first_chunk()?;
    Some(match form {
        Form::Raw => Address { mac, ip: [10, mac[3], mac[4], mac[5]], port: PORT },
        Form::Udp => Address {
            mac,
            ip: *frame.get(ip..)?.first_chunk()?,
            port: u16::from_be_bytes(*frame.get(port..)?.first_chunk()?),
        },
    })
}

/// Translates form, group, value area and addresses of a frame for the other side. Returns `None`
/// if the value does not fit there.
fn carry<'a>(
    frame: &[u8],
    form: Form,
    (other, group, room): (Form, u32, usize),
    (from, to): (Address, impl Fn(Address) -> Address),
    buffer: &'a mut [u8],
) -> Option<&'a [u8]> {
    // A corrupted frame must not become a valid one by translation.
    if frame.len() < form.room_at() || form.is_whole(frame).is_err() {
        return None;
    }
    let header = Header::read(frame.get(form.header_at()..)?.first_chunk::<HEADER_BYTES>()?)?;
    let bytes = frame.get(form.room_at()..)?;
    let header = Header { group, ..header };
    let kept = bytes.len().min(room);
    let (bytes, rest) = bytes.split_at(kept);
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let mut whole = [0; ROOM_BYTES_MAX];
    whole.get_mut(..kept)?.copy_from_slice(bytes);
    let to = to(destination(frame, form)?);
    other.write(buffer, &from, &to, &header, &whole[..room]).map(|frame| &*frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(form: Form) -> Settings {
        let own = Address { mac: [2, 0, 0, 9, 9, 9], ip: [10, 9, 9, 9], port: 7451 };
        let all = Address { mac: [3, 0, 0, 0, 0, 1], ip: [224, 0, 0, 1], port: 7451 };
        Settings {
            group: 77,
            cells: 4096,
            room: 1408,
            form,
            own,
            all_hosts: all,
            decisions: all,
            tap_frames: 8,
        }
    }

    /// A wire that records sent frames and delivers prepared ones.
    struct Still(Vec<Vec<u8>>, Vec<Vec<u8>>, std::fs::File);

    impl Wire for Still {
        fn send(&mut self, frame: &[u8]) {
            self.0.push(frame.to_vec());
        }
        fn receive(&mut self, arrived: &mut Arrived) {
            for frame in self.1.drain(..) {
                arrived.push().extend_from_slice(&frame);
            }
        }
        fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
            std::os::fd::AsFd::as_fd(&self.2)
        }
    }

    fn translated(form: Form) -> Translated<Still> {
        let file = std::fs::File::open("/dev/null").unwrap();
        Translated::new(Still(Vec::new(), Vec::new(), file), place(form), 32)
    }

    fn arrive(translated: &mut Translated<Still>, frame: Vec<u8>) -> Option<Vec<u8>> {
        translated.wire.1.push(frame);
        let mut arrived = Arrived::default();
        translated.receive(&mut arrived);
        arrived.iter().next().map(<[u8]>::to_vec)
    }

    fn submit(group: u32) -> Header {
        Header::submit(group, Descriptor::NONE, 0)
    }

    /// A frame from another device to the group, and the reply to it, are translated as if the
    /// external device were on the network itself.
    #[test]
    fn frame_and_reply_are_translated_for_the_external_device() {
        let other = Address { mac: [2, 0, 0, 8, 8, 8], ip: [10, 8, 8, 8], port: 7451 };
        for form in [Form::Udp, Form::Raw] {
            let mut translated = translated(form);
            let mut buffer = [0; FRAME_BYTES_MAX];
            let mut room = [0; 1408];
            room[..32].fill(5);
            let all = place(form).all_hosts;
            let frame = form.write(&mut buffer, &other, &all, &submit(77), &room);
            let inner = arrive(&mut translated, frame.unwrap().to_vec()).unwrap();
            let header = read(&inner).unwrap();
            assert_eq!((header.group, inner.len()), (GROUP, Form::Udp.room_at() + 32));
            assert_eq!(destination(&inner, Form::Udp).unwrap().mac, HEARD.mac);
            assert_eq!(inner[Form::Udp.room_at()..], [5; 32]);
            assert!(Form::Udp.is_whole(&inner).is_ok());

            let back = source(&inner, Form::Udp).unwrap();
            let mut buffer = [0; FRAME_BYTES_MAX];
            let answer = Form::Udp.write(&mut buffer, &OWN, &back, &header, &[5; 32]);
            translated.send(answer.unwrap());
            let outer = translated.wire.0.pop().unwrap();
            assert_eq!(outer.len(), form.room_at() + 1408);
            assert_eq!(outer[..6], other.mac);
            assert_eq!(source(&outer, form).unwrap().mac, place(form).own.mac);
            let (seen, header) = read_at(&outer, 7451).unwrap();
            assert_eq!((seen, header.group), (form, 77));
            assert!(form.is_whole(&outer).is_ok());
        }
    }

    /// Frames that are not delivered: one with a value that does not fit, one from another group,
    /// one for another device, and a corrupted one.
    #[test]
    fn invalid_and_foreign_frames_are_not_delivered() {
        let (form, other) = (Form::Udp, station(7));
        let mut buffer = [0; FRAME_BYTES_MAX];
        let mut make = |to: &Address, group, room: &[u8]| {
            let frame = form.write(&mut buffer, &other, to, &submit(group), room);
            frame.unwrap().to_vec()
        };
        let all = place(form).all_hosts;
        let mut long = [0; 1408];
        long[32] = 1;
        let mut spoiled = make(&all, 77, &[0; 1408]);
        *spoiled.last_mut().unwrap() = 1;
        let refused = [
            make(&all, 77, &long),
            make(&all, 78, &[0; 1408]),
            make(&station(8), 77, &[0; 1408]),
            spoiled,
            vec![0; 20],
            Vec::new(),
        ];
        for (number, frame) in refused.into_iter().enumerate() {
            let reached = arrive(&mut translated(form), frame);
            assert!(reached.is_none(), "{number}");
        }
        // The device's output is checked just as strictly.
        for said in [&[][..], &[3; 41], &[3; 200]] {
            let mut translated = translated(form);
            translated.send(said);
            assert!(translated.wire.0.is_empty());
        }
        let fine = make(&all, 77, &[0; 1408]);
        assert!(arrive(&mut translated(form), fine).is_some());
    }
}
