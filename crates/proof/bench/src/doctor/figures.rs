//! Measured values on which predictions are based, each with its source or the reason why it is
//! unknown.

use std::{io, time::Duration};

use crate::probe::{
    MeasuredCeiling,
    part::PartLauncher,
    round_trip::{self, WaitMethod},
    wire::ProbeTransport,
};
use quorate_admin::tuning::TuningView;
use serde::Serialize;

use crate::doctor::{
    finding::Finding,
    peers::{self, DialledPeer},
    plane::Plane,
    trips::{self, MemberPath},
};

/// Duration of one round of round-trip measurements. The fastest of several rounds counts, because
/// a whole round may be slow on a busy machine or while its processors are in a sleep state.
const ROUND_DURATION: Duration = Duration::from_millis(150);
const ROUND_COUNT: usize = 3;

pub mod name {
    /// Round trip to another process on this machine over TCP.
    pub const TRIP_TCP: &str = "round_trip_tcp";
    /// Round trip to another process on this machine over UDP.
    pub const TRIP_UDP: &str = "round_trip_udp";
    /// Processor time that one end needs to send and receive one message over TCP.
    pub const CPU_TCP: &str = "cpu_per_exchange_tcp";
    /// Processor time that one end needs to send and receive one message over UDP.
    pub const CPU_UDP: &str = "cpu_per_exchange_udp";
    /// Time to write and flush 4 KiB.
    pub const FLUSH: &str = "flush";
    /// Network round trip to the peer that completes a majority.
    pub const TRIP_PEERS: &str = "round_trip_peers";
    /// Network round trip as measured by the leader of a running cluster.
    pub const TRIP_LEADER: &str = "round_trip_leader";
    /// Round trip of raw frames between members, as measured by their probes.
    pub const TRIP_ETHERNET: &str = "round_trip_ethernet";
    /// Duration of a flush as measured by the leader of a running cluster.
    pub const FLUSH_LEADER: &str = "flush_leader";
    /// The leader's processor time per command.
    pub const CPU_COMMAND: &str = "cpu_per_command_leader";
    /// The leader's processor time per batch.
    pub const CPU_BATCH: &str = "cpu_per_batch_leader";
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// One of the constants in [`name`].
    pub name: &'static str,
    /// Value in microseconds; null if unknown.
    pub value_us: Option<f64>,
    /// Source of the value, or the reason why it is unknown.
    pub source: String,
}

/// Figures in the order in which they were determined.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Figures(Vec<Figure>);

impl Figures {
    pub fn get(&self, name: &str) -> Option<f64> {
        self.find_figure(name)?.value_us
    }

    /// Returns why a figure is unknown.
    pub fn unknown_reason(&self, name: &str) -> String {
        let source = self.find_figure(name).map_or("it was not measured", |figure| &figure.source);
        format!("{name} is unknown: {source}")
    }

    pub fn iter(&self) -> impl Iterator<Item = &Figure> {
        self.0.iter()
    }

    fn find_figure(&self, name: &str) -> Option<&Figure> {
        self.0.iter().find(|figure| figure.name == name)
    }

    /// Records a value and its source, if the value is plausible.
    pub fn record_value(&mut self, name: &'static str, value_us: f64, source: impl Into<String>) {
        let sensible = value_us.is_finite() && value_us >= 0.0;
        self.0.push(Figure { name, value_us: sensible.then_some(value_us), source: source.into() });
    }

    /// Records that a figure is unknown.
    pub fn record_unknown(&mut self, name: &'static str, why: impl Into<String>) {
        self.0.push(Figure { name, value_us: None, source: why.into() });
    }

