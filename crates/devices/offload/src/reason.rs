//! Outcomes of a frame: executed, or the reason why not. Devices count frames by outcome.

/// Outcome of a frame: executed, or the reason why not. Its number is used in refusals and
/// counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The frame was executed.
    None = 0,
    /// Passed on: the EtherType, protocol, UDP port or magic is not a device's.
    Foreign = 1,
    /// Passed on: the frame has a VLAN tag.
    Vlan = 2,
    /// Passed on: the frame has IP options.
    Options = 3,
    /// Passed on: the frame is a fragment.
    Fragment = 4,
    /// Passed on: the frame belongs to another group.
    Group = 5,
    /// Passed on: the frame is addressed to another station.
    Elsewhere = 6,
    /// Passed on: another program handles the frame.
    Other = 7,
    /// Dropped: the frame's length differs from that of its group's frames, or a length field is
    /// wrong.
    Length = 8,
    /// Dropped: a checksum is wrong or missing.
    Checksum = 9,
    /// Dropped: an undefined bit is set, or a required one is not.
    Reserved = 10,
    /// Dropped: devices do not carry values of this kind, or the value is longer than its area.
    Value = 11,
    /// Dropped: only the owner's port accepts this type.
    Port = 12,
    /// Dropped: a refusal is due, but the source address is not that of a single station.
    Source = 13,
    /// Dropped: the ballot differs, the slot is unassigned, or the vote was already counted.
    Stale = 14,
    /// Dropped, and raises an alarm: the slot has another descriptor in this ballot ([count-1]).
    Conflict = 15,
    /// Dropped: the decision is only a hint ([offload-10]).
    Hint = 16,
    /// Refused: the cell is being written. Only devices that handle frames concurrently report it.
    Busy = 17,
    /// Refused: the slot is above the window or the limit.
    Full = 18,
    /// Refused: the program is not armed.
    Disarmed = 19,
    /// Refused: the device has another boot.
    Boot = 20,
    /// Refused: the call number is not above that of the last call.
    Order = 21,
    /// Refused: the program is already armed with another record.
    Armed = 22,
    /// Refused: the program is armed with another ballot, or the call names a lower ballot.
    Ballot = 23,
    /// Refused: the slot is below the floor, or the call would lower the floor.
    Floor = 24,
    /// Refused: the record has no ballot, or an impossible quorum.
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

    /// Returns whether a frame with this outcome is passed on to the other port ([offload-16]).
    pub const fn is_passed_on(self) -> bool {
        (self as u8) >= Self::Foreign as u8 && (self as u8) <= Self::Other as u8
    }

    /// Returns whether a frame with this outcome is answered with a refusal.
    pub const fn is_answered(self) -> bool {
        (self as u8) >= Self::Busy as u8
    }
}

/// Number of counters in a device. Those without a reason stay zero.
pub const COUNTERS: usize = 32;

/// Number of frames for each reason ([offload-16]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; COUNTERS]);

impl Counters {
    /// Counts a frame. No counter overflows within the lifetime of a device.
    pub(crate) fn count(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    pub const fn count_of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the counter that frames query by `number`, or `None` if there is no such counter.
    pub fn count_numbered(&self, number: u32) -> Option<u64> {
        self.0.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_match_their_numbers_and_have_one_effect() {
        for (number, reason) in (0..).zip(Reason::ALL) {
            assert_eq!(reason as u8, number, "{}", reason.name());
            assert!(!(reason.is_passed_on() && reason.is_answered()));
        }
        assert!(Reason::ALL.len() <= COUNTERS);
    }
}
