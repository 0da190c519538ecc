//! Comparison of two devices, event by event.

use std::fmt::Write as _;

use crate::{Device, Event, vectors::SentFrame};

/// First difference between the expected answers and a device's answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of the event, starting at 0.
    pub event_index: usize,
    /// Description with the event, the expected answer and the actual one.
    pub description: String,
}

/// Runs a device on a sequence of events, and compares its answers with the expected ones. Returns
/// the first difference as an error.
pub fn run(
    device: &mut dyn Device,
    events: &[Event],
    expected: &[Vec<SentFrame>],
) -> Result<(), Difference> {
    for (at, (event, expected)) in events.iter().zip(expected).enumerate() {
        let found = device.step(event);
        if found.as_ref() != Ok(expected) {
            let what = describe_difference(event, expected, &found);
            return Err(Difference { event_index: at, description: what });
        }
    }
    Ok(())
}

/// Formats the expected and the actual frames one below the other, and names the first byte at
/// which each pair differs.
pub fn describe_difference(
    event: &Event,
    expected: &[SentFrame],
    found: &Result<Vec<SentFrame>, String>,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, port: &str, frame: &[u8]| {
        write!(text, "{name:<9} {port:<8}").expect("a string takes everything");
        for byte in frame {
            write!(text, "{byte:02x}").expect("a string takes everything");
        }
        text.push('\n');
    };
    match event {
        Event::PowerCycle => line("event", "power", &[]),
        Event::Frame(port, frame) => line("event", &format!("{port:?}"), frame),
    }
    for (port, frame) in expected {
        line("expected", &format!("{port:?}"), frame);
    }
    match found {
        Ok(found) => {
            for (port, frame) in found {
                line("found", &format!("{port:?}"), frame);
            }
            for ((_, expected), (_, found)) in expected.iter().zip(found) {
                let differs = expected.iter().zip(found).position(|(a, b)| a != b);
                if let Some(at) = differs {
                    writeln!(text, "they differ at byte {at}").expect("a string takes everything");
                }
            }
        }
        Err(fault) => writeln!(text, "fault     {fault}").expect("a string takes everything"),
    }
    text
}
