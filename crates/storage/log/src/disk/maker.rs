//! Threads for slow disk operations: creating, renaming and removing files, and replacing small
//! ones.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use crate::disk::{
    Completed, DataFolder, Family, FileId, SmallFiles as _, ZeroFill,
    folder::{FileSystemFeatures, Folder, Home},
    mailbox::Mailbox,
    pace::Pace,
};

enum Job {
    Prepare { file: FileId, bytes: u64, zeros: ZeroFill },
    Retire { file: FileId },
    Reuse { from: FileId, to: FileId },
    ReplaceSmallFile { token: u64, name: &'static str, bytes: Vec<u8> },
    ReadSmallFile { token: u64, name: &'static str },
}

/// One thread per family, so that no family waits for another's files, and one for small files,
/// because the creation of a log segment pauses while the log writes.
#[derive(Debug)]
pub(crate) struct FileMakers {
    family_makers: Vec<Maker>,
    small_file_maker: Maker,
}

impl FileMakers {
    pub(crate) fn start(folder: &Folder, mailbox: &Mailbox<Completed>) -> io::Result<Self> {
        let homes = folder.homes().iter();
        let makers: io::Result<_> = Family::all()
            .zip(homes)
            .map(|(family, home)| {
                Maker::start(family.newest_record_name(), home, folder, mailbox.clone())
            })
            .collect();
        let any = folder.home(Family::Log);
        Ok(Self {
            family_makers: makers?,
            small_file_maker: Maker::start("small files", any, folder, mailbox.clone())?,
        })
    }

    fn of(&self, family: Family) -> &Maker {
        &self.family_makers[family as usize]
    }

    /// Implements [`crate::disk::Disk::pace_file_creation`].
    pub(crate) fn pace_prepare(&self, family: Family, bytes: u64) {
        self.of(family).pace.note_write(bytes);
    }

    /// Implements [`crate::disk::Disk::hurry_file_creation`].
    pub(crate) fn hurry_prepare(&self, family: Family) {
        self.of(family).pace.end_pauses();
    }

    /// Implements [`crate::disk::Disk::start_prepare`].
    pub(crate) fn prepare(&self, file: FileId, bytes: u64, zeros: ZeroFill) {
        let maker = self.of(file.family);
        maker.pace.relax();
        maker.send_job(Job::Prepare { file, bytes, zeros });
    }

    /// Implements [`crate::disk::Disk::start_retire`].
    pub(crate) fn retire(&self, file: FileId) {
        self.of(file.family).send_job(Job::Retire { file });
    }

    /// Implements [`crate::disk::Disk::start_reuse`].
    pub(crate) fn reuse(&self, from: FileId, to: FileId) {
        self.of(to.family).send_job(Job::Reuse { from, to });
    }

    /// Implements [`crate::disk::Disk::start_replace_small_file`].
    pub(crate) fn replace_small_file(&self, token: u64, name: &'static str, bytes: Vec<u8>) {
        self.small_file_maker.send_job(Job::ReplaceSmallFile { token, name, bytes });
    }

    /// Implements [`crate::disk::Disk::start_read_small_file`].
    pub(crate) fn read_small_file(&self, token: u64, name: &'static str) {
        self.small_file_maker.send_job(Job::ReadSmallFile { token, name });
    }
}

#[derive(Debug)]
struct Maker {
    pace: Arc<Pace>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    fn start(
        name: &str,
        home: &Home,
        folder: &Folder,
        mailbox: Mailbox<Completed>,
    ) -> io::Result<Self> {
        let (jobs, receiver) = channel();
        let pace = Arc::new(Pace::default());
        let worker = Worker {
            jobs: receiver,
            mailbox,
            pace: Arc::clone(&pace),
            data: folder.data().clone(),
            home: home.clone(),
            abilities: folder.abilities(),
        };
        let thread = Builder::new().name(name.into()).spawn(move || worker.run())?;
        Ok(Self { pace, jobs: Some(jobs), thread: Some(thread) })
    }

    fn send_job(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("taken only when dropped");
        jobs.send(job).expect("the thread runs while it has a sender");
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.jobs = None;
        self.pace.end_pauses();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    jobs: Receiver<Job>,
    mailbox: Mailbox<Completed>,
    pace: Arc<Pace>,
    data: DataFolder,
    home: Home,
    abilities: FileSystemFeatures,
}

impl Worker {
    fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            let completed = self.run_job(job);
            self.mailbox.send_result(completed);
        }
    }

    fn run_job(&mut self, job: Job) -> Completed {
        let Self { pace, data, home, abilities, .. } = self;
        match job {
            Job::Prepare { file, bytes, zeros } => {
                let result = home.prepare(data, file, (bytes, zeros), *abilities, pace);
                Completed::Prepared { file, result }
            }
            Job::Retire { file } => {
                let result = home.retire(file);
                Completed::Retired { file, result }
            }
            Job::Reuse { from, to } => {
                let result = home.reuse(data, from, to);
                Completed::Prepared { file: to, result }
            }
            Job::ReplaceSmallFile { token, name, bytes } => {
                let result = data.replace(name, &bytes);
                Completed::SmallFileReplaced { token, name, result }
            }
            Job::ReadSmallFile { token, name } => {
                Completed::SmallFileRead { token, name, result: data.read_uncached(name) }
            }
        }
    }
}
