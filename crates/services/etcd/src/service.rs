//! The replicated state machine: executes commands in log order and answers queries.

use bytes::Bytes;
use quorate::{
    CommandId, Health, Imaged, LoadError, MetaChange, Metadata, Scrubbed, Slot, StateMachine,
};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    auth::{Auth, AuthVersion, Sender},
    check,
    command::{
        Command, Figures, KeepAliveTtls, LeaseGrant, LeaseKeepAlives, LeasesPage, Query,
        encode_reply,
    },
    image::{self, ItemValidator},
    mvcc::{Budget, Mvcc, SCRUBBED_CHANGES_MAX},
    proto::etcdserverpb::{
        AlarmResponse, AuthEnableResponse, CompactionResponse, LeaseGrantResponse,
        LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, ResponseHeader,
        alarm_request::AlarmAction,
    },
    refusal::Refusal,
    store::Store,
};

/// Maximum number of leases that one command keeps alive; nodes propose fewer.
const KEEP_ALIVES_MAX: usize = 10_000;

/// The etcd state machine, on any store.
pub struct Service {
    mvcc: Mvcc,
    auth: Auth,
    /// Set if commands have been executed since the last commit.
    has_uncommitted: bool,
    /// Set while the head of the image in progress has yet to be returned.
    owes_head: bool,
    /// Validator of the image being loaded.
    image_validator: Option<ItemValidator>,
    /// Last notice sent to listeners.
    last_notice: Option<ExecutionNotice>,
}

impl Service {
    pub fn new(store: Box<dyn Store>) -> Self {
        Self {
            auth: Auth::read_or_deny(&*store),
            mvcc: Mvcc::new(store),
            has_uncommitted: false,
            owes_head: false,
            image_validator: None,
            last_notice: None,
        }
    }

    pub const fn mvcc(&self) -> &Mvcc {
        &self.mvcc
    }

    /// Returns a fingerprint of all contents, for comparing replicas at the same slot. Reads
    /// everything.
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

    /// Returns the remaining time of a lease. As in etcd, it is -1 if the lease does not exist.
    fn lease(
        &self,
        request: &LeaseTimeToLiveRequest,
        wall_ms: u64,
    ) -> Result<LeaseTimeToLiveResponse, Refusal> {
        let id = request.id;
        let header = header(self.mvcc.revision());
        let Some(lease) = self.mvcc.live_lease(id) else {
            return Ok(LeaseTimeToLiveResponse {
                header,
                id,
                ttl: -1,
                ..LeaseTimeToLiveResponse::default()
            });
        };
        let left = lease.deadline_ms.saturating_sub(wall_ms) / 1000;
        Ok(LeaseTimeToLiveResponse {
            header,
            id,
            // Capped at the granted time, because the local clock may lag.
            ttl: i64::try_from(left)
                .map_or(lease.granted_ttl_s, |left| left.min(lease.granted_ttl_s)),
            granted_ttl: lease.granted_ttl_s,
            keys: match request.keys {
                true => self.mvcc.lease_keys(id, Budget::QUERY)?,
                false => Vec::new(),
            },
        })
    }

    fn figures(&self) -> Figures {
        Figures {
            revision: self.mvcc.revision(),
            compacted_revision: self.mvcc.compacted_revision(),
            is_scrubbed: !self.mvcc.has_unscrubbed(),
            bytes: self.mvcc.bytes(),
            lease_count: self.mvcc.stored_lease_count(),
        }
    }
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
}

/// Returns whether a command may increase the size of the data.
fn may_add_data(command: &Command) -> bool {
    match command {
        Command::Put(_) | Command::Grant(_) => true,
        Command::Txn(txn) => check::has_put(txn),
        _ => false,
    }
}

/// A notice of executed commands, from [`StateMachine::take_notices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionNotice {
    /// Revision of the last transaction that changed something.
    pub revision: i64,
    /// Size of the data.
    pub bytes: u64,
    pub auth: AuthVersion,
}

impl ExecutionNotice {
    fn encode(&self) -> [u8; 25] {
        let mut bytes = [0; 25];
        bytes[..8].copy_from_slice(&self.revision.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.auth.revision.to_be_bytes());
        bytes[24] = u8::from(self.auth.enabled);
        bytes
    }

    pub fn decode(notice: &[u8]) -> Option<Self> {
        let (revision, rest) = notice.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (auth, rest) = rest.split_first_chunk()?;
        Some(Self {
            revision: i64::from_be_bytes(*revision),
            bytes: u64::from_be_bytes(*bytes),
            auth: AuthVersion { revision: u64::from_be_bytes(*auth), enabled: *rest.first()? != 0 },
        })
    }
}

