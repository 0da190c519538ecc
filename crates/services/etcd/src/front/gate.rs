//! Authentication: a client by its token or its certificate, or this node for itself.
//!
//! A token is checked against the state once, and again whenever users or roles change; until then
//! the node caches the result. A stream keeps the identity of the client that opened it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use quorate::{Role, Who};
use tokio::sync::watch;
use tonic::{Request, Status};

use super::{
    asking::{Asking, Caller, Freshness},
    errors,
    jwt::{Jwt, Tokens},
    token::{LIFE_MS, Signed, Statement},
};
use crate::{
    auth::{AuthAsk, By, Credentials, Mark, auth_ask},
    command::Query,
};

/// Tokens that are remembered; of more, those used last.
const SESSIONS_MAX: usize = 10_000;
const LIFE: Duration = Duration::from_millis(LIFE_MS);

/// Sender of a request.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// This node, for itself.
    Member,
    /// A client.
    Client(Client),
}

/// A client, with its credentials.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Identity that its certificate proves to Quorate.
    who: Who,
    /// The name in its certificate.
    certified: Option<Arc<str>>,
    token: Presented,
    /// Identity fixed when a stream began.
    stays: Option<Known>,
}

/// Token as received.
#[derive(Clone, Debug)]
enum Presented {
    Nothing,
    Text(Arc<str>),
    /// Not valid text.
    Unreadable,
}

/// An authenticated user.
#[derive(Clone, Debug)]
struct Known {
    name: Arc<str>,
    since: u64,
    epoch: u64,
    /// State of auth at the time of the check.
    mark: Mark,
}

#[derive(Debug)]
struct Session {
    known: Known,
    last: Instant,
    /// Expiry, regardless of use.
    ends: Option<Instant>,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= LIFE || self.ends.is_some_and(|ends| ends <= now)
    }
}

/// Cache of authenticated sessions.
#[derive(Debug)]
pub(super) struct Gate {
    /// State of auth on this node, once known.
    mark: watch::Sender<Option<Mark>>,
    sessions: Mutex<HashMap<Arc<str>, Session>>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { mark: watch::Sender::new(None), sessions: Mutex::default() }
    }

    /// Records that auth reached this state; a mark that arrives late changes nothing.
    pub(super) fn reach(&self, now: Mark) {
        self.mark.send_if_modified(|mark| {
            let is_later = mark.is_none_or(|mark| mark < now);
            if is_later {
                *mark = Some(now);
            }
            is_later
        });
    }

    /// Subscribes to changes of users, roles and auth itself.
    pub(super) fn changes(&self) -> watch::Receiver<Option<Mark>> {
        self.mark.subscribe()
    }

    fn recall(&self, token: &str, now: Instant) -> Option<Known> {
        let sessions = self.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get_mut(token)?;
        if session.is_over(now) {
            sessions.remove(token);
            return None;
        }
        session.last = now;
        Some(session.known.clone())
    }

    /// Renews the session of a token whose user was checked again.
    fn renew(&self, token: &str, known: Known) {
        let sessions = self.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get_mut(token) {
            session.known = known;
        }
    }

    fn remember(&self, token: &Arc<str>, known: Known, now: Instant, ends: Option<Instant>) {
        let sessions = self.sessions.lock();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(token) {
            sessions.retain(|_, session| !session.is_over(now));
            // A tenth of them at a time, so that this is rare.
            if sessions.len() >= SESSIONS_MAX {
                let mut ages: Vec<Instant> =
                    sessions.values().map(|session| session.last).collect();
                let (_, oldest, _) = ages.select_nth_unstable(SESSIONS_MAX / 10);
                let oldest = *oldest;
                sessions.retain(|_, session| session.last > oldest);
            }
        }
        let last = now;
        sessions.insert(Arc::clone(token), Session { known, last, ends });
    }

    fn forget(&self, token: &str) {
        let sessions = self.sessions.lock();
        sessions.unwrap_or_else(PoisonError::into_inner).remove(token);
    }
}

impl Asker {
    /// Returns the sender of a request. etcd's clients send the token in `token`, and in
    /// `authorization` where HTTP is spoken.
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let caller = request.extensions().get::<Caller>();
        let Caller { who, certified } = caller.cloned().unwrap_or_default();
        let token = request.metadata().get("token");
        let token = token.or_else(|| request.metadata().get("authorization"));
        let token = match token.map(|token| token.to_str()) {
            None => Presented::Nothing,
            Some(Ok(text)) => Presented::Text(text.into()),
            Some(Err(_)) => Presented::Unreadable,
        };
        Self::Client(Client { who, certified, token, stays: None })
    }
}

