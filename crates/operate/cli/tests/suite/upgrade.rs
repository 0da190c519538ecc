//! A new version replaces the old one on each node in turn while clients write. Nothing
//! acknowledged is lost, and no retrying client receives an error.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::common::{Cluster, program, wait_for};
use quorate_testbed::writers::Writers;

/// Number of writes acknowledged between two steps.
const STEP: u64 = 100;

/// Replaces the binary by a new file, as package managers do. Returns the inode of the new file.
/// Running processes keep using the old one.
fn replace(binary: &Path) -> u64 {
    let new = binary.with_extension("new");
    fs::copy(program(), &new).unwrap();
    fs::rename(&new, binary).unwrap();
    fs::metadata(binary).unwrap().ino()
}

/// Returns the inode of the file that a process runs.
fn runs(process: u32) -> u64 {
    let link = PathBuf::from(format!("/proc/{process}/exe"));
    fs::metadata(link).unwrap().ino()
}

fn wait_for_more(writers: &Writers) {
    let from = writers.acknowledged_count();
    wait_for("more acknowledged writes", || {
        (writers.acknowledged_count() >= from + STEP).then_some(())
    });
}

#[test]
fn a_binary_is_exchanged_under_load_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("quorate");
    fs::copy(program(), &binary).unwrap();
    let old = fs::metadata(&binary).unwrap().ino();
    let mut cluster = Cluster::start_program(&binary, 3, &[]);
    let writers = Writers::start_retrying(3, &cluster.clients());
    wait_for_more(&writers);
    let mut new = Vec::new();
    for id in 1..=3 {
        let file = replace(&binary);
        // The leader hands over its leadership before it ends.
        cluster.nodes.terminate(&[id]).unwrap();
        wait_for_more(&writers);
        cluster.node(id).restart().unwrap();
        // As an operator would, stop the next node only once this one serves.
        cluster.wait_until_all_serve();
        wait_for_more(&writers);
        new.push(file);
    }
    let run: Vec<u64> = (1..=3).map(|id| runs(cluster.node(id).id())).collect();
    assert_eq!(run, new);
    assert!(!run.contains(&old), "{run:?} has {old}, the first file");
    let keys = writers.compare(&mut cluster.nodes).unwrap();
    assert!(keys > 0, "nothing was acknowledged");
}
