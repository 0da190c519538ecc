//! Writer of bbolt files that hold a service's history in etcd's buckets.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use quorate_etcd::{
    command::{Events, EventsRequest, Query},
    proto::{
        authpb::Permission,
        mvccpb::{Event, KeyValue},
    },
    service::Service,
};
use sha2::{Digest as _, Sha256};

use crate::common::ask;

pub type Bucket = BTreeMap<Vec<u8>, Vec<u8>>;
/// Buckets by name.
pub type Buckets = BTreeMap<&'static str, Bucket>;

const HEAD: usize = 16;
const ELEMENT: usize = 16;

struct Writer {
    page: usize,
    bytes: Vec<u8>,
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Encodes a page with elements: flags or the page below, key, value.
fn page(id: u64, is_leaf: bool, elements: &[(u64, &[u8], &[u8])], length: usize) -> Vec<u8> {
    let count = elements.len();
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend_from_slice(&if is_leaf { 2_u16 } else { 1 }.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(count).unwrap().to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let mut at = HEAD + count * ELEMENT;
    for (index, (number, key, value)) in elements.iter().enumerate() {
        let place = u32::try_from(at - HEAD - index * ELEMENT).unwrap().to_le_bytes();
        let [key_bytes, value_bytes] =
            [key, value].map(|part| u32::try_from(part.len()).unwrap().to_le_bytes());
        if is_leaf {
            bytes.extend_from_slice(&u32::try_from(*number).unwrap().to_le_bytes());
            bytes.extend([place, key_bytes, value_bytes].concat());
        } else {
            bytes.extend([place, key_bytes].concat());
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        at += key.len() + value.len();
    }
    for (_, key, value) in elements {
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    bytes.resize(bytes.len().max(length), 0);
    bytes
}

impl Writer {
    /// Adds a page and returns its number.
    fn add(&mut self, is_leaf: bool, elements: &[(u64, &[u8], &[u8])]) -> u64 {
        let id = (self.bytes.len() / self.page) as u64;
        let mut bytes = page(id, is_leaf, elements, 0);
        let pages = bytes.len().div_ceil(self.page);
        bytes[12..16].copy_from_slice(&u32::try_from(pages - 1).unwrap().to_le_bytes());
        bytes.resize(pages * self.page, 0);
        self.bytes.extend(bytes);
        id
    }

    /// Adds a tree and returns its root page.
    fn tree(&mut self, elements: Vec<(u64, Vec<u8>, Vec<u8>)>) -> u64 {
        let (mut level, mut is_leaf) = (elements, true);
        loop {
            let mut above = Vec::new();
            let mut rest = &level[..];
            while !rest.is_empty() || above.is_empty() {
                let mut room = self.page - HEAD;
                let mut fits = |(_, key, value): &&(u64, Vec<u8>, Vec<u8>)| {
                    let left = room.checked_sub(ELEMENT + key.len() + value.len());
                    room = left.unwrap_or(0);
                    left.is_some()
                };
                let count = rest.iter().take_while(|one| fits(one)).count();
                // An element larger than a page gets overflow pages.
                let (now, later) = rest.split_at(count.max(1).min(rest.len()));
                rest = later;
                let elements: Vec<_> = now
                    .iter()
                    .map(|(number, key, value)| (*number, &key[..], &value[..]))
                    .collect();
                let id = self.add(is_leaf, &elements);
                let first = now.first().map(|(_, key, _)| key.clone()).unwrap_or_default();
                above.push((id, first, Vec::new()));
            }
            if let [(root, ..)] = &above[..] {
                return *root;
            }
            (level, is_leaf) = (above, false);
        }
    }

    fn meta(&mut self, at: usize, root: u64, transaction: u64) {
        let pages = (self.bytes.len() / self.page) as u64;
        let mut meta = 0xed0c_daed_u32.to_le_bytes().to_vec();
        meta.extend_from_slice(&2_u32.to_le_bytes());
        meta.extend_from_slice(&u32::try_from(self.page).unwrap().to_le_bytes());
        meta.extend_from_slice(&[0; 4]);
        for number in [root, 0, u64::MAX, pages, transaction] {
            meta.extend_from_slice(&number.to_le_bytes());
        }
        meta.extend_from_slice(&fnv(&meta).to_le_bytes());
        let from = at * self.page;
        self.bytes[from..from + 8].copy_from_slice(&(at as u64).to_le_bytes());
        self.bytes[from + 8] = 4;
        self.bytes[from + HEAD..from + HEAD + meta.len()].copy_from_slice(&meta);
    }
}

/// Returns a file with the given buckets and pages of `length` bytes.
pub fn write(buckets: &Buckets, length: usize) -> Vec<u8> {
    let mut writer = Writer { page: length, bytes: vec![0; 2 * length] };
    let mut roots = Vec::new();
    for (name, bucket) in buckets {
        let elements = bucket.iter();
        let elements: Vec<_> =
            elements.map(|(key, value)| (0, key.clone(), value.clone())).collect();
        let bytes: usize =
            bucket.iter().map(|(key, value)| ELEMENT + key.len() + value.len()).sum();
        let value = if HEAD + bytes <= length / 4 {
            let elements: Vec<_> =
                elements.iter().map(|(flags, key, value)| (*flags, &key[..], &value[..])).collect();
            [vec![0; 16], page(0, true, &elements, 0)].concat()
        } else {
            let root = writer.tree(elements);
            [root.to_le_bytes(), [0; 8]].concat()
        };
        roots.push((1, name.as_bytes().to_vec(), value));
    }
    let root = writer.tree(roots);
    writer.meta(0, root, 7);
    writer.meta(1, root, 6);
    writer.bytes
}

/// Appends a checksum, as `etcdctl` does.
pub fn saved(mut file: Vec<u8>) -> Vec<u8> {
    let sum = Sha256::digest(&file);
    file.extend_from_slice(&sum);
    file
}

fn events(service: &Service) -> Vec<Event> {
    let (mut all, mut from) = (Vec::new(), 1);
    loop {
        let request = EventsRequest { from, ..EventsRequest::default() };
        let page: Events = ask(service, &Query::Events(request)).unwrap();
        all.extend(page.events);
        if page.next > page.revision {
            return all;
        }
        from = page.next;
    }
}

fn revision(main: i64, sub: usize) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &(sub as u64).to_be_bytes()].concat()
}

/// Returns etcd's buckets for the same history, compacted if given. The service must not be
/// compacted.
pub fn buckets(service: &Service, compacted: Option<i64>) -> Buckets {
    let events = events(service);
    let (mut last, mut sub) = (0, 0);
    let mut changes = Vec::new();
    for event in events {
        let kv = event.kv.unwrap();
        sub = if kv.mod_revision == last { sub + 1 } else { 0 };
        last = kv.mod_revision;
        changes.push((last, sub, event.r#type == 1, kv));
    }
    if let Some(at) = compacted {
        // Of the changes up to the revision, the newest of each key stays, unless it is a deletion.
        let mut seen = BTreeSet::new();
        let mut keep: Vec<_> = changes
            .iter()
            .rev()
            .map(|(main, _, deletes, kv)| *main > at || (seen.insert(kv.key.clone()) && !deletes))
            .collect();
        keep.reverse();
        let mut keep = keep.into_iter();
        changes.retain(|_| keep.next().unwrap());
    }
    let mut keys = Bucket::new();
    for (main, sub, deletes, kv) in changes {
        let mut key = revision(main, sub);
        let value = match deletes {
            true => KeyValue { key: kv.key, ..KeyValue::default() },
            false => kv,
        };
        key.extend(deletes.then_some(b't'));
        keys.insert(key, value.encode_to_vec());
    }
    let mut meta = Bucket::from([(b"consistent_index".to_vec(), vec![0; 8])]);
    meta.insert(b"storageVersion".to_vec(), b"3.6.0".to_vec());
    if let Some(at) = compacted {
        meta.insert(b"scheduledCompactRev".to_vec(), revision(at, 0));
        meta.insert(b"finishedCompactRev".to_vec(), revision(at, 0));
    }
    Buckets::from([
        ("alarm", Bucket::new()),
        ("auth", Bucket::new()),
        ("cluster", Bucket::from([(b"clusterVersion".to_vec(), b"3.6.0".to_vec())])),
        ("key", keys),
        ("lease", Bucket::new()),
        ("meta", meta),
    ])
}

/// Returns the element of a lease: two numbers.
pub fn lease(id: i64, ttl: i64) -> (Vec<u8>, Vec<u8>) {
    #[derive(Clone, PartialEq, Eq, Message)]
    struct Lease {
        #[prost(int64, tag = "1")]
        id: i64,
        #[prost(int64, tag = "2")]
        ttl: i64,
    }
    (id.to_be_bytes().to_vec(), Lease { id, ttl }.encode_to_vec())
}

/// Returns the element of a user: name, hash of the password, roles.
pub fn user(name: &str, hash: &str, roles: &[&str]) -> (Vec<u8>, Vec<u8>) {
    #[derive(Clone, PartialEq, Eq, Message)]
    struct User {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        password: String,
        #[prost(string, repeated, tag = "3")]
        roles: Vec<String>,
    }
    let row = User {
        name: name.to_owned(),
        password: hash.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    };
    (name.as_bytes().to_vec(), row.encode_to_vec())
}

pub fn role(name: &str, permissions: Vec<Permission>) -> (Vec<u8>, Vec<u8>) {
    #[derive(Clone, PartialEq, Message)]
    struct Role {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, repeated, tag = "2")]
        permissions: Vec<Permission>,
    }
    let row = Role { name: name.to_owned(), permissions };
    (name.as_bytes().to_vec(), row.encode_to_vec())
}
