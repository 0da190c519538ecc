//! Client side of the log service's framed protocol.

use super::{Malformed, Protocol};
use crate::{
    frames::{self, LENGTH_BYTES, ParsedFrame, Status},
    load::Answer,
};

/// Maximum length of a reply, far above that of any valid reply.
const REPLY_BYTES_MAX: usize = 1 << 16;

/// Encoder of commands with a fixed value size.
#[derive(Clone, Debug)]
pub struct Framed {
    frame: Vec<u8>,
}

impl Framed {
    /// Returns an encoder of commands with `value_bytes` bytes each.
    pub fn new(value_bytes: usize) -> Self {
        let mut frame = Vec::new();
        frames::command(&vec![b'x'; value_bytes], &mut frame);
        Self { frame }
    }
}

impl Protocol for Framed {
    fn request(&mut self, _: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.frame);
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<(usize, Answer<'a>)>, Malformed> {
        match frames::parse_frame(input, REPLY_BYTES_MAX) {
            ParsedFrame::Incomplete => Ok(None),
            ParsedFrame::TooLong => Err(Malformed("a very long frame")),
            ParsedFrame::Frame(&[]) => Err(Malformed("a frame without a status")),
            ParsedFrame::Frame(reply @ &[status, ..]) => {
                // The node sends only the requested statuses, so no command below the requested
                // class is reported as done.
                let answer = if [Status::Done as u8, Status::InMemory as u8].contains(&status) {
                    Answer::Done
                } else {
                    Answer::Error(Status::name(status).as_bytes())
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
        let protocol = Framed::new(3);
        let mut bytes = Vec::new();
        frames::reply(Status::Done, &[1; 8], &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(protocol.reply(&bytes[..cut]), Ok(None));
        }
        assert_eq!(protocol.reply(&bytes), Ok(Some((13, Answer::Done))));
        bytes.clear();
        frames::reply(Status::Busy, &[], &mut bytes);
        assert_eq!(protocol.reply(&bytes), Ok(Some((5, Answer::Error(b"BUSY")))));
        assert!(protocol.reply(&[0; 4]).is_err());
        assert!(protocol.reply(&[0xff; 4]).is_err());
    }
}
