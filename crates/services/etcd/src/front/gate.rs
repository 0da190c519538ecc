//! Authentication of requests: the sender is this node, or a client with a token or certificate.
//!
//! The result of verifying a token is cached until users or roles change. A stream keeps the
//! identity of the client that opened it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use quorate::Who;
use tokio::sync::watch;
use tonic::Request;

use super::token::LIFETIME_MS;
use crate::auth::{AuthVersion, Credentials, Sender};

/// Maximum number of cached tokens. Beyond it, the least recently used ones are evicted.
const SESSIONS_MAX: usize = 10_000;
const SESSION_LIFETIME: Duration = Duration::from_millis(LIFETIME_MS);

/// Identity of a client, as established by its connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    /// Identity among Quorate's own users, proved by the certificate.
    pub(super) quorate_identity: Who,
    /// Name in the certificate, which may be that of an etcd user.
    pub(super) certificate_name: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(super) enum Requester {
    /// This node itself.
    Member,
    Client(Client),
}

/// A client that sent a request, with its credentials.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Identity among Quorate's own users, proved by the certificate.
    pub(super) quorate_identity: Who,
    pub(super) certificate_name: Option<Arc<str>>,
    pub(super) token: PresentedToken,
    /// Identity fixed when the client opened a stream.
    pub(super) fixed_identity: Option<AuthenticatedUser>,
}

#[derive(Clone, Debug)]
pub(super) enum PresentedToken {
    Absent,
    Text(Arc<str>),
    /// The token is not valid UTF-8.
    Unreadable,
}

/// A user authenticated by token or certificate.
#[derive(Clone, Debug)]
pub(super) struct AuthenticatedUser {
    pub(super) name: Arc<str>,
    pub(super) password_revision: u64,
    pub(super) enabled_revision: u64,
    /// Version of the auth state against which the user was checked.
    pub(super) auth_version: AuthVersion,
}

#[derive(Debug)]
struct Session {
    user: AuthenticatedUser,
    last_used_at: Instant,
    /// Time at which the session expires even if it is in use.
    expires_at: Option<Instant>,
}

impl Session {
    fn has_expired(&self, now: Instant) -> bool {
        now.duration_since(self.last_used_at) >= SESSION_LIFETIME
            || self.expires_at.is_some_and(|ends| ends <= now)
    }
}

#[derive(Debug)]
pub(super) struct SessionCache {
    /// Latest known auth state; `None` at first.
    pub(super) auth_version: watch::Sender<Option<AuthVersion>>,
    sessions: Mutex<HashMap<Arc<str>, Session>>,
}

impl SessionCache {
    pub(super) fn new() -> Self {
        Self { auth_version: watch::Sender::new(None), sessions: Mutex::default() }
    }

    /// Records an auth state, unless it is older than the current one.
    pub(super) fn advance_auth_version(&self, now: AuthVersion) {
        self.auth_version.send_if_modified(|mark| {
            let is_later = mark.is_none_or(|mark| mark < now);
            if is_later {
                *mark = Some(now);
            }
            is_later
        });
    }

    /// Subscribes to changes of the auth state, users and roles.
    pub(super) fn subscribe_auth_version(&self) -> watch::Receiver<Option<AuthVersion>> {
        self.auth_version.subscribe()
    }

    pub(super) fn find_session(&self, token: &str, now: Instant) -> Option<AuthenticatedUser> {
        let sessions = self.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get_mut(token)?;
        if session.has_expired(now) {
            sessions.remove(token);
            return None;
        }
        session.last_used_at = now;
        Some(session.user.clone())
    }

    /// Updates a token's session after its user was checked again.
    pub(super) fn renew_session(&self, token: &str, known: AuthenticatedUser) {
        let sessions = self.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get_mut(token) {
            session.user = known;
        }
    }

    pub(super) fn add_session(
        &self,
        token: &Arc<str>,
        known: AuthenticatedUser,
        now: Instant,
        ends: Option<Instant>,
    ) {
        let sessions = self.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(token) {
            sessions.retain(|_, session| !session.has_expired(now));
            // Evicts a tenth of the tokens at a time, to amortize the cost.
            if sessions.len() >= SESSIONS_MAX {
                let mut ages: Vec<Instant> =
                    sessions.values().map(|session| session.last_used_at).collect();
                let (_, oldest, _) = ages.select_nth_unstable(SESSIONS_MAX / 10);
                let oldest = *oldest;
                sessions.retain(|_, session| session.last_used_at > oldest);
            }
        }
        let last = now;
        sessions.insert(
            Arc::clone(token),
            Session { user: known, last_used_at: last, expires_at: ends },
        );
    }

