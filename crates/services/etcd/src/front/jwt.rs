//! JSON Web Tokens, which name the user of a login and are signed with an operator's key, as with
//! etcd's option `--auth-token`.
//!
//! Any holder of the private key can issue tokens. A node with only the public key can verify them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr as _,
    sync::Arc,
    time::Duration,
};

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, Header, Validation, decode, encode,
    errors::Error as Unusable, get_current_timestamp,
};
use serde::{Deserialize, Serialize};

use crate::auth::Credentials;

const TOKEN_BYTES_MAX: usize = 8 << 10;
const KEY_BYTES_MAX: u64 = 64 << 10;
/// Minimum length of an HMAC secret in bytes: the output of the shortest hash.
const SECRET_BYTES_MIN: usize = 32;
const TOKEN_LIFETIME_DEFAULT: Duration = Duration::from_secs(300);
/// Maximum lifetime of a token, because tokens cannot be revoked before they expire.
const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Algorithm names accepted in the option.
const METHOD_NAMES: &str =
    "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384 or HS512";

/// Error in the option for tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenOptionError {
    #[error("{0:?} is no kind of token: there are simple, and jwt,sign-method=…")]
    Kind(String),
    /// An option is unknown, repeated, or without a value.
    #[error("{0:?} is no option of jwt, or is there twice")]
    Option(String),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("sign-method is to be {METHOD_NAMES}, not {0:?}")]
    Method(String),
    /// The lifetime is missing or invalid.
    #[error("ttl is to be a time from 1s to 8760h, such as 10m, not {0:?}")]
    Lifetime(String),
    #[error("cannot read {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// The file contains no key of the right kind.
    #[error("{} holds no key for {method}: {why}", path.display())]
    Key { path: PathBuf, method: String, why: String },
    /// The public key does not match the private key.
    #[error("{} is not the public key of {}", public.display(), private.display())]
    Pair { public: PathBuf, private: PathBuf },
}

/// Kinds of tokens for clients that log in with a password.
#[derive(Clone, Debug, Default)]
pub enum TokenKind {
    /// Signed statements that every member can verify with a key in the replicated state.
    #[default]
    Simple,
    Jwt(Arc<Jwt>),
}

impl TokenKind {
    /// Parses a flag in etcd's format, `simple` or
    /// `jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=10m`, and reads the key files.
    ///
    /// # Errors
    ///
    /// Fails if the flag is invalid or a key cannot be used.
    pub fn parse_flag(text: &str) -> Result<Self, TokenOptionError> {
        match text.split_once(',') {
            None if text == "simple" => Ok(Self::Simple),
            Some(("jwt", options)) => Ok(Self::Jwt(Arc::new(Jwt::parse_options(options)?))),
            None if text == "jwt" => Err(TokenOptionError::Missing("sign-method")),
            _ => Err(TokenOptionError::Kind(text.to_owned())),
        }
    }
}

/// Claims of a token, named as in etcd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Claims {
    pub(super) username: String,
    /// Auth revision at the login.
    pub(super) revision: u64,
    /// Expiry in Unix seconds. Some issuers use fractions.
    exp: f64,
}

impl Claims {
    /// Returns whether the password has not changed since the login, according to the auth
    /// revisions.
    pub(super) const fn are_current(&self, now: &Credentials) -> bool {
        now.enabled
            && now.password_revision != 0
            && self.revision >= now.password_revision
            && self.revision >= now.enabled_revision
            && self.revision <= now.revision
    }

    /// Returns the time until the token expires.
    pub(super) fn time_left(&self) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "seconds of centuries are exact")]
        let left = self.exp - get_current_timestamp() as f64;
        Duration::try_from_secs_f64(left.max(0.0))
            .map_or(TOKEN_LIFETIME_MAX, |left| left.min(TOKEN_LIFETIME_MAX))
    }
}

/// A verifier of JSON Web Tokens, which also signs them if there is a private key.
pub struct Jwt {
    signing_key: Option<EncodingKey>,
    verifying_key: DecodingKey,
    algorithm: Algorithm,
    validation: Validation,
    lifetime: Duration,
}

