//! Reasons that a frame was not carried out, with counts: one reason for each frame.

/// The reason that a program did not carry out a frame. Its number appears in refusals and
/// counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The frame was carried out.
    None = 0,
    /// Another EtherType, protocol, UDP port or magic: passed on.
    Foreign = 1,
    /// With a VLAN tag: passed on.
    Vlan = 2,
    /// With IP options: passed on.
    Options = 3,
    /// A fragment: passed on.
    Fragment = 4,
    /// From another group: passed on.
    Group = 5,
    /// For another station: passed on.
    Elsewhere = 6,
    /// For another program: passed on.
    Other = 7,
    /// Shorter or longer than its group's frames, or with a wrong length field: dropped.
    Length = 8,
    /// A checksum is wrong, or missing: dropped.
    Checksum = 9,
    /// A bit without a meaning is set, or a required one is missing: dropped.
    Reserved = 10,
    /// The value is of a kind that devices do not carry, or longer than its area: dropped.
    Value = 11,
    /// Only allowed on the owner's port: dropped.
    Port = 12,
    /// A refusal is due, but the source is not the address of a single station: dropped.
    Source = 13,
    /// From another ballot, or of a slot that was not assigned or already counted: dropped.
    Stale = 14,
    /// Another descriptor for a slot of this ballot ([count-1]): an alarm; dropped.
    Conflict = 15,
    /// A decision that is only a hint ([offload-10]): dropped.
    Hint = 16,
    /// Refused: the cell is being written. Only by devices that handle frames concurrently.
    Busy = 17,
    /// Refused: above the window, or the limit.
    Full = 18,
    /// Refused: not armed.
    Disarmed = 19,
    /// Refused: the device has another boot.
    Boot = 20,
    /// Refused: the number is not above the last.
    Order = 21,
    /// Refused: already armed with another record.
    Armed = 22,
    /// Refused: armed with another ballot, or asked to arm with a lower one.
    Ballot = 23,
    /// Refused: below the floor, or an attempt to lower it.
    Floor = 24,
    /// Refused: arming without a ballot, or with an impossible quorum.
    Range = 25,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 26] = [
        Self::None,
        Self::Foreign,
        Self::Vlan,
        Self::Options,
        Self::Fragment,
        Self::Group,
        Self::Elsewhere,
        Self::Other,
        Self::Length,
        Self::Checksum,
        Self::Reserved,
        Self::Value,
        Self::Port,
        Self::Source,
        Self::Stale,
        Self::Conflict,
        Self::Hint,
        Self::Busy,
        Self::Full,
        Self::Disarmed,
        Self::Boot,
        Self::Order,
        Self::Armed,
        Self::Ballot,
        Self::Floor,
        Self::Range,
    ];

    /// Returns the name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "done",
            Self::Foreign => "foreign",
            Self::Vlan => "vlan",
            Self::Options => "options",
            Self::Fragment => "fragment",
            Self::Group => "group",
            Self::Elsewhere => "elsewhere",
            Self::Other => "other",
            Self::Length => "length",
            Self::Checksum => "checksum",
            Self::Reserved => "reserved",
            Self::Value => "value",
            Self::Port => "port",
            Self::Source => "source",
            Self::Stale => "stale",
            Self::Conflict => "conflict",
            Self::Hint => "hint",
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Disarmed => "disarmed",
            Self::Boot => "boot",
            Self::Order => "order",
            Self::Armed => "armed",
            Self::Ballot => "ballot",
            Self::Floor => "floor",
            Self::Range => "range",
        }
    }

    /// Returns whether the frame is passed on to the other port ([offload-16]).
    pub const fn passes(self) -> bool {
        (self as u8) >= Self::Foreign as u8 && (self as u8) <= Self::Other as u8
    }

    /// Returns whether the sender gets a refusal.
    pub const fn answers(self) -> bool {
        (self as u8) >= Self::Busy as u8
    }
}

/// Number of counters in a device; those above the reasons stay zero.
pub const COUNTERS: usize = 32;

/// Counts of frames by reason ([offload-16]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; COUNTERS]);

impl Counters {
    /// Counts a frame. The count does not wrap in the life of a device.
    pub(crate) fn count(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// Returns the number of frames with this reason.
    pub const fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the counter with this number, as requested by frames.
    pub fn at(&self, number: u32) -> Option<u64> {
        self.0.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_number_and_one_fate() {
        for (number, reason) in (0..).zip(Reason::ALL) {
            assert_eq!(reason as u8, number, "{}", reason.name());
            assert!(!(reason.passes() && reason.answers()));
        }
        assert!(Reason::ALL.len() <= COUNTERS);
    }
}
