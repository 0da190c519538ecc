//! Summary figures of bare senders and receivers on a segment.

use serde::Serialize;

use super::{DATAGRAM_BYTES, DatagramTransport, FRAME_BYTES, Lan, receiver::Reception};
use crate::figure::{median, round_to_four_digits};

const BITS_PER_BYTE: f64 = 8.0;
const MEGA: f64 = 1e6;
/// Minimum share of the offered load that senders must send to count as not limited.
const SENT_SHARE_MIN: f64 = 0.98;
/// Share of its payload capacity at which a link counts as full.
const LINK_FULL_SHARE: f64 = 0.95;
/// Busy share at which the processors of the machine count as saturated.
const CPUS_FULL_SHARE: f64 = 0.95;

/// Number of senders and receivers, and the load to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareSetting {
    pub transport: DatagramTransport,
    pub senders: u32,
    pub receivers: u32,
    /// Load of all senders as a percentage of the link capacity, including headers; `None` for
    /// unlimited.
    pub load_percent: Option<u32>,
    pub burst_datagrams: u32,
    /// Size of the switch's queue for each link, in KiB; `None` for the size used with nodes.
    pub queue_kib: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BareMeasurement {
    pub receptions: Vec<Reception>,
    /// CPU seconds that the senders used between two readings. All receivers were counting at both
    /// readings.
    pub senders_cpu_s: f64,
    /// Seconds between the two readings.
    pub elapsed_seconds: f64,
    /// Busy share of the machine's processors between the two readings, if known.
    pub cpu_busy_share: Option<f64>,
    /// Share of the machine's processors used by other processes, if known.
    pub foreign_cpu_share: Option<f64>,
}

/// Figures in a row about bare programs. Rates count payload only, in Mbit/s.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SegmentFigures {
    /// `multicast` or `unicast`.
    pub way: String,
    pub senders: u32,
    pub receivers: u32,
    /// Load of all senders as a percentage of the link capacity; `None` for unlimited.
    pub load_percent: Option<u32>,
    pub burst: u32,
    /// Size of the switch's queue for each link, in KiB; `None` for the size used with nodes.
    pub queue_kib: Option<u32>,
    /// Offered load; `None` for unlimited.
    pub offered_mbit: Option<f64>,
    pub sent_mbit: f64,
    pub slowest_mbit: f64,
    pub mean_mbit: f64,
    /// Share of the datagrams that were lost on the way to their receivers.
    pub loss: f64,
    /// Share of the datagrams that were lost at the receiver with the highest loss.
    pub loss_worst: f64,
    /// Number of processors kept busy by the senders.
    pub sender_cpus: f64,
    /// CPU seconds of the senders per 10⁹ bytes at each receiver.
    pub sender_s_per_gb: f64,
    /// Highest busy share of the machine's processors in any repetition.
    pub cpus_busy: Option<f64>,
    /// Factor that limited the senders.
    pub limit: String,
}

impl BareSetting {
    /// Returns the number of datagrams per second for each sender; `None` for unlimited.
    pub fn datagrams_per_second(&self, lan: Lan) -> Option<u64> {
        let percent = u64::from(self.load_percent?);
        let frames = lan.link_megabits() * 1_000_000 * percent / 100 / (FRAME_BYTES as u64 * 8);
        Some((frames / u64::from(self.senders.max(1))).max(1))
    }

    /// Returns the description of the senders and receivers for rows.
    pub fn describe(&self) -> String {
        let (s, z) = (plural_suffix(self.senders), plural_suffix(self.receivers));
        let burst = self.burst_datagrams;
        let load = self
            .load_percent
            .map_or_else(String::new, |percent| format!(", {percent} % of the link by {burst}"));
        let queue = self.queue_kib.map_or_else(String::new, |kib| format!(", queues of {kib} KiB"));
        format!(
            "{}, {} sender{s}, {} receiver{z}{load}{queue}",
            self.transport.name(),
            self.senders,
            self.receivers
        )
    }
}

