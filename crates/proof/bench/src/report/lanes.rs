//! Command timelines as a self-contained SVG image. Each kind of cluster has a panel, each process
//! has a lane, and time runs from left to right.

use std::fmt::Write as _;

use super::svg::{AxisRange, Scale, escape_xml};
use crate::life::{CommandTimeline, ReachedHop, TimelineLane};

const WIDTH: f64 = 1180.0;
const LEFT_MARGIN: f64 = 92.0;
const RIGHT_MARGIN: f64 = 40.0;
/// Height above the first lane for title and ticks, in pixels.
const HEADER_HEIGHT: f64 = 62.0;
/// Vertical gap between two panels, in pixels.
const PANEL_GAP: f64 = 26.0;
/// Vertical distance from a lane's line to the first row of labels, and between rows of labels, in
/// pixels.
const LABEL_OFFSET: f64 = 15.0;
const LABEL_ROW_HEIGHT: f64 = 13.0;
/// Height above a lane's line for the example command, in pixels.
const EXAMPLE_HEIGHT: f64 = 20.0;
/// Approximate width of a letter in a label, in pixels.
const LETTER_WIDTH: f64 = 6.3;
const FOOTER_HEIGHT: f64 = 22.0;

const SVG_STYLE: &str = "text{font:11px system-ui,sans-serif;fill:#111;stroke:#fff;stroke-width:3px;\
paint-order:stroke}.title{font-size:14px;font-weight:600}\
.tick{fill:#555}.grid{stroke:#e4e4e4}.lane{stroke:#888}.leader{stroke:#bbb}.message{stroke:#0072b2;fill:none}\
.typical{fill:#fff;stroke:#d55e00}.hop{fill:#0072b2}";

/// Renders all panels, one below the other.
pub(super) fn render_lanes(lives: &[CommandTimeline]) -> String {
    let mut panels = String::new();
    let mut top = 0.0;
    for life in lives {
        draw_panel(life, &mut top, &mut panels);
        top += PANEL_GAP;
    }
    let height = top + FOOTER_HEIGHT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"The life of one command\">\n<style>{SVG_STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{panels}\
         <text class=\"tick\" x=\"{LEFT_MARGIN}\" y=\"{:.1}\">Filled points: medians. Hollow points: one command in the \
         middle. Times in microseconds since the client's send. Lines: frames and replies.</text>\n</svg>\n",
        height - 10.0
    )
}

/// Horizontal start and row of a label.
struct LabelPosition {
    text: String,
    anchor_x: f64,
    left_x: f64,
    row: u32,
}

fn draw_panel(life: &CommandTimeline, top: &mut f64, svg: &mut String) {
    let hops = || life.lanes.iter().flat_map(|lane| &lane.hops);
    let times = hops().flat_map(|hop| [hop.p50_us, hop.typical_us]);
    let Some(ruler) = AxisRange::new(Scale::Linear, times) else {
        return;
    };
    let across = |us: f64| {
        LEFT_MARGIN + ruler.position_of(us).unwrap_or(0.0) * (WIDTH - LEFT_MARGIN - RIGHT_MARGIN)
    };
    let labels: Vec<Vec<LabelPosition>> =
        life.lanes.iter().map(|lane| place_labels(lane, &across)).collect();
    let mut lines = Vec::new();
    let mut bottom = *top + HEADER_HEIGHT;
    for labels in &labels {
        let rows = labels.iter().map(|label| label.row + 1).max().unwrap_or(0);
        lines.push(bottom + EXAMPLE_HEIGHT);
        bottom += EXAMPLE_HEIGHT + LABEL_OFFSET + f64::from(rows) * LABEL_ROW_HEIGHT;
    }
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"{LEFT_MARGIN}\" y=\"{:.1}\">{}</text>",
        *top + 22.0,
        escape_xml(&panel_title(life))
    );
    for tick in ruler.ticks() {
        let at = across(*tick);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} {:.1}V{bottom:.1}\"/>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{tick} µs</text>",
            *top + HEADER_HEIGHT - 16.0,
            *top + HEADER_HEIGHT - 22.0
        );
    }
    draw_messages(life, &lines, &across, svg);
    for ((lane, labels), line) in life.lanes.iter().zip(&labels).zip(&lines) {
        draw_lane(lane, labels, *line, &across, svg);
    }
    *top = bottom;
}

fn panel_title(life: &CommandTimeline) -> String {
    let plane = life.plane.as_deref().map(|plane| format!(", {plane}"));
    format!(
        "{}{}, {} B, one command in flight: p50 {} µs, p99 {} µs, {} commands",
        life.durability,
        plane.unwrap_or_default(),
        life.value_bytes,
        life.p50_us,
        life.p99_us,
        life.commands
    )
}

/// Puts each label into the first row in which it overlaps no other label.
fn place_labels(lane: &TimelineLane, across: &impl Fn(f64) -> f64) -> Vec<LabelPosition> {
    let mut ends: Vec<f64> = Vec::new();
    let label = |hop: &ReachedHop| {
        let text = format!("{} {}", hop.hop, hop.p50_us);
        let (at, width) = (across(hop.p50_us), text.chars().count() as f64 * LETTER_WIDTH);
        let left = (at - 3.0).min(WIDTH - width - 2.0);
        let free = ends.iter().position(|end| *end <= left);
        let row = free.unwrap_or(ends.len());
        if free.is_none() {
            ends.push(0.0);
        }
        ends[row] = left + width + 6.0;
        LabelPosition { text, anchor_x: at, left_x: left, row: row as u32 }
    };
    lane.hops.iter().map(label).collect()
}

