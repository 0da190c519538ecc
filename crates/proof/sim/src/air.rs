//! Faults of datagrams between nodes, drawn independently for each datagram.
//!
//! A datagram may be lost, duplicated at once or seconds later, delayed, cut in two, or have a bit
//! flipped. The world decides at the time of arrival which copies arrive, and at which process.

use std::fmt;

use quorate_packets::plane::GroupPath;
use quorate_packets::{header::HEADER_BYTES, trust::Refusal};

use crate::{
    dice::Dice,
    network::{Carrier, NetworkConditions},
};

/// Datagram faults of a run in addition to its other network faults, and parameters of the packet
/// planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramFaults {
    /// Set if datagrams are authenticated with a key instead of a checksum.
    pub keyed: bool,
    /// Number of bytes that a plane may send before the first of them is decided.
    pub window_bytes: usize,
    /// Capacity of the receive buffer of a process's socket, in bytes.
    pub socket_bytes: usize,
    /// Datagrams per 1000 that arrive a second time, up to seconds later.
    pub echoed_of_1000: u64,
    /// Datagrams per 1000 in which a bit flips.
    pub flipped_of_1000: u64,
    /// Datagrams per 1000 that arrive in two halves.
    pub cut_of_1000: u64,
    /// Send calls per 1000 that fail because the sender's socket is full.
    pub refused_of_1000: u64,
    /// Mean interval between losses of multicast reception of a node; `None` if none occur.
    pub deaf_us: Option<u64>,
    /// Mean interval between forced changes of a plane's transport, useful or not ([plane-3]). If
    /// set, planes also choose their transport themselves.
    pub changes_us: Option<u64>,
}

impl DatagramFaults {
    /// Returns settings under which no fault occurs and no window fills.
    pub const fn calm() -> Self {
        Self {
            keyed: true,
            window_bytes: 512 << 10,
            socket_bytes: 256 << 10,
            echoed_of_1000: 0,
            flipped_of_1000: 0,
            cut_of_1000: 0,
            refused_of_1000: 0,
            deaf_us: None,
            changes_us: None,
        }
    }

    /// Draws the faults, and whether the run uses packets, which two thirds of the runs with
    /// [`Carrier::Datagrams`] do. Uses separate dice, so that seeds without packets replay
    /// unchanged.
    pub fn draw(seed: u64, carrier: Carrier) -> (Carrier, Self) {
        let dice = &mut Dice::new(seed ^ 0x5061_636b_6574_7321);
        let packets = dice.chance(2, 3) && carrier == Carrier::Datagrams;
        let group = dice.chance(2, 3);
        let mut air = Self {
            keyed: dice.chance(1, 2),
            window_bytes: dice.pick(&[4 << 10, 16 << 10, 512 << 10]),
            socket_bytes: dice.pick(&[16 << 10, 256 << 10]),
            echoed_of_1000: dice.pick(&[0, 5, 50]),
            flipped_of_1000: dice.pick(&[0, 5, 50]),
            cut_of_1000: dice.pick(&[0, 2, 20]),
            refused_of_1000: dice.pick(&[0, 0, 20]),
            deaf_us: dice.pick(&[None, Some(300_000), Some(1_500_000)]),
            changes_us: None,
        };
        let reach = match (group, dice.chance(1, 3)) {
            (_, true) => GroupPath::Chain,
            (true, false) => GroupPath::Group,
            (false, false) => GroupPath::Each,
        };
        if reach != GroupPath::Each {
            air.changes_us = dice.pick(&[None, None, Some(50_000), Some(500_000)]);
        }
        let carrier = if packets { Carrier::Packets { reach } } else { carrier };
        (carrier, air)
    }

    pub const fn calm_down(&mut self) {
        *self = Self {
            keyed: self.keyed,
            window_bytes: self.window_bytes,
            socket_bytes: self.socket_bytes,
            changes_us: self.changes_us,
            ..Self::calm()
        };
    }