const fn plural_suffix(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl BareMeasurement {
    pub fn slowest_reception(&self) -> Option<Reception> {
        let rate = |heard: &Reception| bytes_per_s(heard);
        let heard = self.receptions.iter().copied();
        heard.min_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    fn mean_of(&self, figure: fn(&Reception) -> f64) -> f64 {
        let sum: f64 = self.receptions.iter().map(figure).sum();
        sum / usize_to_f64(self.receptions.len()).max(1.0)
    }

    fn mean_loss(&self) -> f64 {
        let sum = |figure: fn(&Reception) -> u64| {
            let all = self.receptions.iter().map(figure);
            all.fold(0, u64::saturating_add)
        };
        lost_share(sum(|heard| heard.datagrams), sum(|heard| heard.expected_datagrams))
    }

    fn worst_loss(&self) -> f64 {
        let each = self.receptions.iter();
        each.map(|heard| lost_share(heard.datagrams, heard.expected_datagrams)).fold(0.0, f64::max)
    }
}

impl SegmentFigures {
    pub fn new(asked: &BareSetting, lan: Lan, all: &[BareMeasurement]) -> Self {
        let middle = |figure: &dyn Fn(&BareMeasurement) -> f64| {
            round_to_four_digits(median(all.iter().map(figure)))
        };
        // A multicast datagram is sent once, regardless of the number of receivers.
        let copies = match asked.transport {
            DatagramTransport::Multicast => 1.0,
            DatagramTransport::Unicast => f64::from(asked.receivers),
        };
        let offered = asked.datagrams_per_second(lan).map(|rate| {
            to_mbit(usize_to_f64(DATAGRAM_BYTES) * u64_to_f64(rate) * f64::from(asked.senders))
        });
        let sent_mbit = middle(&|found| to_mbit(found.mean_of(sent_per_s)) * copies);
        let cpus_busy = all.iter().filter_map(|found| found.cpu_busy_share);
        let cpus_busy = cpus_busy.reduce(f64::max).map(round_to_four_digits);
        let payload = u64_to_f64(lan.link_megabits()) * usize_to_f64(DATAGRAM_BYTES)
            / usize_to_f64(FRAME_BYTES);
        let limit = limiting_factor(
            offered.map(|offered| sent_mbit / offered.max(f64::MIN_POSITIVE)),
            sent_mbit / payload,
            cpus_busy.is_some_and(|share| share >= CPUS_FULL_SHARE),
        );
        Self {
            way: asked.transport.name().to_owned(),
            senders: asked.senders,
            receivers: asked.receivers,
            load_percent: asked.load_percent,
            burst: asked.burst_datagrams,
            queue_kib: asked.queue_kib,
            offered_mbit: offered.map(round_to_four_digits),
            sent_mbit,
            slowest_mbit: middle(&|found| {
                to_mbit(found.slowest_reception().as_ref().map_or(0.0, bytes_per_s))
            }),
            mean_mbit: middle(&|found| to_mbit(found.mean_of(bytes_per_s))),
            loss: middle(&BareMeasurement::mean_loss),
            loss_worst: middle(&BareMeasurement::worst_loss),
            sender_cpus: middle(&|found| found.senders_cpu_s / found.elapsed_seconds.max(1e-9)),
            sender_s_per_gb: middle(&|found| {
                let bytes = found.mean_of(bytes_per_s) * found.elapsed_seconds;
                found.senders_cpu_s * 1e9 / bytes.max(1.0)
            }),
            cpus_busy,
            limit: limit.to_owned(),
        }
    }

    pub fn describe_load(&self) -> String {
        let load = match self.load_percent {
            Some(percent) => format!("{percent} % of the link by {}", self.burst),
            None => "all that the link takes".to_owned(),
        };
        let (senders, receivers) = (self.senders, self.receivers);
        format!("{load}, {}, {senders} to {receivers}", self.way)
    }
}

/// Returns the name of the limiting factor. `sent` is the share of the offered load that was sent,
/// and `link` is the share of the link capacity in use.
const fn limiting_factor(sent: Option<f64>, link: f64, cpus_full: bool) -> &'static str {
    let done = matches!(sent, Some(share) if share >= SENT_SHARE_MIN);
    match (done, link >= LINK_FULL_SHARE, cpus_full) {
        (true, _, false) => "the load",
        (true, _, true) => "the load; all CPUs were full",
        (false, true, false) => "the link",
        (false, true, true) => "the link; all CPUs were full",
        (false, false, true) => "the CPUs",
        (false, false, false) => "not known",
    }
}

fn lost_share(datagrams: u64, numbers: u64) -> f64 {
    u64_to_f64(numbers.saturating_sub(datagrams)) / u64_to_f64(numbers.max(1))
}

fn bytes_per_s(heard: &Reception) -> f64 {
    u64_to_f64(heard.bytes) * 1e9 / u64_to_f64(heard.nanos.max(1))
}

fn sent_per_s(heard: &Reception) -> f64 {
    u64_to_f64(heard.expected_datagrams) * usize_to_f64(DATAGRAM_BYTES) * 1e9
        / u64_to_f64(heard.nanos.max(1))
}

fn to_mbit(bytes_per_s: f64) -> f64 {
    bytes_per_s * BITS_PER_BYTE / MEGA
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const fn u64_to_f64(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
const fn usize_to_f64(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::super::sender::DATAGRAMS_PER_CALL_MAX;
    use super::*;

    fn asked(way: DatagramTransport, load_percent: Option<u32>) -> BareSetting {
        BareSetting {
            transport: way,
            senders: 2,
            receivers: 2,
            load_percent,
            burst_datagrams: DATAGRAMS_PER_CALL_MAX,
            queue_kib: None,
        }
    }

    /// Returns the result of a receiver that received `datagrams` of `numbers` datagrams in one
    /// second.
    fn heard(datagrams: u64, numbers: u64) -> Reception {
        Reception {
            bytes: datagrams * DATAGRAM_BYTES as u64,
            nanos: 1_000_000_000,
            datagrams,
            expected_datagrams: numbers,
        }
    }

    fn found(all: &[Reception]) -> BareMeasurement {
        BareMeasurement {
            receptions: all.to_vec(),
            senders_cpu_s: 0.5,
            elapsed_seconds: 2.0,
            cpu_busy_share: Some(0.5),
            foreign_cpu_share: None,
        }
    }

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9, "{one} is not {other}");
    }

    fn lan() -> Lan {
        Lan::parse_speed("100mbit").unwrap()
    }

    /// A load is divided among its senders. 100 Mbit/s correspond to 8256 frames of 1514 bytes per
    /// second.
    #[test]
    fn load_is_divided_among_its_senders() {
        let rate = |percent| {
            asked(DatagramTransport::Multicast, Some(percent)).datagrams_per_second(lan())
        };
        assert_eq!((rate(100), rate(50)), (Some(4128), Some(2064)));
        assert_eq!(asked(DatagramTransport::Multicast, None).datagrams_per_second(lan()), None);
    }

    #[test]
    fn row_has_the_slowest_receiver_and_the_loss() {
        let one = found(&[heard(7000, 8000), heard(5000, 8000)]);
        let figures =
            SegmentFigures::new(&asked(DatagramTransport::Multicast, Some(97)), lan(), &[one]);
        near(figures.slowest_mbit, 58.88);
        near(figures.mean_mbit, 70.66);
        near(figures.sent_mbit, 94.21);
        near(figures.offered_mbit.unwrap(), 94.3);
        near(figures.loss, 0.25);
        near(figures.loss_worst, 0.375);
        near(figures.sender_cpus, 0.25);
        // Half a second of CPU time for 17.664 MB.
        near(figures.sender_s_per_gb, 28.31);
        assert_eq!(figures.limit, "the load");
    }

    #[test]
    fn copies_to_each_receiver_count_as_sent() {
        let one = found(&[heard(4000, 4000), heard(4000, 4000)]);
        let unicast = SegmentFigures::new(
            &asked(DatagramTransport::Unicast, None),
            lan(),
            std::slice::from_ref(&one),
        );
        near(unicast.sent_mbit, 94.21);
        near(unicast.mean_mbit, 47.1);
        assert_eq!(unicast.limit, "the link");
        let multicast =
            SegmentFigures::new(&asked(DatagramTransport::Multicast, None), lan(), &[one]);
        near(multicast.sent_mbit, 47.1);
        assert_eq!(multicast.limit, "not known");
    }

    #[test]
    fn full_cpus_are_named_as_the_limit() {
        assert_eq!(limiting_factor(None, 0.5, true), "the CPUs");
        assert_eq!(limiting_factor(Some(0.9), 0.5, true), "the CPUs");
        assert_eq!(limiting_factor(None, 0.99, true), "the link; all CPUs were full");
        assert_eq!(limiting_factor(Some(0.99), 0.5, true), "the load; all CPUs were full");
        assert_eq!(limiting_factor(Some(0.9), 0.5, false), "not known");
    }

    #[test]
    fn rows_describe_senders_and_receivers() {
        let all = BareSetting {
            queue_kib: Some(64),
            receivers: 1,
            ..asked(DatagramTransport::Multicast, Some(90))
        };
        assert_eq!(
            all.describe(),
            "multicast, 2 senders, 1 receiver, 90 % of the link by 44, queues of 64 KiB"
        );
    }
}
