//! Chart as inline SVG, with linear or logarithmic axes.

use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT_MARGIN: f64 = 64.0;
const RIGHT_MARGIN: f64 = 16.0;
const TOP_MARGIN: f64 = 28.0;
const BOTTOM_MARGIN: f64 = 44.0;
/// Colours that people with colour blindness can distinguish (Okabe and Ito).
const LINE_COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) scale: Scale,
}

/// A line of points, with its name in the legend.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

/// Range and ticks of an axis.
pub(super) struct AxisRange {
    scale: Scale,
    from: f64,
    end: f64,
    ticks: Vec<f64>,
}

impl AxisRange {
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values
            .filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0))
            .collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let greatest = values.iter().copied().reduce(f64::max)?;
        Some(match scale {
            Scale::Linear => Self::linear(greatest),
            Scale::Log => Self::log(least, greatest),
        })
    }

    /// Returns a linear axis that begins at zero, because any other start would exaggerate
    /// differences.
    fn linear(greatest: f64) -> Self {
        let greatest = if greatest > 0.0 { greatest } else { 1.0 };
        let raw = greatest / 5.0;
        let power = 10_f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= raw).unwrap_or(raw);
        let count = (greatest / step).ceil() as u32;
        Self {
            scale: Scale::Linear,
            from: 0.0,
            end: step * f64::from(count),
            ticks: (0..=count).map(|n| step * f64::from(n)).collect(),
        }
    }

    fn log(least: f64, greatest: f64) -> Self {
        let first = least.log10().floor() as i32;
        let last = (greatest.log10().ceil() as i32).max(first + 1);
        Self {
            scale: Scale::Log,
            from: 10_f64.powi(first),
            end: 10_f64.powi(last),
            ticks: (first..=last).map(|power| 10_f64.powi(power)).collect(),
        }
    }

    /// Returns the values at which the axis has ticks, lowest first.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Returns the position of a value on the axis, 0 to 1; `None` if it has no logarithm.
    pub(super) fn position_of(&self, value: f64) -> Option<f64> {
        match self.scale {
            Scale::Linear => Some((value - self.from) / (self.end - self.from)),
            Scale::Log if value <= 0.0 => None,
            Scale::Log => Some((value / self.from).log10() / (self.end / self.from).log10()),
        }
    }
}

fn format_tick(value: f64) -> String {
    let (value, unit) = match value.abs() {
        big if big >= 1e6 => (value / 1e6, "M"),
        big if big >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

pub fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// Renders the chart; returns an empty string if it has no points.
    pub(super) fn render(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = AxisRange::new(self.x.scale, points().map(|(x, _)| *x));
        let y = AxisRange::new(self.y.scale, points().map(|(_, y)| *y));
        let (Some(x), Some(y)) = (x, y) else {
            return String::new();
        };
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\">\n\
             <text class=\"title\" x=\"{LEFT_MARGIN}\" y=\"16\">{0}</text>\n",
            escape_xml(&self.title)
        );
        self.draw_axes(&x, &y, &mut svg);
        for (index, series) in self.series.iter().enumerate() {
            let colour = LINE_COLOURS[index % LINE_COLOURS.len()];
            draw_line(series, colour, &x, &y, &mut svg);
        }
        svg.push_str("</svg>\n");
        svg.push_str(&self.draw_legend());
        svg
    }

    fn draw_axes(&self, x: &AxisRange, y: &AxisRange, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT_MARGIN, HEIGHT - BOTTOM_MARGIN);
        for tick in &x.ticks {
            let at = to_x(x.position_of(*tick).unwrap_or(0.0));
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{at:.1} {TOP_MARGIN}V{bottom}\"/>\
                 <text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 14.0,
                format_tick(*tick)
            );
        }
        for tick in &y.ticks {
            let at = to_y(y.position_of(*tick).unwrap_or(0.0));
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT_MARGIN} {at:.1}H{right}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT_MARGIN - 6.0,
                at + 4.0,
                format_tick(*tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"label\" text-anchor=\"end\" x=\"{right}\" y=\"{:.1}\">{}</text>\n\
             <text class=\"label\" text-anchor=\"end\" transform=\"translate(12 {TOP_MARGIN}) rotate(-90)\">{}</text>",
            HEIGHT - 8.0,
            escape_xml(self.x.label),
            escape_xml(self.y.label)
        );
    }

    fn draw_legend(&self) -> String {
        let mut list = String::from("<ul class=\"legend\">");
        for (index, series) in self.series.iter().enumerate() {
            let colour = LINE_COLOURS[index % LINE_COLOURS.len()];
            let name = escape_xml(&series.name);
            let _ = write!(list, "<li><i style=\"background:{colour}\"></i>{name}</li>");
        }
        list.push_str("</ul>\n");
        list
    }
}

fn draw_line(series: &Series, colour: &str, x: &AxisRange, y: &AxisRange, svg: &mut String) {
    let place = |(a, b): &(f64, f64)| Some((to_x(x.position_of(*a)?), to_y(y.position_of(*b)?)));
    let places: Vec<(f64, f64)> = series.points.iter().filter_map(place).collect();
    let text: Vec<String> =
        places.iter().map(|(across, down)| format!("{across:.1},{down:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
        text.join(" ")
    );
    for (across, down) in places {
        let _ = writeln!(
            svg,
            "<circle cx=\"{across:.1}\" cy=\"{down:.1}\" r=\"3\" fill=\"{colour}\"/>"
        );
    }
}

fn to_x(place: f64) -> f64 {
    LEFT_MARGIN + place * (WIDTH - LEFT_MARGIN - RIGHT_MARGIN)
}

fn to_y(place: f64) -> f64 {
    HEIGHT - BOTTOM_MARGIN - place * (HEIGHT - TOP_MARGIN - BOTTOM_MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let ruler = AxisRange::linear(93_000.0);
        assert_eq!(ruler.ticks, [0.0, 20e3, 40e3, 60e3, 80e3, 100e3]);
        let ruler = AxisRange::log(30.0, 2500.0);
        assert_eq!(ruler.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
        assert!(ruler.position_of(0.0).is_none());
    }

    #[test]
    fn numbers_are_abbreviated() {
        let texts = [0.0, 0.5, 1500.0, 2_000_000.0].map(format_tick);
        assert_eq!(texts, ["0", "0.5", "1.5k", "2M"]);
    }

    #[test]
    fn names_in_charts_are_escaped() {
        assert_eq!(escape_xml("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    #[test]
    fn chart_without_points_is_omitted() {
        let axis = |label| Axis { label, scale: Scale::Log };
        let chart = Chart { title: String::new(), x: axis("x"), y: axis("y"), series: Vec::new() };
        assert!(chart.render().is_empty());
    }
}