    /// Draws the faults of one datagram sent to one node. Returns the datagrams that arrive, each
    /// with its delay in microseconds.
    pub fn fly(
        &self,
        weather: &NetworkConditions,
        dice: &mut Dice,
        datagram: &[u8],
        counts: &mut Counts,
    ) -> Vec<(u64, Vec<u8>)> {
        counts.flown += 1;
        let mut arrivals = Vec::new();
        let delay = |dice: &mut Dice| {
            let delay = dice.between(weather.delay_min_us, weather.delay_max_us);
            if dice.chance(weather.late_of_1000, 1000) { delay * 10 } else { delay }
        };
        if dice.chance(weather.lost_of_1000, 1000) {
            counts.lost += 1;
        } else {
            arrivals.push((delay(dice), datagram.to_vec()));
        }
        if dice.chance(weather.repeated_of_1000, 1000) {
            counts.repeated += 1;
            arrivals.push((delay(dice), datagram.to_vec()));
        }
        if dice.chance(self.echoed_of_1000, 1000) {
            counts.echoed += 1;
            let most = dice.pick(&[10_000, 300_000, 4_000_000]);
            arrivals.push((dice.below(most), datagram.to_vec()));
        }
        for at in 0..arrivals.len() {
            let (us, bytes) = &mut arrivals[at];
            if dice.chance(self.flipped_of_1000, 1000) {
                counts.flipped += 1;
                // Half of the flips hit the header, which is only a few bytes long.
                let within = dice.pick(&[bytes.len(), bytes.len().min(HEADER_BYTES)]);
                let bit = dice.index(within * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if dice.chance(self.cut_of_1000, 1000) {
                counts.cut += 1;
                let rest = bytes.split_off(1 + dice.index(bytes.len() - 1));
                let us = *us;
                arrivals.push((us, rest));
            }
        }
        arrivals
    }
}

/// Number of occurrences of each datagram event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams sent. A multicast datagram counts once per possible receiver.
    pub flown: u64,
    pub lost: u64,
    /// Datagrams blocked by a partition or by a loss of multicast reception.
    pub blocked: u64,
    /// Datagrams that found a full socket or no running process.
    pub unheard: u64,
    /// Datagrams that were duplicated.
    pub repeated: u64,
    /// Datagrams whose copy arrived much later.
    pub echoed: u64,
    /// Datagrams in which a bit was flipped.
    pub flipped: u64,
    /// Datagrams that arrived in two halves.
    pub cut: u64,
    /// Datagrams that the sender's full socket refused.
    pub own_drops: u64,
    /// Datagrams that planes refused, by reason ([`Refusal::ALL`]).
    pub refused: [u64; Refusal::ALL.len()],
    /// Sum of the counters of all planes.
    pub planes: quorate_packets::plane::Counters,
    pub introduced: u64,
    /// Introductions rejected because they were outdated or belonged to another process start.
    pub not_introduced: u64,
    /// Complete frames that name a sender other than that of their datagram, or that cannot be
    /// decoded.
    pub frames_wrong: u64,
    /// Number of times that a node became reachable by packets.
    pub up: u64,
    /// Number of times that a node became unreachable by packets.
    pub down: u64,
    /// Number of times that a node became reachable by multicast.
    pub group_up: u64,
    /// Number of times that a node became unreachable by multicast.
    pub group_down: u64,
    /// Number of times that a node lost multicast reception.
    pub deaf: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        let (a, b) = (&mut self.planes, &other.planes);
        for (sum, more) in [
            (&mut self.flown, other.flown),
            (&mut self.lost, other.lost),
            (&mut self.blocked, other.blocked),
            (&mut self.unheard, other.unheard),
            (&mut self.repeated, other.repeated),
            (&mut self.echoed, other.echoed),
            (&mut self.flipped, other.flipped),
            (&mut self.cut, other.cut),
            (&mut self.own_drops, other.own_drops),
            (&mut self.introduced, other.introduced),
            (&mut self.not_introduced, other.not_introduced),
            (&mut self.frames_wrong, other.frames_wrong),
            (&mut self.up, other.up),
            (&mut self.down, other.down),
            (&mut self.group_up, other.group_up),
            (&mut self.group_down, other.group_down),
            (&mut self.deaf, other.deaf),
            (&mut a.frames_to_group, b.frames_to_group),
            (&mut a.relayed, b.relayed),
            (&mut a.changes, b.changes),
            (&mut a.frames_to_one, b.frames_to_one),
            (&mut a.frames_refused, b.frames_refused),
            (&mut a.frames_received, b.frames_received),
            (&mut a.given_up, b.given_up),
        ] {
            *sum += more;
        }
        let refused = self.refused.iter_mut().zip(other.refused);
        refused.for_each(|(sum, more)| *sum += more);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { planes, .. } = self;
        write!(
            f,
            "packets: {} frames to one, {} to the group, {} datagrams handed on, {} frames refused, {} received, {} wrong; {} introductions, {} not taken; \
             up {}, down {}, by the group {} and {}; {} numbers given up; {} datagrams, {} lost, {} blocked, {} unheard, \
             {} repeated, {} much later, {} flipped, {} cut, {} dropped by their sender; not taken:",
            planes.frames_to_one,
            planes.frames_to_group,
            planes.relayed,
            planes.frames_refused,
            planes.frames_received,
            self.frames_wrong,
            self.introduced,
            self.not_introduced,
            self.up,
            self.down,
            self.group_up,
            self.group_down,
            planes.given_up,
            self.flown,
            self.lost,
            self.blocked,
            self.unheard,
            self.repeated,
            self.echoed,
            self.flipped,
            self.cut,
            self.own_drops,
        )?;
        let reasons = Refusal::ALL.into_iter().zip(self.refused);
        reasons
            .filter(|(_, count)| *count > 0)
            .try_for_each(|(reason, count)| write!(f, " {} {count}", reason.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::calm_weather;

    /// An arriving datagram is the one sent, a part of it, or a copy with a single flipped bit.
    #[test]
    fn fates_of_a_datagram_are_counted() {
        let air = DatagramFaults {
            echoed_of_1000: 100,
            flipped_of_1000: 100,
            cut_of_1000: 100,
            ..DatagramFaults::calm()
        };
        let weather =
            NetworkConditions { lost_of_1000: 100, repeated_of_1000: 100, ..calm_weather() };
        let (mut dice, mut counts, datagram) = (Dice::new(1), Counts::default(), [7_u8; 100]);
        let mut whole = 0;
        for _ in 0..1000 {
            for (_, bytes) in air.fly(&weather, &mut dice, &datagram, &mut counts) {
                whole += u64::from(bytes == datagram);
                let changed = bytes.iter().map(|byte| (byte ^ 7).count_ones());
                assert!(bytes.len() <= 100 && changed.sum::<u32>() <= 1);
            }
        }
        let arrived = counts.flown - counts.lost + counts.repeated + counts.echoed;
        assert!(whole >= arrived - counts.flipped - counts.cut && whole < arrived);
        for count in [counts.lost, counts.repeated, counts.echoed, counts.flipped, counts.cut] {
            assert!((50..200).contains(&count), "{counts:?}");
        }
        let nothing =
            DatagramFaults::calm().fly(&calm_weather(), &mut dice, &datagram, &mut counts);
        assert_eq!(nothing, [(100, datagram.to_vec())]);
    }
}
