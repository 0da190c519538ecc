//! Frame formats of the log service. A command frame is a length followed by that many bytes. A
//! reply frame is a length, a status byte, and the bytes of the reply.
//!
//! Lengths are 32 bits, little-endian, and count the bytes after them. Commands may be sent without
//! waiting for replies, which arrive in order. In place of a length, a client may request the
//! node's introduction ([`crate::log_service::introduction`]), a text.

use quorate_replica::front::Failure;

/// Size in bytes of the length field that starts a frame.
pub const LENGTH_BYTES: usize = 4;

/// Status of a command, sent as the first byte of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandStatus {
    /// Executed. The service's reply follows.
    Done = 0,
    /// Not executed, because the queues are full.
    Busy = 1,
    /// Not executed, because no leader was found in time.
    NoQuorum = 2,
    /// Not executed, because the command is larger than the node accepts. The connection ends.
    TooBig = 3,
    /// Not executed, because the node is stopping or cannot vote.
    Stopping = 4,
    /// The command may or may not have been executed.
    Unknown = 5,
    /// Executed, but durability at a quorum could not be confirmed in time.
    NotLasting = 6,
    /// Not executed, because the group does not use the feature level that the command requires.
    Level = 7,
    /// In memory at a quorum, as requested, but not decided yet. The slot follows. It will be the
    /// command's slot unless a node of the quorum loses its memory before its disk has the command.
    InMemory = 8,
}

impl CommandStatus {
    /// Maps a replica's failure to a status. This protocol does not use sessions.
    pub const fn from_failure(failure: Failure) -> Self {
        match failure {
            Failure::Busy => Self::Busy,
            Failure::NoQuorum | Failure::Unavailable | Failure::DiskFull(_) | Failure::Diverged => {
                Self::NoQuorum
            }
            Failure::TooBig => Self::TooBig,
            Failure::Stopping | Failure::Removed | Failure::Voteless => Self::Stopping,
            Failure::NotLasting => Self::NotLasting,
            Failure::Level => Self::Level,
            Failure::Unknown
            | Failure::NoSession
            | Failure::ReplyForgotten
            | Failure::SessionFull
            | Failure::Stale
            | Failure::Overtaken => Self::Unknown,
        }
    }

    /// Returns the name of a status byte, for error messages.
    pub const fn name(byte: u8) -> &'static str {
        match byte {
            0 => "OK",
            1 => "BUSY",
            2 => "NOQUORUM",
            3 => "TOOBIG",
            4 => "STOPPING",
            5 => "UNKNOWN",
            6 => "NOTDURABLE",
            7 => "LEVEL",
            8 => "INMEMORY",
            _ => "an unknown status",
        }
    }
}

/// Result of parsing a frame at the start of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedFrame<'a> {
    /// The frame is incomplete, and more bytes are needed.
    Incomplete,
    /// The frame is longer than allowed.
    TooLong,
    /// Contents of a complete frame. The frame occupies [`LENGTH_BYTES`] more.
    Frame(&'a [u8]),
}

/// Parses a frame with at most `bytes_max` bytes of contents at the start of the input.
pub fn parse_frame(input: &[u8], bytes_max: usize) -> ParsedFrame<'_> {
    let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else {
        return ParsedFrame::Incomplete;
    };
    let Ok(length) = usize::try_from(u32::from_le_bytes(*length)) else {
        return ParsedFrame::TooLong;
    };
    if length > bytes_max {
        return ParsedFrame::TooLong;
    }
    rest.get(..length).map_or(ParsedFrame::Incomplete, ParsedFrame::Frame)
}

/// Appends the frame of a command.
pub fn append_command(command: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&encode_length(command.len()));
    out.extend_from_slice(command);
}

/// Appends the frame of a reply.
pub fn append_reply(status: CommandStatus, reply: &[u8], out: &mut Vec<u8>) {
    let [a, b, c, d] = encode_length(reply.len() + 1);
    out.extend_from_slice(&[a, b, c, d, status as u8]);
    out.extend_from_slice(reply);
}

fn encode_length(bytes: usize) -> [u8; LENGTH_BYTES] {
    let bytes = u32::try_from(bytes).expect("commands and replies are bounded far below 4 GiB");
    bytes.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_parsed_only_when_complete() {
        let mut bytes = Vec::new();
        append_command(b"abc", &mut bytes);
        assert_eq!(bytes, [3, 0, 0, 0, b'a', b'b', b'c']);
        for cut in 0..bytes.len() {
            assert_eq!(parse_frame(&bytes[..cut], 3), ParsedFrame::Incomplete);
        }
        bytes.push(9);
        assert_eq!(parse_frame(&bytes, 3), ParsedFrame::Frame(b"abc"));
    }

    #[test]
    fn excessive_length_is_refused_before_its_bytes_arrive() {
        assert_eq!(parse_frame(&[0xff; 4], 1 << 20), ParsedFrame::TooLong);
        assert_eq!(parse_frame(&[4, 0, 0, 0], 3), ParsedFrame::TooLong);
    }
}
