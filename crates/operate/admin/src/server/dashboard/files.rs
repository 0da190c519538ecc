//! Static files of the dashboard, compiled into the binary.

/// Static file of the dashboard.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct StaticFile {
    pub(super) path: &'static str,
    /// Value of the `Content-Type` header.
    pub(in super::super) kind: &'static str,
    pub(in super::super) text: &'static str,
}

macro_rules! file {
    ($path:expr, $kind:literal, $name:literal) => {
        StaticFile {
            path: $path,
            kind: concat!($kind, "; charset=utf-8"),
            text: include_str!($name),
        }
    };
}

macro_rules! script {
    ($name:literal) => {
        file!(concat!("/page/", $name), "text/javascript", $name)
    };
}

/// Style sheet with the colours that all web pages use.
pub(in super::super) const COLOURS_FILE: StaticFile =
    file!("/page/colours.css", "text/css", "colours.css");

pub(super) const ALL_FILES: &[StaticFile] = &[
    file!("/", "text/html", "index.html"),
    COLOURS_FILE,
    file!("/page/style.css", "text/css", "style.css"),
    file!("/page/icon.svg", "image/svg+xml", "icon.svg"),
    script!("main.js"),
    script!("elements.js"),
    script!("units.js"),
    script!("events.js"),
    script!("cluster.js"),
    script!("health.js"),
    script!("members.js"),
    script!("links.js"),
    script!("latency.js"),
    script!("curves.js"),
    script!("seconds.js"),
    script!("positions.js"),
    script!("reigns.js"),
    script!("tuning.js"),
    script!("actions.js"),
    script!("theme.js"),
];
