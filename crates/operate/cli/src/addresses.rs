//! Parses addresses given as flags, and defines their defaults.

use crate::values::must_be;

/// Default peer address of a node.
pub(crate) const DEFAULT_PEER: &str = "127.0.0.1:7451";
/// Default admin address of a node.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:7452";

/// Parses the value of an address flag, for use as a clap value parser.
pub fn address_argument(text: &str) -> Result<String, String> {
    parse_address(text.trim()).ok_or_else(|| must_be("HOST:PORT", text))
}

/// Parses `HOST:PORT`. The host must not be empty.
pub(crate) fn parse_address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    (!host.is_empty() && !text.chars().any(char::is_whitespace)).then(|| text.to_owned())
}
