//! The table of users: replicated state that depends only on commands and reads no clock.

use std::{collections::BTreeMap, fmt};

use crate::{
    command::{Command, Denied, Password, Reply},
    fields::{FieldReader, put_text},
    name::{DEFAULT, Name},
    role::Role,
    who::Who,
};

/// Maximum number of users. Constant, because every node must refuse the same commands.
pub const USERS_MAX: usize = 1024;
/// Maximum length of a password hash in bytes.
pub const HASH_BYTES_MAX: usize = 255;
const HASH_PREFIX: &str = "$argon2id$";
/// Hash that no password matches. Makes a login as an unknown user take as long as any other.
pub const UNMATCHABLE_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

const FORMAT: u8 = 1;

/// A user's role and password hash.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    pub role: Role,
    /// Password hash in PHC format; `None` if only a certificate lets the user in.
    pub hash: Option<Box<str>>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("role", &self.role)
            .field("has_password", &self.hash.is_some())
            .finish()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    by_name: BTreeMap<Name, User>,
}

impl Users {
    /// Table without users, under which every caller has all permissions.
    pub const NONE: Self = Self { by_name: BTreeMap::new() };

    /// [access-1] Returns whether there are no users, and every admitted client has all
    /// permissions.
    pub fn is_unrestricted(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns all users by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &User)> {
        self.by_name.iter()
    }

    pub fn get(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// [access-1] Returns the role of a caller that has proved to be `who` by a certificate and
    /// `user` by a password, if it has any permissions.
    ///
    /// A password takes precedence, because it was presented later. A removed user has no role, and
    /// does not become [`DEFAULT`].
    pub fn role(&self, who: &Who, user: Option<&str>) -> Option<Role> {
        if self.is_unrestricted() {
            return Some(Role::Admin);
        }
        let of = |name: &str| self.get(name).map(|user| user.role);
        match (user, who) {
            (Some(user), _) => of(user),
            (None, Who::Node(_)) => Some(Role::Admin),
            (None, Who::Client(name)) => of(name).or_else(|| self.role_of_anonymous()),
            (None, Who::Anonymous | Who::Unnamed) => self.role_of_anonymous(),
        }
    }

    /// Returns the role of callers that have not authenticated, unless the default user has a
    /// password.
    fn role_of_anonymous(&self) -> Option<Role> {
        let default = self.get(DEFAULT)?;
        default.hash.is_none().then_some(default.role)
    }

    /// Executes a command from the log. On failure, the table is unchanged.
    pub fn execute(&mut self, command: &[u8]) -> Reply {
        let after = self.after_command(Command::decode(command).ok_or(Denied::Malformed)?)?;
        *self = after;
        Ok(())
    }

    /// Returns the table after a command, or the reason for refusing it.
    pub fn after_command(&self, command: Command) -> Result<Self, Denied> {
        let mut users = self.clone();
        match command {
            Command::Open => {
                users.by_name.clear();
                return Ok(users);
            }
            Command::Remove { name } => {
                users.by_name.remove(name.as_str()).ok_or(Denied::UnknownUser)?;
            }
            Command::Set { name, role, password } => {
                let name = Name::new(&name).ok_or(Denied::InvalidName)?;
                let before = users.by_name.get(&name);
                let role = role.or_else(|| before.map(|user| user.role));
                let hash = match password {
                    Password::Keep => before.and_then(|user| user.hash.clone()),
                    Password::None => None,
                    Password::Hash(hash) if is_hash_format(&hash) => Some(hash.into()),
                    Password::Hash(_) => return Err(Denied::InvalidHash),
                };
                let role = role.ok_or(Denied::NoRole)?;
                users.by_name.insert(name, User { role, hash });
                if users.by_name.len() > USERS_MAX {
                    return Err(Denied::Full);
                }
            }
        }
        // [access-3] At least one user who has to authenticate must be able to change users.
        let mut all = users.by_name.iter();
        let admin = all.any(|(name, user)| {
            user.role == Role::Admin && (!name.is_default() || user.hash.is_some())
        });
        admin.then_some(users).ok_or(Denied::LastAdmin)
    }

    /// Returns whether any user who can log in with a password may change users.
    pub fn has_admin_with_password(&self) -> bool {
        let mut all = self.by_name.values();
        all.any(|user| user.role == Role::Admin && user.hash.is_some())
    }

    /// Encodes the table for storage and snapshots. Equal tables yield equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        let count = u16::try_from(self.by_name.len()).expect("bounded by USERS_MAX");
        out.extend_from_slice(&count.to_be_bytes());
        for (name, user) in &self.by_name {
            put_text(name.as_str(), &mut out);
            out.push(user.role as u8);
            put_text(user.hash.as_deref().unwrap_or_default(), &mut out);
        }
        out
    }

