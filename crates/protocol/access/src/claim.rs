//! Claimed identities, whose passwords have not been checked yet.

use crate::{Name, Users, name::DEFAULT, users::UNMATCHABLE_HASH};

/// Claimed user name, and the hash that the password must match.
#[derive(Debug)]
pub struct Claim {
    name: Name,
    required_hash: Box<str>,
}

/// Outcome of a login attempt before its password is checked.
#[derive(Debug)]
pub enum Claimed {
    /// There are no users, so every caller is the default user.
    Pointless,
    Granted,
    /// The password must be checked against this claim.
    ToProve(Claim),
}

impl Claimed {
    /// Looks up the claimed user. An unknown name also leads to a password check, so that timing
    /// does not reveal which users exist.
    pub fn of(users: &Users, name: &[u8]) -> Self {
        let name = std::str::from_utf8(name).ok().and_then(Name::new);
        let user = name.as_ref().and_then(|name| users.get(name.as_str()));
        if name.as_ref().is_some_and(Name::is_default) {
            match user {
                _ if users.is_unrestricted() => return Self::Pointless,
                Some(user) if user.hash.is_none() => return Self::Granted,
                _ => {}
            }
        }
        let claimed = user.and_then(|user| user.hash.clone()).zip(name);
        let (hash, name) = claimed.unwrap_or_else(|| {
            let default = Name::new(DEFAULT).expect("it is a name");
            (UNMATCHABLE_HASH.into(), default)
        });
        Self::ToProve(Claim { name, required_hash: hash })
    }
}

impl Claim {
    /// Returns the hash that the password must match.
    pub fn required_hash(&self) -> &str {
        &self.required_hash
    }

    /// Returns the claimed name after the password has matched, unless the user has changed since.
    pub fn proved(self, users: Option<&Users>) -> Option<Name> {
        let user = users.and_then(|users| users.get(self.name.as_str()))?;
        (user.hash.as_deref() == Some(&*self.required_hash)).then_some(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Password, Role};

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAA";

    fn set(users: &mut Users, name: &str, password: Password) {
        let command = Command::Set { name: name.to_owned(), role: Some(Role::Admin), password };
        users.execute(&command.encode()).unwrap();
    }

    fn to_prove(users: &Users, name: &[u8]) -> Claim {
        match Claimed::of(users, name) {
            Claimed::ToProve(claim) => claim,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn claim_is_proved_only_for_its_user_and_password() {
        let mut users = Users::NONE;
        assert!(matches!(Claimed::of(&users, b"default"), Claimed::Pointless));
        set(&mut users, "ann", Password::Hash(HASH.to_owned()));
        let proved = to_prove(&users, b"ann").proved(Some(&users));
        assert_eq!(proved.unwrap().as_str(), "ann");
        assert_eq!(to_prove(&users, b"ann").proved(None), None);
        // An unknown user, one without a password, and an invalid name all result in a hash that no
        // password matches, never in a user.
        set(&mut users, "certified", Password::None);
        for name in [&b"eve"[..], b"certified", b"\xff", b"", b"default"] {
            let claim = to_prove(&users, name);
            assert_eq!(claim.required_hash(), UNMATCHABLE_HASH);
            assert_eq!(claim.proved(Some(&users)), None);
        }
        // The password has changed.
        let claim = to_prove(&users, b"ann");
        set(&mut users, "ann", Password::Hash(HASH.replace("AAAA", "BBBB")));
        assert_eq!(claim.proved(Some(&users)), None);
        set(&mut users, "default", Password::None);
        assert!(matches!(Claimed::of(&users, b"default"), Claimed::Granted));
    }
}