/// Decodes a request and its sender.
fn decode_request<T>(bytes: &[u8], decode: impl FnOnce(&[u8]) -> Option<T>) -> Option<(Sender, T)> {
    let (by, bytes) = Sender::split_request(bytes)?;
    Some((by, decode(bytes)?))
}

impl StateMachine for Service {
    fn grows(&self, command: &[u8]) -> bool {
        decode_request(command, Command::decode).is_some_and(|(_, command)| may_add_data(&command))
    }

    fn apply(&mut self, _: CommandId, command: &[u8], out: &mut Vec<u8>) {
        self.has_uncommitted = true;
        let Some((by, command)) = decode_request(command, Command::decode) else {
            return encode_reply::<Figures>(Err(Refusal::Malformed), out);
        };
        if let Err(refusal) = self.auth.check_command(&by, &command, &self.mvcc) {
            return encode_reply::<Figures>(Err(refusal), out);
        }
        let mvcc = &mut self.mvcc;
        match command {
            // While a member has no space, only deletions and compactions are executed, which free
            // space.
            command if may_add_data(&command) && !mvcc.has_space() => {
                encode_reply::<Figures>(Err(Refusal::NoSpace), out);
            }
            Command::Put(request) => encode_reply(mvcc.put(&request, Budget::COMMAND), out),
            Command::Delete(request) => encode_reply(mvcc.delete(&request, Budget::COMMAND), out),
            Command::Txn(request) => encode_reply(mvcc.execute_txn(&request, Budget::COMMAND), out),
            Command::Compact(request) => {
                let done = mvcc.compact(request.revision);
                let answer = done.map(|revision| CompactionResponse { header: header(revision) });
                encode_reply(answer, out);
            }
            Command::Scrub => {
                mvcc.scrub(SCRUBBED_CHANGES_MAX);
                encode_reply(Ok(self.figures()), out);
            }
            Command::Grant(LeaseGrant { id, ttl, now_ms }) => {
                let done = mvcc.grant_lease(id, ttl, now_ms);
                let header = header(mvcc.revision());
                let answer =
                    done.map(|ttl| LeaseGrantResponse { header, id, ttl, error: String::new() });
                encode_reply(answer, out);
            }
            Command::Revoke(request) => {
                let done = mvcc.revoke_lease(request.id);
                let answer = done.map(|revision| LeaseRevokeResponse { header: header(revision) });
                encode_reply(answer, out);
            }
            Command::KeepAlive(kept) if kept.ids.len() > KEEP_ALIVES_MAX => {
                encode_reply::<KeepAliveTtls>(Err(Refusal::Malformed), out);
            }
            Command::KeepAlive(LeaseKeepAlives { ids, now_ms, .. }) => {
                let kept = ids.iter().map(|id| mvcc.keep_alive(*id, now_ms));
                // As in etcd, a lease that does not exist has no time left.
                let ttls = kept.map(|ttl| ttl.unwrap_or(0)).collect();
                let revision = mvcc.revision();
                encode_reply(Ok(KeepAliveTtls { revision, ttls }), out);
            }
            Command::Expire => {
                mvcc.expire_leases();
                encode_reply(Ok(self.figures()), out);
            }
            Command::Alarm(request) => {
                let (kind, member) = (request.alarm(), request.member_id);
                let done = match request.action() {
                    AlarmAction::Get => Ok(mvcc.alarms(kind)),
                    AlarmAction::Activate => mvcc.raise_alarm(kind, member),
                    AlarmAction::Deactivate => Ok(mvcc.disarm_alarm(kind, member)),
                };
                let header = header(mvcc.revision());
                encode_reply(done.map(|alarms| AlarmResponse { header, alarms }), out);
            }
            Command::Auth(change) => {
                let done = self.auth.change(change, mvcc.store_mut());
                let header = header(mvcc.revision());
                // All responses to such requests have this form.
                encode_reply(done.map(|()| AuthEnableResponse { header }), out);
            }
        }
    }

