//! Scenarios in which the controller is tested.

use crate::plant::dice::Dice;

/// The demand of the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Demand {
    /// A constant number of outstanding commands.
    Closed(u32),
    /// A constant rate of commands per second, regardless of replies.
    Open(f64),
}

/// One environment: network, disk, processor and load.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    /// Round-trip time between nodes in milliseconds.
    pub(crate) round_trip_ms: f64,
    /// Speed of each channel (WAN) or of the leader's link (LAN), in Mbit/s; infinite for no limit.
    pub(crate) mbit: f64,
    pub(crate) shared_link: bool,
    /// Capacity of a link's buffer in bytes.
    pub(crate) buffer: f64,
    pub(crate) flush_ms: f64,
    pub(crate) disk_mb_per_s: f64,
    /// Size of a command in bytes.
    pub(crate) size: u32,
    pub(crate) demand: Demand,
    /// Factor by which all processor costs are multiplied.
    pub(crate) slowness: f64,
    /// Time from a reply to the same client's next command, in microseconds.
    pub(crate) client_us: f64,
}

impl Scenario {
    pub(crate) fn new(
        name: &str,
        round_trip_ms: f64,
        mbit: f64,
        flush_ms: f64,
        size: u32,
        outstanding: u32,
    ) -> Self {
        let bdp = mbit * 125.0 * round_trip_ms;
        let shared_link = round_trip_ms < 2.0;
        let buffer = match () {
            () if mbit.is_infinite() => f64::INFINITY,
            // On the leader's own link, the kernel makes the sender wait.
            () if shared_link => 64e6,
            () => bdp.max(600e3) * 2.0,
        };
        Self {
            name: name.to_owned(),
            seed: 1,
            nodes: 3,
            round_trip_ms,
            mbit,
            shared_link,
            buffer,
            flush_ms,
            disk_mb_per_s: 1_500.0,
            size,
            demand: Demand::Closed(outstanding),
            slowness: 1.0,
            client_us: 30.0,
        }
    }

    pub(crate) fn slowness(mut self, slowness: f64) -> Self {
        self.slowness = slowness;
        self
    }

    pub(crate) fn buffer(mut self, buffer: f64) -> Self {
        self.buffer = buffer;
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    pub(crate) fn demand(mut self, demand: Demand) -> Self {
        self.demand = demand;
        self
    }
}

const ANY: f64 = f64::INFINITY;

/// Returns the scenarios chosen by hand: extreme ones, the paper's network, and common
/// installations.
pub(crate) fn chosen() -> Vec<Scenario> {
    let new = Scenario::new;
    vec![
        new("loopback 64B x1", 0.01, ANY, 0.0, 64, 1),
        new("loopback 64B x16", 0.01, ANY, 0.0, 64, 16),
        new("loopback 64B x256", 0.01, ANY, 0.0, 64, 256),
        new("loopback 64B x1000", 0.01, ANY, 0.0, 64, 1000),
        new("loopback 1K x256", 0.01, ANY, 0.0, 1024, 256),
        new("loopback 64K x64", 0.01, ANY, 0.0, 65536, 64),
        new("ssd 64B x256", 0.05, ANY, 0.1, 64, 256),
        new("nvme 64B x256", 0.1, 10_000.0, 1.0, 64, 256),
        new("nvme 1K x1000", 0.1, 10_000.0, 1.0, 1024, 1000),
        new("disk 64B x1000", 0.2, 1_000.0, 8.0, 64, 1000),
        new("disk 64K x100", 0.2, 1_000.0, 8.0, 65536, 100),
        new("gbit 8K x200", 0.2, 1_000.0, 0.1, 8192, 200),
        new("100mbit 1K x500", 0.5, 100.0, 0.1, 1024, 500),
        new("10mbit lan 1K x100", 0.5, 10.0, 1.0, 1024, 100),
        new("metro 64B x1000", 2.0, 1_000.0, 0.1, 64, 1000),
        new("metro 16K x1000", 2.0, 1_000.0, 1.0, 16384, 1000),
        new("continent 1K x1000", 30.0, 100.0, 1.0, 1024, 1000),
        new("continent 64B x10", 30.0, 100.0, 1.0, 64, 10),
        new("ocean 64K x100", 80.0, 1_000.0, 0.1, 65536, 100),
        new("paper 128B x1000", 100.0, 10.0, 0.0, 128, 1000).slowness(60.0),
        new("paper 1K x1000", 100.0, 10.0, 0.0, 1024, 1000).slowness(60.0).buffer(900e3),
        new("paper 8K x1000", 100.0, 10.0, 0.0, 8192, 1000).slowness(60.0).buffer(900e3),
        new("paper 64K x1000", 100.0, 10.0, 8.0, 65536, 1000).buffer(700e3),
    ]
}

/// Returns scenarios drawn from a seed.
pub(crate) fn drawn(seed: u64, count: usize) -> Vec<Scenario> {
    let mut dice = Dice::new(seed);
    (0..count).map(|number| draw(number, &mut dice)).collect()
}

fn draw(number: usize, dice: &mut Dice) -> Scenario {
    let round_trip = match dice.word() % 4 {
        0 => 0.0,
        1 => dice.scale(0.01, 0.5),
        2 => dice.scale(0.5, 10.0),
        _ => dice.scale(10.0, 100.0),
    };
    let mbit = if dice.chance(0.3) { ANY } else { dice.scale(10.0, 10_000.0) };
    let flush = if dice.chance(0.25) { 0.0 } else { dice.scale(0.05, 8.0) };
    let size = dice.scale(64.0, 65_536.0) as u32;
    let outstanding = dice.scale(1.0, 1000.0).round() as u32;
    let name = format!(
        "drawn {number}: {round_trip:.2} ms, {mbit:.0} Mbit/s, flush {flush:.2} ms, {size} B x{outstanding}"
    );
    let mut scenario = Scenario::new(&name, round_trip, mbit, flush, size, outstanding)
        .slowness(dice.scale(0.7, 8.0))
        .seed(dice.word());
    scenario.nodes = dice.pick(&[3, 3, 5]);
    scenario.disk_mb_per_s = dice.scale(200.0, 5_000.0);
    scenario.client_us = dice.scale(10.0, 400.0);
    scenario.buffer *= dice.scale(0.5, 3.0);
    scenario
}
