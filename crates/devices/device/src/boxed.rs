//! Device made of external processes, one per program, with fixed addresses in a fixed group.
//!
//! Any program that passes the conformance tests can be used unchanged: switch programs in an
//! interpreter, simulated cores, or anything else that maps frames to frames. Addresses and group
//! are built into such a device. [`TranslatingWire`] translates between the cluster's frames and
//! the device's, and truncates or pads the value area.

use std::{
    fmt, io,
    time::{Duration, Instant},
};

use quorate_offload::{
    Address, Counters, Descriptor, Encapsulation, Header, Port, Type,
    header::{COORDINATOR, HEADER_BYTES, ROOM_BYTES_MAX},
    port::Program,
};

use crate::{
    Settings,
    pipe::{Event, FRAME_BYTES_MAX},
    process::{ProgramProcess, WaitCanceller, wait_canceller},
    programs::DevicePrograms,
    wire::{ArrivedFrames, Wire},
};

/// Group number built into external devices.
pub const DEVICE_GROUP: u32 = 0x0a0b_0c0d;
/// UDP port of all addresses on the device's side.
const PORT: u16 = 47_100;

const fn station_address(last: u8) -> Address {
    Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: PORT }
}

const fn group_address(last: u8) -> Address {
    Address { mac: [3, 0, 0, 0, 0, last], ip: [239, 0, 0, last], port: PORT }
}

/// Address of an external device, in its own frames.
const DEVICE_ADDRESS: Address = station_address(1);
/// Address of the owner, in the device's frames.
const OWNER_ADDRESS: Address = station_address(2);
/// Multicast address on which the device receives.
const HEARD_GROUP: Address = group_address(0x55);
/// Multicast addresses to which the device sends: first votes and proposals, then decisions.
const SEND_GROUPS: [Address; 2] = [group_address(3), group_address(4)];
/// Bit flipped in the addresses of other devices when they are translated, so that they differ from
/// the fixed addresses above.
const TRANSLATION_BIT: u8 = 0x40;
/// Sizes of the value area to try when querying a device, in bytes.
pub const ROOM_SIZES: [usize; 8] = [32, 64, 128, 256, 512, 1024, 1400, ROOM_BYTES_MAX];
/// Maximum number of frames queued for the owner, per program.
const TAP_FRAMES: usize = 1 << 13;
/// Maximum time for a device to start and report its state.
const START_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub enum OpenBoxedError {
    Start(io::Error),
    /// A program did not report its state.
    NoResponse(Program),
    /// The two programs differ in the number of cells or the size of the value area.
    ProgramsDiffer,
}

