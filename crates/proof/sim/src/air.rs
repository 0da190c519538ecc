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
    pub delayed_copies_of_1000: u64,
    /// Datagrams per 1000 in which a bit flips.
    pub flipped_of_1000: u64,
    /// Datagrams per 1000 that arrive in two halves.
    pub cut_of_1000: u64,
    /// Send calls per 1000 that fail because the sender's socket is full.
    pub send_refused_of_1000: u64,
    /// Mean interval between losses of multicast reception of a node; `None` if none occur.
    pub reception_loss_interval_us: Option<u64>,
    /// Mean interval between forced changes of a plane's transport, useful or not ([plane-3]). If
    /// set, planes also choose their transport themselves.
    pub transport_change_interval_us: Option<u64>,
}

impl DatagramFaults {
    /// Returns settings under which no fault occurs and no window fills.
    pub const fn none() -> Self {
        Self {
            keyed: true,
            window_bytes: 512 << 10,
            socket_bytes: 256 << 10,
            delayed_copies_of_1000: 0,
            flipped_of_1000: 0,
            cut_of_1000: 0,
            send_refused_of_1000: 0,
            reception_loss_interval_us: None,
            transport_change_interval_us: None,
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
            delayed_copies_of_1000: dice.pick(&[0, 5, 50]),
            flipped_of_1000: dice.pick(&[0, 5, 50]),
            cut_of_1000: dice.pick(&[0, 2, 20]),
            send_refused_of_1000: dice.pick(&[0, 0, 20]),
            reception_loss_interval_us: dice.pick(&[None, Some(300_000), Some(1_500_000)]),
            transport_change_interval_us: None,
        };
        let reach = match (group, dice.chance(1, 3)) {
            (_, true) => GroupPath::Chain,
            (true, false) => GroupPath::Multicast,
            (false, false) => GroupPath::Unicast,
        };
        if reach != GroupPath::Unicast {
            air.transport_change_interval_us =
                dice.pick(&[None, None, Some(50_000), Some(500_000)]);
        }
        let carrier = if packets { Carrier::Packets { broadcast_path: reach } } else { carrier };
        (carrier, air)
    }

    pub const fn stop(&mut self) {
        *self = Self {
            keyed: self.keyed,
            window_bytes: self.window_bytes,
            socket_bytes: self.socket_bytes,
            transport_change_interval_us: self.transport_change_interval_us,
            ..Self::none()
        };
    }

