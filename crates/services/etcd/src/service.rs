//! The service: executes commands in the order of the log, answers queries.

use bytes::Bytes;
use quorate::{CommandId, Health, Imaged, LoadError, MetaChange, Metadata, Slot, StateMachine};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    check,
    command::{Command, Figures, Granted, KeptAlive, Lasting, LeasesPage, Query, reply},
    image::{self, Items},
    mvcc::{Budget, Mvcc, SCRUB_MAX},
    proto::etcdserverpb::{
        AlarmResponse, CompactionResponse, LeaseGrantResponse, LeaseRevokeResponse,
        LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, ResponseHeader,
        alarm_request::AlarmAction,
    },
    refusal::Refusal,
    store::Store,
};

/// Leases that one command keeps alive; nodes propose fewer.
const KEPT_MAX: usize = 10_000;

/// The state machine on any store.
pub struct Service {
    mvcc: Mvcc,
    /// Something was executed since the last commit.
    uncommitted: bool,
    /// The image that was begun has not given its head.
    owes_head: bool,
    /// The image that comes in.
    loading: Option<Items>,
    /// The revision and the size that those who listen were told of.
    told: (i64, u64),
}

impl Service {
    /// Serves `store`.
    pub fn new(store: Box<dyn Store>) -> Self {
        Self {
            mvcc: Mvcc::new(store),
            uncommitted: false,
            owes_head: false,
            loading: None,
            told: (0, 0),
        }
    }

    /// The data.
    pub const fn mvcc(&self) -> &Mvcc {
        &self.mvcc
    }

    /// A fingerprint of all contents, to compare nodes at equal positions. Reads everything.
    pub fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        self.mvcc.store().scan(&[], &[u8::MAX], &mut |key, value| {
            for part in [key, value] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            std::ops::ControlFlow::Continue(())
        });
        hasher.digest128()
    }

    /// How long a lease lasts; of one that is not there, in etcd's way, -1.
    fn lease(
        &self,
        request: &LeaseTimeToLiveRequest,
        wall_ms: u64,
    ) -> Result<LeaseTimeToLiveResponse, Refusal> {
        let id = request.id;
        let header = header(self.mvcc.revision());
        let Some(lease) = self.mvcc.lease(id) else {
            return Ok(LeaseTimeToLiveResponse {
                header,
                id,
                ttl: -1,
                ..LeaseTimeToLiveResponse::default()
            });
        };
        let left = lease.deadline.saturating_sub(wall_ms) / 1000;
        Ok(LeaseTimeToLiveResponse {
            header,
            id,
            // Whatever the clock here says, nobody has more left than was granted.
            ttl: i64::try_from(left).map_or(lease.granted, |left| left.min(lease.granted)),
            granted_ttl: lease.granted,
            keys: match request.keys {
                true => self.mvcc.keys_of(id, Budget::QUERY)?,
                false => Vec::new(),
            },
        })
    }

    fn figures(&self) -> Figures {
        Figures {
            revision: self.mvcc.revision(),
            compacted: self.mvcc.compacted(),
            is_scrubbed: !self.mvcc.has_scrap(),
            bytes: self.mvcc.store().bytes(),
            leases: self.mvcc.leases_stored(),
        }
    }
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..ResponseHeader::default()
    })
}

/// Whether a command makes the data larger.
fn grows(command: &Command) -> bool {
    match command {
        Command::Put(_) | Command::Grant(_) => true,
        Command::Txn(txn) => check::puts(txn),
        _ => false,
    }
}

fn encode_notice((revision, bytes): (i64, u64)) -> [u8; 16] {
    let mut notice = [0; 16];
    notice[..8].copy_from_slice(&revision.to_be_bytes());
    notice[8..].copy_from_slice(&bytes.to_be_bytes());
    notice
}

/// The revision and the size of the data, as [`StateMachine::take_notices`] tells them.
pub fn decode_notice(notice: &[u8]) -> Option<(i64, u64)> {
    let (revision, bytes) = notice.split_first_chunk::<8>()?;
    let bytes = u64::from_be_bytes(bytes.try_into().ok()?);
    Some((i64::from_be_bytes(*revision), bytes))
}