    pub(super) fn remove_session(&self, token: &str) {
        let sessions = self.sessions.lock();
        sessions.unwrap_or_else(PoisonError::into_inner).remove(token);
    }
}

impl Requester {
    /// Returns the sender of a request. etcd's clients send their token in the header `token`, or
    /// over HTTP in `authorization`.
    pub(super) fn from_request<T>(request: &Request<T>) -> Self {
        let caller = request.extensions().get::<Caller>();
        let Caller { quorate_identity: who, certificate_name: certified } =
            caller.cloned().unwrap_or_default();
        let token = request.metadata().get("token");
        let token = token.or_else(|| request.metadata().get("authorization"));
        let token = match token.map(|token| token.to_str()) {
            None => PresentedToken::Absent,
            Some(Ok(text)) => PresentedToken::Text(text.into()),
            Some(Err(_)) => PresentedToken::Unreadable,
        };
        Self::Client(Client {
            quorate_identity: who,
            certificate_name: certified,
            token,
            fixed_identity: None,
        })
    }
}

impl AuthenticatedUser {
    pub(super) fn from_credentials(name: &str, credentials: &Credentials) -> Self {
        Self {
            name: name.into(),
            password_revision: credentials.password_revision,
            enabled_revision: credentials.enabled_revision,
            auth_version: credentials.auth_version(),
        }
    }

    pub(super) fn as_sender(&self) -> Sender {
        Sender::User { name: (*self.name).to_owned(), auth_revision: self.auth_version.revision }
    }
}

impl Credentials {
    pub(super) const fn auth_version(&self) -> AuthVersion {
        AuthVersion { revision: self.revision, enabled: self.enabled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> AuthenticatedUser {
        AuthenticatedUser {
            name: "ann".into(),
            password_revision: 1,
            enabled_revision: 1,
            auth_version: AuthVersion::default(),
        }
    }

    #[test]
    fn use_renews_a_cached_token() {
        let (gate, token) = (SessionCache::new(), Arc::from("a"));
        let mut now = Instant::now();
        gate.add_session(&token, known(), now, None);
        for _ in 0..10 {
            now += SESSION_LIFETIME - Duration::from_secs(1);
            assert!(gate.find_session("a", now).is_some());
        }
        assert!(gate.find_session("a", now + SESSION_LIFETIME).is_none());
        assert!(gate.find_session("a", now).is_none(), "it is forgotten then");
    }

    #[test]
    fn token_with_a_fixed_end_is_not_renewed_by_use() {
        let gate = SessionCache::new();
        let now = Instant::now();
        let ends = now + Duration::from_secs(20);
        gate.add_session(&"a".into(), known(), now, Some(ends));
        assert!(gate.find_session("a", now + Duration::from_secs(19)).is_some());
        let later = AuthenticatedUser { password_revision: 2, ..known() };
        gate.renew_session("a", later);
        let there = gate.find_session("a", now + Duration::from_secs(19));
        assert_eq!(there.map(|known| known.password_revision), Some(2));
        assert!(gate.find_session("a", ends).is_none());
    }

    #[test]
    fn least_recently_used_tokens_are_evicted() {
        let gate = SessionCache::new();
        let mut now = Instant::now();
        for at in 0..SESSIONS_MAX {
            now += Duration::from_millis(1);
            gate.add_session(&at.to_string().into(), known(), now, None);
        }
        now += Duration::from_millis(1);
        assert!(gate.find_session("0", now).is_some());
        gate.add_session(&"more".into(), known(), now, None);
        assert!(gate.find_session("0", now).is_some(), "it was used lately");
        assert!(gate.find_session("1", now).is_none());
        assert!(
            gate.find_session("9000", now).is_some() && gate.find_session("more", now).is_some()
        );
    }

    #[test]
    fn late_auth_revisions_are_ignored() {
        let gate = SessionCache::new();
        let mark = |revision, enabled| AuthVersion { revision, enabled };
        for (told, now) in [
            (mark(3, false), mark(3, false)),
            (mark(3, true), mark(3, true)),
            (mark(3, false), mark(3, true)),
            (mark(2, true), mark(3, true)),
            (mark(4, false), mark(4, false)),
        ] {
            gate.advance_auth_version(told);
            assert_eq!(*gate.auth_version.borrow(), Some(now));
        }
    }
}
