//! Decisions per second and latency of three devices in user space over UDP on 127.0.0.1, with 1
//! and with 32 values in flight.
//!
//! `cargo run --release -p quorate-device --example decide [SECONDS]`. Devices and the submitting
//! owner are threads of this process, so the figures depend only on this machine's cores and
//! loopback.
#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::Value,
};
use quorate_device::{GroupMembers, Settings, SoftwareDevice, Udp, udp};
use quorate_offload::owner::{Event, Owner, Start, Timeouts};
use quorate_offload::{Encapsulation, port::Device as _};

const BALLOT: Ballot = Ballot { era: Era(0), round: 1, node: NodeId(1) };
const CELLS: u32 = 1024;

type WakeSignal = Arc<(Mutex<bool>, Condvar)>;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(3), |word| word.parse())?;
    for in_flight in [1, 32] {
        measure(in_flight, Duration::from_secs(seconds))?;
    }
    Ok(())
}

fn measure(in_flight: usize, time: Duration) -> Result<(), Box<dyn Error>> {
    let members = GroupMembers::default();
    let bell = WakeSignal::default();
    let mut nodes = Vec::new();
    let mut all = Vec::new();
    for _ in 0..3 {
        let wire = Udp::bind("127.0.0.1:0".parse()?, members.clone())?;
        all.push(wire.own_address());
        let own = udp::address(wire.own_address());
        let settings = Settings {
            group: 1,
            cells: CELLS,
            room: 64,
            form: Encapsulation::Udp,
            own_address: own,
            all_hosts: udp::all_hosts(own.port),
            decision_address: udp::all_hosts(own.port),
            tap_frames: 4096,
        };
        let rung = Arc::clone(&bell);
        let wake = move || {
            *rung.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            rung.1.notify_one();
        };
        let device = SoftwareDevice::start(settings, wire, Arc::new(wake))?;
        let settings = quorate_offload::owner::Settings {
            owner_boot: 1,
            device_boot: 1,
            window: 64,
            timeouts: Timeouts::default(),
        };
        let owner = Owner::new(settings, device.shape());
        nodes.push((device, owner));
    }
    members.set(all);

    let began = Instant::now();
    let now = || Time(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    for (position, (_, owner)) in (0..).zip(&mut nodes) {
        owner.arm(BALLOT, position, Slot::FIRST);
    }
    nodes[0].1.start(Start {
        ballot: BALLOT,
        first: Slot::FIRST,
        limit: Slot(u64::from(CELLS)),
        quorum: 2,
        members: 3,
        hint: false,
    });
    let mut ready = 0;
    let mut sent: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut latencies: Vec<u64> = Vec::new();
    let (mut nonce, mut floor, mut measuring) = (0, 1, None::<Instant>);
    let mut events = Vec::new();
    while measuring.is_none_or(|since| since.elapsed() < time) {
        for (device, owner) in &mut nodes {
            owner.turn(now(), device, &mut events);
        }
        for event in events.drain(..) {
            match event {
                Event::Armed { .. } | Event::Started { .. } => ready += 1,
                Event::Decided { slot, value: Value::AllocateNode { nonce }, .. } => {
                    // This is the first of the three owners to learn of the decision.
                    if let Some(sent) = sent.remove(&nonce) {
                        let took = u64::try_from(sent.elapsed().as_nanos())?;
                        latencies.push(took);
                        floor = floor.max(slot.0.saturating_sub(64));
                    }
                }
                Event::Lost { why } => return Err(format!("a device is lost: {why:?}").into()),
                _ => {}
            }
        }
        if ready == 4 {
            measuring.get_or_insert_with(Instant::now);
            while sent.len() < in_flight {
                nonce += 1;
                sent.insert(nonce, Instant::now());
                let taken = nodes[0].1.submit(Value::AllocateNode { nonce }, &[]);
                taken.map_err(|why| format!("{why:?}"))?;
            }
        }
        for (_, owner) in &mut nodes {
            owner.raise_floor(Slot(floor), Slot(floor + u64::from(CELLS)));
        }
        let due = nodes.iter().filter_map(|(_, owner)| owner.wake_at()).min();
        let left = due.map_or(10_000, |due| due.since_us(now()));
        let rung = bell.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = Duration::from_micros(left);
        let waited = bell.1.wait_timeout_while(rung, left, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
    latencies.sort_unstable();
    let at = |part: usize| latencies.get(latencies.len() * part / 1000).copied().unwrap_or(0);
    let calls: u64 = nodes.iter().map(|(_, owner)| owner.counts().calls_sent).sum();
    println!(
        "{in_flight:2} in flight: {:6} decisions/s, median {} us, 99% {} us, 99.9% {} us; {calls} calls of control",
        latencies.len() as u128 * 1000 / time.as_millis().max(1),
        at(500) / 1000,
        at(990) / 1000,
        at(999) / 1000,
    );
    Ok(())
}
