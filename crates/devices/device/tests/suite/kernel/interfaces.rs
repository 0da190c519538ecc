//! Devices at real interfaces: three hosts and a client on a bridge, killed owners, hooks, and
//! removed interfaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use quorate_device::xdp::{AttachmentHealth, Hook, PreviousDevice, XdpError, XdpHost};
use quorate_offload::{
    Encapsulation, Header, PackedBallot, Reason, Type,
    port::{Device as _, Drained, FrameOrigin, Program},
};
use quorate_testbed::namespace::run_ip;

use crate::kernel::{
    desk::{BALLOT, arm, descriptor, number, parse, room, start, submit},
    wires::{Another, CLIENT, Client, INTERFACE, again, alone, at, lay, settings, word},
};

const VALUES: u64 = 10_000;
/// Number of cells: more than there are values, so that every cell can be compared.
pub(crate) const CELLS: u32 = 1 << 14;
/// Maximum number of outstanding requests per client.
const OUTSTANDING: u64 = 32;

pub(crate) fn open(
    host: u8,
    cells: u32,
    hooks: &[Hook],
) -> Result<(XdpHost, PreviousDevice), XdpError> {
    at(host, || XdpHost::open(&settings(host, cells), INTERFACE, hooks, Encapsulation::Raw))
}

/// Opens a device, sets the boot of both programs and arms the acceptor.
pub(crate) fn armed(host: u8, hooks: &[Hook]) -> XdpHost {
    let (device, before) = open(host, CELLS, hooks).unwrap();
    assert!(matches!(before, PreviousDevice::NotFound));
    for program in Program::ALL {
        device.device().control_calls(program).set_boot(crate::kernel::desk::BOOT).unwrap();
    }
    let mut arm = arm();
    arm.position = host - 1;
    let acceptor = device.device().control_calls(Program::Acceptor);
    acceptor.arm(number(1), arm).unwrap();
    device
}

/// Decisions that an owner delivers in slot order, although they arrive in the order of votes.
#[derive(Default)]
struct Delivered {
    values: Vec<u64>,
    early: BTreeMap<u64, u64>,
}

impl Delivered {
    fn take(&mut self, host: &mut XdpHost) {
        let mut frame = Vec::new();
        while let Some((program, _)) = host.take_frame(&mut frame) {
            let (header, bytes) = parse(Encapsulation::Raw, &frame);
            assert_eq!(bytes, room(header.value.counter));
            match header.kind {
                Type::Decided => {
                    assert_eq!(program, Program::Coordinator);
                    let first = self.early.insert(header.slot, header.value.counter);
                    assert_eq!(first, None, "twice");
                }
                Type::Phase2b => assert_eq!(program, Program::Acceptor),
                other => panic!("{other:?}"),
            }
            while let Some(value) = self.early.remove(&(self.values.len() as u64)) {
                self.values.push(value);
            }
        }
    }
}

