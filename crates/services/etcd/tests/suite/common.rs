//! A service by itself, asked in plain words.

use prost::Message;
use quorate::{CommandId, Imaged, Slot, StateMachine as _};
use quorate_etcd::{
    command::{Command, Page, Query, read_reply},
    mvcc::Paging,
    proto::etcdserverpb::{RangeRequest, RangeResponse},
    refusal::Refusal,
    service::Service,
    store::memory::MemoryStore,
};

pub fn service() -> Service {
    Service::new(Box::new(MemoryStore::new()))
}

pub fn apply_bytes(service: &mut Service, command: &[u8]) -> Vec<u8> {
    let id = CommandId {
        slot: Slot(1),
        index: 0,
    };
    let mut reply = Vec::new();
    service.apply(id, command, &mut reply);
    service.commit(Slot(2), &[]);
    reply
}

pub fn apply<M: Message + Default>(service: &mut Service, command: &Command) -> Result<M, Refusal> {
    read_reply(apply_bytes(service, &command.encode())).expect("it makes sense")
}

pub fn ask<M: Message + Default>(service: &Service, query: &Query) -> Result<M, Refusal> {
    let mut reply = Vec::new();
    service.query(&query.encode(), 0, &mut reply);
    read_reply(reply).expect("it makes sense")
}

/// A range in pages of so many keys; `between` is what happens after each.
pub fn range_while(
    service: &mut Service,
    request: RangeRequest,
    visits: u64,
    mut between: impl FnMut(&mut Service),
) -> Result<RangeResponse, Refusal> {
    let mut paging = Paging::new(request);
    loop {
        let page: Page = ask(service, &Query::Page(paging.next(visits)))?;
        if paging.add(page)? {
            return Ok(paging.finish());
        }
        between(service);
    }
}

/// The same while nothing happens.
pub fn range(
    service: &Service,
    request: RangeRequest,
    visits: u64,
) -> Result<RangeResponse, Refusal> {
    let mut paging = Paging::new(request);
    loop {
        let page: Page = ask(service, &Query::Page(paging.next(visits)))?;
        if paging.add(page)? {
            return Ok(paging.finish());
        }
    }
}

/// The items of an image of what the service holds.
pub fn image(service: &mut Service, bytes: usize) -> Vec<Vec<u8>> {
    assert!(service.begin_image());
    let mut items = Vec::new();
    while service.next_image(bytes, &mut |item| items.push(item.to_vec())) == Imaged::More {}
    items
}

/// A service that was loaded from them.
pub fn loaded(items: &[Vec<u8>]) -> Service {
    let mut service = service();
    service.begin_load().expect("it begins");
    for item in items {
        service.load(item).expect("it makes sense");
    }
    service.finish_load(Slot(2), &[]).expect("it is whole");
    service
}