    /// Draws the faults of one datagram sent to one node. Returns the datagrams that arrive, each
    /// with its delay in microseconds.
    pub fn draw_deliveries(
        &self,
        weather: &NetworkConditions,
        dice: &mut Dice,
        datagram: &[u8],
        counts: &mut DatagramCounts,
    ) -> Vec<(u64, Vec<u8>)> {
        counts.sent += 1;
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
            counts.duplicated += 1;
            arrivals.push((delay(dice), datagram.to_vec()));
        }
        if dice.chance(self.delayed_copies_of_1000, 1000) {
            counts.delayed_copies += 1;
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
                counts.split += 1;
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
pub struct DatagramCounts {
    /// Datagrams sent. A multicast datagram counts once per possible receiver.
    pub sent: u64,
    pub lost: u64,
    /// Datagrams blocked by a partition or by a loss of multicast reception.
    pub blocked: u64,
    /// Datagrams that found a full socket or no running process.
    pub undelivered: u64,
    /// Datagrams that were duplicated.
    pub duplicated: u64,
    /// Datagrams whose copy arrived much later.
    pub delayed_copies: u64,
    /// Datagrams in which a bit was flipped.
    pub flipped: u64,
    /// Datagrams that arrived in two halves.
    pub split: u64,
    /// Datagrams that the sender's full socket refused.
    pub send_refused: u64,
    /// Datagrams that planes refused, by reason ([`Refusal::ALL`]).
    pub refused_by_planes: [u64; Refusal::ALL.len()],
    /// Sum of the counters of all planes.
    pub plane_counters: quorate_packets::plane::Counters,
    pub introduced: u64,
    /// Introductions rejected because they were outdated or belonged to another process start.
    pub stale_introductions: u64,
    /// Complete frames that name a sender other than that of their datagram, or that cannot be
    /// decoded.
    pub invalid_frames: u64,
    /// Number of times that a node became reachable by packets.
    pub peer_up: u64,
    /// Number of times that a node became unreachable by packets.
    pub peer_down: u64,
    /// Number of times that a node became reachable by multicast.
    pub multicast_up: u64,
    /// Number of times that a node became unreachable by multicast.
    pub multicast_down: u64,
    /// Number of times that a node lost multicast reception.
    pub reception_losses: u64,
}

impl DatagramCounts {
    pub fn add(&mut self, other: &Self) {
        let (a, b) = (&mut self.plane_counters, &other.plane_counters);
        for (sum, more) in [
            (&mut self.sent, other.sent),
            (&mut self.lost, other.lost),
            (&mut self.blocked, other.blocked),
            (&mut self.undelivered, other.undelivered),
            (&mut self.duplicated, other.duplicated),
            (&mut self.delayed_copies, other.delayed_copies),
            (&mut self.flipped, other.flipped),
            (&mut self.split, other.split),
            (&mut self.send_refused, other.send_refused),
            (&mut self.introduced, other.introduced),
            (&mut self.stale_introductions, other.stale_introductions),
            (&mut self.invalid_frames, other.invalid_frames),
            (&mut self.peer_up, other.peer_up),
            (&mut self.peer_down, other.peer_down),
            (&mut self.multicast_up, other.multicast_up),
            (&mut self.multicast_down, other.multicast_down),
            (&mut self.reception_losses, other.reception_losses),
            (&mut a.frames_to_group, b.frames_to_group),
            (&mut a.datagrams_forwarded, b.datagrams_forwarded),
            (&mut a.path_changes, b.path_changes),
            (&mut a.frames_to_one, b.frames_to_one),
            (&mut a.frames_without_space, b.frames_without_space),
            (&mut a.frames_received, b.frames_received),
            (&mut a.datagrams_given_up, b.datagrams_given_up),
        ] {
            *sum += more;
        }
        let refused = self.refused_by_planes.iter_mut().zip(other.refused_by_planes);
        refused.for_each(|(sum, more)| *sum += more);
    }
}

impl fmt::Display for DatagramCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plane_counters: planes, .. } = self;
        write!(
            f,
            "packets: {} frames to one, {} to the group, {} datagrams handed on, {} frames refused, {} received, {} wrong; {} introductions, {} not taken; \
             up {}, down {}, by the group {} and {}; {} numbers given up; {} datagrams, {} lost, {} blocked, {} unheard, \
             {} repeated, {} much later, {} flipped, {} cut, {} dropped by their sender; not taken:",
            planes.frames_to_one,
            planes.frames_to_group,
            planes.datagrams_forwarded,
            planes.frames_without_space,
            planes.frames_received,
            self.invalid_frames,
            self.introduced,
            self.stale_introductions,
            self.peer_up,
            self.peer_down,
            self.multicast_up,
            self.multicast_down,
            planes.datagrams_given_up,
            self.sent,
            self.lost,
            self.blocked,
            self.undelivered,
            self.duplicated,
            self.delayed_copies,
            self.flipped,
            self.split,
            self.send_refused,
        )?;
        let reasons = Refusal::ALL.into_iter().zip(self.refused_by_planes);
        reasons
            .filter(|(_, count)| *count > 0)
            .try_for_each(|(reason, count)| write!(f, " {} {count}", reason.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::calm_network;

    /// An arriving datagram is the one sent, a part of it, or a copy with a single flipped bit.
    #[test]
    fn fates_of_a_datagram_are_counted() {
        let air = DatagramFaults {
            delayed_copies_of_1000: 100,
            flipped_of_1000: 100,
            cut_of_1000: 100,
            ..DatagramFaults::none()
        };
        let weather =
            NetworkConditions { lost_of_1000: 100, repeated_of_1000: 100, ..calm_network() };
        let (mut dice, mut counts, datagram) =
            (Dice::new(1), DatagramCounts::default(), [7_u8; 100]);
        let mut whole = 0;
        for _ in 0..1000 {
            for (_, bytes) in air.draw_deliveries(&weather, &mut dice, &datagram, &mut counts) {
                whole += u64::from(bytes == datagram);
                let changed = bytes.iter().map(|byte| (byte ^ 7).count_ones());
                assert!(bytes.len() <= 100 && changed.sum::<u32>() <= 1);
            }
        }
        let arrived = counts.sent - counts.lost + counts.duplicated + counts.delayed_copies;
        assert!(whole >= arrived - counts.flipped - counts.split && whole < arrived);
        for count in
            [counts.lost, counts.duplicated, counts.delayed_copies, counts.flipped, counts.split]
        {
            assert!((50..200).contains(&count), "{counts:?}");
        }
        let nothing = DatagramFaults::none().draw_deliveries(
            &calm_network(),
            &mut dice,
            &datagram,
            &mut counts,
        );
        assert_eq!(nothing, [(100, datagram.to_vec())]);
    }
}
