//! Password hashes: Argon2id with its crate's recommended parameters (19 MiB, two passes: some tens
//! of milliseconds).

use argon2::{
    Argon2, Params, PasswordHasher as _, PasswordVerifier as _, password_hash::phc::PasswordHash,
};

/// Maximum length of a password in bytes.
pub const PASSWORD_BYTES_MAX: usize = 512;
/// Limits on the cost of a hash, which comes from the log and must not exhaust the memory.
const MEMORY_KIB_MAX: u32 = 64 << 10;
const PASSES_MAX: u32 = 8;
const LANES_MAX: u32 = 4;

/// Reason why a password cannot be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusablePassword {
    Empty,
    /// The password has more than [`PASSWORD_BYTES_MAX`] bytes.
    TooLong,
    /// The system lacks randomness or memory.
    SystemShortage,
}

impl std::fmt::Display for UnusablePassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "the password is empty",
            Self::TooLong => "the password is longer than 512 bytes",
            Self::SystemShortage => {
                "the system has no memory or no randomness for the hash of the password"
            }
        })
    }
}

impl std::error::Error for UnusablePassword {}

/// Hashes a password with a new salt.
pub fn hash_password(password: &[u8]) -> Result<String, UnusablePassword> {
    match password.len() {
        0 => Err(UnusablePassword::Empty),
        1..=PASSWORD_BYTES_MAX => {
            let hash = Argon2::default().hash_password(password);
            hash.map(|hash| hash.to_string()).map_err(|_| UnusablePassword::SystemShortage)
        }
        _ => Err(UnusablePassword::TooLong),
    }
}

/// Returns whether the password matches the hash. A mismatch takes as long as a match.
pub fn matches_hash(hash: &str, password: &[u8]) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else {
        return false;
    };
    let bounded = Params::try_from(&hash).is_ok_and(|params| {
        params.m_cost() <= MEMORY_KIB_MAX
            && params.t_cost() <= PASSES_MAX
            && params.p_cost() <= LANES_MAX
    });
    bounded
        && password.len() <= PASSWORD_BYTES_MAX
        && Argon2::default().verify_password(password, &hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_only_its_password() {
        let made = hash_password(b"open sesame").unwrap();
        assert!(matches_hash(&made, b"open sesame"));
        for wrong in [&b""[..], b"open sesam", b"open sesame ", b"Open sesame"] {
            assert!(!matches_hash(&made, wrong));
        }
        assert_ne!(made, hash_password(b"open sesame").unwrap(), "each has its salt");
        assert_eq!(hash_password(b""), Err(UnusablePassword::Empty));
        assert_eq!(hash_password(&[b'x'; 513]), Err(UnusablePassword::TooLong));
        let longest = [b'x'; 512];
        assert!(matches_hash(&hash_password(&longest).unwrap(), &longest));
        let user = crate::Command::Set {
            name: "ann".to_owned(),
            role: Some(crate::Role::Admin),
            password: crate::Password::Hash(made),
        };
        let mut users = crate::Users::default();
        assert_eq!(users.execute(&user.encode()), Ok(()), "the table takes it");
    }

    /// A hash comes from the log, so its cost parameters cannot be trusted.
    #[test]
    fn hash_with_excessive_cost_parameters_never_matches() {
        for hostile in [
            "$argon2id$v=19$m=4194304,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g",
            "$argon2id$v=19$m=8,t=4000000000,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g",
            "$argon2id$",
            "",
        ] {
            assert!(!matches_hash(hostile, b"x"), "{hostile}");
        }
        assert!(PasswordHash::new(crate::users::UNMATCHABLE_HASH).is_ok(), "it takes its time");
        assert!(!matches_hash(crate::users::UNMATCHABLE_HASH, b""));
    }
}