impl fmt::Display for OpenBoxedError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(to, "it cannot be started: {error}"),
            Self::NoResponse(program) => write!(
                to,
                "its {} does not answer (this node's log has what it says): a device maps frames to frames, as docs/operate/devices.md says",
                name(*program)
            ),
            Self::ProgramsDiffer => {
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
pub struct DeviceProcesses {
    acceptor: ProgramProcess,
    coordinator: ProgramProcess,
    room: usize,
    /// Number of times that a process ended unexpectedly.
    unexpected_ends: u64,
    /// Leash to be passed to the handle of the device's thread.
    leash: Option<WaitCanceller>,
}

impl DeviceProcesses {
    /// Starts a process for each program by running the command with `{}` replaced by the program's
    /// name, or with the name as an additional last argument. Then queries the capacity of each.
    /// Returns the device and the settings for its thread.
    pub fn open(words: &[String]) -> Result<(Self, Settings), OpenBoxedError> {
        let (leash, held) = wait_canceller().map_err(OpenBoxedError::Start)?;
        let start = |program| {
            let name = name(program);
            let has_place = words.iter().any(|word| word.contains("{}"));
            let named = words.iter().map(|word| word.replace("{}", name));
            let last = (!has_place).then(|| name.to_owned());
            ProgramProcess::start(named.chain(last).collect(), held.clone())
                .map_err(OpenBoxedError::Start)
        };
        let mut boxed = Self {
            acceptor: start(Program::Acceptor)?,
            coordinator: start(Program::Coordinator)?,
            room: 0,
            unexpected_ends: 0,
            leash: Some(leash),
        };
        let mut ask =
            |program| boxed.query_shape(program).ok_or(OpenBoxedError::NoResponse(program));
        let (cells, room) = ask(Program::Acceptor)?;
        if ask(Program::Coordinator)? != (cells, room) {
            return Err(OpenBoxedError::ProgramsDiffer);
        }
        boxed.room = room;
        let settings = Settings {
            group: DEVICE_GROUP,
            cells,
            room,
            form: Encapsulation::Udp,
            own_address: DEVICE_ADDRESS,
            all_hosts: HEARD_GROUP,
            decision_address: HEARD_GROUP,
            tap_frames: TAP_FRAMES,
        };
        Ok((boxed, settings))
    }

    /// Queries the number of cells and the size of the value area. Returns `None` if there is no
    /// valid response.
    fn query_shape(&mut self, program: Program) -> Option<(u32, usize)> {
        let until = Instant::now() + START_TIMEOUT;
        let mut header = Header::new_submit(DEVICE_GROUP, Descriptor::NONE, 0);
        header.kind = Type::Ask;
        if program == Program::Coordinator {
            header.flags = COORDINATOR;
        }
        ROOM_SIZES.into_iter().find_map(|room| {
            let mut buffer = [0; FRAME_BYTES_MAX];
            let empty = [0; ROOM_BYTES_MAX];
            let frame = Encapsulation::Udp.write_frame(
                &mut buffer,
                &OWNER_ADDRESS,
                &DEVICE_ADDRESS,
                &header,
                &empty[..room],
            )?;
            let event = Event::Frame(Port::Owner, frame.to_vec());
            let sent = self.process(program).step(&event, Some(until)).ok()?;
            let said = sent.iter().find_map(|(_, frame)| decode_header(frame))?;
            let (cells, said_room) = (said.value.crc, usize::from(said.value.length));
            let whole = said.kind == Type::Done && said_room == room && cells.is_power_of_two();
            (whole && cells <= 1 << 20).then_some((cells, room))
        })
    }

    fn process(&mut self, program: Program) -> &mut ProgramProcess {
        match program {
            Program::Acceptor => &mut self.acceptor,
            Program::Coordinator => &mut self.coordinator,
        }
    }
}

/// Decodes the header of a frame on the device's side.
fn decode_header(frame: &[u8]) -> Option<Header> {
    decode_frame(frame, PORT).map(|(_, header)| header)
}

/// Decodes the form and the header of a frame whose addresses have this UDP port.
fn decode_frame(frame: &[u8], port: u16) -> Option<(Encapsulation, Header)> {
    let form = Encapsulation::parse(frame, port).ok()?;
    let header = frame.get(form.header_offset()..)?.first_chunk::<HEADER_BYTES>()?;
    Some((form, Header::read(header)?))
}

impl DevicePrograms for DeviceProcesses {
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
                self.unexpected_ends += 1;
                Program::ALL.into_iter().for_each(|program| self.process(program).kill());
            }
            return;
        };
        let mut buffer = [0; FRAME_BYTES_MAX];
        for (port, said) in said {
            // A frame that the program did not handle is returned unchanged, and dropped here.
            if said == frame {
                continue;
            }
            let routed = SEND_GROUPS.iter().any(|route| said.starts_with(&route.mac));
            match routed {
                // Replace the group number by the one built into the device.
                true => {
                    if let Some(said) = copy_to_address(&said, &HEARD_GROUP, self.room, &mut buffer)
                    {
                        sent(port, said);
                    }
                }
                false => sent(port, &said),
            }
        }
    }

    fn clear_state(&mut self) {
        for program in Program::ALL {
            // A process that has ended has already lost its memory.
            let _ = self.process(program).step(&Event::PowerCycle, None);
        }
    }

    fn memory_losses(&self) -> u64 {
        self.unexpected_ends
    }

    fn take_canceller(&mut self) -> Option<WaitCanceller> {
        self.leash.take()
    }

    fn counters(&self) -> [Counters; 2] {
        <[Counters; 2]>::default()
    }
}

/// Returns a copy of a frame with another destination address.
fn copy_to_address<'a>(
    frame: &[u8],
    to: &Address,
    room: usize,
    buffer: &'a mut [u8],
) -> Option<&'a [u8]> {
    let at = Encapsulation::Udp.room_offset();
    let header = decode_header(frame)?;
    let bytes = frame.get(at..at + room)?;
    Encapsulation::Udp.write_frame(buffer, &DEVICE_ADDRESS, to, &header, bytes).map(|frame| &*frame)
}

/// A wire of the cluster that translates frames for an external device.
pub struct TranslatingWire<W> {
    wire: W,
    /// Settings of this device in the cluster.
    cluster_settings: Settings,
    /// Size of the value area on the device's side, in bytes.
    room: usize,
    arrived: ArrivedFrames,
    buffer: Box<[u8]>,
}