/// The devices alone decide values from outside, and every owner finds the decisions in its tap.
fn ten_thousand(hooks: &[Hook]) {
    let _passing = lay(3);
    let mut hosts: Vec<XdpHost> = (1..=3).map(|host| armed(host, hooks)).collect();
    eprintln!("hosts: {}", hosts[0]);
    assert_eq!(hosts[0].hook(), hooks[0]);
    let leader = hosts[0].device().control_calls(Program::Coordinator);
    leader.start(number(1), start()).unwrap();
    let client = Client::new();
    let mut delivered = [(); 3].map(|()| Delivered::default());
    let (mut sent, mut decided) = (0, BTreeSet::new());
    while (decided.len() as u64) < VALUES {
        while sent < VALUES && sent - (decided.len() as u64) < OUTSTANDING {
            client.send(1, &submit(sent));
            sent += 1;
        }
        let Some((header, bytes)) = client.hear() else {
            panic!("{} decided, {sent} sent, and no more", decided.len());
        };
        if header.kind == Type::Decided {
            let value = header.value.counter;
            assert_eq!((header.value, bytes), (descriptor(value), room(value).to_vec()));
            assert!(decided.insert(value), "twice");
        }
        assert_ne!(header.kind, Type::Refused);
        if decided.len() % 100 == 0 {
            for (host, delivered) in hosts.iter_mut().zip(&mut delivered) {
                delivered.take(host);
            }
        }
    }
    for (host, delivered) in hosts.iter_mut().zip(&mut delivered) {
        delivered.take(host);
        assert_eq!((host.lost_frame_count(), host.health()), (0, AttachmentHealth::Receiving));
    }
    let [first, others @ ..] = &delivered;
    assert_eq!(first.values.iter().copied().collect::<BTreeSet<_>>(), decided);
    for other in others {
        assert!(other.values == first.values && other.early.is_empty());
    }
    for (slot, value) in (0..).zip(&first.values) {
        for host in &hosts {
            let held = host.device().control_calls(Program::Acceptor).read_cell(slot);
            let held = held.unwrap().unwrap();
            assert_eq!((held.ballot, held.value), (BALLOT, descriptor(*value)));
            assert_eq!(held.bytes, room(*value));
        }
    }
    assert_eq!(leader_next(&hosts[0]), VALUES);
    for host in hosts {
        host.close().unwrap();
    }
}

fn leader_next(host: &XdpHost) -> u64 {
    host.device().control_calls(Program::Coordinator).query_state().unwrap().next
}

#[test]
fn ten_thousand_values_by_native_xdp() {
    alone("interfaces::ten_thousand_values_by_native_xdp", || {
        ten_thousand(&[Hook::Native]);
    });
}

#[test]
fn ten_thousand_values_by_generic_xdp() {
    alone("interfaces::ten_thousand_values_by_generic_xdp", || {
        ten_thousand(&[Hook::Generic]);
    });
}

#[test]
fn ten_thousand_values_by_tc() {
    alone("interfaces::ten_thousand_values_by_tc", || {
        ten_thousand(&[Hook::Traffic]);
    });
}

/// An owner's requests enter through its port, and frames for the network leave through its socket.
#[test]
fn an_owner_drives_its_device_by_frames() {
    alone("interfaces::an_owner_drives_its_device_by_frames", || {
        let _passing = lay(2);
        let mut host = armed(1, &Hook::ALL);
        let client = Client::new();
        let leader = host.device().control_calls(Program::Coordinator);
        leader.start(number(1), start()).unwrap();
        let frames = |kind: Type, flags: u16| {
            let header = Header { kind, flags, ..submit(7) };
            let shape = host.shape();
            let mut buffer = vec![0; 200];
            let frame = Encapsulation::Raw.write_frame(
                &mut buffer,
                &shape.owner_address,
                &shape.device_address,
                &header,
                &room(7),
            );
            frame.unwrap().to_vec()
        };
        let (own, tick, ask) =
            (frames(Type::Submit, 0), frames(Type::Tick, 8), frames(Type::Ask, 8));
        // The owner submits a value and repeats its proposal: the group receives both, and the
        // host's own acceptor votes once.
        host.put_frame(Program::Coordinator, &own);
        host.put_frame(Program::Coordinator, &tick);
        for _ in 0..2 {
            let (header, bytes) = client.hear().unwrap();
            assert_eq!((header.kind, header.slot), (Type::Phase2a, 0));
            assert_eq!((header.value, bytes), (descriptor(7), room(7).to_vec()));
        }
        host.put_frame(Program::Coordinator, &ask);
        let mut frame = Vec::new();
        let mut taken = Vec::new();
        while let Some((program, came)) = host.take_frame(&mut frame) {
            taken.push((program, came, parse(Encapsulation::Raw, &frame).0.kind));
        }
        let (acceptor, coordinator) = (Program::Acceptor, Program::Coordinator);
        assert_eq!(
            taken,
            [
                (coordinator, FrameOrigin::LocalResponse, Type::Done),
                (acceptor, FrameOrigin::LocalResponse, Type::Phase2b)
            ]
        );
        host.close().unwrap();
        // Frames from the network that look like answers to the owner do not reach it, except
        // refusals.
        let mut host = armed(1, &Hook::ALL);
        for kind in [Type::Done, Type::Cell, Type::Refused] {
            client.send(1, &Header { kind, ..submit(1) });
        }
        assert_eq!(host.take_frame(&mut frame), Some((acceptor, FrameOrigin::Network)));
        assert_eq!(parse(Encapsulation::Raw, &frame).0.kind, Type::Refused);
        assert_eq!(host.take_frame(&mut frame), None);
        // [offload-21] A frame from the network with the device's own address is not taken for the
        // device's decision or refusal. The vote that it causes is the device's.
        for kind in [Type::Decided, Type::Refused] {
            client.claim(1, &Header { kind, ..submit(1) });
            assert_eq!(host.take_frame(&mut frame), Some((acceptor, FrameOrigin::Network)));
        }
        client.claim(1, &crate::kernel::desk::phase2a(3, 3));
        assert_eq!(host.take_frame(&mut frame), Some((acceptor, FrameOrigin::NetworkResponse)));
        assert_eq!(parse(Encapsulation::Raw, &frame).0.kind, Type::Phase2b);
        host.close().unwrap();
    });
}

