//! One node's failing disk: a process that serves a file system and injects the requested faults.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::mount::{UnmountFlags, unmount};

use crate::shell;

/// A mounted disk. Dropping it unmounts it and deletes its folder; no process may use it by then.
pub(super) struct MountedDisk {
    process: Child,
    command_input: Option<ChildStdin>,
    answer_output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl MountedDisk {
    /// Mounts an empty disk without faults.
    pub(super) fn mount() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("quorate-disk-").tempdir()?;
        let (under, place) = (folder.path().join("under"), folder.path().join("place"));
        fs::create_dir(&under)?;
        fs::create_dir(&place)?;
        let mut process = Command::new(shell::program_path("quorate-disk"))
            .args([&under, &place])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (words, answers) = (process.stdin.take(), process.stdout.take());
        let answers = answers.ok_or_else(|| io::Error::other("the disk has no answers"))?;
        let mut disk =
            Self { process, command_input: words, answer_output: BufReader::new(answers), folder };
        match disk.read_answer()?.as_str() {
            "mounted" => Ok(disk),
            other => Err(io::Error::other(format!("the disk said {other}"))),
        }
    }

    /// Returns the mounted folder, for use by a node.
    pub(super) fn mount_point(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    /// Returns the folder with the underlying files.
    pub(super) fn underlying_folder(&self) -> PathBuf {
        self.folder.path().join("under")
    }

    fn read_answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answer_output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Sends a command and returns the reply.
    pub(super) fn send_command(&mut self, words: &str) -> io::Result<String> {
        if let Some(to) = &mut self.command_input {
            writeln!(to, "{words}")?;
        }
        let answer = self.read_answer()?;
        match answer.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(io::Error::other(format!("the disk, {words}: {answer}"))),
        }
    }

    /// Returns the number of changes that a power cut could undo, and of faults already injected.
    pub(super) fn undoable_changes(&mut self) -> io::Result<usize> {
        self.send_command("prey")?.parse().map_err(io::Error::other)
    }

    /// Returns the number of writes and flushes that stay unanswered.
    pub(super) fn withheld_count(&mut self) -> io::Result<usize> {
        self.send_command("held")?.parse().map_err(io::Error::other)
    }
}

impl Drop for MountedDisk {
    /// Unmounts even if a process still has a file open or the disk's process no longer responds.
    fn drop(&mut self) {
        let _ = unmount(self.mount_point(), UnmountFlags::DETACH);
        drop(self.command_input.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lists all nonempty files below a folder whose names begin with one of the prefixes. `beginnings`
/// contains the prefixes, separated by commas.
pub(super) fn list_files(root: &Path, beginnings: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // The file may have been deleted in the meantime.
            let Ok(about) = entry.metadata() else {
                continue;
            };
            if about.is_dir() {
                folders.push(entry.path());
            } else if let Ok(name) = entry.path().strip_prefix(root) {
                let name = name.to_string_lossy().into_owned();
                if about.len() > 0 && beginnings.split(',').any(|one| name.starts_with(one)) {
                    found.push(name);
                }
            }
        }
    }
    found.sort();
    Ok(found)
}