impl<W: Wire> TranslatingWire<W> {
    /// Wraps a wire. `place` contains this device's settings in the cluster, including the size of
    /// the value area there.
    pub fn new(wire: W, place: Settings, room: usize) -> Self {
        Self {
            wire,
            cluster_settings: place,
            room,
            arrived: ArrivedFrames::default(),
            buffer: vec![0; FRAME_BYTES_MAX].into(),
        }
    }
}

impl<W: Wire> Wire for TranslatingWire<W> {
    fn send(&mut self, frame: &[u8]) {
        let to = |to: Address| match to.mac {
            mac if mac == HEARD_GROUP.mac => self.cluster_settings.all_hosts,
            _ => swap_side(to),
        };
        let outer =
            (self.cluster_settings.form, self.cluster_settings.group, self.cluster_settings.room);
        let form = Encapsulation::Udp;
        let made = translate_frame(
            frame,
            form,
            outer,
            (self.cluster_settings.own_address, to),
            &mut self.buffer,
        );
        if let Some(frame) = made {
            self.wire.send(frame);
        }
    }

    fn receive(&mut self, arrived: &mut ArrivedFrames) {
        self.arrived.clear();
        self.wire.receive(&mut self.arrived);
        let Settings {
            own_address: own,
            all_hosts: all,
            decision_address: decisions,
            group,
            form,
            ..
        } = self.cluster_settings;
        let inner = (Encapsulation::Udp, DEVICE_GROUP, self.room);
        for frame in self.arrived.iter().take(ArrivedFrames::MAX) {
            // Frames of other groups are not translated, because the device would drop them.
            let ours = decode_frame(frame, own.port)
                .is_some_and(|(seen, header)| seen == form && header.group == group);
            let to = match frame.first_chunk::<6>() {
                Some(mac) if *mac == own.mac => DEVICE_ADDRESS,
                Some(mac) if [all.mac, decisions.mac].contains(mac) => HEARD_GROUP,
                _ => continue,
            };
            let Some(from) = source(frame, form).map(swap_side).filter(|_| ours) else {
                continue;
            };
            if let Some(made) =
                translate_frame(frame, form, inner, (from, |_| to), &mut self.buffer)
            {
                arrived.push().extend_from_slice(made);
            }
        }
    }

    fn dropped_strangers(&self) -> u64 {
        self.wire.dropped_strangers()
    }

    fn readable_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wire.readable_fd()
    }
}

/// Returns another device's address on the other side of the translation.
const fn swap_side(mut station: Address) -> Address {
    station.mac[0] ^= TRANSLATION_BIT;
    station
}

/// Returns the source address of a frame. In a raw frame it has no IP address.
fn source(frame: &[u8], form: Encapsulation) -> Option<Address> {
    address(frame, 6, form, (26, 34))
}

fn destination(frame: &[u8], form: Encapsulation) -> Option<Address> {
    address(frame, 0, form, (30, 36))
}

fn address(
    frame: &[u8],
    mac: usize,
    form: Encapsulation,
    (ip, port): (usize, usize),
) -> Option<Address> {
    let mac = *frame.get(mac..)?.first_chunk()?;
    Some(match form {
        Encapsulation::Raw => Address { mac, ip: [10, mac[3], mac[4], mac[5]], port: PORT },
        Encapsulation::Udp => Address {
            mac,
            ip: *frame.get(ip..)?.first_chunk()?,
            port: u16::from_be_bytes(*frame.get(port..)?.first_chunk()?),
        },
    })
}

