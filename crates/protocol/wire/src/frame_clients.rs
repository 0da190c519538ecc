//! Requests from device clients to a node, over a connection ([offload-22]): for a name, for a
//! proposal, and for the applied position.
//!
//! A request takes the place where the log service expects the length of a command, and begins with
//! four bytes that are not a valid length. All numbers are little-endian.
//!
//! ```text
//! request: "FRMS" | length u32 of the rest | kind u8 | body
//! 0 lend      –                                    answered by a Name
//! 1 stand     name                                 answered by a Stand
//! 2 register  name                                 answered when accepted
//! 3 offer     name | counter u64 | batch           answered when accepted
//! name:  origin u32 | boot u32
//! stand: cluster u128 | flags u8 | group u32 | room u16 | station 6 | era u32 | applied u64 | session u64 | next u64
//! ```

use alloc::vec::Vec;

/// Marker at the start of a request, where a length is expected. It is larger than the length of
/// any command.
pub const REQUEST_MAGIC: [u8; 4] = *b"FRMS";
/// Bit that is set in the origin of every lent name, so that no origin is the id of a node.
pub const LENT_NAME_BIT: u32 = 1 << 31;
/// Maximum id of a node that can lend names.
pub const LENDER_NODE_MAX: u32 = 0x7fff;
/// Number of the registration of a lent name. Each lent name has only one registration. The high
/// bit marks the number as belonging to an origin.
pub const REGISTRATION_NUMBER: u64 = 1 << 63 | 1;
/// Length of a request before its body, in bytes.
const HEAD_BYTES: usize = 9;
const NAME_BYTES: usize = 8;
/// Length of an encoded [`NodePosition`] in bytes.
pub const NODE_POSITION_BYTES: usize = 57;
/// Format number of a batch, which replicas use too. The session and the number of the batch follow
/// it.
const BATCH_FORMAT: u8 = 1;
const PLAIN_BATCH: u8 = 0;
/// Overhead of a batch in bytes, in addition to its commands.
pub const BATCH_OVERHEAD_BYTES: usize = 17;
/// Overhead of a command in bytes.
pub const COMMAND_OVERHEAD_BYTES: usize = 5;

/// Name under which values are proposed: an origin, and one of its starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LentName {
    /// Origin of the values, in the form of a node id.
    pub origin: u32,
    /// Number of the start of the node that lent the name.
    pub boot: u32,
}

impl LentName {
    /// Returns name `number` of those that a node lends during one start; `None` if the node cannot
    /// lend it. Different starts begin with different numbers, because a new name ends the session
    /// of an older name with the same origin.
    pub const fn lend(node: u32, boot: u32, number: u32) -> Option<Self> {
        if node > LENDER_NODE_MAX {
            return None;
        }
        let number = boot.wrapping_mul(0x9e37).wrapping_add(number) & 0xffff;
        let origin = LENT_NAME_BIT | node << 16 | number;
        Some(Self { origin, boot })
    }

    pub fn bytes(self) -> [u8; NAME_BYTES] {
        let mut bytes = [0; NAME_BYTES];
        bytes[..4].copy_from_slice(&self.origin.to_le_bytes());
        bytes[4..].copy_from_slice(&self.boot.to_le_bytes());
        bytes
    }

    /// Decodes a name from the front of `bytes` and returns the rest; `None` if there are too few
    /// bytes.
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (origin, rest) = split_array::<4>(bytes)?;
        let (boot, rest) = split_array::<4>(rest)?;
        let name = Self { origin: u32::from_le_bytes(origin), boot: u32::from_le_bytes(boot) };
        Some((name, rest))
    }
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Request for a name.
    LendName,
    /// Request for the position of the log, and for the state of this name's session.
    QueryPosition(LentName),
    /// Request to register a session for this name.
    Register(LentName),
    /// Request to propose this batch.
    OfferBatch {
        name: LentName,
        /// Number of the batch within the session.
        batch_number: u64,
        /// Bytes of the complete batch.
        bytes: &'a [u8],
    },
}

/// Result of decoding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedRequest<'a> {
    /// The bytes are the beginning of a request, and more are needed.
    Incomplete,
    /// The bytes are not a request.
    Malformed,
    /// A request, and the number of bytes that it occupies.
    Request(Request<'a>, usize),
}

