//! Small files behave the same in a folder and in memory, and are old or new after every crash.

use std::{collections::BTreeSet, fs};

use crate::disk::{DataFolder, DiskError, Fault, MemoryDisk, SmallFiles};

fn read(files: &impl SmallFiles, name: &str) -> Option<Vec<u8>> {
    files.read(name).unwrap()
}

fn replaced_as_a_whole(mut files: impl SmallFiles) {
    assert_eq!(read(&files, "a"), None);
    files.replace("a", b"long contents").unwrap();
    files.replace("b", b"").unwrap();
    files.replace("a", b"short").unwrap();
    assert_eq!(read(&files, "a").unwrap(), b"short");
    assert_eq!(read(&files, "b").unwrap(), b"");
    assert_eq!(read(&files, "c"), None);
}

#[test]
fn files_are_replaced_as_a_whole_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    // A crash left this file.
    fs::write(folder.path().join("a.new"), "longer than all that follows").unwrap();
    replaced_as_a_whole(DataFolder::new(folder.path()));
    let names = fs::read_dir(folder.path()).unwrap();
    let names: BTreeSet<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a", "b"].map(Into::into).into());
}

#[test]
fn files_are_replaced_as_a_whole_in_memory() {
    replaced_as_a_whole(MemoryDisk::new());
}

#[test]
fn folder_errors_name_the_failed_operation() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    let mut files = DataFolder::new(folder.path());
    let error = files.replace("a", b"x").unwrap_err();
    assert!(error.to_string().starts_with("rename to "), "{error}");
    let error = files.read("a").unwrap_err();
    assert!(error.to_string().starts_with("read "), "{error}");
    let error = DataFolder::new(&folder.path().join("b")).replace("c", b"x");
    assert!(error.unwrap_err().to_string().starts_with("create "));
}

/// Returns the contents found after a crash, over many seeds.
fn after_crash(seeds: u64, before: impl Fn(&mut MemoryDisk)) -> BTreeSet<Option<Vec<u8>>> {
    (0..seeds)
        .map(|seed| {
            let mut disk = MemoryDisk::new();
            disk.replace("a", b"old").unwrap();
            before(&mut disk);
            disk.crash(seed);
            assert!(!disk.is_alive());
            read(&disk.reopen_after_crash(), "a")
        })
        .collect()
}

fn set(contents: &[&[u8]]) -> BTreeSet<Option<Vec<u8>>> {
    contents.iter().map(|bytes| Some(bytes.to_vec())).collect()
}

#[test]
fn process_killed_during_a_change_leaves_old_or_new_contents() {
    let dies_after = |steps| {
        after_crash(50, move |disk| {
            let before = disk.stored_change_count();
            disk.die_after_changes(steps);
            let replaced = disk.replace("a", b"new");
            assert_eq!(replaced.is_ok(), steps >= 2);
            assert_eq!(disk.stored_change_count(), before + steps.min(2));
            assert_eq!(disk.is_alive(), steps > 2);
            if steps <= 2 {
                assert!(disk.read("a").is_err() && disk.replace("b", b"x").is_err());
                assert!(disk.reopen_after_crash().read("a").is_err(), "before the crash");
            }
        })
    };
    assert_eq!(dies_after(0), set(&[b"old"]));
    assert_eq!(dies_after(1), set(&[b"old", b"new"]));
    assert_eq!(dies_after(2), set(&[b"new"]));
    assert_eq!(dies_after(3), set(&[b"new"]));
}

#[test]
fn change_that_failed_after_its_rename_may_be_visible() {
    let fails = |renamed| {
        after_crash(50, move |disk| {
            disk.inject(Fault::ReplaceFails { renamed });
            let error: DiskError = disk.replace("a", b"new").unwrap_err();
            assert!(error.to_string().ends_with("device failed"), "{error}");
            let seen: &[u8] = if renamed { b"new" } else { b"old" };
            assert_eq!(read(disk, "a").unwrap(), seen);
        })
    };
    assert_eq!(fails(false), set(&[b"old"]));
    assert_eq!(fails(true), set(&[b"old", b"new"]));
}

#[test]
fn contents_kept_by_one_crash_may_be_lost_before_a_folder_sync() {
    let crashes = |synced: bool| {
        after_crash(200, move |disk| {
            disk.inject(Fault::ReplaceFails { renamed: true });
            disk.replace("a", b"new").unwrap_err();
            // This seed keeps the new contents.
            disk.crash(1);
            *disk = disk.reopen_after_crash();
            assert_eq!(read(disk, "a").unwrap(), b"new");
            if synced {
                disk.replace("b", b"x").unwrap();
            }
        })
    };
    assert_eq!(crashes(false), set(&[b"old", b"new"]));
    assert_eq!(crashes(true), set(&[b"new"]));
}

#[test]
fn new_file_may_be_missing_after_a_crash_of_its_first_change() {
    let seen: BTreeSet<_> = (0..50)
        .map(|seed| {
            let mut disk = MemoryDisk::new();
            disk.die_after_changes(1);
            disk.replace("a", b"first").unwrap_err();
            disk.crash(seed);
            read(&disk.reopen_after_crash(), "a")
        })
        .collect();
    assert_eq!(seen, [None, Some(b"first".to_vec())].into());
}

#[test]
fn disk_that_refuses_writes_replaces_nothing() {
    let mut disk = MemoryDisk::new();
    disk.set_read_only(true);
    disk.replace("a", b"x").unwrap_err();
    disk.set_read_only(false);
    disk.set_out_of_descriptors(true);
    disk.replace("a", b"x").unwrap_err();
    assert_eq!(disk.stored_change_count(), 0);
    disk.set_out_of_descriptors(false);
    disk.replace("a", b"x").unwrap();
}