/// Translates form, group, value area and addresses of a frame for the other side. Returns `None`
/// if the value does not fit there.
fn translate_frame<'a>(
    frame: &[u8],
    form: Encapsulation,
    (other, group, room): (Encapsulation, u32, usize),
    (from, to): (Address, impl Fn(Address) -> Address),
    buffer: &'a mut [u8],
) -> Option<&'a [u8]> {
    // A corrupted frame must not become a valid one by translation.
    if frame.len() < form.room_offset() || form.verify_checksums(frame).is_err() {
        return None;
    }
    let header = Header::read(frame.get(form.header_offset()..)?.first_chunk::<HEADER_BYTES>()?)?;
    let bytes = frame.get(form.room_offset()..)?;
    let header = Header { group, ..header };
    let kept = bytes.len().min(room);
    let (bytes, rest) = bytes.split_at(kept);
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let mut whole = [0; ROOM_BYTES_MAX];
    whole.get_mut(..kept)?.copy_from_slice(bytes);
    let to = to(destination(frame, form)?);
    other.write_frame(buffer, &from, &to, &header, &whole[..room]).map(|frame| &*frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(form: Encapsulation) -> Settings {
        let own = Address { mac: [2, 0, 0, 9, 9, 9], ip: [10, 9, 9, 9], port: 7451 };
        let all = Address { mac: [3, 0, 0, 0, 0, 1], ip: [224, 0, 0, 1], port: 7451 };
        Settings {
            group: 77,
            cells: 4096,
            room: 1408,
            form,
            own_address: own,
            all_hosts: all,
            decision_address: all,
            tap_frames: 8,
        }
    }

    /// A wire that records sent frames and delivers prepared ones.
    struct Still(Vec<Vec<u8>>, Vec<Vec<u8>>, std::fs::File);

    impl Wire for Still {
        fn send(&mut self, frame: &[u8]) {
            self.0.push(frame.to_vec());
        }
        fn receive(&mut self, arrived: &mut ArrivedFrames) {
            for frame in self.1.drain(..) {
                arrived.push().extend_from_slice(&frame);
            }
        }
        fn readable_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            std::os::fd::AsFd::as_fd(&self.2)
        }
    }

    fn translated(form: Encapsulation) -> TranslatingWire<Still> {
        let file = std::fs::File::open("/dev/null").unwrap();
        TranslatingWire::new(Still(Vec::new(), Vec::new(), file), place(form), 32)
    }

    fn arrive(translated: &mut TranslatingWire<Still>, frame: Vec<u8>) -> Option<Vec<u8>> {
        translated.wire.1.push(frame);
        let mut arrived = ArrivedFrames::default();
        translated.receive(&mut arrived);
        arrived.iter().next().map(<[u8]>::to_vec)
    }

    fn submit(group: u32) -> Header {
        Header::new_submit(group, Descriptor::NONE, 0)
    }

    /// A frame from another device to the group, and the reply to it, are translated as if the
    /// external device were on the network itself.
    #[test]
    fn frame_and_reply_are_translated_for_the_external_device() {
        let other = Address { mac: [2, 0, 0, 8, 8, 8], ip: [10, 8, 8, 8], port: 7451 };
        for form in [Encapsulation::Udp, Encapsulation::Raw] {
            let mut translated = translated(form);
            let mut buffer = [0; FRAME_BYTES_MAX];
            let mut room = [0; 1408];
            room[..32].fill(5);
            let all = place(form).all_hosts;
            let frame = form.write_frame(&mut buffer, &other, &all, &submit(77), &room);
            let inner = arrive(&mut translated, frame.unwrap().to_vec()).unwrap();
            let header = decode_header(&inner).unwrap();
            assert_eq!(
                (header.group, inner.len()),
                (DEVICE_GROUP, Encapsulation::Udp.room_offset() + 32)
            );
            assert_eq!(destination(&inner, Encapsulation::Udp).unwrap().mac, HEARD_GROUP.mac);
            assert_eq!(inner[Encapsulation::Udp.room_offset()..], [5; 32]);
            assert!(Encapsulation::Udp.verify_checksums(&inner).is_ok());

            let back = source(&inner, Encapsulation::Udp).unwrap();
            let mut buffer = [0; FRAME_BYTES_MAX];
            let answer = Encapsulation::Udp.write_frame(
                &mut buffer,
                &DEVICE_ADDRESS,
                &back,
                &header,
                &[5; 32],
            );
            translated.send(answer.unwrap());
            let outer = translated.wire.0.pop().unwrap();
            assert_eq!(outer.len(), form.room_offset() + 1408);
            assert_eq!(outer[..6], other.mac);
            assert_eq!(source(&outer, form).unwrap().mac, place(form).own_address.mac);
            let (seen, header) = decode_frame(&outer, 7451).unwrap();
            assert_eq!((seen, header.group), (form, 77));
            assert!(form.verify_checksums(&outer).is_ok());
        }
    }

    /// Frames that are not delivered: one with a value that does not fit, one from another group,
    /// one for another device, and a corrupted one.
    #[test]
    fn invalid_and_foreign_frames_are_not_delivered() {
        let (form, other) = (Encapsulation::Udp, station_address(7));
        let mut buffer = [0; FRAME_BYTES_MAX];
        let mut make = |to: &Address, group, room: &[u8]| {
            let frame = form.write_frame(&mut buffer, &other, to, &submit(group), room);
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
            make(&station_address(8), 77, &[0; 1408]),
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
