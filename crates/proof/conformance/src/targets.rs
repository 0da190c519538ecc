//! Runs targets as processes on files of vectors, and judges the outcome.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    Device, Event, Program,
    compare::{Difference, describe_difference},
    device::Reference,
    directed, random,
    vectors::{read_event, read_sent_frames, write_event, write_sent_frames},
};

/// Set of frames that targets are tested with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSet {
    /// The named cases of [`crate::directed`].
    Directed,
    /// Random frames for a ring of 64 cells.
    Random { seed: u64, count: usize },
}

impl FrameSet {
    /// Returns the name shown in the results table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Directed => "directed",
            Self::Random { .. } => "random",
        }
    }

    fn events(self, program: Program) -> Box<dyn Iterator<Item = Event>> {
        match self {
            Self::Directed => Box::new(directed::events(program).into_iter()),
            Self::Random { seed, count } => {
                let mut maker = random::EventGenerator::new(program, seed);
                Box::new((0..count).map(move |_| maker.next_event().0))
            }
        }
    }
}

/// Device under test: a process that maps a stream of frames to a stream of frames.
pub struct Target {
    /// Name shown in the results table.
    pub name: String,
    /// Command that runs the target, or the reason why the target cannot run. The name of the
    /// program is appended to the command.
    pub command: Result<Vec<String>, String>,
    /// Programs that the target implements.
    pub programs: &'static [Program],
}

/// Outcome of running a set on one program of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All answers are equal, byte for byte.
    Pass,
    /// Some answers differ or are missing. Contains the position of the first one.
    Fail(String),
    /// The set was not run, which does not count as passed. Contains the reason.
    Skipped(String),
}

/// Files with the input and the expected output of one program for one set.
pub struct Vectors {
    pub program: Program,
    pub set: FrameSet,
    /// Number of events in the input.
    pub event_count: usize,
    input_file: PathBuf,
    expected_file: PathBuf,
}

impl Vectors {
    /// Writes the files. A reference program provides the expected output.
    pub fn write_files(folder: &Path, program: Program, set: FrameSet) -> io::Result<Self> {
        let name = format!("{}-{}", program.name(), set.name());
        let input = folder.join(format!("{name}.in"));
        let expected = folder.join(format!("{name}.out"));
        let mut reference = Reference::new(program);
        let (mut into, mut out) =
            (BufWriter::new(File::create(&input)?), BufWriter::new(File::create(&expected)?));
        let mut count = 0;
        for event in set.events(program) {
            write_event(&mut into, &event)?;
            let sent = reference.step(&event).map_err(io::Error::other)?;
            write_sent_frames(&mut out, &sent)?;
            count += 1;
        }
        into.flush()?;
        out.flush()?;
        Ok(Self { program, set, event_count: count, input_file: input, expected_file: expected })
    }

    /// Runs a target on the input and compares its output. Returns the outcome and the run time in
    /// seconds.
    pub fn run(&self, target: &Target, folder: &Path) -> io::Result<(Outcome, f64)> {
        let words = match &target.command {
            Ok(words) => words,
            Err(why) => return Ok((Outcome::Skipped(why.clone()), 0.0)),
        };
        let name = format!("{}-{}-{}", target.name, self.program.name(), self.set.name());
        let output = folder.join(format!("{name}.out"));
        let begun = Instant::now();
        let Some((first, rest)) = words.split_first() else {
            return Ok((Outcome::Fail("a command without words".to_owned()), 0.0));
        };
        let status = Command::new(first)
            .args(rest)
            .arg(self.program.name())
            .stdin(Stdio::from(File::open(&self.input_file)?))
            .stdout(Stdio::from(File::create(&output)?))
            .status();
        let seconds = begun.elapsed().as_secs_f64();
        // Compare the output even if the target ended early, because an earlier difference is more
        // informative.
        let compared = self.compare_output(&output)?;
        let outcome = match (status, compared) {
            (Err(error), _) => Outcome::Fail(format!("{}: {error}", words.join(" "))),
            (Ok(_), Err(Difference { event_index: at, description: what })) => {
                Outcome::Fail(format!("event {at}\n{what}"))
            }
            (Ok(status), Ok(())) if !status.success() => Outcome::Fail(status.to_string()),
            (Ok(_), Ok(())) => {
                // The output for a million frames takes a hundred megabytes.
                fs::remove_file(&output)?;
                Outcome::Pass
            }
        };
        Ok((outcome, seconds))
    }

    fn compare_output(&self, output: &Path) -> io::Result<Result<(), Difference>> {
        let open = |path: &Path| Ok::<_, io::Error>(BufReader::new(File::open(path)?));
        let (mut events, mut expected) = (open(&self.input_file)?, open(&self.expected_file)?);
        let mut found = open(output)?;
        let mut at = 0;
        while let Some(event) = read_event(&mut events)? {
            let expected = read_sent_frames(&mut expected)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let found = match read_sent_frames(&mut found) {
                Ok(Some(found)) => Ok(found),
                Ok(None) => Err("the target ended".to_owned()),
                Err(error) => Err(format!("the target's answer: {error}")),
            };
            if found.as_ref() != Ok(&expected) {
                let what = describe_difference(&event, &expected, &found);
                return Ok(Err(Difference { event_index: at, description: what }));
            }
            at += 1;
        }
        Ok(match read_sent_frames(&mut found) {
            Ok(None) => Ok(()),
            _ => Err(Difference {
                event_index: at,
                description: "more answers than events".to_owned(),
            }),
        })
    }
}

/// Serves a device in this process as a target. Reads events and writes answers until the end of
/// the input. Flushes all answers before it waits for an event.
pub fn serve_device(
    device: &mut dyn Device,
    from: impl io::Read,
    to: impl io::Write,
) -> io::Result<()> {
    let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
    while let Some(event) = read_event(&mut from)? {
        let sent = device.step(&event).map_err(io::Error::other);
        if sent.is_err() {
            to.flush()?;
        }
        write_sent_frames(&mut to, &sent?)?;
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
    to.flush()
}
