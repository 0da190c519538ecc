//! Cleans up after an interrupted task.

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
const INTERRUPTED: i32 = 130;

/// Processes and folder of one cluster.
#[derive(Debug)]
struct Leftovers {
    pids: Vec<u32>,
    folder: PathBuf,
}

static LEFTOVERS: Mutex<Vec<Leftovers>> = Mutex::new(Vec::new());

/// Registers what an interrupt ends and removes with this folder, replacing an earlier
/// registration.
pub fn register(pids: Vec<u32>, folder: &Path) {
    let mut leftovers = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    leftovers.retain(|one| one.folder != folder);
    leftovers.push(Leftovers { pids, folder: folder.to_owned() });
}

/// Forgets a folder whose processes have ended.
pub fn forget(folder: &Path) {
    let mut leftovers = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    leftovers.retain(|one| one.folder != folder);
}

/// Delays the clean-up of an interrupt while the guard is held.
pub fn hold() -> MutexGuard<'static, impl Sized> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on SIGINT and SIGTERM clean up before they end this process.
pub fn clean_up_on_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        if signals.forever().next().is_some() {
            clean_up();
            process::exit(INTERRUPTED);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

/// Ends and removes all that was registered, before this process ends. The lock is kept until then:
/// nothing new is started meanwhile.
pub fn clean_up() {
    let leftovers = LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in leftovers.iter().flat_map(|one| &one.pids) {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    for folder in leftovers.iter().map(|one| &one.folder) {
        // A dying process may still make a file.
        for _ in 0..100 {
            if fs::remove_dir_all(folder).is_ok() || !folder.exists() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    std::mem::forget(leftovers);
}
