//! Tests of `quorate-tools` as its users run it, through `quorate`.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod bench;
mod commit;
#[path = "../../../../operate/cli/tests/suite/common/mod.rs"]
mod common;
mod doctor;
mod manual;
mod tune;
mod wan;