impl std::fmt::Debug for Jwt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Jwt").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// Parsed options, whose values are not interpreted yet.
#[derive(Default)]
struct JwtOptions<'f> {
    method: Option<&'f str>,
    public_key_file: Option<&'f str>,
    private_key_file: Option<&'f str>,
    lifetime_text: Option<&'f str>,
}

impl<'f> JwtOptions<'f> {
    fn parse(text: &'f str) -> Result<Self, TokenOptionError> {
        let mut options = Self::default();
        for option in text.split(',') {
            let bad = || TokenOptionError::Option(option.to_owned());
            let (name, value) = option.split_once('=').ok_or_else(bad)?;
            let place = match name.trim() {
                "sign-method" => &mut options.method,
                "pub-key" => &mut options.public_key_file,
                "priv-key" => &mut options.private_key_file,
                "ttl" => &mut options.lifetime_text,
                _ => return Err(bad()),
            };
            if value.is_empty() || place.replace(value).is_some() {
                return Err(bad());
            }
        }
        Ok(options)
    }
}

impl Jwt {
    fn parse_options(text: &str) -> Result<Self, TokenOptionError> {
        let options = JwtOptions::parse(text)?;
        let method = options.method.ok_or(TokenOptionError::Missing("sign-method"))?;
        // The `jsonwebtoken` crate also accepts algorithm names that etcd does not support.
        let algorithm =
            Algorithm::from_str(method).map_err(|_| TokenOptionError::Method(method.to_owned()))?;
        let life = match options.lifetime_text {
            None => TOKEN_LIFETIME_DEFAULT,
            Some(text) => {
                let life = parse_duration(text);
                let life = life
                    .filter(|life| (Duration::from_secs(1)..=TOKEN_LIFETIME_MAX).contains(life));
                life.ok_or_else(|| TokenOptionError::Lifetime(text.to_owned()))?
            }
        };
        let (signs, checks) = read_keys(&options, method, algorithm.family())?;
        let mut validation = Validation::new(algorithm);
        // No leeway after expiry, as in etcd. Issuers for another audience sign with another key.
        (validation.leeway, validation.validate_aud) = (0, false);
        validation.validate_nbf = true;
        let jwt = Self {
            signing_key: signs,
            verifying_key: checks,
            algorithm,
            validation,
            lifetime: life,
        };
        jwt.check_key_pair(&options, method)?;
        Ok(jwt)
    }

    /// Checks that this node can verify the tokens that it signs.
    fn check_key_pair(
        &self,
        options: &JwtOptions<'_>,
        method: &str,
    ) -> Result<(), TokenOptionError> {
        let private = PathBuf::from(options.private_key_file.unwrap_or_default());
        match self.sign_login("user", 1) {
            None => Ok(()),
            Some(Ok(token)) if self.verify(&token).is_some() => Ok(()),
            Some(Ok(_)) => Err(TokenOptionError::Pair {
                public: PathBuf::from(options.public_key_file.unwrap_or_default()),
                private,
            }),
            Some(Err(error)) => Err(unusable_key(&private, method, &error)),
        }
    }

    /// Returns a token for a user who has just logged in, if there is a private key.
    pub(super) fn sign_login(&self, name: &str, revision: u64) -> Option<Result<String, Unusable>> {
        let key = self.signing_key.as_ref()?;
        // In whole seconds, because some parsers reject fractions.
        let exp = get_current_timestamp().saturating_add(self.lifetime.as_secs());
        let claims = serde_json::json!({
            "username": name,
            "revision": revision,
            "exp": exp,
        });
        Some(encode(&Header::new(self.algorithm), &claims, key))
    }

    /// Returns the claims of a token with a valid signature that has not expired.
    pub(super) fn verify(&self, token: &str) -> Option<Claims> {
        // Some programs include this prefix in the header.
        let token = token.strip_prefix("Bearer ").unwrap_or(token);
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let read = decode::<Claims>(token, &self.verifying_key, &self.validation).ok()?;
        Some(read.claims)
    }
}

fn unusable_key(path: &Path, method: &str, why: &dyn std::fmt::Display) -> TokenOptionError {
    TokenOptionError::Key { path: path.to_owned(), method: method.to_owned(), why: why.to_string() }
}