    /// Measures round trips to another process on this machine.
    pub fn measure_round_trips(&mut self, launcher: Option<&PartLauncher>) {
        for (over, trip, cpu) in [
            (ProbeTransport::Tcp, name::TRIP_TCP, name::CPU_TCP),
            (ProbeTransport::Udp, name::TRIP_UDP, name::CPU_UDP),
        ] {
            let Some(launcher) = launcher else {
                let why = "there is no bare program to answer";
                self.record_unknown(trip, why);
                self.record_unknown(cpu, why);
                continue;
            };
            match measure_quietest(launcher, over) {
                Ok(ceiling) => {
                    let source = format!("{}, median of the quietest round", ceiling.name);
                    match ceiling.p50_us {
                        Some(p50) => self.record_value(trip, p50, &source),
                        None => self.record_unknown(trip, "nothing came back"),
                    }
                    let source = "the same: processor time of both ends, halved";
                    match ceiling.cpu_us_per_op {
                        Some(both) => self.record_value(cpu, both / 2.0, source),
                        None => self.record_unknown(cpu, "it was not counted"),
                    }
                }
                Err(error) => {
                    self.record_unknown(trip, error.to_string());
                    self.record_unknown(cpu, error.to_string());
                }
            }
        }
    }

    /// Checks that messages on this machine arrive at all. Returns no findings without a launcher.
    pub fn check_loopback(&self, launcher: Option<&PartLauncher>) -> Vec<Finding> {
        if launcher.is_none() {
            return Vec::new();
        }
        let of = |name: &str, trip| match self
            .find_figure(trip)
            .map(|figure| (figure.value_us, &figure.source))
        {
            Some((Some(us), _)) => Ok(Finding::ok(name, format!("round trip of {us:.0} µs"))),
            Some((None, why)) => Err(why.clone()),
            None => Err("it was not tested".to_owned()),
        };
        let (what, hint) =
            ("no message returns", "run ip link set lo up; check that no firewall drops 127.0.0.1");
        let tcp = of("loopback tcp", name::TRIP_TCP).unwrap_or_else(|why| {
            let found = Finding::failing("loopback tcp", what, hint);
            found.with_detail(why).blocking(&Plane::ALL)
        });
        let udp = of("loopback udp", name::TRIP_UDP).unwrap_or_else(|why| {
            let found = Finding::warning("loopback udp", what, hint);
            found.with_detail(why).blocking(&[Plane::Udp, Plane::Multicast, Plane::Chain])
        });
        vec![tcp, udp]
    }

    /// Records the flush time. `asked` is set if a data folder was given.
    pub fn record_flush(&mut self, asked: bool, flush_us: Option<f64>) {
        match flush_us {
            Some(us) => self.record_value(
                name::FLUSH,
                us,
                "4 KiB written and flushed in the data folder, median of the quietest round",
            ),
            None if asked => {
                self.record_unknown(name::FLUSH, "nothing could be flushed in the data folder")
            }
            None => self.record_unknown(name::FLUSH, "give --data"),
        }
    }

    /// Records the round trip measured by connecting to peers.
    pub fn record_peers(&mut self, dialled: &[DialledPeer]) {
        match peers::round_trip_us(dialled) {
            Some(us) => self.record_value(
                name::TRIP_PEERS,
                us,
                "median time to connect to the peer that completes a majority",
            ),
            None if dialled.is_empty() => self.record_unknown(name::TRIP_PEERS, "give --peer"),
            None => self.record_unknown(name::TRIP_PEERS, "too few peers on other machines answer"),
        }
    }

    /// Records the round trips that members report.
    pub fn record_members(&mut self, trips: Option<&[MemberPath]>) {
        let known = trips.and_then(|trips| trips::median_rtt_us(trips, Plane::Ethernet));
        match (known, trips) {
            #[expect(clippy::cast_precision_loss, reason = "microseconds")]
            (Some(us), _) => self.record_value(
                name::TRIP_ETHERNET,
                us as f64,
                "probes between members by raw frames, the median",
            ),
            (None, Some(_)) => self.record_unknown(
                name::TRIP_ETHERNET,
                "no members are connected by --plane ethernet",
            ),
            (None, None) => self.record_unknown(name::TRIP_ETHERNET, "give --admin"),
        }
    }

