//! Resolves the settings of the plane, the transport between nodes.

use std::path::Path;

use quorate_net::{
    device::Kind as Device,
    plane::{BadKeys, FrameAccess, KeyFile, PlaneSettings},
};
use quorate_replica::status::PlaneKind;

use super::{
    layers::Layers,
    settings::{PLANE_BUFFER, PLANE_LOSS},
};
use crate::{
    boxes::wrap_processes,
    output::{Exit, Problem},
    values::{Number, Unit, switch},
};

/// Bounds for the link speed. The maximum is one terabit per second.
const LINK_SPEED_BOUNDS: Number = Number::between(1, 1_000_000, Unit::Megabits);
/// Bounds for the datagram receive buffer.
const RECEIVE_BUFFER_BOUNDS: Number = Number::between(4, 1 << 20, Unit::KiB);

/// Resolves the plane and device settings.
pub(super) fn resolve_plane(layers: &Layers<'_>) -> Result<(PlaneSettings, Device), Problem> {
    let (way, with) = layers.required(
        "plane",
        "tcp, udp, chain, multicast, ethernet, kernel or auto",
        parse_plane,
    )?;
    let device = layers.optional(
        "device",
        "off, udp, packet, tc, kernel, p4, rtl:FOLDER or process:COMMAND",
        Device::from_name,
    )?;
    let file = layers
        .optional("plane-key", "a path", |text| (!text.is_empty()).then(|| text.to_owned()))?;
    let keys = file.map(|file| KeyFile::read(Path::new(&file)));
    let wanted = PlaneSettings {
        plane_kind: way,
        interface: layers.optional(
            "plane-interface",
            "the name of a network interface",
            |text| (!text.is_empty()).then(|| text.to_owned()),
        )?,
        group: layers.optional("plane-group", "ADDRESS:PORT", |text| text.parse().ok())?,
        keys: keys.transpose().map_err(key_file_problem)?,
        trusted: layers.optional("plane-trusted", "on or off", switch)?.unwrap_or_default(),
        megabits: layers.optional_number("plane-speed", LINK_SPEED_BOUNDS)?,
        receive_bytes: layers
            .optional_number::<usize>(PLANE_BUFFER, RECEIVE_BUFFER_BOUNDS)?
            .map(|kib| kib << 10),
        frames: layers.required("plane-ethernet", "auto, packet or xdp", FrameAccess::from_name)?,
        drops_per_10000: layers.required(PLANE_LOSS, "between 0 and 90 percent", parse_loss)?,
    };
    if wanted.keys.is_some() && wanted.trusted {
        return Err(Problem::usage_error("--plane-key and --plane-trusted exclude each other")
            .with_hint("leave out --plane-trusted: datagrams are authenticated by the key"));
    }
    Ok((wanted, wrap_processes(device.unwrap_or(with))))
}

/// Parses the name of a plane. Returns the plane with its default device.
fn parse_plane(text: &str) -> Option<(PlaneKind, Device)> {
    if text == "kernel" {
        return Some((PlaneKind::Tcp, Device::Kernel));
    }
    Some((PlaneKind::from_name(text)?, Device::Off))
}

/// Parses a percentage to parts per 10 000. The percentage may have a fraction.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 … 9000")]
fn parse_loss(text: &str) -> Option<u32> {
    let percent: f64 = text.parse().ok()?;
    let known = (0.0..=90.0).contains(&percent);
    known.then(|| (percent * 100.0).round() as u32)
}

fn key_file_problem(error: BadKeys) -> Problem {
    let hint = error.hint();
    Problem::new(Exit::Usage, "plane_key", error).with_hint(hint)
}
