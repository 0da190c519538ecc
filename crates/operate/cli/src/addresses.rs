//! Parses addresses given as flags, and defines their defaults.

use std::time::Duration;

use clap::Args;
use quorate_admin::{client, look::NoResponse};

use crate::{output::Problem, values::must_be};

/// Default peer address of a node.
pub(crate) const DEFAULT_PEER: &str = "127.0.0.1:7451";
/// Default admin address of a node.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:7452";

/// Timeout for a request that only determines which node answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Nodes of which one is contacted.
#[derive(Args, Clone, Debug)]
pub(crate) struct AnyOf {
    /// Admin addresses of one or more nodes; the first that answers is used
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    admin: Vec<String>,
}

impl AnyOf {
    /// Returns the first address at which a node answers. A single address is returned without a
    /// request.
    pub(crate) fn first_answering(&self) -> Result<&str, Problem> {
        if let [only] = &*self.admin {
            return Ok(only);
        }
        let mut silent = NoResponse::default();
        for address in &self.admin {
            match client::get(address, "/health", PROBE_TIMEOUT) {
                Ok(_) => return Ok(address),
                Err(error) => {
                    silent.add_reason(format!("no node answers at {address}: {error}"), None)
                }
            }
        }
        Err(silent.into())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Exit;

    #[test]
    fn unreachable_addresses_result_in_one_error() {
        let of = |admin: &[&str]| AnyOf { admin: admin.iter().map(|&one| one.into()).collect() };
        assert_eq!(of(&["127.0.0.1:1"]).first_answering().unwrap(), "127.0.0.1:1");
        let problem = of(&["127.0.0.1:1", "127.0.0.1:2"]).first_answering().unwrap_err();
        assert!(problem.message.contains("127.0.0.1:2: Connection refused"), "{problem}");
        assert_eq!(problem.exit, Exit::Unreachable);
    }
}
