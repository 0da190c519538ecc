//! Experiments that compare the planes and devices of nodes, on segments of one or several speeds,
//! and bare echoes.

use quorate_bench::{
    device::{BY_FRAMES_SUFFIX, DeviceKind, plane_and_device},
    lan::Lan,
};
use serde::Deserialize;

use super::{Kind, PublishedFigure, Run};
use crate::echo;

/// Planes that an experiment may name, because they need nothing but a segment.
const NAMED_PLANES: [&str; 4] = ["tcp", "udp", "multicast", "ethernet"];

/// Combinations of nodes and link speeds to compare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ways {
    pub nodes: Vec<PlaneAndDevice>,
    /// Link speeds such as `1gbit`, none higher than that of the run.
    pub links: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaneAndDevice {
    /// Plane, named as in `--plane`.
    pub plane: String,
    /// Device, named as in `--device`; absent if nodes vote without a device.
    pub device: Option<DeviceKind>,
    /// Set if clients send frames to the leader's device, so that no node handles their commands.
    #[serde(default)]
    pub frames: bool,
}

impl PlaneAndDevice {
    pub fn name(&self) -> String {
        let by_frames = if self.frames { BY_FRAMES_SUFFIX } else { "" };
        plane_and_device(&self.plane, self.device) + by_frames
    }
}

/// Returns whether combinations are present if and only if the run is of kind [`Kind::Ways`], and
/// whether all combinations and echo sizes are possible.
pub(super) fn is_consistent(run: &Run) -> bool {
    let is_ways = run.kind == Kind::Ways;
    let possible = run.ways.as_ref().is_some_and(|ways| {
        let widest = Lan::parse_speed(&run.lan).map_or(0, |lan| lan.link_megabits());
        let slower =
            |link: &String| Lan::parse_speed(link).is_some_and(|lan| lan.link_megabits() <= widest);
        let spoken = |one: &PlaneAndDevice| {
            let excluded =
                one.device.is_some_and(|device| device.conflicts_with_plane(Some(&one.plane)));
            let heard = !one.frames || one.device.is_some_and(DeviceKind::needs_segment);
            NAMED_PLANES.contains(&one.plane.as_str()) && !excluded && heard
        };
        !ways.nodes.is_empty()
            && !ways.links.is_empty()
            && ways.nodes.iter().all(spoken)
            && ways.links.iter().all(slower)
    });
    let echoed =
        |bytes: &usize| (echo::MESSAGE_BYTES_MIN..=echo::MESSAGE_BYTES_MAX).contains(bytes);
    let is_echo = run.kind == Kind::Echo;
    let possible_echo = !run.clients.is_empty() && run.value_bytes.iter().all(echoed);
    is_ways == run.ways.is_some() && (!is_ways || possible) && (!is_echo || possible_echo)
}

/// Returns whether the figure names a row to compare with that is part of the run.
pub(super) fn includes_figure(run: &Run, figure: &PublishedFigure) -> bool {
    if run.kind == Kind::Echo {
        let plane = figure.plane.as_deref();
        return plane.and_then(echo::EchoTransport::from_name).is_some() && figure.link.is_none();
    }
    let Some(ways) = &run.ways else {
        return figure.plane.is_none() && figure.link.is_none();
    };
    let named = |plane: &String| ways.nodes.iter().any(|one| one.name() == *plane);
    figure.plane.as_ref().is_some_and(named)
        && figure.link.as_ref().map_or(ways.links.len() == 1, |link| ways.links.contains(link))
}