    fn query(&self, query: &[u8], wall_ms: u64, out: &mut Vec<u8>) {
        let Some((by, query)) = decode_request(query, Query::decode) else {
            return encode_reply::<Figures>(Err(Refusal::Malformed), out);
        };
        if let Err(refusal) = self.auth.check_query(&by, &query, &self.mvcc) {
            return encode_reply::<Figures>(Err(refusal), out);
        }
        match query {
            Query::Page(request) => encode_reply(self.mvcc.page(&request), out),
            Query::Txn(request) => {
                encode_reply(self.mvcc.execute_read_txn(&request, Budget::QUERY), out)
            }
            Query::Figures => encode_reply(Ok(self.figures()), out),
            Query::Events(request) => encode_reply(self.mvcc.events(&request), out),
            Query::Lease(request) => encode_reply(self.lease(&request, wall_ms), out),
            Query::Alarms(request) => {
                let alarms = self.mvcc.alarms(request.alarm());
                let header = header(self.mvcc.revision());
                encode_reply(Ok(AlarmResponse { header, alarms }), out);
            }
            Query::Hash(request) => encode_reply(self.mvcc.hash_page(&request), out),
            Query::Auth(ask) => {
                let header = header(self.mvcc.revision());
                self.auth.answer_query(&ask, header, wall_ms, out);
            }
            Query::Leases(request) => {
                let (ids, next) = self.mvcc.leases_page(request.from);
                let revision = self.mvcc.revision();
                encode_reply(Ok(LeasesPage { revision, ids, next }), out);
            }
        }
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.mvcc.store_mut().commit(applied_to, meta);
        self.has_uncommitted = false;
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let recovered = self.mvcc.store_mut().recovered();
        let _ = self.mvcc.read_state();
        self.auth = Auth::read_or_deny(self.mvcc.store());
        self.has_uncommitted = false;
        self.image_validator = None;
        recovered
    }

    fn logged(&mut self, to: Slot) {
        self.mvcc.underlying_store().logged(to);
    }

    fn health(&mut self) -> Health {
        self.mvcc.underlying_store().health()
    }

    fn has_failed(&self) -> bool {
        self.mvcc.store().has_failed()
    }

    /// Notifies listeners of a change of the revision, the size or the auth state. Listeners then
    /// query the events.
    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let now = ExecutionNotice {
            revision: self.mvcc.revision(),
            bytes: self.mvcc.bytes(),
            auth: self.auth.auth_version(),
        };
        if self.last_notice != Some(now) {
            self.last_notice = Some(now);
            each(b"figures", &now.encode());
        }
    }

    fn set_time(&mut self, group_ms: u64) {
        self.mvcc.set_time(group_ms);
    }

    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        self.mvcc.next_deadline(until_ms)
    }

    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        if self.mvcc.has_expired_leases() {
            each(&Command::Expire.encode());
        }
        if self.mvcc.has_unscrubbed() {
            each(&Command::Scrub.encode());
        }
    }

    fn begin_image(&mut self) -> bool {
        self.mvcc.underlying_store().end_image();
        self.owes_head = false;
        if !self.has_uncommitted && self.image_validator.is_none() {
            self.owes_head = self.mvcc.underlying_store().begin_image();
        }
        self.owes_head
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let mut item = Vec::new();
        if std::mem::take(&mut self.owes_head) {
            image::encode_head(&mut item);
            each(&item);
        }
        self.mvcc.underlying_store().next_image(bytes, &mut |key, value| {
            image::encode_entry(key, value, &mut item);
            each(&item);
        })
    }

    fn end_image(&mut self) {
        self.owes_head = false;
        self.mvcc.underlying_store().end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.mvcc.underlying_store().end_image();
        self.image_validator = None;
        self.mvcc.store_mut().begin_load()?;
        self.image_validator = Some(ItemValidator::default());
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        // The loaded image replaces the state only if everything succeeds.
        let mut items = self.image_validator.take().ok_or(LoadError::NotLoading)?;
        if let Some((key, value)) = items.validate_item(item)? {
            let value = Bytes::copy_from_slice(value);
            self.mvcc.store_mut().load(key, value)?;
        }
        self.image_validator = Some(items);
        Ok(())
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        let items = self.image_validator.take().ok_or(LoadError::NotLoading)?;
        // An image at the first slot may have no items, because there is no state yet.
        if at != Slot::FIRST || !items.is_empty() {
            items.check_complete()?;
        }
        self.mvcc.store_mut().finish_load(at, meta)?;
        self.mvcc.read_state()?;
        self.auth = Auth::read_rows(self.mvcc.store())?;
        if self.has_failed() {
            let why = "what was loaded cannot be read".to_owned();
            return Err(LoadError::Storage(why));
        }
        self.has_uncommitted = false;
        Ok(())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.mvcc.underlying_store().synced_to()
    }

    fn start_sync(&mut self) {
        self.mvcc.underlying_store().start_sync();
    }

    fn start_scrub(&mut self, bytes_per_second: u64) {
        self.mvcc.underlying_store().start_scrub(bytes_per_second);
    }

    fn take_scrubbed(&mut self) -> Scrubbed {
        self.mvcc.underlying_store().take_scrubbed()
    }

    fn wants_scrub(&mut self) -> bool {
        self.mvcc.underlying_store().wants_scrub()
    }

    fn kept_bytes(&self) -> u64 {
        self.mvcc.store().kept_bytes()
    }

    fn renew(&mut self) -> Result<(), String> {
        self.mvcc.underlying_store().renew()
    }
}
