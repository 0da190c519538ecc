//! Host process: runs its device and owner until standard input ends.

use std::{
    io::{Read as _, Write as _, stdin, stdout},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use quorate_device::xdp::{EntryPoint, XdpHost};
use quorate_device::{GroupMembers, PacketSocketWire, SoftwareDevice, Udp, Wire as _};
use quorate_offload::{Encapsulation, port::Device};
use quorate_packets::ethernet::Mac;

use crate::{
    Fallible, bare,
    group::{
        ALL_HOSTS, CLIENT, DECISIONS, HOSTS, INTERFACE, Kind, make_roomy, settings, socket,
        software,
    },
    owner::{FORM, Owner},
};

const PACE: Duration = Duration::from_millis(5);

/// Runs a host. Prints a line when it is ready, and its results at the end.
pub(crate) fn serve(kind: &str, host: &str, room: &str) -> Fallible<()> {
    let (kind, host, room) = (Kind::of(kind)?, host.parse()?, room.parse()?);
    let over = listen();
    match kind {
        Kind::Kernel(hook) => {
            let (device, _) = XdpHost::open(&settings(host, room)?, INTERFACE, &[hook], FORM)?;
            let entry = match hook {
                quorate_device::xdp::Hook::Traffic => EntryPoint::NetworkByTc,
                _ => EntryPoint::Network,
            };
            let mut owner = Owner::new(device, host);
            drive(&mut owner, host, &over)?;
            let device = owner.device();
            let info = device.device().program_info(entry)?;
            println!(
                "run_ns={} runs={} lost={} heard={}",
                info.run_time().as_nanos(),
                info.run_count(),
                device.lost_frame_count(),
                owner.heard
            );
            owner.into_device().close()?;
        }
        Kind::Packet => {
            let wire =
                PacketSocketWire::open(INTERFACE, &[ALL_HOSTS, DECISIONS].map(|to| Mac(to.mac)))?;
            let told = software(host, room, Encapsulation::Raw, false);
            let device = SoftwareDevice::start(told, wire, Arc::new(|| ()))?;
            report(Owner::new(device, host), host, &over)?;
        }
        Kind::Udp => {
            let members = GroupMembers::default();
            members.set((1..=HOSTS).chain([CLIENT]).map(socket).collect());
            let wire = Udp::bind(socket(host), members)?;
            make_roomy(wire.readable_fd())?;
            let told = software(host, room, Encapsulation::Udp, true);
            let device = SoftwareDevice::start(told, wire, Arc::new(|| ()))?;
            report(Owner::new(device, host), host, &over)?;
        }
        Kind::BarePacket => bare::packet(host, room, &over)?,
        Kind::BareUdp => bare::udp(host, room, &over)?,
    }
    Ok(())
}

fn report(mut owner: Owner<SoftwareDevice>, host: u8, over: &AtomicBool) -> Fallible<()> {
    drive(&mut owner, host, over)?;
    println!("lost={} heard={}", owner.device().lost_frame_count(), owner.heard);
    Ok(())
}

fn drive<D: Device>(owner: &mut Owner<D>, host: u8, over: &AtomicBool) -> Fallible<()> {
    owner.begin(host)?;
    ready()?;
    while !over.load(Ordering::Acquire) {
        owner.turn();
        thread::park_timeout(PACE);
    }
    owner.turn();
    Ok(())
}

pub(crate) fn ready() -> Fallible<()> {
    println!("ready");
    Ok(stdout().flush()?)
}

/// Returns a flag that becomes true when standard input ends.
fn listen() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let owner = thread::current();
    thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = stdin().read_to_end(&mut rest);
        told.store(true, Ordering::Release);
        owner.unpark();
    });
    over
}
