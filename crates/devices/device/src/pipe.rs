//! Protocol between a device process and its owner, also used for test vectors: a sequence of
//! 16-bit big-endian words, each followed by a frame.
//!
//! The upper four bits of a word are the port (0 network, 1 owner), the lower twelve the length of
//! the frame. In a device's input, a zero word without a frame is a power cycle, which clears all
//! state. The output for each input event consists of the frames that the device sends and a final
//! zero word, so that a mismatch can be attributed to an event.

use std::io::{self, Read, Write};

use quorate_offload::Port;

pub const FRAME_BYTES_MAX: usize = 0xfff;

/// Input event of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Frame(Port, Vec<u8>),
    /// Power cycle, which clears all state.
    PowerCycle,
}

/// A frame that a device sent, with its port.
pub type SentFrame = (Port, Vec<u8>);

/// Reads one event, or returns `None` at the end of the input.
pub fn read_event(from: &mut impl Read) -> io::Result<Option<Event>> {
    let Some((port, frame)) = read_port_and_frame(from)? else {
        return Ok(None);
    };
    Ok(Some(match frame {
        Some(frame) => Event::Frame(port, frame),
        None => Event::PowerCycle,
    }))
}

/// Reads the frames that a device sent for one event, or returns `None` at the end of the input.
pub fn read_sent_frames(from: &mut impl Read) -> io::Result<Option<Vec<SentFrame>>> {
    let mut sent = Vec::new();
    loop {
        match read_port_and_frame(from)? {
            None if sent.is_empty() => return Ok(None),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some((_, None)) => return Ok(Some(sent)),
            Some((port, Some(frame))) => sent.push((port, frame)),
        }
    }
}

/// Reads a word and the frame that follows it. The frame is `None` if the word is zero.
fn read_port_and_frame(from: &mut impl Read) -> io::Result<Option<(Port, Option<Vec<u8>>)>> {
    let mut word = [0; 2];
    match from.read_exact(&mut word[..1]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    from.read_exact(&mut word[1..])?;
    let word = u16::from_be_bytes(word);
    let length = usize::from(word & 0xfff);
    let port = match word >> 12 {
        0 => Port::Network,
        1 if length > 0 => Port::Owner,
        _ => return Err(invalid_data("a port that is none")),
    };
    if length == 0 {
        return Ok(Some((port, None)));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(Some((port, Some(frame))))
}

pub fn write_event(to: &mut impl Write, event: &Event) -> io::Result<()> {
    match event {
        Event::PowerCycle => to.write_all(&[0, 0]),
        Event::Frame(port, frame) => write_port_and_frame(to, *port, frame),
    }
}

/// Writes the frames that a device sent for one event.
pub fn write_sent_frames(to: &mut impl Write, sent: &[SentFrame]) -> io::Result<()> {
    for (port, frame) in sent {
        write_port_and_frame(to, *port, frame)?;
    }
    to.write_all(&[0, 0])
}

fn write_port_and_frame(to: &mut impl Write, port: Port, frame: &[u8]) -> io::Result<()> {
    let length = u16::try_from(frame.len()).ok();
    let length = length.filter(|length| (1..=0xfff).contains(length));
    let length = length.ok_or_else(|| invalid_data("a frame that is too long, or empty"))?;
    to.write_all(&((port as u16) << 12 | length).to_be_bytes())?;
    to.write_all(frame)
}

fn invalid_data(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
