//! `Streams`: requests about streams other than reading and writing.

use std::thread;

use quorate_wire::streams::{self, ClientFrame, ErrorCode, NAME_BYTES_MAX, NodeFrame, Retention};

use super::{
    Options,
    error::{AttemptError, Error},
    link::Link,
    nodes::Nodes,
};

/// Description of a stream by a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Name, as chosen by users.
    pub name: String,
    /// Id of the stream. A later stream of the same name has a different one.
    pub id: u64,
    /// Set if the stream is permanently closed.
    pub is_finished: bool,
    /// Node that the stream's writer is connected to, if there is one.
    pub writer_node: Option<u32>,
    /// Position of the first retained byte.
    pub start: u64,
    /// End of the stream, below which all bytes are durable.
    pub durable_end: u64,
    /// Number of pieces of the stream.
    pub piece_count: u32,
    /// Time of creation in Unix milliseconds.
    pub created_ms: u64,
    /// Limit on the retained bytes.
    pub retention: Retention,
}

impl StreamInfo {
    pub(super) fn from_wire(info: &streams::Info<'_>) -> Self {
        Self {
            name: info.name.to_owned(),
            id: info.id,
            is_finished: info.finished,
            writer_node: info.open_stream.map(|stream| stream.owner.0),
            start: info.start,
            durable_end: info.next_position,
            piece_count: info.piece_count,
            created_ms: info.created_ms,
            retention: info.retention,
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
    pub fn stat(&mut self, name: &str) -> Result<StreamInfo, Error> {
        stat(&mut self.nodes, name)
    }

    /// Returns all streams by name.
    pub fn list(&mut self) -> Result<Vec<StreamInfo>, Error> {
        let mut found: Vec<StreamInfo> = Vec::new();
        retry_until_done(&mut self.nodes, &mut |link, options| {
            let after = found.last().map_or("", |info| &info.name).to_owned();
            link.send_frames(&[ClientFrame::List { after_name: &after }], options.stall_timeout)?;
            loop {
                match link.next_frame(options.stall_timeout)? {
                    NodeFrame::Info(info) => found.push(StreamInfo::from_wire(&info)),
                    NodeFrame::ListEnd => return Ok(()),
                    _ => return Err(AttemptError::unexpected_frame()),
                }
            }
        })?;
        Ok(found)
    }

    /// Discards the bytes below `before`. Returns the new start of the stream.
    pub fn trim(&mut self, name: &str, before: u64) -> Result<u64, Error> {
        check_name(name)?;
        retry_until_done(&mut self.nodes, &mut |link, options| {
            send_change(link, options, ClientFrame::Trim { retain_from: before, name })
        })
    }

    /// Sets the limit on retained bytes, which takes effect shortly afterwards. Returns the current
    /// start of the stream.
    pub fn set_retention(&mut self, name: &str, keep: Retention) -> Result<u64, Error> {
        check_name(name)?;
        retry_until_done(&mut self.nodes, &mut |link, options| {
            send_change(link, options, ClientFrame::Retain { keep, name })
        })
    }

    /// Removes a stream with all its bytes.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        // An earlier attempt whose response was lost may have removed the stream.
        let mut doubt = false;
        retry_until_done(&mut self.nodes, &mut |link, options| match send_change(
            link,
            options,
            ClientFrame::Remove { name },
        ) {
            Err(AttemptError::Permanent(error))
                if doubt && error.code() == Some(ErrorCode::Unknown) =>
            {
                Ok(())
            }
            Err(trouble) => {
                doubt = true;
                Err(trouble)
            }
            Ok(_) => Ok(()),
        })
    }
}

pub(super) fn stat(nodes: &mut Nodes, name: &str) -> Result<StreamInfo, Error> {
    check_name(name)?;
    retry_until_done(nodes, &mut |link, options| {
        link.send_frames(&[ClientFrame::Stat { name }], options.stall_timeout)?;
        match link.next_frame(options.stall_timeout)? {
            NodeFrame::Info(info) => Ok(StreamInfo::from_wire(&info)),
            _ => Err(AttemptError::unexpected_frame()),
        }
    })
}

fn send_change(
    link: &mut Link,
    options: &Options,
    ask: ClientFrame<'_>,
) -> Result<u64, AttemptError> {
    link.send_frames(&[ask], options.stall_timeout)?;
    match link.next_frame(options.stall_timeout)? {
        NodeFrame::Done { position } => Ok(position),
        _ => Err(AttemptError::unexpected_frame()),
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    match name.len() <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::bad_name(name)),
    }
}

/// Tries the nodes in turn until an attempt succeeds or fails permanently.
fn retry_until_done<T>(
    nodes: &mut Nodes,
    attempt: &mut dyn FnMut(&mut Link, &Options) -> Result<T, AttemptError>,
) -> Result<T, Error> {
    loop {
        let done = match nodes.dial_next() {
            Ok(mut link) => attempt(&mut link, &nodes.options),
            Err(trouble) => Err(trouble),
        };
        match done {
            Ok(done) => {
                nodes.on_success();
                return Ok(done);
            }
            Err(AttemptError::Permanent(error)) => return Err(error),
            Err(AttemptError::Retryable(why)) => thread::sleep(nodes.on_failure(why)?),
        }
    }
}
