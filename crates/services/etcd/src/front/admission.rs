//! Admission of requests: authenticates senders, and checks their users and roles.

use std::{sync::Arc, time::Instant};

use quorate::Role;
use tonic::{Request, Status};

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    gate::{AuthenticatedUser, Client, PresentedToken, Requester},
    jwt::{Jwt, Tokens},
    token::{Signed, Statement},
};
use crate::{
    auth::{AuthQuery, AuthVersion, Credentials, Sender, auth_ask},
    command::Query,
};

impl ReplicaAccess {
    /// Returns a request's sender if it has the role `needed` among the cluster's own users
    /// ([access-2]).
    pub(super) fn allow<T>(&self, request: &Request<T>, needed: Role) -> Result<Requester, Status> {
        let asker = Requester::of(request);
        self.recheck_role(&asker, needed)?;
        Ok(asker)
    }

    /// Repeats the check of [`Self::allow`] for an open stream.
    pub(super) fn recheck_role(&self, asker: &Requester, needed: Role) -> Result<(), Status> {
        match asker {
            Requester::Member => Ok(()),
            Requester::Client(client) => self.check_identity(&client.who, needed),
        }
    }

    /// Returns the credentials of a user from this node's local state.
    pub(super) async fn credentials(&self, name: &str) -> Result<Credentials, Status> {
        self.credentials_as(name, Freshness::Local).await
    }

    async fn credentials_as(
        &self,
        name: &str,
        freshness: Freshness,
    ) -> Result<Credentials, Status> {
        let what = Some(auth_ask::AuthQueryKind::Credentials(name.to_owned()));
        let query = Query::Auth(AuthQuery { kind: what });
        let asked = self.query_once(&Sender::Member, &query, freshness);
        let (credentials, _): (Credentials, _) = asked.await?;
        self.gate.advance_auth_version(credentials.auth_version());
        Ok(credentials)
    }

    async fn current_auth_version(&self) -> Result<AuthVersion, Status> {
        let known = *self.gate.auth_version.borrow();
        match known {
            Some(mark) => Ok(mark),
            None => Ok(self.credentials("").await?.auth_version()),
        }
    }

    /// Returns whether auth is disabled, according to this node's local state.
    pub(super) async fn is_open(&self) -> Result<bool, Status> {
        Ok(!self.current_auth_version().await?.enabled)
    }

    /// Returns the identity of a sender, according to this node's local state.
    pub(super) async fn identify_sender(&self, asker: &Requester) -> Result<Sender, Status> {
        let Requester::Client(client) = asker else {
            return Ok(Sender::Member);
        };
        let mark = self.current_auth_version().await?;
        if !mark.enabled {
            return Ok(Sender::Anonymous);
        }
        match self.authenticated_user(client, mark).await? {
            Some(known) => Ok(known.as_sender()),
            None => Ok(client.certified.as_ref().map_or(Sender::Anonymous, |name| Sender::User {
                name: (**name).to_owned(),
                revision: mark.revision,
            })),
        }
    }

    /// Returns the user that the client's token identifies, if it sent one.
    async fn authenticated_user(
        &self,
        client: &Client,
        mark: AuthVersion,
    ) -> Result<Option<AuthenticatedUser>, Status> {
        match (&client.fixed_identity, &client.token) {
            (Some(known), _) => self.still(known, mark).await.map(Some),
            (None, PresentedToken::Text(token)) => self.session(token, mark).await.map(Some),
            (None, PresentedToken::Unreadable) => Err(errors::invalid_token()),
            (None, PresentedToken::Nothing) => Ok(None),
        }
    }

    /// Checks that neither the password has changed nor auth has been enabled again since.
    async fn still(
        &self,
        known: &AuthenticatedUser,
        mark: AuthVersion,
    ) -> Result<AuthenticatedUser, Status> {
        if known.auth_version == mark {
            return Ok(known.clone());
        }
        let now = self.credentials(&known.name).await?;
        let is_same = now.enabled && now.epoch == known.epoch && now.since == known.since;
        match is_same {
            true => Ok(AuthenticatedUser::of(&known.name, &now)),
            false => Err(errors::invalid_token()),
        }
    }

    async fn session(
        &self,
        token: &Arc<str>,
        mark: AuthVersion,
    ) -> Result<AuthenticatedUser, Status> {
        match self.gate.find_session(token, Instant::now()) {
            Some(known) if known.auth_version == mark => Ok(known),
            Some(known) => {
                let still = self.still(&known, mark).await;
                match &still {
                    Ok(still) => self.gate.renew(token, still.clone()),
                    Err(error) if errors::is_invalid_token(error) => {
                        self.gate.remove_session(token)
                    }
                    Err(_) => {}
                }
                still
            }
            None => {
                let (known, ends) = match &self.tokens {
                    Tokens::Simple => (self.stated(token).await?, None),
                    Tokens::Jwt(jwt) => self.claimed(jwt, token).await?,
                };
                self.gate.add_session(token, known.clone(), Instant::now(), ends);
                Ok(known)
            }
        }
    }

    /// Returns the user that a token in this service's own format identifies.
    async fn stated(&self, token: &str) -> Result<AuthenticatedUser, Status> {
        let signed = Signed::parse(token).ok_or_else(errors::invalid_token)?;
        let name = &signed.statement.name;
        let now = self.credentials(name).await?;
        match signed.is_valid(&now, self.cluster()) {
            true => Ok(AuthenticatedUser::of(name, &now)),
            false => Err(errors::invalid_token()),
        }
    }

    /// Returns the user that a JSON Web Token identifies, with the token's expiry.
    async fn claimed(
        &self,
        jwt: &Jwt,
        token: &str,
    ) -> Result<(AuthenticatedUser, Option<Instant>), Status> {
        let claims = jwt.read(token).ok_or_else(errors::invalid_token)?;
        let mut now = self.credentials(&claims.username).await?;
        if now.revision < claims.revision {
            // The token was issued by another member, which this one may lag behind.
            let freshest = self.credentials_as(&claims.username, Freshness::Linearizable);
            now = freshest.await?;
        }
        if !claims.are_current(&now) {
            return Err(errors::invalid_token());
        }
        let known = AuthenticatedUser::of(&claims.username, &now);
        Ok((known, Instant::now().checked_add(claims.left())))
    }

    /// Fixes the identity of a stream's client for as long as the user and the password exist,
    /// because a stream may be idle for longer than the lifetime of a token.
    pub(super) async fn stay(&self, asker: &Requester) -> Result<Requester, Status> {
        let Requester::Client(client) = asker else {
            return Ok(Requester::Member);
        };
        let mark = self.current_auth_version().await?;
        let stays = match mark.enabled {
            true => self.authenticated_user(client, mark).await?,
            false => None,
        };
        Ok(Requester::Client(Client {
            fixed_identity: stays.or_else(|| client.fixed_identity.clone()),
            ..client.clone()
        }))
    }

    /// Issues a token for a user whose password was verified against the credentials `now`.
    pub(super) fn token(&self, name: &str, now: &Credentials) -> Result<String, Status> {
        if let Tokens::Jwt(jwt) = &self.tokens {
            let signed = jwt.sign_login(name, now.revision);
            let signed = signed.ok_or_else(errors::verify_only)?;
            return signed.map_err(|error| Status::internal(format!("etcdserver: {error}")));
        }
        let statement = Statement {
            name: name.to_owned(),
            since: now.since,
            epoch: now.epoch,
            login_ms: now.now_ms,
        };
        let token = statement.sign(&now.secret, self.cluster());
        token.ok_or_else(|| Status::internal("etcdserver: there is no key to sign a token with"))
    }
}