impl<'a> Request<'a> {
    /// Appends the request.
    ///
    /// # Panics
    ///
    /// Panics if a batch is 4 GiB or longer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&REQUEST_MAGIC);
        out.extend_from_slice(&[0; 4]);
        match *self {
            Self::LendName => out.push(0),
            Self::QueryPosition(name) => {
                out.push(1);
                out.extend_from_slice(&name.bytes());
            }
            Self::Register(name) => {
                out.push(2);
                out.extend_from_slice(&name.bytes());
            }
            Self::OfferBatch { name, batch_number: counter, bytes } => {
                out.push(3);
                out.extend_from_slice(&name.bytes());
                out.extend_from_slice(&counter.to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
        let length = u32::try_from(out.len() - begin - 8).expect("a batch of a frame");
        out[begin + 4..begin + 8].copy_from_slice(&length.to_le_bytes());
    }

    /// Decodes the request at the start of `input`, with a batch of at most `bytes_max`.
    pub fn decode(input: &'a [u8], bytes_max: usize) -> DecodedRequest<'a> {
        let known = input.len().min(REQUEST_MAGIC.len());
        if input[..known] != REQUEST_MAGIC[..known] {
            return DecodedRequest::Malformed;
        }
        let Some((length, rest)) = input.get(4..).and_then(split_array::<4>) else {
            return DecodedRequest::Incomplete;
        };
        let Ok(length) = usize::try_from(u32::from_le_bytes(length)) else {
            return DecodedRequest::Malformed;
        };
        if length == 0 || length > bytes_max.saturating_add(HEAD_BYTES + NAME_BYTES) {
            return DecodedRequest::Malformed;
        }
        let Some(body) = rest.get(..length) else {
            return DecodedRequest::Incomplete;
        };
        Self::read(body).map_or(DecodedRequest::Malformed, |request| {
            DecodedRequest::Request(request, 8 + length)
        })
    }

    fn read(body: &'a [u8]) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        if *kind == 0 {
            return rest.is_empty().then_some(Self::LendName);
        }
        let (name, rest) = LentName::read(rest)?;
        match *kind {
            1 if rest.is_empty() => Some(Self::QueryPosition(name)),
            2 if rest.is_empty() => Some(Self::Register(name)),
            3 => {
                let (counter, bytes) = split_array::<8>(rest)?;
                Some(Self::OfferBatch { name, batch_number: u64::from_le_bytes(counter), bytes })
            }
            _ => None,
        }
    }
}

/// A device that assigns the slots of a group, and to which clients send raw frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePlace {
    /// Number of the group in raw frames.
    pub group: u32,
    /// Maximum size of a value in bytes.
    pub room: u16,
    /// Hardware address of the device.
    pub station_mac: [u8; 6],
}

/// Progress of a node and its log, as reported to a device client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePosition {
    pub cluster: u128,
    /// The node is the leader. Other nodes do not accept offers.
    pub is_leader: bool,
    /// The node's device, if it assigns slots and counts votes for a volatile group; otherwise
    /// `None`.
    pub device_place: Option<DevicePlace>,
    /// Era of the next slot, or a later era.
    pub era: u32,
    /// End of the applied slots, all of which are reflected in this position.
    pub applied_to: u64,
    /// Slot in which the name was registered; 0 if it is not registered.
    pub session_slot: u64,
    /// Number of the client's next batch to be executed.
    pub next: u64,
}

impl NodePosition {
    /// Encodes the position.
    pub fn bytes(&self) -> [u8; NODE_POSITION_BYTES] {
        let mut bytes = [0; NODE_POSITION_BYTES];
        let place = self.device_place.unwrap_or_default();
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &self.cluster.to_le_bytes());
        put(16, &[u8::from(self.is_leader) | u8::from(self.device_place.is_some()) << 1]);
        put(17, &place.group.to_le_bytes());
        put(21, &place.room.to_le_bytes());
        put(23, &place.station_mac);
        put(29, &self.era.to_le_bytes());
        put(33, &self.applied_to.to_le_bytes());
        put(41, &self.session_slot.to_le_bytes());
        put(49, &self.next.to_le_bytes());
        bytes
    }

    /// Decodes a position; `None` if the bytes are invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NODE_POSITION_BYTES] = bytes.try_into().ok()?;
        fn part<const N: usize>(bytes: &[u8; NODE_POSITION_BYTES], at: usize) -> [u8; N] {
            core::array::from_fn(|offset| bytes[at + offset])
        }
        if bytes[16] & !3 != 0 {
            return None;
        }
        let place = DevicePlace {
            group: u32::from_le_bytes(part(bytes, 17)),
            room: u16::from_le_bytes(part(bytes, 21)),
            station_mac: part(bytes, 23),
        };
        Some(Self {
            cluster: u128::from_le_bytes(part(bytes, 0)),
            is_leader: bytes[16] & 1 != 0,
            device_place: (bytes[16] & 2 != 0).then_some(place),
            era: u32::from_le_bytes(part(bytes, 29)),
            applied_to: u64::from_le_bytes(part(bytes, 33)),
            session_slot: u64::from_le_bytes(part(bytes, 41)),
            next: u64::from_le_bytes(part(bytes, 49)),
        })
    }
}

