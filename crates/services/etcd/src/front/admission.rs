//! Admission of requests: authenticates senders, and checks their users and roles.

use std::{sync::Arc, time::Instant};

use quorate::Role;
use tonic::{Request, Status};

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    gate::{AuthenticatedUser, Client, PresentedToken, Requester},
    jwt::{Jwt, TokenKind},
    token::{SignedToken, Statement},
};
use crate::{
    auth::{AuthQuery, AuthVersion, Credentials, Sender, auth_ask},
    command::Query,
};

impl ReplicaAccess {
    /// Returns a request's sender if it has the role `needed` among the cluster's own users
    /// ([access-2]).
    pub(super) fn require_role<T>(
        &self,
        request: &Request<T>,
        needed: Role,
    ) -> Result<Requester, Status> {
        let asker = Requester::from_request(request);
        self.recheck_role(&asker, needed)?;
        Ok(asker)
    }

    /// Repeats the check of [`Self::require_role`] for an open stream.
    pub(super) fn recheck_role(&self, asker: &Requester, needed: Role) -> Result<(), Status> {
        match asker {
            Requester::Member => Ok(()),
            Requester::Client(client) => self.check_identity(&client.quorate_identity, needed),
        }
    }

    /// Returns the credentials of a user from this node's local state.
    pub(super) async fn credentials(&self, name: &str) -> Result<Credentials, Status> {
        self.credentials_with(name, Freshness::Local).await
    }

    async fn credentials_with(
        &self,
        name: &str,
        freshness: Freshness,
    ) -> Result<Credentials, Status> {
        let what = Some(auth_ask::AuthQueryKind::Credentials(name.to_owned()));
        let query = Query::Auth(AuthQuery { kind: what });
        let asked = self.query_once(&Sender::Member, &query, freshness);
        let (credentials, _): (Credentials, _) = asked.await?;
        self.session_cache.advance_auth_version(credentials.auth_version());
        Ok(credentials)
    }

    async fn current_auth_version(&self) -> Result<AuthVersion, Status> {
        let known = *self.session_cache.auth_version.borrow();
        match known {
            Some(mark) => Ok(mark),
            None => Ok(self.credentials("").await?.auth_version()),
        }
    }

    /// Returns whether auth is disabled, according to this node's local state.
    pub(super) async fn is_auth_disabled(&self) -> Result<bool, Status> {
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
            None => Ok(client.certificate_name.as_ref().map_or(Sender::Anonymous, |name| {
                Sender::User { name: (**name).to_owned(), auth_revision: mark.revision }
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
            (Some(known), _) => self.check_unchanged(known, mark).await.map(Some),
            (None, PresentedToken::Text(token)) => self.session_user(token, mark).await.map(Some),
            (None, PresentedToken::Unreadable) => Err(errors::invalid_token()),
            (None, PresentedToken::Absent) => Ok(None),
        }
    }

    /// Checks that neither the password has changed nor auth has been enabled again since.
    async fn check_unchanged(
        &self,
        known: &AuthenticatedUser,
        mark: AuthVersion,
    ) -> Result<AuthenticatedUser, Status> {
        if known.auth_version == mark {
            return Ok(known.clone());
        }
        let now = self.credentials(&known.name).await?;
        let is_same = now.enabled
            && now.enabled_revision == known.enabled_revision
            && now.password_revision == known.password_revision;
        match is_same {
            true => Ok(AuthenticatedUser::from_credentials(&known.name, &now)),
            false => Err(errors::invalid_token()),
        }
    }

    async fn session_user(
        &self,
        token: &Arc<str>,
        mark: AuthVersion,
    ) -> Result<AuthenticatedUser, Status> {
        match self.session_cache.find_session(token, Instant::now()) {
            Some(known) if known.auth_version == mark => Ok(known),
            Some(known) => {
                let still = self.check_unchanged(&known, mark).await;
                match &still {
                    Ok(still) => self.session_cache.renew_session(token, still.clone()),
                    Err(error) if errors::is_invalid_token(error) => {
                        self.session_cache.remove_session(token)
                    }
                    Err(_) => {}
                }
                still
            }
            None => {
                let (known, ends) = match &self.token_kind {
                    TokenKind::Simple => (self.verify_simple_token(token).await?, None),
                    TokenKind::Jwt(jwt) => self.verify_jwt(jwt, token).await?,
                };
                self.session_cache.add_session(token, known.clone(), Instant::now(), ends);
                Ok(known)
            }
        }
    }

    /// Returns the user that a token in this service's own format identifies.
    async fn verify_simple_token(&self, token: &str) -> Result<AuthenticatedUser, Status> {
        let signed = SignedToken::parse(token).ok_or_else(errors::invalid_token)?;
        let name = &signed.statement.name;
        let now = self.credentials(name).await?;
        match signed.is_valid(&now, self.cluster_id()) {
            true => Ok(AuthenticatedUser::from_credentials(name, &now)),
            false => Err(errors::invalid_token()),
        }
    }

    /// Returns the user that a JSON Web Token identifies, with the token's expiry.
    async fn verify_jwt(
        &self,
        jwt: &Jwt,
        token: &str,
    ) -> Result<(AuthenticatedUser, Option<Instant>), Status> {
        let claims = jwt.verify(token).ok_or_else(errors::invalid_token)?;
        let mut now = self.credentials(&claims.username).await?;
        if now.revision < claims.revision {
            // The token was issued by another member, which this one may lag behind.
            let freshest = self.credentials_with(&claims.username, Freshness::Linearizable);
            now = freshest.await?;
        }
        if !claims.are_current(&now) {
            return Err(errors::invalid_token());
        }
        let known = AuthenticatedUser::from_credentials(&claims.username, &now);
        Ok((known, Instant::now().checked_add(claims.time_left())))
    }

    /// Fixes the identity of a stream's client for as long as the user and the password exist,
    /// because a stream may be idle for longer than the lifetime of a token.
    pub(super) async fn fix_identity(&self, asker: &Requester) -> Result<Requester, Status> {
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
    pub(super) fn issue_token(&self, name: &str, now: &Credentials) -> Result<String, Status> {
        if let TokenKind::Jwt(jwt) = &self.token_kind {
            let signed = jwt.sign_login(name, now.revision);
            let signed = signed.ok_or_else(errors::cannot_issue_tokens)?;
            return signed.map_err(|error| Status::internal(format!("etcdserver: {error}")));
        }
        let statement = Statement {
            name: name.to_owned(),
            password_revision: now.password_revision,
            enabled_revision: now.enabled_revision,
            login_ms: now.now_ms,
        };
        let token = statement.sign(&now.secret, self.cluster_id());
        token.ok_or_else(|| Status::internal("etcdserver: there is no key to sign a token with"))
    }
}