    /// Decodes a table. Fails if the bytes are malformed or from a later version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        if fields.byte()? != FORMAT {
            return None;
        }
        let count = usize::from(fields.u16()?);
        let mut users = Self::default();
        for _ in 0..count {
            let name = Name::new(fields.text()?)?;
            let role = Role::from_number(fields.byte()?)?;
            let hash = match fields.text()? {
                "" => None,
                hash => Some(is_hash_format(hash).then(|| hash.into())?),
            };
            let last = users.by_name.last_key_value();
            if last.is_some_and(|(last, _)| *last >= name) {
                return None;
            }
            users.by_name.insert(name, User { role, hash });
        }
        (fields.0.is_empty() && count <= USERS_MAX).then_some(users)
    }
}

/// Returns whether the text has the form of a hash. [`crate::password`] verifies passwords.
fn is_hash_format(text: &str) -> bool {
    let fine = text.bytes().all(|byte| byte.is_ascii_graphic());
    fine && text.len() <= HASH_BYTES_MAX && text.starts_with(HASH_PREFIX)
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;

    use super::*;

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA";

    fn set(name: &str, role: impl Into<Option<Role>>, password: Password) -> Command {
        Command::Set { name: name.to_owned(), role: role.into(), password }
    }

    fn hash() -> Password {
        Password::Hash(HASH.to_owned())
    }

    fn table(commands: &[Command]) -> Users {
        let mut users = Users::default();
        for command in commands {
            users.execute(&command.encode()).unwrap();
        }
        users
    }

    fn client(name: &str) -> Who {
        Who::Client(name.to_owned())
    }

    /// [access-1] Without users every caller may do everything; with one, only callers with a role
    /// may.
    #[test]
    fn without_users_all_access_is_granted_otherwise_by_role() {
        let open = Users::default();
        for who in [Who::Anonymous, Who::Unnamed, Who::Node(3), client("ann")] {
            assert_eq!(open.role(&who, None), Some(Role::Admin));
        }
        let users =
            table(&[set("ann", Role::Admin, Password::None), set("bob", Role::Reader, hash())]);
        assert_eq!(users.role(&client("ann"), None), Some(Role::Admin));
        assert_eq!(users.role(&client("bob"), None), Some(Role::Reader));
        assert_eq!(users.role(&Who::Node(3), None), Some(Role::Admin));
        assert_eq!(users.role(&Who::Anonymous, Some("bob")), Some(Role::Reader));
        assert_eq!(users.role(&client("ann"), Some("bob")), Some(Role::Reader));
        for who in [Who::Anonymous, Who::Unnamed, client("eve"), client("default")] {
            assert_eq!(users.role(&who, None), None, "{who:?}");
            assert_eq!(users.role(&who, Some("eve")), None, "{who:?}");
        }
    }

    #[test]
    fn unnamed_callers_are_default_unless_it_has_a_password() {
        let mut users =
            table(&[set("ann", Role::Admin, hash()), set(DEFAULT, Role::Reader, Password::None)]);
        let roles = |users: &Users| {
            [Who::Anonymous, Who::Unnamed, client("eve")].map(|who| users.role(&who, None))
        };
        assert_eq!(roles(&users), [Some(Role::Reader); 3]);
        // A removed user has no role.
        assert_eq!(users.role(&Who::Anonymous, Some("bob")), None);
        users.execute(&set(DEFAULT, None, hash()).encode()).unwrap();
        assert_eq!(roles(&users), [None; 3]);
        assert_eq!(users.role(&Who::Anonymous, Some(DEFAULT)), Some(Role::Reader));
    }

    /// [access-3] An administrator always remains.
    #[test]
    fn last_admin_cannot_be_removed() {
        let mut users = Users::default();
        let refused = |users: &mut Users, command: Command| {
            let before = users.clone();
            let denied = users.execute(&command.encode()).unwrap_err();
            assert_eq!(*users, before, "nothing changed");
            denied
        };
        let first = set("bob", Role::Operator, hash());
        assert_eq!(refused(&mut users, first), Denied::LastAdmin);
        let anybody = set(DEFAULT, Role::Admin, Password::None);
        assert_eq!(refused(&mut users, anybody), Denied::LastAdmin);
        users = table(&[set("ann", Role::Admin, hash()), set("bob", Role::Admin, hash())]);
        users.execute(&set("bob", Role::Writer, Password::Keep).encode()).unwrap();
        assert_eq!(users.get("bob").unwrap().hash.as_deref(), Some(HASH));
        let lesser = set("ann", Role::Operator, Password::Keep);
        assert_eq!(refused(&mut users, lesser), Denied::LastAdmin);
        let gone = Command::Remove { name: "ann".to_owned() };
        assert_eq!(refused(&mut users, gone), Denied::LastAdmin);
        users.execute(&Command::Open.encode()).unwrap();
        assert!(users.is_unrestricted());
    }

    #[test]
    fn invalid_user_changes_are_refused() {
        let mut users = table(&[set("ann", Role::Admin, Password::None)]);
        let long = format!("{HASH_PREFIX}{}", "x".repeat(HASH_BYTES_MAX));
        for (command, denied) in [
            (set("Bob", Role::Reader, Password::None), Denied::InvalidName),
            (set("", Role::Reader, Password::None), Denied::InvalidName),
            (set("bob", None, Password::None), Denied::NoRole),
            (set("bob", Role::Reader, Password::Hash("secret".to_owned())), Denied::InvalidHash),
            (set("bob", Role::Reader, Password::Hash(long)), Denied::InvalidHash),
            (Command::Remove { name: "bob".to_owned() }, Denied::UnknownUser),
        ] {
            assert_eq!(users.execute(&command.encode()), Err(denied), "{command:?}");
        }
        assert_eq!(users.execute(b"?"), Err(Denied::Malformed));
        for number in 1..USERS_MAX {
            let more = set(&format!("u{number}"), Role::Reader, Password::None);
            users.execute(&more.encode()).unwrap();
        }
        let one_more = set("one-more", Role::Reader, Password::None).encode();
        assert_eq!(users.execute(&one_more), Err(Denied::Full));
        let again = set("u1", Role::Writer, Password::None).encode();
        assert_eq!(users.execute(&again), Ok(()));
    }

    #[test]
    fn user_table_round_trips_and_damaged_bytes_are_refused() {
        let users =
            table(&[set("ann", Role::Admin, Password::None), set("bob", Role::Reader, hash())]);
        let bytes = users.encode();
        assert_eq!(Users::decode(&bytes), Some(users.clone()));
        assert_eq!(Users::decode(&Users::NONE.encode()), Some(Users::NONE));
        for cut in 0..bytes.len() {
            assert_eq!(Users::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        // Any bytes that can be decoded are exactly the encoding of the result.
        let mut dice = Dice::new(7);
        for _ in 0..20_000 {
            let mut damaged = bytes.clone();
            for _ in 0..=dice.below(3) {
                let at = usize::try_from(dice.below(damaged.len() as u64)).unwrap();
                damaged[at] = u8::try_from(dice.below(256)).unwrap();
            }
            if let Some(read) = Users::decode(&damaged) {
                assert_eq!(read.encode(), damaged);
            }
        }
        assert!(!format!("{users:?}").contains("argon2id"));
    }
}
