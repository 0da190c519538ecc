//! `Streams`: what is asked of a cluster's streams besides their bytes.

use std::thread;

use quorate_wire::streams::{self, Answer, Ask, Code, Keep, NAME_BYTES_MAX};

use super::{
    Options,
    error::{Error, Trouble},
    link::Link,
    nodes::Nodes,
};

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name given by users.
    pub name: String,
    /// Tells it from another of the same name.
    pub id: u64,
    /// Nothing is appended any more.
    pub finished: bool,
    /// The node that a writer talks to, if there is a writer.
    pub writer: Option<u32>,
    /// The first position that is kept.
    pub start: u64,
    /// The next position: all bytes below are durable.
    pub end: u64,
    /// Number of pieces.
    pub pieces: u32,
    /// Unix time in milliseconds of its creation.
    pub created_ms: u64,
    /// Retention.
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

/// Looks at the streams of a cluster, bounds, trims and removes them; at the first of its nodes
/// that can.
#[derive(Debug)]
pub struct Streams {
    nodes: Nodes,
}

impl Streams {
    /// # Panics
    /// Without an address.
    pub fn new<A: Into<String> + Clone>(addresses: &[A], options: Options) -> Self {
        let nodes = Nodes::new(addresses, options);
        Self { nodes }
    }

    /// Describes a stream.
    pub fn stat(&mut self, name: &str) -> Result<Info, Error> {
        stat(&mut self.nodes, name)
    }

    /// All streams, in the order of their names.
    pub fn list(&mut self) -> Result<Vec<Info>, Error> {
        let mut found: Vec<Info> = Vec::new();
        until_done(&mut self.nodes, &mut |link, options| {
            let after = found.last().map_or("", |info| &info.name).to_owned();
            link.say(&[Ask::List { after: &after }], options.stall)?;
            loop {
                match link.hear(options.stall)? {
                    Answer::Info(info) => found.push(Info::of(&info)),
                    Answer::ListEnd => return Ok(()),
                    _ => return Err(Trouble::unexpected()),
                }
            }
        })?;
        Ok(found)
    }

    /// Forgets what is below a position; gives where the stream starts now.
    pub fn trim(&mut self, name: &str, before: u64) -> Result<u64, Error> {
        check(name)?;
        until_done(&mut self.nodes, &mut |link, options| {
            change(link, options, Ask::Trim { before, name })
        })
    }

    /// Keeps so much of a stream from now on; gives where it starts now. What is too much already
    /// is forgotten a moment later.
    pub fn retain(&mut self, name: &str, keep: Keep) -> Result<u64, Error> {
        check(name)?;
        until_done(&mut self.nodes, &mut |link, options| {
            change(link, options, Ask::Retain { keep, name })
        })
    }

    /// Forgets a stream.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        check(name)?;
        // An attempt whose answer was lost may have removed it.
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
        link.say(&[Ask::Stat { name }], options.stall)?;
        match link.hear(options.stall)? {
            Answer::Info(info) => Ok(Info::of(&info)),
            _ => Err(Trouble::unexpected()),
        }
    })
}

fn change(link: &mut Link, options: &Options, ask: Ask<'_>) -> Result<u64, Trouble> {
    link.say(&[ask], options.stall)?;
    match link.hear(options.stall)? {
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

/// Asks one node after the other.
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
