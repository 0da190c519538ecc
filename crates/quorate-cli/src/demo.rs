//! `quorate demo`: three nodes, a killed leader, nothing lost.
use clap::Args;

use crate::output::{Exit, Output, Problem};

/// Flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {}

/// Runs the command.
pub(crate) fn run(_: &DemoArgs, _: Output) -> Result<Exit, Problem> {
    Ok(Exit::Done)
}
