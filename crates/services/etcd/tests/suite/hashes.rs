//! Hashes of the data: equal exactly if the readable contents are equal.

use quorate_etcd::{
    check,
    command::{Command, HashPage, HashRequest, Query},
    proto::etcdserverpb::{CompactionRequest, CompactionResponse, PutRequest, PutResponse},
    refusal::Refusal,
    service::Service,
};

use crate::{
    common::{apply, apply_bytes, ask, service},
    dice::Dice,
    random,
};

pub fn hash(service: &Service, at: i64) -> Result<(u64, u32), Refusal> {
    let mut request = HashRequest { revision: at, ..HashRequest::default() };
    let mut pages = 0;
    loop {
        let page: HashPage = ask(service, &Query::Hash(request))?;
        pages += 1;
        match HashRequest::after_page(&page) {
            Some(next) => request = next,
            None => return Ok((page.hash, pages)),
        }
    }
}

fn compact(service: &mut Service, revision: i64) {
    let request = CompactionRequest { revision, physical: false };
    apply::<CompactionResponse>(service, &Command::Compact(request)).unwrap();
}

fn put(service: &mut Service, key: Vec<u8>) {
    let request = PutRequest { key: key.into(), ..PutRequest::default() };
    apply::<PutResponse>(service, &Command::Put(request)).unwrap();
}

/// Gradual removal of compacted history does not change the hash.
#[test]
fn a_hash_is_of_what_can_be_read() {
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let (mut one, mut other) = (service(), service());
        for _ in 0..80 {
            let command = match dice.below(3) {
                0 => Command::Delete(random::delete(&mut dice)),
                _ => {
                    let put = random::put(&mut dice);
                    if check::check_put(&put).is_err() {
                        continue;
                    }
                    Command::Put(put)
                }
            };
            for service in [&mut one, &mut other] {
                apply_bytes(service, &command.encode());
            }
        }
        let revision = one.mvcc().revision();
        let before = hash(&one, revision - 2).unwrap();
        assert_eq!(hash(&other, revision - 2), Ok(before));
        assert_ne!(hash(&one, revision), Ok(before));
        let at = dice.between(2, revision - 2);
        compact(&mut one, at);
        compact(&mut other, at);
        assert_eq!(hash(&one, at - 1), Err(Refusal::Compacted));
        assert_eq!(hash(&one, revision + 1), Err(Refusal::FutureRevision));
        let compacted = hash(&one, revision).unwrap();
        apply_bytes(&mut other, &Command::Scrub.encode());
        assert!(!other.mvcc().has_unscrubbed() && one.mvcc().has_unscrubbed());
        assert_eq!(hash(&other, revision), Ok(compacted));
        assert_eq!(hash(&other, 0), Ok(compacted));
        // One more change at one of them.
        put(&mut other, b"a".to_vec());
        assert_eq!(hash(&other, revision), Ok(compacted));
        assert_ne!(hash(&other, 0), Ok(compacted));
    }
}

#[test]
fn a_hash_is_made_in_pages_and_not_across_a_compaction() {
    let mut service = service();
    for key in 0..12_000_u32 {
        put(&mut service, key.to_be_bytes().to_vec());
    }
    let (_, pages) = hash(&service, 0).unwrap();
    assert_eq!(pages, 3, "changes alone");
    let first: HashPage = ask(&service, &Query::Hash(HashRequest::default())).unwrap();
    compact(&mut service, 11_000);
    let next = HashRequest::after_page(&first).unwrap();
    assert_eq!(ask::<HashPage>(&service, &Query::Hash(next)), Err(Refusal::Compacted));
    let (_, pages) = hash(&service, 0).unwrap();
    assert_eq!(pages, 3, "keys, and then changes");
}