fn draw_lane(
    lane: &TimelineLane,
    labels: &[LabelPosition],
    line: f64,
    across: &impl Fn(f64) -> f64,
    svg: &mut String,
) {
    let _ = writeln!(
        svg,
        "<path class=\"lane\" d=\"M{LEFT_MARGIN} {line:.1}H{:.1}\"/>\
         <text text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        WIDTH - RIGHT_MARGIN,
        LEFT_MARGIN - 8.0,
        line + 4.0,
        escape_xml(&lane.name)
    );
    for label in labels {
        let below = line + LABEL_OFFSET + f64::from(label.row) * LABEL_ROW_HEIGHT;
        let _ = writeln!(
            svg,
            "<path class=\"leader\" d=\"M{0:.1} {line:.1}V{1:.1}\"/>\
             <text x=\"{2:.1}\" y=\"{below:.1}\">{3}</text>",
            label.anchor_x,
            below - 9.0,
            label.left_x,
            escape_xml(&label.text)
        );
    }
    for hop in &lane.hops {
        if hop.typical_us.is_finite() {
            let _ = write!(
                svg,
                "<circle class=\"typical\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\"/>",
                across(hop.typical_us),
                line - 8.0
            );
        }
        let _ = writeln!(
            svg,
            "<circle class=\"hop\" cx=\"{:.1}\" cy=\"{line:.1}\" r=\"3\"/>",
            across(hop.p50_us)
        );
    }
}

/// Draws an arrow from the send to the read of each message: the command, the proposals, the first
/// vote to be read, and the reply.
fn draw_messages(
    life: &CommandTimeline,
    lines: &[f64],
    across: &impl Fn(f64) -> f64,
    svg: &mut String,
) {
    let [client, leader, followers @ ..] = &life.lanes[..] else {
        return;
    };
    let first = |lane: &TimelineLane, name: &str, after: f64| {
        let mut hops = lane.hops.iter();
        let found = hops.find(|hop| hop.hop == name && hop.p50_us >= after);
        found.map(|hop| hop.p50_us)
    };
    let mut draw = |(from, left): (usize, Option<f64>), (to, came): (usize, Option<f64>)| {
        if let (Some(left), Some(came)) = (left, came) {
            let _ = writeln!(
                svg,
                "<path class=\"message\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>",
                across(left),
                lines[from],
                across(came),
                lines[to]
            );
        }
    };
    draw((0, Some(0.0)), (1, first(leader, "command", 0.0)));
    let proposed = first(leader, "proposed", 0.0);
    let left = proposed.and_then(|at| first(leader, "sending", at));
    let mut voted = None;
    for (lane, follower) in followers.iter().enumerate() {
        draw((1, left), (lane + 2, first(follower, "frame", 0.0)));
        let votes = first(follower, "voted", 0.0).and_then(|at| first(follower, "sending", at));
        let earlier = voted.is_none_or(|(_, at)| votes.is_some_and(|votes| votes < at));
        if let (Some(votes), true) = (votes, earlier) {
            voted = Some((lane + 2, votes));
        }
    }
    if let Some((lane, at)) = voted {
        draw((lane, Some(at)), (1, first(leader, "frame", at)));
    }
    let replied = client.hops.last().map(|hop| hop.p50_us);
    draw((1, first(leader, "replying", 0.0)), (0, replied));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(hop: &'static str, p50_us: f64) -> ReachedHop {
        ReachedHop { hop, p50_us, p99_us: p50_us, typical_us: p50_us + 1.0, share: 1.0 }
    }

    fn lane(name: &str, hops: &[(&'static str, f64)]) -> TimelineLane {
        TimelineLane {
            name: name.to_owned(),
            hops: hops.iter().map(|(hop, at)| reached(hop, *at)).collect(),
        }
    }

    #[test]
    fn picture_has_a_point_per_hop_and_a_line_per_message() {
        let life = CommandTimeline {
            durability: "volatile".to_owned(),
            plane: Some("<udp>".to_owned()),
            value_bytes: 64,
            commands: 7,
            p50_us: 50.0,
            p99_us: 90.0,
            typical_us: 51.0,
            lanes: vec![
                lane("client", &[("sent", 0.0), ("replied", 50.0)]),
                lane(
                    "leader",
                    &[
                        ("command", 10.0),
                        ("proposed", 11.0),
                        ("sending", 11.1),
                        ("frame", 40.0),
                        ("replying", 42.0),
                    ],
                ),
                lane("node 2", &[("frame", 20.0), ("voted", 21.0), ("sending", 30.0)]),
                lane("node 3", &[("frame", 19.0), ("voted", 21.0), ("sending", 25.0)]),
            ],
        };
        let svg = render_lanes(&[life.clone(), life]);
        assert_eq!(svg.matches("class=\"hop\"").count(), 2 * 13);
        assert_eq!(svg.matches("class=\"message\"").count(), 2 * 5);
        assert!(svg.contains("&lt;udp&gt;") && !svg.contains("<udp>"));
        // Labels of neighbouring hops are placed below each other.
        let rows: Vec<&str> = svg.lines().filter(|line| line.contains(">sending 11.1<")).collect();
        let first = svg.lines().find(|line| line.contains(">proposed 11<")).unwrap();
        let y =
            |line: &str| line.rsplit_once("y=\"").unwrap().1.split('"').next().unwrap().to_owned();
        assert_ne!(y(rows[0]), y(first));
    }
}