impl StateMachine for Service {
    fn apply(&mut self, _: CommandId, command: &[u8], out: &mut Vec<u8>) {
        self.uncommitted = true;
        let mvcc = &mut self.mvcc;
        match Command::decode(command) {
            None => reply::<Figures>(Err(Refusal::Malformed), out),
            // While a member has no space nothing may grow; deletions and compactions make some.
            Some(command) if grows(&command) && !mvcc.has_space() => {
                reply::<Figures>(Err(Refusal::NoSpace), out);
            }
            Some(Command::Put(request)) => reply(mvcc.put(&request, Budget::COMMAND), out),
            Some(Command::Delete(request)) => reply(mvcc.delete(&request, Budget::COMMAND), out),
            Some(Command::Txn(request)) => reply(mvcc.txn(&request, Budget::COMMAND), out),
            Some(Command::Compact(request)) => {
                let done = mvcc.compact(request.revision);
                let answer = done.map(|revision| CompactionResponse {
                    header: header(revision),
                });
                reply(answer, out);
            }
            Some(Command::Scrub) => {
                mvcc.scrub(SCRUB_MAX);
                reply(Ok(self.figures()), out);
            }
            Some(Command::Grant(Granted { id, ttl, now_ms })) => {
                let done = mvcc.grant(id, ttl, now_ms);
                let header = header(mvcc.revision());
                let answer = done.map(|ttl| LeaseGrantResponse {
                    header,
                    id,
                    ttl,
                    error: String::new(),
                });
                reply(answer, out);
            }
            Some(Command::Revoke(request)) => {
                let done = mvcc.revoke(request.id);
                let answer = done.map(|revision| LeaseRevokeResponse {
                    header: header(revision),
                });
                reply(answer, out);
            }
            Some(Command::KeepAlive(kept)) if kept.ids.len() > KEPT_MAX => {
                reply::<Lasting>(Err(Refusal::Malformed), out);
            }
            Some(Command::KeepAlive(KeptAlive { ids, now_ms })) => {
                let kept = ids.iter().map(|id| mvcc.keep_alive(*id, now_ms));
                // One that is not there has no time left, as etcd says it.
                let ttls = kept.map(|ttl| ttl.unwrap_or(0)).collect();
                let revision = mvcc.revision();
                reply(Ok(Lasting { revision, ttls }), out);
            }
            Some(Command::Expire) => {
                mvcc.expire();
                reply(Ok(self.figures()), out);
            }
            Some(Command::Alarm(request)) => {
                let (kind, member) = (request.alarm(), request.member_id);
                let done = match request.action() {
                    AlarmAction::Get => Ok(mvcc.alarms(kind)),
                    AlarmAction::Activate => mvcc.raise(kind, member),
                    AlarmAction::Deactivate => Ok(mvcc.disarm(kind, member)),
                };
                let header = header(mvcc.revision());
                reply(done.map(|alarms| AlarmResponse { header, alarms }), out);
            }
        }
    }

    fn query(&self, query: &[u8], wall_ms: u64, out: &mut Vec<u8>) {
        match Query::decode(query) {
            None => reply::<Figures>(Err(Refusal::Malformed), out),
            Some(Query::Page(request)) => reply(self.mvcc.page(&request), out),
            Some(Query::Txn(request)) => reply(self.mvcc.read_txn(&request, Budget::QUERY), out),
            Some(Query::Figures) => reply(Ok(self.figures()), out),
            Some(Query::Events(request)) => reply(self.mvcc.events(&request), out),
            Some(Query::Lease(request)) => reply(self.lease(&request, wall_ms), out),
            Some(Query::Alarms(request)) => {
                let alarms = self.mvcc.alarms(request.alarm());
                let header = header(self.mvcc.revision());
                reply(Ok(AlarmResponse { header, alarms }), out);
            }
            Some(Query::Hash(request)) => reply(self.mvcc.hash(&request), out),
            Some(Query::Leases(request)) => {
                let (ids, next) = self.mvcc.leases(request.from);
                let revision = self.mvcc.revision();
                reply(
                    Ok(LeasesPage {
                        revision,
                        ids,
                        next,
                    }),
                    out,
                );
            }
        }
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.mvcc.store_mut().commit(applied_to, meta);
        self.uncommitted = false;
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let recovered = self.mvcc.store_mut().recovered();
        let _ = self.mvcc.read_state();
        self.uncommitted = false;
        self.loading = None;
        recovered
    }

    fn logged(&mut self, to: Slot) {
        self.mvcc.store_mut().logged(to);
    }

    fn health(&mut self) -> Health {
        self.mvcc.store_mut().health()
    }

    fn has_failed(&self) -> bool {
        self.mvcc.store().has_failed()
    }

    /// The revision and the size, if they are others than before; what happened is asked for.
    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let now = (self.mvcc.revision(), self.mvcc.store().bytes());
        if now != self.told {
            self.told = now;
            each(b"figures", &encode_notice(now));
        }
    }

    fn set_time(&mut self, group_ms: u64) {
        self.mvcc.set_time(group_ms);
    }

    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        self.mvcc.next_deadline(until_ms)
    }

    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        if self.mvcc.has_ended_leases() {
            each(&Command::Expire.encode());
        }
        if self.mvcc.has_scrap() {
            each(&Command::Scrub.encode());
        }
    }

    fn begin_image(&mut self) -> bool {
        self.mvcc.store_mut().end_image();
        self.owes_head = false;
        if !self.uncommitted && self.loading.is_none() {
            self.owes_head = self.mvcc.store_mut().begin_image();
        }
        self.owes_head
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let mut item = Vec::new();
        if std::mem::take(&mut self.owes_head) {
            image::encode_head(&mut item);
            each(&item);
        }
        self.mvcc.store_mut().next_image(bytes, &mut |key, value| {
            image::encode_entry(key, value, &mut item);
            each(&item);
        })
    }

    fn end_image(&mut self) {
        self.owes_head = false;
        self.mvcc.store_mut().end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.mvcc.store_mut().end_image();
        self.loading = None;
        self.mvcc.store_mut().begin_load()?;
        self.loading = Some(Items::default());
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        // It is back only if all went well.
        let mut items = self.loading.take().ok_or(LoadError::NotLoading)?;
        if let Some((key, value)) = items.take(item)? {
            let value = Bytes::copy_from_slice(value);
            self.mvcc.store_mut().load(key, value)?;
        }
        self.loading = Some(items);
        Ok(())
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        let items = self.loading.take().ok_or(LoadError::NotLoading)?;
        // Before the first slot there is no state, and no image of it.
        if at != Slot::FIRST || !items.is_empty() {
            items.end()?;
        }
        self.mvcc.store_mut().finish_load(at, meta)?;
        self.mvcc.read_state()?;
        self.uncommitted = false;
        Ok(())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.mvcc.store_mut().synced_to()
    }

    fn start_sync(&mut self) {
        self.mvcc.store_mut().start_sync();
    }
}
