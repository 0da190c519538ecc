//! Examines a machine: probes, a verdict for each plane, and the model's predictions.
//!
//! A library without output; `quorate doctor` shows the results. One file per probe ([`kernel`],
//! [`rights`], [`files`], [`cgroups`], [`memory`], [`interfaces`], [`buffers`], [`clock`],
//! [`load`], [`disk`] with [`flushes`] and [`honesty`], [`certificates`], [`uring`], [`multicast`],
//! [`peers`], [`nodes`]), each of which gives [`finding::Finding`]s; they read `/proc` and `/sys`
//! through [`system::System`], so that tests can bring their own. [`verdict`] judges each [`plane`]
//! by them, [`figures`] are the numbers behind predictions, [`predict`] asks the model, [`measure`]
//! compares them, [`reach`] asks members about multicast, [`trips`] are the paths between them,
//! [`monitoring`] makes one line of all of it, [`bundle`] one file without secrets ([`redact`]),
//! and [`examination`] is all of it in order.
//!
//! Unknowns are reported as such, with the reason: nothing is guessed.

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
