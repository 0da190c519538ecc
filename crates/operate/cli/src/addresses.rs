//! Addresses as the values of flags, and their defaults.

use crate::values::must_be;

/// Default address for peers.
pub(crate) const DEFAULT_PEER: &str = "127.0.0.1:7451";
/// Default admin address of a node.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:7452";

/// An address as the value of a flag.
pub fn address_argument(text: &str) -> Result<String, String> {
    parse_address(text.trim()).ok_or_else(|| must_be("HOST:PORT", text))
}

/// `HOST:PORT`, with a host.
pub(crate) fn parse_address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    (!host.is_empty() && !text.chars().any(char::is_whitespace)).then(|| text.to_owned())
}