/// A killed owner's device continues to vote. The next owner finds it, fences it, and reads every
/// vote.
#[test]
fn the_next_owner_finds_what_a_killed_one_left() {
    const NAME: &str = "interfaces::the_next_owner_finds_what_a_killed_one_left";
    alone(NAME, || {
        if word().is_some() {
            // This child, already on its machine, is the owner that is killed later.
            let (host, _) =
                XdpHost::open(&settings(1, CELLS), INTERFACE, &[Hook::Native], Encapsulation::Raw)
                    .unwrap();
            let acceptor = host.device().control_calls(Program::Acceptor);
            acceptor.set_boot(crate::kernel::desk::BOOT).unwrap();
            acceptor.arm(number(1), arm()).unwrap();
            println!("\narmed");
            std::io::stdout().flush().unwrap();
            loop {
                std::thread::park();
            }
        }
        let _passing = lay(1);
        let killed = again(NAME, 1, "owner").stdout(Stdio::piped()).spawn();
        let mut killed = Another(killed.unwrap());
        let said = BufReader::new(killed.0.stdout.take().unwrap());
        let mut lines = said.lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "armed"));
        // While the owner is alive, no other process may open the device.
        let Err(XdpError::AlreadyOwned { interface }) = open(1, CELLS, &[Hook::Native]) else {
            panic!("two owners");
        };
        assert_eq!(interface, INTERFACE);
        drop(killed);

        let client = Client::new();
        for slot in 0..100 {
            client.send(1, &crate::kernel::desk::phase2a(slot, slot));
            assert_eq!(client.hear().unwrap().0.kind, Type::Phase2b);
        }
        let (mut host, before) = open(1, CELLS, &[Hook::Native]).unwrap();
        assert!(matches!(before, PreviousDevice::SameDevice));
        let acceptor = host.device().control_calls(Program::Acceptor);
        assert_eq!(acceptor.query_state().unwrap().ballot, BALLOT);
        acceptor.fence(number(2)).unwrap();
        host.begin_drain();
        while host.drain_progress() == Drained::InProgress {
            std::thread::yield_now();
        }
        assert_eq!(host.drain_progress(), Drained::Complete);
        client.send(1, &crate::kernel::desk::phase2a(100, 100));
        let refused = client.hear().unwrap().0;
        assert_eq!((refused.kind, refused.reason), (Type::Refused, Reason::Disarmed as u8));
        for slot in 0..=100 {
            let held = host.device().control_calls(Program::Acceptor).read_cell(slot).unwrap();
            let expected = (slot < 100).then(|| descriptor(slot));
            assert_eq!(held.map(|held| held.value), expected);
        }
        // The tap still has the frames that the killed owner did not read.
        let mut frame = Vec::new();
        for slot in 0..100 {
            let voted = (Program::Acceptor, FrameOrigin::NetworkResponse);
            assert_eq!(host.take_frame(&mut frame), Some(voted));
            assert_eq!(parse(Encapsulation::Raw, &frame).0.slot, slot);
        }
        // With other settings it is another device: the old one is armed again, then ended, and can
        // still be read.
        let acceptor = host.device().control_calls(Program::Acceptor);
        acceptor.arm(number(3), arm()).unwrap();
        drop(host);
        let (host, before) = open(1, CELLS / 2, &[Hook::Native]).unwrap();
        let PreviousDevice::OtherDevice(left) = before else {
            panic!("another device was taken for this one");
        };
        let old = left.device().control_calls(Program::Acceptor);
        assert_eq!(old.read_cell(7).unwrap().unwrap().value, descriptor(7));
        assert_eq!(old.query_state().unwrap().ballot, PackedBallot::NONE);
        assert_eq!(host.device().control_calls(Program::Acceptor).query_state().unwrap().boot, 0);
        drop(left);
        host.close().unwrap();
        let (host, before) = open(1, CELLS, &[Hook::Native]).unwrap();
        assert!(matches!(before, PreviousDevice::NotFound));
        host.close().unwrap();
    });
}

