//! Client side of the log service's framed protocol.

use super::{Malformed, Protocol};
use crate::{
    frames::{self, CommandStatus, LENGTH_BYTES, ParsedFrame},
    load::CommandOutcome,
};

/// Maximum length of a reply, far above that of any valid reply.
const REPLY_BYTES_MAX: usize = 1 << 16;

/// Encoder of commands with a fixed value size.
#[derive(Clone, Debug)]
pub struct FramedEncoder {
    frame_template: Vec<u8>,
}

impl FramedEncoder {
    /// Returns an encoder of commands with `value_bytes` bytes each.
    pub fn new(value_bytes: usize) -> Self {
        let mut frame = Vec::new();
        frames::append_command(&vec![b'x'; value_bytes], &mut frame);
        Self { frame_template: frame }
    }
}

impl Protocol for FramedEncoder {
    fn encode_request(&mut self, _: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.frame_template);
    }

    fn decode_reply<'a>(
        &self,
        input: &'a [u8],
    ) -> Result<Option<(usize, CommandOutcome<'a>)>, Malformed> {
        match frames::parse_frame(input, REPLY_BYTES_MAX) {
            ParsedFrame::Incomplete => Ok(None),
            ParsedFrame::TooLong => Err(Malformed("a very long frame")),
            ParsedFrame::Frame(&[]) => Err(Malformed("a frame without a status")),
            ParsedFrame::Frame(reply @ &[status, ..]) => {
                // The node sends only the requested statuses, so no command below the requested
                // class is reported as done.
                let answer = if [CommandStatus::Done as u8, CommandStatus::InMemory as u8]
                    .contains(&status)
                {
                    CommandOutcome::Done
                } else {
                    CommandOutcome::Error(CommandStatus::name(status).as_bytes())
                };
                Ok(Some((LENGTH_BYTES + reply.len(), answer)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_when_they_are_complete() {
        let protocol = FramedEncoder::new(3);
        let mut bytes = Vec::new();
        frames::append_reply(CommandStatus::Done, &[1; 8], &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(protocol.decode_reply(&bytes[..cut]), Ok(None));
        }
        assert_eq!(protocol.decode_reply(&bytes), Ok(Some((13, CommandOutcome::Done))));
        bytes.clear();
        frames::append_reply(CommandStatus::Busy, &[], &mut bytes);
        assert_eq!(protocol.decode_reply(&bytes), Ok(Some((5, CommandOutcome::Error(b"BUSY")))));
        assert!(protocol.decode_reply(&[0; 4]).is_err());
        assert!(protocol.decode_reply(&[0xff; 4]).is_err());
    }
}
