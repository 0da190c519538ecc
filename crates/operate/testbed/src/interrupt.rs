//! Cleans up processes and folders when this process is interrupted.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

/// Exit code of an interrupted command.
const INTERRUPTED_EXIT_CODE: i32 = 130;

/// Process ids and data folder of one cluster.
#[derive(Debug)]
struct Leftovers {
    pids: Vec<u32>,
    folder: PathBuf,
}

static LEFTOVERS: Mutex<Vec<Leftovers>> = Mutex::new(Vec::new());

/// Registers the processes to kill and the folder to remove on an interrupt. Replaces an earlier
/// registration of the same folder.
pub fn register_cleanup(pids: Vec<u32>, folder: &Path) {
    let mut leftovers = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    leftovers.retain(|one| one.folder != folder);
    leftovers.push(Leftovers { pids, folder: folder.to_owned() });
}

/// Removes the registration of a folder, whose processes must have ended.
pub fn unregister_cleanup(folder: &Path) {
    let mut leftovers = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    leftovers.retain(|one| one.folder != folder);
}

/// Returns a guard that delays the cleanup of an interrupt until it is dropped.
pub fn delay_cleanup() -> MutexGuard<'static, impl Sized> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes SIGINT and SIGTERM clean up before this process ends.
pub fn clean_up_on_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        if signals.forever().next().is_some() {
            clean_up();
            process::exit(INTERRUPTED_EXIT_CODE);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

/// Kills all registered processes and removes their folders. Holds the lock until this process
/// exits, so that no other process can be started.
pub fn clean_up() {
    let leftovers = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in leftovers.iter().flat_map(|one| &one.pids) {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    for folder in leftovers.iter().map(|one| &one.folder) {
        // A process may still create a file while it is being killed, so removal is retried.
        for _ in 0..100 {
            if fs::remove_dir_all(folder).is_ok() || !folder.exists() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    std::mem::forget(leftovers);
}
