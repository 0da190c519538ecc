//! `quorate-disk FOLDER PLACE`: mounts a folder at another path, through a file system that injects
//! the faults of a failing disk. It reads commands from standard input, one per line, answers each
//! with a line, and exits at the end of its input. `cargo xtask disks` starts it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line")]

mod files;
mod journal;
mod names;
mod sizes;
mod state;
mod tree;

use std::{
    io::{self, BufRead as _},
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use fuser::{Config, MountOption};

use state::FaultyDisk;
use tree::FaultyTree;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let served = match words.as_slice() {
        [folder, place] => serve_disk(Path::new(folder), Path::new(place)),
        _ => Err(io::Error::other("quorate-disk FOLDER PLACE")),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_disk(folder: &Path, place: &Path) -> io::Result<()> {
    let state = Arc::new(Mutex::new(FaultyDisk::new(folder)?));
    let tree = FaultyTree::new(Arc::clone(&state));
    let mut how = Config::default();
    how.mount_options =
        vec![MountOption::FSName("quorate-disk".to_owned()), MountOption::DefaultPermissions];
    let mounted = fuser::spawn_mount(tree, place, &how)?;
    println!("mounted");
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{}", execute_command(&mut state, &words));
    }
    mounted.umount_and_join()
}

fn execute_command(state: &mut FaultyDisk, words: &[&str]) -> String {
    let done = match words {
        ["arm", fault, chosen, seed] => seed
            .parse()
            .map_err(|_| "no seed".to_owned())
            .and_then(|seed| state.arm_fault(fault, chosen, seed)),
        ["hold"] => {
            state.withhold_replies();
            Ok(())
        }
        ["cut"] => state.cut_power().map_err(|error| error.to_string()),
        ["calm"] => {
            state.stop_faults();
            Ok(())
        }
        ["prey"] => return format!("ok {}", state.undoable_changes()),
        ["held"] => return format!("ok {}", state.withheld_count()),
        ["done"] => {
            return format!("ok {}", summarize(&std::mem::take(&mut state.injected_faults)));
        }
        other => Err(format!("not understood: {other:?}")),
    };
    match done {
        Ok(()) => "ok".to_owned(),
        Err(why) => format!("failed {why}"),
    }
}

/// Joins the first three items of a list, and counts the others.
fn summarize(done: &[String]) -> String {
    const SHOWN: usize = 3;
    let first = done[..done.len().min(SHOWN)].join("; ");
    match done.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first}; {more} more"),
    }
}
