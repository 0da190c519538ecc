//! Machine examination: findings, a verdict for each plane, and the model's predictions.
//!
//! This library prints nothing; `quorate doctor` shows the results. Each probe has its own file
//! ([`kernel`], [`rights`], [`files`], [`cgroups`], [`memory`], [`interfaces`], [`buffers`],
//! [`clock`], [`load`], [`disk`] with [`flushes`] and [`honesty`], [`certificates`], [`uring`],
//! [`multicast`], [`peers`], [`nodes`]) and returns [`finding::Finding`]s. Probes read `/proc` and
//! `/sys` through [`system::SystemFiles`], so that tests can replace them. [`verdict`] evaluates
//! each [`plane`] by the findings, [`figures`] are the numbers behind predictions, [`predict`]
//! applies the model, [`measure`] compares its results with measurements, [`reach`] tests multicast
//! between members, [`trips`] are the paths between members, [`monitoring`] reduces a report to one
//! line, [`bundle`] packs everything into one file without secrets ([`redact`]), and
//! [`examination`] runs all of it in order.
//!
//! Unknowns are reported as such, with the reason; nothing is guessed.

pub mod buffers;
pub mod bundle;
pub mod certificates;
pub mod cgroups;
pub mod clock;
pub mod disk;
pub mod examination;
pub mod figures;
pub mod files;
pub mod finding;
pub mod flushes;
pub mod honesty;
pub mod interfaces;
pub mod kernel;
pub mod load;
pub mod measure;
pub mod memory;
pub mod monitoring;
pub mod mounts;
pub mod multicast;
pub mod nodes;
pub mod peers;
pub mod plane;
pub mod predict;
pub mod reach;
pub mod redact;
pub mod rights;
pub mod system;
pub mod trips;
pub mod uring;
pub mod verdict;
