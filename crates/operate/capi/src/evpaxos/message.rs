//! Wire format of LibPaxos3 messages: consecutive MessagePack arrays without a length prefix.
//!
//! | message | array |
//! |---|---|
//! | prepare | 0, instance, ballot |
//! | promise | 1, acceptor, instance, ballot, ballot of the value, value |
//! | accept | 2, instance, ballot, value |
//! | accepted | 3, acceptor, instance, ballot, ballot of the value, value |
//! | preempted | 4, acceptor, instance, ballot |
//! | repeat | 5, first instance, last instance |
//! | trim | 6, instance |
//! | acceptor state | 7, acceptor, trimmed instance |
//! | client value | 8, value |
//!
//! Numbers have 32 bits. Values are written as `raw` of 0 to 31 bytes, `raw 16` or `raw 32`, which
//! every version of MessagePack reads; strings and binaries of all encodings are read.

/// A message of LibPaxos3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Asks an acceptor for a promise (phase 1A).
    Prepare {
        /// Instance for which the promise is requested.
        iid: u32,
        /// Ballot of the proposer.
        ballot: u32,
    },
    /// Promises a ballot and reports the vote, if any (phase 1B).
    Promise {
        /// Id of the acceptor.
        aid: u32,
        /// Instance for which the promise is made.
        iid: u32,
        /// Promised ballot.
        ballot: u32,
        /// Ballot in which the acceptor voted for the value.
        value_ballot: u32,
        /// Value that the acceptor voted for; may be empty.
        value: &'a [u8],
    },
    /// Asks an acceptor to vote for a value (phase 2A).
    Accept {
        /// Instance to vote in.
        iid: u32,
        /// Ballot of the proposer.
        ballot: u32,
        /// Proposed value.
        value: &'a [u8],
    },
    /// Reports a vote (phase 2B).
    Accepted {
        /// Id of the acceptor.
        aid: u32,
        /// Instance of the vote.
        iid: u32,
        /// Ballot that the acceptor has promised.
        ballot: u32,
        /// Ballot in which the acceptor voted for the value.
        value_ballot: u32,
        /// Value that the acceptor voted for.
        value: &'a [u8],
    },
    /// Reports that the acceptor has promised a higher ballot.
    Preempted {
        /// Id of the acceptor.
        aid: u32,
        /// Instance in the proposer's request.
        iid: u32,
        /// Promised ballot.
        ballot: u32,
    },
    /// Requests instances that a learner is missing.
    Repeat {
        /// First missing instance.
        from: u32,
        /// Last missing instance.
        last_missing: u32,
    },
    /// Reports that the instances up to this one are stored elsewhere.
    Trim {
        /// Last instance that acceptors may forget.
        iid: u32,
    },
    /// Reports how far an acceptor has trimmed its instances.
    AcceptorState {
        /// Id of the acceptor.
        aid: u32,
        /// Last instance that the acceptor has forgotten.
        trim_iid: u32,
    },
    /// Submits the value of a client.
    ClientValue {
        /// Submitted value.
        value: &'a [u8],
    },
}

/// Result of decoding a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeResult<'a> {
    /// A message, and the number of bytes it occupies.
    Message(Message<'a>, usize),
    /// The message is incomplete.
    NeedMore,
    /// The bytes are not a message of LibPaxos3, or the value is too large.
    Malformed,
}

/// Reason for failing to read an item.
enum ReadError {
    NeedMore,
    Malformed,
}

struct ItemReader<'a> {
    bytes: &'a [u8],
    position: usize,
    value_bytes_max: usize,
}

