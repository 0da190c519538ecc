//! Test fixture: the service on its own, without a node.

use std::ops::{Deref, DerefMut};

use prost::Message;
use quorate::{CommandId, Imaged, Slot, StateMachine as _};
use quorate_etcd::{
    check,
    command::{Command, Page, Query, decode_reply},
    mvcc::Paging,
    proto::etcdserverpb::{RangeRequest, RangeResponse},
    refusal::Refusal,
    service::Service,
    store::{lsm::LsmStore, memory::MemoryStore},
};
use quorate_kv::store::lsm::{Limits, LsmStore as Engine, Options};
use tempfile::TempDir;

pub fn service() -> Service {
    Service::new(Box::new(MemoryStore::new()))
}

/// Limits with little in memory above the tree, so that most reads go to it.
pub fn limits() -> Limits {
    Limits { held_bytes: 500, ..Limits::default() }
}

pub fn on_disk(folder: &TempDir, options: impl Into<Options>) -> LsmStore {
    let opened = Engine::open_with(&folder.path().join("etcd"), options);
    LsmStore::new(opened.expect("it opens").0)
}

pub struct Home {
    service: Option<Service>,
    folder: Option<TempDir>,
}

impl Home {
    pub fn in_memory() -> Self {
        Self { service: Some(service()), folder: None }
    }

    pub fn on_disk() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            service: Some(Service::new(Box::new(on_disk(&folder, limits())))),
            folder: Some(folder),
        }
    }

    /// Restarts the service and returns the slot that it recovers. No-op in memory.
    pub fn restart(&mut self) -> Slot {
        let Some(folder) = &self.folder else {
            return Slot::FIRST;
        };
        self.service = None;
        let mut service = Service::new(Box::new(on_disk(folder, limits())));
        let (at, _) = service.recovered();
        self.service = Some(service);
        at
    }
}

impl Deref for Home {
    type Target = Service;

    fn deref(&self) -> &Service {
        self.service.as_ref().expect("it is up")
    }
}

impl DerefMut for Home {
    fn deref_mut(&mut self) -> &mut Service {
        self.service.as_mut().expect("it is up")
    }
}

/// Returns a service on each kind of store.
pub fn both() -> [Home; 2] {
    [Home::in_memory(), Home::on_disk()]
}

pub fn apply_bytes(service: &mut Service, command: &[u8]) -> Vec<u8> {
    let id = CommandId { slot: Slot(1), index: 0 };
    let mut reply = Vec::new();
    service.apply(id, command, &mut reply);
    service.commit(Slot(2), &[]);
    reply
}

pub fn apply<M: Message + Default>(service: &mut Service, command: &Command) -> Result<M, Refusal> {
    decode_reply(apply_bytes(service, &command.encode())).expect("it makes sense")
}

pub fn ask<M: Message + Default>(service: &Service, query: &Query) -> Result<M, Refusal> {
    let mut reply = Vec::new();
    service.query(&query.encode(), 0, &mut reply);
    decode_reply(reply).expect("it makes sense")
}

/// Reads a range in pages of `visits` keys, with `between` after each.
pub fn range_while(
    service: &mut Service,
    request: RangeRequest,
    visits: u64,
    mut between: impl FnMut(&mut Service),
) -> Result<RangeResponse, Refusal> {
    let mut paging = Paging::new(request);
    loop {
        let page: Page = ask(service, &Query::Page(paging.next(visits)))?;
        if paging.add_page(page)? {
            return Ok(paging.finish());
        }
        between(service);
    }
}

/// Reads a range in pages, without concurrent changes. A range that can be streamed gives the same
/// in chunks.
pub fn range(
    service: &Service,
    request: RangeRequest,
    visits: u64,
) -> Result<RangeResponse, Refusal> {
    let mut paging = Paging::new(request.clone());
    let whole = loop {
        let page: Page = ask(service, &Query::Page(paging.next(visits)))?;
        if paging.add_page(page)? {
            break paging.finish();
        }
    };
    if check::check_range_stream(&request).is_ok() {
        assert_eq!(streamed(service, request, visits)?, whole);
    }
    Ok(whole)
}

fn streamed(
    service: &Service,
    request: RangeRequest,
    visits: u64,
) -> Result<RangeResponse, Refusal> {
    let mut paging = Paging::new(request);
    let mut kvs = Vec::new();
    loop {
        let page: Page = ask(service, &Query::Page(paging.next(visits)))?;
        let is_last = paging.add_page(page)?;
        kvs.extend(paging.take_chunk());
        if is_last {
            return Ok(RangeResponse { kvs, ..paging.finish() });
        }
    }
}

pub fn image(service: &mut Service, bytes: usize) -> Vec<Vec<u8>> {
    assert!(service.begin_image());
    let mut items = Vec::new();
    while service.next_image(bytes, &mut |item| items.push(item.to_vec())) == Imaged::More {}
    items
}

pub fn loaded(items: &[Vec<u8>]) -> Service {
    let mut service = service();
    load(&mut service, items);
    service
}

pub fn load(service: &mut Service, items: &[Vec<u8>]) {
    service.begin_load().expect("it begins");
    for item in items {
        service.load(item).expect("it makes sense");
    }
    service.finish_load(Slot(2), &[]).expect("it is whole");
}
