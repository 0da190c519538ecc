//! Byte stream requests from front ends.

use quorate_core::value::StreamName;
use quorate_log::disk::Disk;
use quorate_stream::{Command, Name, OpenMode, Retention, StreamInfo, Writer};

use super::requests::Requester;
use crate::{
    ports::{
        front::Failure,
        service::StateMachine,
        stream_front::{StreamRequests, StreamTag},
    },
    proposing::gather::Waiter,
};

impl<D: Disk, S: StateMachine> StreamRequests for Requester<'_, D, S> {
    fn set_retention(
        &mut self,
        tag: StreamTag,
        name: &Name,
        keep: Retention,
    ) -> Result<(), Failure> {
        self.replica.check_serves_clients()?;
        let name = name.clone();
        let command = Command::Retain { name, retention: keep };
        self.replica.streams_work().request_command(self.now, tag, &command)
    }

    fn open(
        &mut self,
        tag: StreamTag,
        name: &Name,
        how: OpenMode,
        writer: Writer,
    ) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        let stream = replica.streaming.owned_pieces.next_name();
        let command = Command::Open {
            name: name.clone(),
            mode: how,
            writer,
            stream: stream.ok_or(Failure::Busy)?,
            now_ms: self.wall_ms,
        };
        replica.streams_work().request_command(self.now, tag, &command)
    }

    fn available_bytes(&self, piece: StreamName) -> usize {
        self.replica.streaming.owned_pieces.available_bytes(piece)
    }

    fn shared_available_bytes(&self) -> usize {
        self.replica.streaming.owned_pieces.shared_available_bytes()
    }

    fn put_bytes(&mut self, piece: StreamName, bytes: &[u8]) -> usize {
        let replica = &mut *self.replica;
        let runs = replica.spine.contents.stream_buffers_mut();
        let taken = replica.streaming.owned_pieces.put_bytes(self.now, piece, bytes, runs);
        if taken > 0 {
            replica.streaming.mark_fresh_bytes();
        }
        taken
    }

    fn fill_from_reader(
        &mut self,
        piece: StreamName,
        bytes_max: usize,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> usize {
        let replica = &mut *self.replica;
        let runs = replica.spine.contents.stream_buffers_mut();
        let owning = &mut replica.streaming.owned_pieces;
        let taken = owning.fill_bytes(self.now, piece, bytes_max, runs, read);
        if taken > 0 {
            replica.streaming.mark_fresh_bytes();
        }
        taken
    }

    fn close(&mut self, tag: StreamTag, piece: StreamName, finish: bool) -> Result<(), Failure> {
        self.replica.check_serves_clients()?;
        let known = self.replica.streaming.owned_pieces.request_close(tag, piece, finish);
        self.replica.streaming.mark_fresh_bytes();
        known.then_some(()).ok_or(Failure::Unknown)
    }

    fn abandon_piece(&mut self, piece: StreamName) {
        self.replica.streaming.owned_pieces.abandon_piece(piece);
        self.replica.streaming.mark_fresh_bytes();
    }

    fn trim(&mut self, tag: StreamTag, name: &Name, before: u64) -> Result<(), Failure> {
        self.replica.check_serves_clients()?;
        let name = name.clone();
        let command = Command::Trim { name, retain_from: before };
        self.replica.streams_work().request_command(self.now, tag, &command)
    }

    fn remove(&mut self, tag: StreamTag, name: &Name) -> Result<(), Failure> {
        self.replica.check_serves_clients()?;
        let command = Command::Remove { name: name.clone() };
        self.replica.streams_work().request_command(self.now, tag, &command)
    }

    fn request_table_read(&mut self, tag: StreamTag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        replica.spine.applying.check_accepts_reads()?;
        replica.reading.queue_read(self.now, Waiter::Stream(tag))
    }

    fn stream_info(&self, name: &Name) -> Option<StreamInfo> {
        self.replica.spine.applying.streams().info(name)
    }

    fn visit_infos(&self, after: Option<&Name>, each: &mut dyn FnMut(StreamInfo) -> bool) {
        for info in self.replica.spine.applying.streams().infos(after) {
            if !each(info) {
                return;
            }
        }
    }

    fn read(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        bytes_max: usize,
    ) -> Result<(), Failure> {
        self.replica.check_serves_clients()?;
        self.replica.streams_work().read(tag, name, position, bytes_max)
    }

    fn wait_for_bytes(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
    ) -> Result<(), Failure> {
        self.replica.check_serves_clients()?;
        let streams = self.replica.spine.applying.streams();
        self.replica.streaming.wait_for_position(tag, name, position, streams)
    }

    fn drop_request(&mut self, tag: StreamTag) {
        self.replica.streaming.drop_request(tag);
    }

    fn leader(&self) -> Option<&str> {
        let replica = &*self.replica;
        let leader = replica.spine.node().leader()?;
        let elsewhere = leader != replica.spine.identity.member.node;
        let addresses = replica.spine.peers.addresses_of(leader).filter(|_| elsewhere)?;
        Some(addresses.stream.as_str()).filter(|address| !address.is_empty())
    }
}