    /// Records the costs that the leader of a running cluster reports.
    pub fn record_leader(&mut self, tuning: Result<&TuningView, String>) {
        for (own, its) in [
            (name::TRIP_LEADER, "round_trip"),
            (name::FLUSH_LEADER, "flush"),
            (name::CPU_COMMAND, "cpu_per_command"),
            (name::CPU_BATCH, "cpu_per_batch"),
        ] {
            let tuning = match &tuning {
                Ok(tuning) => tuning,
                Err(why) => {
                    self.record_unknown(own, why);
                    continue;
                }
            };
            let mut parameters = tuning.parameters.iter();
            let found = parameters.find(|known| known.name == its && known.unit == "ns");
            match found.and_then(|known| known.value) {
                Some(nanos) => {
                    self.record_value(own, nanos / 1e3, "measured by the leader while it serves")
                }
                None => self.record_unknown(
                    own,
                    "the leader has not measured it yet: put some load on the cluster",
                ),
            }
        }
    }
}

fn measure_quietest(launcher: &PartLauncher, over: ProbeTransport) -> io::Result<MeasuredCeiling> {
    let measure =
        || round_trip::measure_round_trips(launcher, WaitMethod::Block, over, ROUND_DURATION);
    let mut best = measure()?;
    for _ in 1..ROUND_COUNT {
        let round = measure()?;
        if round.p50_us < best.p50_us {
            best = round;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use quorate_admin::tuning::{ParameterView, SettingView};

    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn unknown_figures_have_a_reason() {
        let mut figures = Figures::default();
        figures.measure_round_trips(None);
        figures.record_flush(false, None);
        figures.record_peers(&[]);
        figures.record_leader(Err("give --admin".to_owned()));
        figures.record_members(None);
        figures.record_members(Some(&[]));
        figures.record_value(name::CPU_BATCH, f64::NAN, "garbage");
        assert!(
            figures.iter().all(|figure| figure.value_us.is_none() && !figure.source.is_empty())
        );
        assert_eq!(figures.unknown_reason(name::FLUSH), "flush is unknown: give --data");
        assert_eq!(figures.unknown_reason("x"), "x is unknown: it was not measured");
    }

    /// No plane works on a machine whose loopback is down.
    #[test]
    fn failed_loopback_blocks_all_planes() {
        let launcher = PartLauncher { program: "/no/such/program".into(), arguments: Vec::new() };
        let mut figures = Figures::default();
        figures.measure_round_trips(Some(&launcher));
        let found = figures.check_loopback(Some(&launcher));
        assert!(
            found.iter().all(|finding| finding.blocks && !finding.detail.is_empty()),
            "{found:?}"
        );
        assert_eq!(found[0].about, Plane::ALL);
        assert!(found[0].state == FindingState::Failing && found[1].state == FindingState::Warning);
        assert_eq!(figures.check_loopback(None), []);
        let mut figures = Figures::default();
        figures.record_value(name::TRIP_TCP, 13.7, "");
        figures.record_value(name::TRIP_UDP, 10.2, "");
        let found = figures.check_loopback(Some(&launcher));
        assert!(found.iter().all(|finding| finding.state == FindingState::Ok), "{found:?}");
    }

    #[test]
    fn figures_of_the_leader_are_converted_to_microseconds() {
        let parameter = |name: &str, unit: &str, value| ParameterView {
            name: name.to_owned(),
            unit: unit.to_owned(),
            value,
            error: None,
            confidence: None,
        };
        let tuning = TuningView {
            parameters: vec![
                parameter("round_trip", "ns", Some(250_000.0)),
                parameter("flush", "bytes", Some(1.0)),
                parameter("cpu_per_command", "ns", None),
            ],
            grid: Vec::new(),
            bottleneck: None,
            chosen: SettingView { batch_bytes: 1, window: 1 },
            held: false,
            measured: None,
            reason: String::new(),
        };
        let mut figures = Figures::default();
        figures.record_leader(Ok(&tuning));
        assert_eq!(figures.get(name::TRIP_LEADER), Some(250.0));
        for unknown in [name::FLUSH_LEADER, name::CPU_COMMAND, name::CPU_BATCH] {
            assert_eq!(figures.get(unknown), None, "{unknown}");
            assert!(figures.unknown_reason(unknown).contains("some load"));
        }
    }
}