impl Known {
    fn of(name: &str, credentials: &Credentials) -> Self {
        Self {
            name: name.into(),
            since: credentials.since,
            epoch: credentials.epoch,
            mark: credentials.mark(),
        }
    }

    fn by(&self) -> By {
        By::User { name: (*self.name).to_owned(), revision: self.mark.revision }
    }
}

impl Credentials {
    const fn mark(&self) -> Mark {
        Mark { revision: self.revision, enabled: self.enabled }
    }
}

impl Asking {
    /// [access-2] Returns the sender of a request, if it has this role among the cluster's own
    /// users.
    pub(super) fn allow<T>(&self, request: &Request<T>, needed: Role) -> Result<Asker, Status> {
        let asker = Asker::of(request);
        self.allow_again(&asker, needed)?;
        Ok(asker)
    }

    /// Repeats the check of `allow` for a stream.
    pub(super) fn allow_again(&self, asker: &Asker, needed: Role) -> Result<(), Status> {
        match asker {
            Asker::Member => Ok(()),
            Asker::Client(client) => self.allow_who(&client.who, needed),
        }
    }

    /// Returns the credentials of a user, as this node knows them.
    pub(super) async fn credentials(&self, name: &str) -> Result<Credentials, Status> {
        self.credentials_as(name, Freshness::Local).await
    }

    async fn credentials_as(
        &self,
        name: &str,
        freshness: Freshness,
    ) -> Result<Credentials, Status> {
        let what = Some(auth_ask::What::Credentials(name.to_owned()));
        let query = Query::Auth(AuthAsk { what });
        let asked = self.query_once(&By::Member, &query, freshness);
        let (credentials, _): (Credentials, _) = asked.await?;
        self.gate.reach(credentials.mark());
        Ok(credentials)
    }

    async fn mark(&self) -> Result<Mark, Status> {
        let known = *self.gate.mark.borrow();
        match known {
            Some(mark) => Ok(mark),
            None => Ok(self.credentials("").await?.mark()),
        }
    }

    /// Returns whether auth is off, as this node knows it.
    pub(super) async fn is_open(&self) -> Result<bool, Status> {
        Ok(!self.mark().await?.enabled)
    }

    /// Returns the identity of a request's sender, as this node knows it.
    pub(super) async fn by(&self, asker: &Asker) -> Result<By, Status> {
        let Asker::Client(client) = asker else {
            return Ok(By::Member);
        };
        let mark = self.mark().await?;
        if !mark.enabled {
            return Ok(By::Nobody);
        }
        match self.known(client, mark).await? {
            Some(known) => Ok(known.by()),
            None => Ok(client.certified.as_ref().map_or(By::Nobody, |name| By::User {
                name: (**name).to_owned(),
                revision: mark.revision,
            })),
        }
    }

    /// Returns the user by the client's token, if it has one.
    async fn known(&self, client: &Client, mark: Mark) -> Result<Option<Known>, Status> {
        match (&client.stays, &client.token) {
            (Some(known), _) => self.still(known, mark).await.map(Some),
            (None, Presented::Text(token)) => self.session(token, mark).await.map(Some),
            (None, Presented::Unreadable) => Err(errors::invalid_token()),
            (None, Presented::Nothing) => Ok(None),
        }
    }

    /// Checks that a user has not changed.
    async fn still(&self, known: &Known, mark: Mark) -> Result<Known, Status> {
        if known.mark == mark {
            return Ok(known.clone());
        }
        let now = self.credentials(&known.name).await?;
        let is_same = now.enabled && now.epoch == known.epoch && now.since == known.since;
        match is_same {
            true => Ok(Known::of(&known.name, &now)),
            false => Err(errors::invalid_token()),
        }
    }

    async fn session(&self, token: &Arc<str>, mark: Mark) -> Result<Known, Status> {
        match self.gate.recall(token, Instant::now()) {
            Some(known) if known.mark == mark => Ok(known),
            Some(known) => {
                let still = self.still(&known, mark).await;
                match &still {
                    Ok(still) => self.gate.renew(token, still.clone()),
                    Err(error) if errors::is_invalid_token(error) => self.gate.forget(token),
                    Err(_) => {}
                }
                still
            }
            None => {
                let (known, ends) = match &self.tokens {
                    Tokens::Simple => (self.stated(token).await?, None),
                    Tokens::Jwt(jwt) => self.claimed(jwt, token).await?,
                };
                self.gate.remember(token, known.clone(), Instant::now(), ends);
                Ok(known)
            }
        }
    }

