//! `Streams`: requests about streams other than reading and writing.

use std::thread;

use quorate_wire::streams::{self, Answer, Ask, Code, Keep, NAME_BYTES_MAX};

use super::{
    Options,
    error::{Error, Trouble},
    link::Link,
    nodes::Nodes,
};

/// Description of a stream by a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name, as chosen by users.
    pub name: String,
    /// Id of the stream. A later stream of the same name has a different one.
    pub id: u64,
    /// Set if the stream is permanently closed.
    pub finished: bool,
    /// Node that the stream's writer is connected to, if there is one.
    pub writer: Option<u32>,
    /// Position of the first retained byte.
    pub start: u64,
    /// End of the stream, below which all bytes are durable.
    pub end: u64,
    /// Number of pieces of the stream.
    pub pieces: u32,
    /// Time of creation in Unix milliseconds.
    pub created_ms: u64,
    /// Limit on the retained bytes.
    pub keep: Keep,
}

impl Info {
    pub(super) fn of(info: &streams::Info<'_>) -> Self {
        Self {
            name: info.name.to_owned(),
            id: info.id,
            finished: info.finished,
            writer: info.writing.map(|stream| stream.owner.0),
            start: info.start,
            end: info.end,
            pieces: info.pieces,
            created_ms: info.created_ms,
            keep: info.keep,
        }
    }
}

/// A client that lists, describes, trims, limits and removes streams. Each request goes to the
/// first node that can serve it.
#[derive(Debug)]
pub struct Streams {
    nodes: Nodes,
}

impl Streams {
    /// Creates a client of the cluster at `addresses` (each `HOST:PORT`).
    ///
    /// # Panics
    ///
    /// Panics if `addresses` is empty.
    pub fn new<A: Into<String> + Clone>(addresses: &[A], options: Options) -> Self {
        let nodes = Nodes::new(addresses, options);
        Self { nodes }
    }

    /// Returns the description of a stream.
    pub fn stat(&mut self, name: &str) -> Result<Info, Error> {
        stat(&mut self.nodes, name)
    }

    /// Returns all streams by name.
    pub fn list(&mut self) -> Result<Vec<Info>, Error> {
        let mut found: Vec<Info> = Vec::new();
        until_done(&mut self.nodes, &mut |link, options| {
            let after = found.last().map_or("", |info| &info.name).to_owned();
            link.send_frames(&[Ask::List { after: &after }], options.stall)?;
            loop {
                match link.next_frame(options.stall)? {
                    Answer::Info(info) => found.push(Info::of(&info)),
                    Answer::ListEnd => return Ok(()),
                    _ => return Err(Trouble::unexpected()),
                }
            }
        })?;
        Ok(found)
    }

    /// Discards the bytes below `before`. Returns the new start of the stream.
    pub fn trim(&mut self, name: &str, before: u64) -> Result<u64, Error> {
        check(name)?;
        until_done(&mut self.nodes, &mut |link, options| {
            change(link, options, Ask::Trim { before, name })
        })
    }

    /// Sets the limit on retained bytes, which takes effect shortly afterwards. Returns the current
    /// start of the stream.
    pub fn retain(&mut self, name: &str, keep: Keep) -> Result<u64, Error> {
        check(name)?;
        until_done(&mut self.nodes, &mut |link, options| {
            change(link, options, Ask::Retain { keep, name })
        })
    }

    /// Removes a stream with all its bytes.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        check(name)?;
        // An earlier attempt whose response was lost may have removed the stream.
        let mut doubt = false;
        until_done(&mut self.nodes, &mut |link, options| match change(
            link,
            options,
            Ask::Remove { name },
        ) {
            Err(Trouble::Final(error)) if doubt && error.code() == Some(Code::Unknown) => Ok(()),
            Err(trouble) => {
                doubt = true;
                Err(trouble)
            }
            Ok(_) => Ok(()),
        })
    }
}

pub(super) fn stat(nodes: &mut Nodes, name: &str) -> Result<Info, Error> {
    check(name)?;
    until_done(nodes, &mut |link, options| {
        link.send_frames(&[Ask::Stat { name }], options.stall)?;
        match link.next_frame(options.stall)? {
            Answer::Info(info) => Ok(Info::of(&info)),
            _ => Err(Trouble::unexpected()),
        }
    })
}

fn change(link: &mut Link, options: &Options, ask: Ask<'_>) -> Result<u64, Trouble> {
    link.send_frames(&[ask], options.stall)?;
    match link.next_frame(options.stall)? {
        Answer::Done { position } => Ok(position),
        _ => Err(Trouble::unexpected()),
    }
}

fn check(name: &str) -> Result<(), Error> {
    match name.len() <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::bad_name(name)),
    }
}

/// Tries the nodes in turn until an attempt succeeds or fails permanently.
fn until_done<T>(
    nodes: &mut Nodes,
    attempt: &mut dyn FnMut(&mut Link, &Options) -> Result<T, Trouble>,
) -> Result<T, Error> {
    loop {
        let done = match nodes.dial() {
            Ok(mut link) => attempt(&mut link, &nodes.options),
            Err(trouble) => Err(trouble),
        };
        match done {
            Ok(done) => {
                nodes.served();
                return Ok(done);
            }
            Err(Trouble::Final(error)) => return Err(error),
            Err(Trouble::Later(why)) => thread::sleep(nodes.failed(why)?),
        }
    }
}
