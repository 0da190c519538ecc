//! The portable engine: a few threads that make blocking calls on the node's behalf.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use crate::disk::{
    Completed, DiskError,
    event::Event,
    folder::{self, FileSystemFeatures, Folder, Home},
    mailbox::{Inbox, Mailbox},
    operation::{Operation, Task},
};

/// Number of threads, equal to the maximum number of log writes in flight.
const THREADS: usize = 4;

type Job = (Operation, Arc<File>);

struct Worker {
    jobs: Arc<Mutex<Receiver<Job>>>,
    mailbox: Mailbox<Completed>,
    abilities: FileSystemFeatures,
    /// Keeps the folders locked as long as operations may be in flight.
    _homes: Vec<Home>,
}

impl Worker {
    fn run(self) {
        loop {
            let job = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((operation, file)) = job else { return };
            self.mailbox.send_result(self.work(operation, &file));
        }
    }

    fn work(&self, mut operation: Operation, file: &File) -> Completed {
        let (at, file) = (operation.at, file.as_fd());
        let result = match &mut operation.task {
            Task::Write { output, bytes, durability } => {
                folder::write(file, at, &output[..*bytes], *durability, self.abilities)
            }
            Task::Read { buffer, bytes } => folder::read_exact(file, at, &mut buffer[..*bytes]),
            Task::Flush => folder::flush(file, at),
        };
        operation.end(result)
    }
}

#[derive(Debug)]
pub(crate) struct Threads {
    jobs: Option<Sender<Job>>,
    workers: Vec<JoinHandle<()>>,
    results: Inbox<Completed>,
    /// Completions of operations that failed before they reached a thread.
    failed_early: VecDeque<Completed>,
    event: Arc<Event>,
}

impl Threads {
    /// Starts the threads. They send completions through the mailbox that belongs to `done`.
    pub(crate) fn start(
        folder: &Folder,
        mailbox: &Mailbox<Completed>,
        done: Inbox<Completed>,
        event: Arc<Event>,
    ) -> io::Result<Self> {
        let (jobs, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut workers = Vec::new();
        for number in 0..THREADS {
            let worker = Worker {
                jobs: Arc::clone(&receiver),
                mailbox: mailbox.clone(),
                abilities: folder.abilities(),
                _homes: folder.homes().to_vec(),
            };
            let thread = Builder::new().name(format!("disk-{number}"));
            workers.push(thread.spawn(move || worker.run())?);
        }
        Ok(Self { jobs: Some(jobs), workers, results: done, failed_early: VecDeque::new(), event })
    }

    pub(crate) fn queue_operation(&mut self, operation: Operation, file: Arc<File>) {
        let jobs = self.jobs.as_ref().expect("taken only when dropped");
        jobs.send((operation, file)).expect("the threads run while they have a sender");
    }

    pub(crate) fn refuse_operation(&mut self, operation: Operation, error: DiskError) {
        self.failed_early.push_back(operation.end(Err(error)));
        self.event.signal();
    }

    pub(crate) fn poll(&mut self) -> Option<Completed> {
        if let Some(refused) = self.failed_early.pop_front() {
            return Some(refused);
        }
        self.results.next_result()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}