#[test]
fn what_an_interface_does_is_seen() {
    alone("interfaces::what_an_interface_does_is_seen", || {
        let _passing = lay(2);
        let (host, _) = open(1, 64, &Hook::ALL).unwrap();
        let (other, _) = open(2, 64, &[Hook::Traffic]).unwrap();
        for (number, host) in [(1, &host), (2, &other)] {
            assert_eq!(host.health(), AttachmentHealth::Receiving);
            run_ip(&format!("-n n{number} link set {INTERFACE} down")).unwrap();
            assert_eq!(host.health(), AttachmentHealth::InterfaceDown);
            run_ip(&format!("-n n{number} link set {INTERFACE} up")).unwrap();
            assert_eq!(host.health(), AttachmentHealth::Receiving);
        }
        // Another process's program is reported, and a later hook is not used instead.
        at(CLIENT, || {
            let _theirs = quorate_device::xdp::PassProgram::attach(INTERFACE).unwrap();
            let opened = XdpHost::open(&settings(9, 64), INTERFACE, &Hook::ALL, Encapsulation::Raw);
            let failed = opened.err().unwrap();
            assert!(matches!(failed, XdpError::HookBusy { hook: Hook::Native, .. }), "{failed}");
        });
        for (number, host) in [(1, host), (2, other)] {
            run_ip(&format!("link del p{number}")).unwrap();
            assert_eq!(host.health(), AttachmentHealth::InterfaceGone);
            host.close().unwrap();
        }
        let failed = open(1, 64, &Hook::ALL).err().unwrap();
        assert!(matches!(failed, XdpError::Interface(_)), "{failed}");
    });
}

/// A host whose proposals go to another group does not process them itself: its own acceptor does
/// not vote.
#[test]
fn a_host_that_speaks_to_others_alone_does_not_hear_itself() {
    let mut told = settings(1, 64);
    told.proposal_address.mac[5] = 0x56;
    let Some(device) = crate::kernel::desk::load(quorate_device::xdp::Role::Host, &told) else {
        return;
    };
    for program in Program::ALL {
        device.control_calls(program).set_boot(crate::kernel::desk::BOOT).unwrap();
    }
    device.control_calls(Program::Acceptor).arm(number(1), arm()).unwrap();
    let started = device.control_calls(Program::Coordinator).start(number(1), start());
    assert_eq!(started.unwrap().ballot, BALLOT);
    let mut frame = crate::kernel::desk::frame(Encapsulation::Raw, &submit(1));
    device.run_program(quorate_device::xdp::EntryPoint::Network, &mut frame).unwrap();
    assert_eq!(parse(Encapsulation::Raw, &frame).0.kind, Type::Phase2a);
    assert_eq!(device.control_calls(Program::Acceptor).read_cell(0).unwrap(), None);
    assert_ne!(BALLOT, PackedBallot::NONE);
}
