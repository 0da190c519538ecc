//! Tokens: signed statements of the user, the time and the password revision of a login. Every
//! member can verify a token without having stored it (decision 25). Parsers accept arbitrary text.

use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::auth::{Credentials, NAME_BYTES_MAX, SECRET_BYTES};

/// Version of the statement format, its first byte.
const STATEMENT_VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + 3 * 8;
const SIGNATURE_BYTES: usize = 32;
/// Lifetime of a token, in milliseconds, since the login or its last use at a member that has
/// cached it.
pub(super) const LIFETIME_MS: u64 = 300_000;
/// Maximum tolerated lead of the issuing member's clock over this one's, in milliseconds.
const CLOCK_LEAD_MS_MAX: u64 = 10_000;

/// Contents of a token without the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) name: String,
    /// Auth revision at which the user's password was set.
    pub(super) password_revision: u64,
    /// Auth revision at which auth was last enabled.
    pub(super) enabled_revision: u64,
    /// Time of the login in Unix milliseconds.
    pub(super) login_ms: u64,
}

/// A received statement with its signature.
#[derive(Debug)]
pub(super) struct SignedToken {
    pub(super) statement: Statement,
    bytes: Vec<u8>,
    signature: [u8; SIGNATURE_BYTES],
}

/// Signs a statement with the cluster's id, if there is a key.
fn compute_signature(secret: &[u8], cluster: u64, statement: &[u8]) -> Option<blake3::Hash> {
    let key: &[u8; SECRET_BYTES] = secret.try_into().ok()?;
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(b"a token of etcd's kind");
    hasher.update(&cluster.to_be_bytes());
    hasher.update(statement);
    Some(hasher.finalize())
}

impl Statement {
    /// Returns the signed token, if there is a key.
    pub(super) fn sign(&self, secret: &[u8], cluster: u64) -> Option<String> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.name.len() + SIGNATURE_BYTES);
        bytes.push(STATEMENT_VERSION);
        for number in [self.password_revision, self.enabled_revision, self.login_ms] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(self.name.as_bytes());
        let signature = compute_signature(secret, cluster, &bytes)?;
        bytes.extend_from_slice(signature.as_bytes());
        Some(Base64UrlUnpadded::encode_string(&bytes))
    }
}

impl SignedToken {
    /// Parses a token without verifying its signature.
    pub(super) fn parse(token: &str) -> Option<Self> {
        let most = HEAD_BYTES + NAME_BYTES_MAX + SIGNATURE_BYTES;
        if token.len() > most.div_ceil(3) * 4 {
            return None;
        }
        let mut bytes = Base64UrlUnpadded::decode_vec(token).ok()?;
        let signature = *bytes.last_chunk::<SIGNATURE_BYTES>()?;
        bytes.truncate(bytes.len() - SIGNATURE_BYTES);
        let rest = bytes.strip_prefix(&[STATEMENT_VERSION])?;
        let (since, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (at_ms, name) = rest.split_first_chunk()?;
        let statement = Statement {
            name: std::str::from_utf8(name).ok()?.to_owned(),
            password_revision: u64::from_be_bytes(*since),
            enabled_revision: u64::from_be_bytes(*epoch),
            login_ms: u64::from_be_bytes(*at_ms),
        };
        Some(Self { statement, bytes, signature })
    }

    /// Returns whether a member of this cluster signed the statement recently enough, and the user
    /// and password have not changed according to `now`.
    pub(super) fn is_valid(&self, now: &Credentials, cluster: u64) -> bool {
        let signature = compute_signature(&now.secret, cluster, &self.bytes);
        // The comparison takes constant time.
        let is_signed = signature.is_some_and(|signature| signature == self.signature);
        let Statement {
            password_revision: since, enabled_revision: epoch, login_ms: at_ms, ..
        } = self.statement;
        is_signed
            && now.enabled
            && epoch == now.enabled_revision
            && since == now.password_revision
            && since != 0
            && at_ms <= now.now_ms.saturating_add(CLOCK_LEAD_MS_MAX)
            && now.now_ms < at_ms.saturating_add(LIFETIME_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: u64 = 77;

    fn now(now_ms: u64) -> Credentials {
        Credentials {
            enabled: true,
            revision: 9,
            secret: vec![5; SECRET_BYTES].into(),
            enabled_revision: 4,
            password_revision: 3,
            hash: String::new(),
            now_ms,
        }
    }

    fn statement() -> Statement {
        Statement {
            name: "ann".to_owned(),
            password_revision: 3,
            enabled_revision: 4,
            login_ms: 1_000_000,
        }
    }

    fn token() -> String {
        statement().sign(&now(0).secret, CLUSTER).unwrap()
    }

    #[test]
    fn token_is_valid_on_every_node_for_five_minutes() {
        let signed = SignedToken::parse(&token()).unwrap();
        assert_eq!(signed.statement, statement());
        for (at, holds) in
            [(990_000, true), (1_000_000, true), (1_299_999, true), (1_300_000, false)]
        {
            assert_eq!(signed.is_valid(&now(at), CLUSTER), holds, "{at}");
        }
        assert!(!signed.is_valid(&now(989_999), CLUSTER), "of the future");
    }

    #[test]
    fn token_with_other_credentials_is_invalid() {
        let signed = SignedToken::parse(&token()).unwrap();
        assert!(!signed.is_valid(&now(1_000_000), CLUSTER + 1), "another cluster");
        let others: [fn(&mut Credentials); 6] = [
            |now| now.secret = vec![6; SECRET_BYTES].into(),
            |now| now.secret = vec![5; SECRET_BYTES - 1].into(),
            |now| now.enabled_revision += 1,
            |now| now.password_revision += 1,
            |now| now.enabled = false,
            |now| now.password_revision = 0,
        ];
        for change in others {
            let mut other = now(1_000_000);
            change(&mut other);
            assert!(!signed.is_valid(&other, CLUSTER), "{other:?}");
        }
        // A signed token of a user that does not exist.
        let no_user = Statement { password_revision: 0, ..statement() };
        let signed = SignedToken::parse(&no_user.sign(&now(0).secret, CLUSTER).unwrap()).unwrap();
        assert!(!signed.is_valid(&Credentials { password_revision: 0, ..now(1_000_000) }, CLUSTER));
    }

    /// A token with any bit changed is invalid.
    #[test]
    fn changed_token_is_invalid() {
        let bytes = Base64UrlUnpadded::decode_vec(&token()).unwrap();
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            let changed = Base64UrlUnpadded::encode_string(&changed);
            let holds = SignedToken::parse(&changed).is_some_and(|signed| {
                let mut now = now(1_000_000);
                // All other conditions are met.
                (now.enabled_revision, now.password_revision) =
                    (signed.statement.enabled_revision, signed.statement.password_revision);
                signed.is_valid(&now, CLUSTER)
            });
            assert!(!holds, "bit {at}");
        }
        for text in ["", "x.1", "====", &"A".repeat(100_000), "AQ"] {
            assert!(SignedToken::parse(text).is_none());
        }
    }
}
