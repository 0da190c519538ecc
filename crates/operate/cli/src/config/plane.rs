//! How nodes are to speak with each other.

use std::path::Path;

use quorate_net::{
    device::Kind as Device,
    plane::{BadKeys, Frames, KeyFile, Wanted},
};
use quorate_replica::status::Way;

use super::{
    layers::Layers,
    parse_switch,
    settings::{PLANE_BUFFER, PLANE_LOSS},
};
use crate::output::{Exit, Problem};

/// A terabit.
const MEGABITS_MAX: u64 = 1_000_000;

/// What is said of planes.
pub(super) fn resolve(layers: &Layers<'_>) -> Result<(Wanted, Device), Problem> {
    let (way, with) = layers.required(
        "plane",
        "tcp, udp, chain, multicast, ethernet, kernel or auto",
        parse_way,
    )?;
    let device = layers.optional(
        "device",
        "off, udp, packet, tc, kernel, p4, rtl:FOLDER or process:COMMAND",
        Device::named,
    )?;
    let file = layers.optional("plane-key", "a path", |text| {
        (!text.is_empty()).then(|| text.to_owned())
    })?;
    let keys = file.map(|file| KeyFile::read(Path::new(&file)));
    let wanted = Wanted {
        way,
        interface: layers.optional("plane-interface", "the name of an interface", |text| {
            (!text.is_empty()).then(|| text.to_owned())
        })?,
        group: layers.optional("plane-group", "ADDRESS:PORT", |text| text.parse().ok())?,
        keys: keys.transpose().map_err(bad_keys)?,
        trusted: layers
            .optional("plane-trusted", "on or off", parse_switch)?
            .unwrap_or_default(),
        megabits: layers.optional("plane-speed", "1 … 1000000 megabits per second", |text| {
            let megabits = text.parse().ok();
            megabits.filter(|megabits| (1..=MEGABITS_MAX).contains(megabits))
        })?,
        receive_bytes: layers.optional(PLANE_BUFFER, "4 … 1048576 KiB", parse_buffer)?,
        frames: layers.required("plane-ethernet", "auto, packet or xdp", Frames::named)?,
        lost_of_10000: layers.required(PLANE_LOSS, "0 … 90 percent", parse_loss)?,
    };
    if wanted.keys.is_some() && wanted.trusted {
        return Err(
            Problem::usage("--plane-key and --plane-trusted exclude each other")
                .hint("with a key nobody needs to be trusted"),
        );
    }
    Ok((wanted, device.unwrap_or(with)))
}

/// How nodes speak; and the device that they have with it if nobody says another.
fn parse_way(text: &str) -> Option<(Way, Device)> {
    if text == "kernel" {
        return Some((Way::Tcp, Device::Kernel));
    }
    Some((Way::named(text)?, Device::Off))
}

/// KiB, in bytes.
fn parse_buffer(text: &str) -> Option<usize> {
    let kib: usize = text.parse().ok()?;
    (4..=1 << 20).contains(&kib).then_some(kib << 10)
}

/// Percent, with fractions, as a share of 10 000.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 … 9000"
)]
fn parse_loss(text: &str) -> Option<u32> {
    let percent: f64 = text.parse().ok()?;
    let known = (0.0..=90.0).contains(&percent);
    known.then(|| (percent * 100.0).round() as u32)
}

fn bad_keys(error: BadKeys) -> Problem {
    let hint = error.hint();
    Problem::new(Exit::Usage, "plane_key", error).hint(hint)
}