    /// Returns the user of one of our own tokens.
    async fn stated(&self, token: &str) -> Result<Known, Status> {
        let signed = Signed::parse(token).ok_or_else(errors::invalid_token)?;
        let name = &signed.statement.name;
        let now = self.credentials(name).await?;
        match signed.holds(&now, self.cluster()) {
            true => Ok(Known::of(name, &now)),
            false => Err(errors::invalid_token()),
        }
    }

    /// Returns the user of a JSON Web Token, and its expiry.
    async fn claimed(&self, jwt: &Jwt, token: &str) -> Result<(Known, Option<Instant>), Status> {
        let claims = jwt.read(token).ok_or_else(errors::invalid_token)?;
        let mut now = self.credentials(&claims.username).await?;
        if now.revision < claims.revision {
            // Another member issued it, and this one may lag.
            let freshest = self.credentials_as(&claims.username, Freshness::Linearizable);
            now = freshest.await?;
        }
        if !claims.hold(&now) {
            return Err(errors::invalid_token());
        }
        let known = Known::of(&claims.username, &now);
        Ok((known, Instant::now().checked_add(claims.left())))
    }

    /// Fixes the current identity for as long as that user and that password exist: for a stream,
    /// which may be silent for longer than a token lasts.
    pub(super) async fn stay(&self, asker: &Asker) -> Result<Asker, Status> {
        let Asker::Client(client) = asker else {
            return Ok(Asker::Member);
        };
        let mark = self.mark().await?;
        let stays = match mark.enabled {
            true => self.known(client, mark).await?,
            false => None,
        };
        Ok(Asker::Client(Client {
            stays: stays.or_else(|| client.stays.clone()),
            ..client.clone()
        }))
    }

    /// Returns a token for a user whose password was checked against these credentials.
    pub(super) fn token(&self, name: &str, now: &Credentials) -> Result<String, Status> {
        if let Tokens::Jwt(jwt) = &self.tokens {
            let signed = jwt.sign(name, now.revision);
            let signed = signed.ok_or_else(errors::verify_only)?;
            return signed.map_err(|error| Status::internal(format!("etcdserver: {error}")));
        }
        let statement = Statement {
            name: name.to_owned(),
            since: now.since,
            epoch: now.epoch,
            at_ms: now.now_ms,
        };
        let token = statement.sign(&now.secret, self.cluster());
        token.ok_or_else(|| Status::internal("etcdserver: there is no key to sign a token with"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known { name: "ann".into(), since: 1, epoch: 1, mark: Mark::default() }
    }

    #[test]
    fn use_renews_a_token_where_it_is_known() {
        let (gate, token) = (Gate::new(), Arc::from("a"));
        let mut now = Instant::now();
        gate.remember(&token, known(), now, None);
        for _ in 0..10 {
            now += LIFE - Duration::from_secs(1);
            assert!(gate.recall("a", now).is_some());
        }
        assert!(gate.recall("a", now + LIFE).is_none());
        assert!(gate.recall("a", now).is_none(), "it is forgotten then");
    }

    #[test]
    fn what_ends_at_a_time_is_not_renewed_by_use() {
        let gate = Gate::new();
        let now = Instant::now();
        let ends = now + Duration::from_secs(20);
        gate.remember(&"a".into(), known(), now, Some(ends));
        assert!(gate.recall("a", now + Duration::from_secs(19)).is_some());
        let later = Known { since: 2, ..known() };
        gate.renew("a", later);
        let there = gate.recall("a", now + Duration::from_secs(19));
        assert_eq!(there.map(|known| known.since), Some(2));
        assert!(gate.recall("a", ends).is_none());
    }

    #[test]
    fn of_too_many_tokens_those_used_last_are_known() {
        let gate = Gate::new();
        let mut now = Instant::now();
        for at in 0..SESSIONS_MAX {
            now += Duration::from_millis(1);
            gate.remember(&at.to_string().into(), known(), now, None);
        }
        now += Duration::from_millis(1);
        assert!(gate.recall("0", now).is_some());
        gate.remember(&"more".into(), known(), now, None);
        assert!(gate.recall("0", now).is_some(), "it was used lately");
        assert!(gate.recall("1", now).is_none());
        assert!(gate.recall("9000", now).is_some() && gate.recall("more", now).is_some());
    }

    #[test]
    fn what_is_told_late_changes_nothing() {
        let gate = Gate::new();
        let mark = |revision, enabled| Mark { revision, enabled };
        for (told, now) in [
            (mark(3, false), mark(3, false)),
            (mark(3, true), mark(3, true)),
            (mark(3, false), mark(3, true)),
            (mark(2, true), mark(3, true)),
            (mark(4, false), mark(4, false)),
        ] {
            gate.reach(told);
            assert_eq!(*gate.mark.borrow(), Some(now));
        }
    }
}
