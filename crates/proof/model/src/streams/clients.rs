//! Client commands on streams, and the number of bytes that clients handed to owners.

use std::collections::BTreeMap;

use quorate_core::{
    node_id::NodeId,
    value::{BatchName, StreamName, Value},
};
use quorate_stream::{Command, Name, OpenMode, Writer};

/// First batch counter used for commands about streams.
const FIRST_COMMAND_COUNTER: u64 = 1 << 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamClients {
    /// Encoded commands about streams, by the batch that contains them.
    commands: BTreeMap<Value, Vec<u8>>,
    /// Number of bytes that the owner of each inner stream received.
    given_bytes: BTreeMap<StreamName, u64>,
    next_number: u32,
}

impl StreamClients {
    /// Opens stream number `name` for a client, through the process `boot` of an owner. Returns the
    /// batch that contains the command.
    pub fn open(&mut self, owner: NodeId, boot: u32, name: u8, how: OpenMode, writer: u8) -> Value {
        self.next_number += 1;
        let stream = StreamName { owner, boot, number: self.next_number };
        let command = Command::Open {
            name: stream_name(name),
            mode: how,
            writer: Writer(writer.into()),
            stream,
            now_ms: 0,
        };
        self.add_command(owner, boot, &command)
    }

    /// Closes a stream. Returns the batch that contains the command.
    pub fn close(&mut self, stream: StreamName, finish: bool) -> Value {
        let command = Command::Close { stream, finish };
        self.add_command(stream.owner, stream.boot, &command)
    }

    fn add_command(&mut self, origin: NodeId, boot: u32, command: &Command) -> Value {
        let value = Value::Batch(BatchName {
            origin,
            boot,
            counter: FIRST_COMMAND_COUNTER + self.commands.len() as u64,
            length: 1,
            checksum: 0,
        });
        self.commands.insert(value, command.encode());
        value
    }

    /// Returns the command in a batch; `None` if it does not concern streams.
    pub fn command(&self, batch: &Value) -> Option<&[u8]> {
        self.commands.get(batch).map(Vec::as_slice)
    }

    pub fn commands(&self) -> impl Iterator<Item = &Value> {
        self.commands.keys()
    }

    /// Hands the next bytes of its client to an owner. Returns the position of the first byte.
    pub fn give_bytes(&mut self, stream: StreamName, count: u64) -> u64 {
        let given = self.given_bytes.entry(stream).or_default();
        let from = *given;
        *given += count;
        from
    }

    /// Returns the number of bytes that the stream's owner received.
    pub fn given_bytes(&self, stream: StreamName) -> u64 {
        self.given_bytes.get(&stream).copied().unwrap_or(0)
    }

    /// Returns whether the value is content of a stream whose owner received bytes.
    pub fn is_given_content(&self, value: &Value) -> bool {
        matches!(value, Value::Content { stream, .. } if self.given_bytes.contains_key(stream))
    }

    /// Returns the streams whose owners received bytes, with the number of bytes.
    pub fn given_streams(&self) -> impl Iterator<Item = (StreamName, u64)> + '_ {
        self.given_bytes.iter().map(|(stream, given)| (*stream, *given))
    }
}

fn stream_name(number: u8) -> Name {
    let text = format!("s{number}");
    text.parse().expect("a letter and digits are a name")
}
