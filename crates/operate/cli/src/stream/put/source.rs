//! Source of the bytes to write: a file or standard input. Compares a file with an existing stream.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead as _, ErrorKind, Read, Seek as _, SeekFrom},
    ops::Range,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    path::Path,
};

use quorate_client::stream::{StreamInfo, StreamReader};

use crate::{
    output::{Exit, Problem},
    stream::{client_options, client_problem},
};

/// File or standard input from which bytes are read.
#[derive(Debug)]
pub(super) struct InputSource {
    name: String,
    file: File,
    /// Length of a regular file. `None` for a pipe or standard input.
    length: Option<u64>,
}

impl InputSource {
    /// Opens the source. `-` denotes standard input, which is read without buffering.
    pub(super) fn open(path: &Path) -> Result<Self, Problem> {
        let stdin = path.as_os_str() == "-";
        let name = match stdin {
            true => "standard input".to_owned(),
            false => path.display().to_string(),
        };
        let opened = || {
            let file = match stdin {
                true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
                false => File::open(path)?,
            };
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            let length = (metadata.is_file() && !stdin).then_some(metadata.len());
            Ok((file, length))
        };
        let (file, length) =
            opened().map_err(|error| Problem::io_error(format_args!("open {name}"), &error))?;
        Ok(Self { name, file, length })
    }

    pub(super) const fn is_file(&self) -> bool {
        self.length.is_some()
    }

    /// Returns the length of the source when it was opened, if known.
    pub(super) const fn length(&self) -> Option<u64> {
        self.length
    }

    /// Moves the read position to `position`.
    pub(super) fn seek(&mut self, position: u64) -> Result<(), Problem> {
        let sought = self.file.seek(SeekFrom::Start(position));
        let sought =
            sought.map_err(|error| Problem::io_error(format_args!("seek in {self}"), &error));
        sought.map(drop)
    }
}

impl Read for InputSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl fmt::Display for InputSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Compares a range of the stream with the same range of the file.
pub(super) fn compare_with_stream(
    nodes: &[String],
    info: &StreamInfo,
    range: Range<u64>,
    source: &mut InputSource,
) -> Result<(), Problem> {
    let name = &info.name;
    let differs = |position: u64| {
        let what = format_args!("stream {name} differs from {source} at position {position}");
        Problem::new(Exit::Failed, "differs", what)
            .with_hint("this is another file, or it was changed: use another stream name")
    };
    if source.length.is_some_and(|length| length < range.end) {
        let length = source.length.unwrap_or_default();
        let what =
            format_args!("stream {name} has {} bytes, but {source} only {length}", range.end);
        return Err(Problem::new(Exit::Failed, "differs", what)
            .with_hint("this is another file, or it was changed: use another stream name"));
    }
    let mut reader =
        StreamReader::new(nodes, name, client_options()).from(range.start).stop_at(range.end);
    let mut own = Vec::new();
    loop {
        let at = reader.position();
        let bytes = reader
            .next_bytes()
            .map_err(|error| client_problem(&error, format_args!("stream {name}")))?;
        if bytes.is_empty() {
            break;
        }
        own.resize(bytes.len(), 0);
        source.file.read_exact_at(&mut own, at).map_err(|error| {
            Problem::io_error(format_args!("read {source} at position {at}"), &error)
        })?;
        if let Some(first) = own.iter().zip(bytes).position(|(a, b)| a != b) {
            return Err(differs(at + first as u64));
        }
        let count = bytes.len();
        reader.consume(count);
    }
    // The range existed when it was requested.
    match reader.position() == range.end {
        true => Ok(()),
        false => Err(differs(reader.position())),
    }
}