impl<'a> ItemReader<'a> {
    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], ReadError> {
        let end = self.position.checked_add(count).ok_or(ReadError::Malformed)?;
        let bytes = self.bytes.get(self.position..end).ok_or(ReadError::NeedMore)?;
        self.position = end;
        Ok(bytes)
    }

    fn read_byte(&mut self) -> Result<u8, ReadError> {
        Ok(self.take_bytes(1)?[0])
    }

    fn read_big_endian(&mut self, count: usize) -> Result<u64, ReadError> {
        let bytes = self.take_bytes(count)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Reads a signed number of `count` bytes. Fails if it is negative.
    fn read_non_negative(&mut self, count: usize) -> Result<u64, ReadError> {
        let number = self.read_big_endian(count)?;
        match number >> (8 * count - 1) {
            0 => Ok(number),
            _ => Err(ReadError::Malformed),
        }
    }

    /// Reads the header of an array and returns the number of items.
    fn read_array_length(&mut self) -> Result<u64, ReadError> {
        match self.read_byte()? {
            small @ 0x90..=0x9f => Ok(u64::from(small & 0x0f)),
            0xdc => self.read_big_endian(2),
            0xdd => self.read_big_endian(4),
            _ => Err(ReadError::Malformed),
        }
    }

    /// Reads a number from 0 to 2^32 - 1 in any encoding.
    fn read_number(&mut self) -> Result<u32, ReadError> {
        let number = match self.read_byte()? {
            small @ 0..=0x7f => u64::from(small),
            0xcc => self.read_big_endian(1)?,
            0xcd => self.read_big_endian(2)?,
            0xce => self.read_big_endian(4)?,
            0xcf => self.read_big_endian(8)?,
            0xd0 => self.read_non_negative(1)?,
            0xd1 => self.read_non_negative(2)?,
            0xd2 => self.read_non_negative(4)?,
            0xd3 => self.read_non_negative(8)?,
            _ => return Err(ReadError::Malformed),
        };
        u32::try_from(number).map_err(|_| ReadError::Malformed)
    }

    /// Reads a value. Checks its length before requesting more bytes.
    fn value(&mut self) -> Result<&'a [u8], ReadError> {
        let length = match self.read_byte()? {
            small @ 0xa0..=0xbf => u64::from(small & 0x1f),
            0xd9 | 0xc4 => self.read_big_endian(1)?,
            0xda | 0xc5 => self.read_big_endian(2)?,
            0xdb | 0xc6 => self.read_big_endian(4)?,
            _ => return Err(ReadError::Malformed),
        };
        let length = usize::try_from(length).map_err(|_| ReadError::Malformed)?;
        if length > self.value_bytes_max {
            return Err(ReadError::Malformed);
        }
        self.take_bytes(length)
    }
}

/// Maximum size in bytes of a message without its value.
pub const OVERHEAD_BYTES_MAX: usize = 64;

impl<'a> Message<'a> {
    /// Decodes the message at the start of the bytes.
    pub fn decode(bytes: &'a [u8], value_bytes_max: usize) -> DecodeResult<'a> {
        let mut items = ItemReader { bytes, position: 0, value_bytes_max };
        match Self::read_message(&mut items) {
            Ok(message) => DecodeResult::Message(message, items.position),
            Err(ReadError::NeedMore) => DecodeResult::NeedMore,
            Err(ReadError::Malformed) => DecodeResult::Malformed,
        }
    }

    fn read_message(items: &mut ItemReader<'a>) -> Result<Self, ReadError> {
        let count = items.read_array_length()?;
        if !(2..=6).contains(&count) {
            return Err(ReadError::Malformed);
        }
        let kind = items.read_number()?;
        // Checks the length before requesting more bytes.
        let wanted = match kind {
            1 | 3 => 6,
            2 | 4 => 4,
            0 | 5 | 7 => 3,
            6 | 8 => 2,
            _ => return Err(ReadError::Malformed),
        };
        if count != wanted {
            return Err(ReadError::Malformed);
        }
        Ok(match kind {
            0 => Self::Prepare { iid: items.read_number()?, ballot: items.read_number()? },
            1 => Self::Promise {
                aid: items.read_number()?,
                iid: items.read_number()?,
                ballot: items.read_number()?,
                value_ballot: items.read_number()?,
                value: items.value()?,
            },
            2 => Self::Accept {
                iid: items.read_number()?,
                ballot: items.read_number()?,
                value: items.value()?,
            },
            3 => Self::Accepted {
                aid: items.read_number()?,
                iid: items.read_number()?,
                ballot: items.read_number()?,
                value_ballot: items.read_number()?,
                value: items.value()?,
            },
            4 => Self::Preempted {
                aid: items.read_number()?,
                iid: items.read_number()?,
                ballot: items.read_number()?,
            },
            5 => Self::Repeat { from: items.read_number()?, last_missing: items.read_number()? },
            6 => Self::Trim { iid: items.read_number()? },
            7 => Self::AcceptorState { aid: items.read_number()?, trim_iid: items.read_number()? },
            _ => Self::ClientValue { value: items.value()? },
        })
    }

    /// Appends the encoded message to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (kind, numbers, value): (u8, &[u32], Option<&[u8]>) = match *self {
            Self::Prepare { iid, ballot } => (0, &[iid, ballot], None),
            Self::Promise { aid, iid, ballot, value_ballot, value } => {
                (1, &[aid, iid, ballot, value_ballot], Some(value))
            }
            Self::Accept { iid, ballot, value } => (2, &[iid, ballot], Some(value)),
            Self::Accepted { aid, iid, ballot, value_ballot, value } => {
                (3, &[aid, iid, ballot, value_ballot], Some(value))
            }
            Self::Preempted { aid, iid, ballot } => (4, &[aid, iid, ballot], None),
            Self::Repeat { from, last_missing: to } => (5, &[from, to], None),
            Self::Trim { iid } => (6, &[iid], None),
            Self::AcceptorState { aid, trim_iid } => (7, &[aid, trim_iid], None),
            Self::ClientValue { value } => (8, &[], Some(value)),
        };
        let items = 1 + numbers.len() + usize::from(value.is_some());
        to.push(0x90 | u8::try_from(items).expect("six at most"));
        to.push(kind);
        for number in numbers {
            encode_number(*number, to);
        }
        if let Some(value) = value {
            encode_value(value, to);
        }
    }
}