fn read_keys(
    options: &JwtOptions<'_>,
    method: &str,
    family: AlgorithmFamily,
) -> Result<(Option<EncodingKey>, DecodingKey), TokenOptionError> {
    if family == AlgorithmFamily::Hmac {
        let path = options.private_key_file.ok_or(TokenOptionError::Missing("priv-key"))?;
        let secret = read_key_file(path)?;
        if secret.len() < SECRET_BYTES_MIN {
            let why =
                format!("it has {} bytes; at least {SECRET_BYTES_MIN} are needed", secret.len());
            return Err(unusable_key(Path::new(path), method, &why));
        }
        let signs = EncodingKey::from_secret(&secret);
        return Ok((Some(signs), DecodingKey::from_secret(&secret)));
    }
    let path = options.public_key_file.ok_or(TokenOptionError::Missing("pub-key"))?;
    let pem = read_key_file(path)?;
    let checks = match family {
        AlgorithmFamily::Ec => DecodingKey::from_ec_pem(&pem),
        AlgorithmFamily::Ed => DecodingKey::from_ed_pem(&pem),
        _ => DecodingKey::from_rsa_pem(&pem),
    };
    let checks = checks.map_err(|error| unusable_key(Path::new(path), method, &error))?;
    let Some(path) = options.private_key_file else {
        return Ok((None, checks));
    };
    let pem = read_key_file(path)?;
    let signs = match family {
        AlgorithmFamily::Ec => EncodingKey::from_ec_pem(&pem),
        AlgorithmFamily::Ed => EncodingKey::from_ed_pem(&pem),
        _ => EncodingKey::from_rsa_pem(&pem),
    };
    let signs = signs.map_err(|error| unusable_key(Path::new(path), method, &error))?;
    Ok((Some(signs), checks))
}

fn read_key_file(path: &str) -> Result<Vec<u8>, TokenOptionError> {
    let read = || {
        let length = fs::metadata(path)?.len();
        match length <= KEY_BYTES_MAX {
            true => fs::read(path),
            false => Err(io::Error::other("it is too long for a key")),
        }
    };
    read().map_err(|error| TokenOptionError::File { path: path.into(), error })
}

/// Parses a duration in Go's format, such as `1h30m`, in whole hours, minutes, seconds and
/// milliseconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|letter: char| letter.is_ascii_digit());
        let (unit, behind) = behind.split_at(letters.unwrap_or(behind.len()));
        let unit_ms: u64 = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        let ms = number.parse::<u64>().ok()?.checked_mul(unit_ms)?;
        sum = sum.checked_add(Duration::from_millis(ms))?;
        rest = behind;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        Credentials {
            enabled: true,
            revision: 9,
            enabled_revision: 4,
            password_revision: 6,
            ..Credentials::default()
        }
    }

    fn claims(revision: u64) -> Claims {
        Claims { username: "ann".to_owned(), revision, exp: 0.0 }
    }

    /// Claims hold from the login until the password changes or auth is disabled.
    #[test]
    fn claims_are_valid_only_for_the_current_password() {
        for (revision, holds) in [(0, false), (5, false), (6, true), (9, true), (10, false)] {
            assert_eq!(claims(revision).are_current(&credentials()), holds, "{revision}");
        }
        let others: [fn(&mut Credentials); 4] = [
            |now| now.enabled = false,
            |now| now.enabled_revision = 8,
            |now| now.password_revision = 8,
            |now| now.password_revision = 0,
        ];
        for change in others {
            let mut other = credentials();
            change(&mut other);
            assert!(!claims(7).are_current(&other), "{other:?}");
        }
    }

    #[test]
    fn durations_are_parsed_as_in_go() {
        let ms = |text| parse_duration(text).map(|time| time.as_millis());
        for (text, expected) in
            [("10m", 600_000), ("1h30m", 5_400_000), ("90s", 90_000), ("1s500ms", 1500)]
        {
            assert_eq!(ms(text), Some(expected), "{text}");
        }
        for text in ["", "10", "m", "-1s", "1.5h", "1d", "99999999999999999999s", "5m "] {
            assert_eq!(ms(text), None, "{text}");
        }
    }
}