/// Returns the bytes of a batch: its session, its number in the session, and then complete commands
/// of the service.
///
/// # Panics
///
/// Panics if a command is 4 GiB or longer.
pub fn encode_batch<'c>(
    session: u64,
    number: u64,
    commands: impl Iterator<Item = &'c [u8]>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.push(BATCH_FORMAT);
    bytes.extend_from_slice(&session.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    for command in commands {
        let length = u32::try_from(command.len()).expect("a command of a frame");
        bytes.push(PLAIN_BATCH);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(command);
    }
    bytes
}

fn split_array<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<N>()?;
    Some((*number, rest))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const NAME: LentName = LentName { origin: LENT_NAME_BIT | 7, boot: 9 };

    fn all() -> [Request<'static>; 4] {
        [
            Request::LendName,
            Request::QueryPosition(NAME),
            Request::Register(NAME),
            Request::OfferBatch { name: NAME, batch_number: 3, bytes: b"batch" },
        ]
    }

    #[test]
    fn requests_are_found_only_when_complete() {
        for request in all() {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            let whole = bytes.len();
            bytes.extend_from_slice(b"next");
            for cut in 0..whole {
                assert_eq!(Request::decode(&bytes[..cut], 5), DecodedRequest::Incomplete, "{cut}");
            }
            assert_eq!(Request::decode(&bytes, 5), DecodedRequest::Request(request, whole));
        }
    }

    #[test]
    fn a_length_is_refused_before_its_bytes_are_waited_for() {
        let mut bytes = REQUEST_MAGIC.to_vec();
        bytes.extend_from_slice(&[0xff; 4]);
        assert_eq!(Request::decode(&bytes, 1 << 20), DecodedRequest::Malformed);
        bytes[4..].fill(0);
        assert_eq!(Request::decode(&bytes, 1 << 20), DecodedRequest::Malformed);
    }

    /// Any change of the bytes results in a different request or none.
    #[test]
    fn hostile_bytes_are_read_or_refused() {
        for request in all() {
            let mut sample = Vec::new();
            request.encode(&mut sample);
            for at in 0..sample.len() * 8 {
                let mut bytes = sample.clone();
                bytes[at / 8] ^= 1 << (at % 8);
                if let DecodedRequest::Request(other, used) = Request::decode(&bytes, 100) {
                    assert!(used <= bytes.len() && other != request);
                }
            }
        }
    }

    #[test]
    fn node_position_round_trips() {
        let place = DevicePlace { group: 0x0102_0304, room: 1408, station_mac: [2, 0, 0, 0, 0, 9] };
        let stand = NodePosition {
            cluster: 1 << 90 | 3,
            is_leader: true,
            device_place: Some(place),
            era: 5,
            applied_to: 1 << 40,
            session_slot: 77,
            next: 12,
        };
        for stand in [stand, NodePosition::default(), NodePosition { device_place: None, ..stand }]
        {
            assert_eq!(NodePosition::read(&stand.bytes()), Some(stand));
        }
        assert_eq!(NodePosition::read(&stand.bytes()[1..]), None);
        assert_eq!(NodePosition::read(&[0xff; NODE_POSITION_BYTES]), None);
    }

    /// Names lent during one start differ, and none is a node's.
    #[test]
    fn lent_names_are_unique() {
        let mut origins = vec![];
        for number in 0..1000 {
            let name = LentName::lend(3, 8, number).unwrap();
            assert!(name.origin & LENT_NAME_BIT != 0 && name.boot == 8);
            assert!(!origins.contains(&name.origin));
            origins.push(name.origin);
        }
        assert_ne!(LentName::lend(3, 8, 0), LentName::lend(4, 8, 0));
        assert_eq!(LentName::lend(LENDER_NODE_MAX + 1, 8, 0), None);
    }
}