fn encode_number(number: u32, to: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    match number {
        0..=0x7f => to.push(bytes[3]),
        0x80..=0xff => to.extend([0xcc, bytes[3]]),
        0x100..=0xffff => to.extend([0xcd, bytes[2], bytes[3]]),
        _ => {
            to.push(0xce);
            to.extend(bytes);
        }
    }
}

fn encode_value(value: &[u8], to: &mut Vec<u8>) {
    let length = u32::try_from(value.len()).expect("values are bounded").to_be_bytes();
    match value.len() {
        0..=31 => to.push(0xa0 | length[3]),
        32..=0xffff => to.extend([0xda, length[2], length[3]]),
        _ => {
            to.push(0xdb);
            to.extend(length);
        }
    }
    to.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes bytes written according to the MessagePack specification, independently of this
    /// encoder.
    #[test]
    fn messages_follow_the_messagepack_specification() {
        let cases: [(&[u8], Message<'_>); 6] = [
            (b"\x92\x08\xa3abc", Message::ClientValue { value: b"abc" }),
            (b"\x92\xcc\x08\xd9\x03abc", Message::ClientValue { value: b"abc" }),
            (b"\x92\xd2\0\0\0\x08\xc4\x03abc", Message::ClientValue { value: b"abc" }),
            (
                b"\x93\x05\x01\xce\xff\xff\xff\xff",
                Message::Repeat { from: 1, last_missing: u32::MAX },
            ),
            (
                b"\x96\x03\x02\xcd\x01\x00\x01\x01\xda\x00\x02hi",
                Message::Accepted { aid: 2, iid: 256, ballot: 1, value_ballot: 1, value: b"hi" },
            ),
            (b"\xdc\x00\x02\x06\xcc\xff", Message::Trim { iid: 255 }),
        ];
        for (bytes, message) in cases {
            assert_eq!(Message::decode(bytes, 100), DecodeResult::Message(message, bytes.len()));
            for less in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..less], 100), DecodeResult::NeedMore);
            }
            let more = [bytes, b"more"].concat();
            assert_eq!(Message::decode(&more, 100), DecodeResult::Message(message, bytes.len()));
        }
    }

    #[test]
    fn malformed_messages_are_refused_early() {
        let cases: [&[u8]; 9] = [
            b"\x00",
            b"\xc0",
            b"\x91",
            b"\x97",
            b"\x92\x09",
            b"\x93\x08",
            b"\x92\x08\x01",
            b"\x92\xff",
            b"\x92\xd1\xff\xff",
        ];
        for bytes in cases {
            assert_eq!(Message::decode(bytes, 100), DecodeResult::Malformed, "{bytes:?}");
        }
        // The message is refused before the first byte of the value has arrived.
        assert_eq!(Message::decode(b"\x92\x08\xdb\xff\xff\xff\xff", 100), DecodeResult::Malformed);
        assert_eq!(Message::decode(b"\x92\x08\xda\x00\x65", 100), DecodeResult::Malformed);
        assert_eq!(Message::decode(b"\x92\x08\xda\x00\x64", 100), DecodeResult::NeedMore);
    }

    #[test]
    fn all_messages_round_trip() {
        let (aid, iid, ballot, value_ballot) = (1, 0x80, 0x1_0000, u32::MAX);
        let long = vec![7; 0x1_0000];
        for value in [&b""[..], &[1; 31], &[1; 32], &[1; 0xffff], &long] {
            for message in [
                Message::Prepare { iid, ballot },
                Message::Promise { aid, iid, ballot, value_ballot, value },
                Message::Accept { iid, ballot, value },
                Message::Accepted { aid, iid, ballot, value_ballot, value },
                Message::Preempted { aid, iid, ballot },
                Message::Repeat { from: iid, last_missing: ballot },
                Message::Trim { iid },
                Message::AcceptorState { aid, trim_iid: iid },
                Message::ClientValue { value },
            ] {
                let mut bytes = Vec::new();
                message.encode(&mut bytes);
                assert!(bytes.len() <= value.len() + OVERHEAD_BYTES_MAX);
                let found = Message::decode(&bytes, value.len());
                assert_eq!(found, DecodeResult::Message(message, bytes.len()));
            }
        }
    }
}
