//! `quorate box COMMAND…`: runs an external device process that is killed when its node ends.
//!
//! A device process notices the end of its input when its node ends, but not while the process is
//! stopped. This program therefore makes the kernel kill it, by a request between fork and exec
//! that needs no unsafe code.

use std::{env, os::unix::process::CommandExt as _, process::Command};

use clap::Args;
use quorate_net::device::Kind as Device;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::output::{Exit, Problem};

/// Arguments of `quorate box`.
#[derive(Args, Debug)]
pub(crate) struct BoxArgs {
    /// The program, and its words
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Wraps all external device processes of a device in `quorate box`.
pub(crate) fn wrap_processes(device: Device) -> Device {
    let own = env::current_exe().ok().and_then(|own| own.to_str().map(str::to_owned));
    match own {
        Some(own) => device.with_launcher(&[own, "box".to_owned()]),
        None => device,
    }
}

/// Replaces this process with the command.
pub(crate) fn run(args: &BoxArgs) -> Result<Exit, Problem> {
    let [command, rest @ ..] = &*args.words else {
        return Err(Problem::usage_error("box needs a command"));
    };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Problem::io_error("ask for the end of a box", &error.into()))?;
    let error = Command::new(command).args(rest).exec();
    Err(Problem::io_error(format!("run the box {command}"), &error))
}
