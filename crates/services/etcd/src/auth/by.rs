//! The sender of a command or query (`Sender`), encoded ahead of the request.

/// The sender of a request, whose rights determine whether it is executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sender {
    /// A client that has not authenticated.
    #[default]
    Anonymous,
    /// A user that a node has authenticated.
    User {
        name: String,
        /// Auth revision at which the node authenticated the user.
        auth_revision: u64,
    },
    /// A node, which may access everything.
    Member,
}

/// First byte of a user's request, distinct from all kinds of commands and queries.
const USER_MARK: u8 = 0xfe;
/// First byte of a node's own request, distinct from all kinds of commands and queries.
const MEMBER_MARK: u8 = 0xff;

impl Sender {
    pub fn prepend_to(&self, bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Anonymous => bytes,
            Self::Member => [&[MEMBER_MARK], &bytes[..]].concat(),
            Self::User { name, auth_revision: revision } => {
                // User names are shorter than this ([`super::NAME_BYTES_MAX`]).
                let length = u16::try_from(name.len()).unwrap_or(0);
                let name = name.as_bytes().get(..usize::from(length)).unwrap_or_default();
                let head = [&[USER_MARK], &revision.to_be_bytes()[..], &length.to_be_bytes(), name];
                [&head.concat()[..], &bytes].concat()
            }
        }
    }

    /// Splits an encoded request into the sender and the rest.
    pub fn split_request(bytes: &[u8]) -> Option<(Self, &[u8])> {
        match bytes.split_first() {
            Some((&MEMBER_MARK, rest)) => Some((Self::Member, rest)),
            Some((&USER_MARK, rest)) => {
                let (revision, rest) = rest.split_first_chunk()?;
                let (length, rest) = rest.split_first_chunk()?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (name, rest) = rest.split_at_checked(length)?;
                let name = std::str::from_utf8(name).ok()?.to_owned();
                let revision = u64::from_be_bytes(*revision);
                Some((Self::User { name, auth_revision: revision }, rest))
            }
            _ => Some((Self::Anonymous, bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requesting_user_round_trips() {
        let user = |name: &str| Sender::User { name: name.to_owned(), auth_revision: 7 };
        for by in [Sender::Anonymous, Sender::Member, user(""), user("ann"), user("Ünal")] {
            let bytes = by.prepend_to(b"\x01rest".to_vec());
            assert_eq!(Sender::split_request(&bytes), Some((by, &b"\x01rest"[..])));
        }
        assert_eq!(Sender::split_request(b"\xfe123"), None);
        assert_eq!(Sender::split_request(b"\xfe\0\0\0\0\0\0\0\x01\0\x05abc"), None);
        assert_eq!(Sender::split_request(b"\xfe\0\0\0\0\0\0\0\x01\0\x01\xff"), None, "no text");
        let long = user(&"x".repeat(70_000)).prepend_to(Vec::new());
        assert_eq!(Sender::split_request(&long), Some((user(""), &[][..])));
    }
}
