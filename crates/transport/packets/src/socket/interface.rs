//! A network interface of this machine, found by its name.

use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use rustix::{fd::AsFd, net::netdevice::name_to_index};

use crate::socket::SocketError;

/// Maximum length of an interface name in bytes: IFNAMSIZ without the terminating zero.
const NAME_BYTES_MAX: usize = 15;

/// Interface on which a multicast group is joined and sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub(crate) index: u32,
    /// Maximum length of an outgoing packet including IP, in bytes, if the system reports it.
    pub mtu: Option<usize>,
    /// Speed in megabits per second, or `None` if the system does not report one, as for virtual
    /// interfaces.
    pub speed_mbit_s: Option<u64>,
}

impl Interface {
    /// Looks up an interface by name. `socket` is only used for the ioctl.
    pub fn look_up(name: &str, socket: impl AsFd) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Interface { name: name.to_owned(), source };
        let plain = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('/');
        if !plain || name.starts_with('.') {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let index = name_to_index(socket, name).map_err(|error| failed(error.into()))?;
        Ok(Self {
            name: name.to_owned(),
            index,
            mtu: read_property(name, "mtu"),
            speed_mbit_s: read_property(name, "speed").filter(|megabits| *megabits > 0),
        })
    }

    /// Adds the interface's scope id to a multicast address. Link-local IPv6 groups require it.
    pub fn with_scope_id(&self, group: SocketAddr) -> SocketAddr {
        match group {
            SocketAddr::V4(_) => group,
            SocketAddr::V6(mut group) => {
                group.set_scope_id(self.index);
                group.into()
            }
        }
    }
}

/// Returns the name of the interface that has this address. `addresses` is the contents of
/// `/proc/net/if_inet6`.
pub fn interface_having(address: Ipv6Addr, addresses: &str) -> Option<&str> {
    let has = |line: &&str| {
        let digits = line.split_ascii_whitespace().next().unwrap_or_default();
        u128::from_str_radix(digits, 16) == Ok(address.to_bits())
    };
    let line = addresses.lines().find(has)?;
    line.split_ascii_whitespace().nth(5)
}

/// Returns the name of the interface that packets to `address` leave through, or arrive at if it is
/// an address of this machine. `routes` is the contents of `/proc/net/route`; the most specific
/// route applies.
pub fn interface_towards(address: Ipv4Addr, routes: &str) -> Option<&str> {
    if address.is_loopback() {
        return Some("lo");
    }
    let route = |line| {
        let mut words = str::split_whitespace(line);
        let name = words.next()?;
        let mut number = |at| u32::from_str_radix(words.nth(at)?, 16).ok();
        // The line contains the destination, gateway, flags, count, uses, metric and mask.
        // Addresses are in the machine's byte order.
        let (destination, mask) = (number(0)?, number(5)?);
        let address = u32::from_ne_bytes(address.octets());
        (address & mask == destination).then(|| (mask.count_ones(), name))
    };
    let found = routes.lines().skip(1).filter_map(route);
    found.max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

/// Reads a numeric property of an interface from sysfs. The name must have been validated.
fn read_property<N: FromStr>(name: &str, what: &str) -> Option<N> {
    let text = fs::read_to_string(format!("/sys/class/net/{name}/{what}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_found_by_its_address() {
        let addresses = "00000000000000000000000000000001 01 80 10 80       lo\n\
                         fd000000000000000000000000000002 02 40 00 80     eth0\n\
                         garbage\n";
        let at = |text: &str| interface_having(text.parse().unwrap(), addresses);
        assert_eq!((at("::1"), at("fd00::2")), (Some("lo"), Some("eth0")));
        assert_eq!((at("fd00::3"), interface_having(Ipv6Addr::LOCALHOST, "1")), (None, None));
    }

    #[test]
    fn interface_is_that_of_the_most_specific_route() {
        let head =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
        let line = |name: &str, to: [u8; 4], mask: [u8; 4]| {
            let hex = |bytes| format!("{:08X}", u32::from_ne_bytes(bytes));
            format!("\n{name}\t{}\t00000000\t0001\t0\t0\t0\t{}\t0\t0\t0", hex(to), hex(mask))
        };
        let near = line("eth1", [10, 0, 0, 0], [255, 255, 255, 0]);
        let all = line("eth0", [0, 0, 0, 0], [0, 0, 0, 0]);
        let routes = format!("{head}{all}{near}\ngarbage\neth2\tzz\n");
        let towards =
            |address: [u8; 4], routes| interface_towards(address.into(), routes).map(str::to_owned);
        assert_eq!(towards([10, 0, 0, 7], &routes).as_deref(), Some("eth1"));
        assert_eq!(towards([8, 8, 8, 8], &routes).as_deref(), Some("eth0"));
        assert_eq!(towards([127, 0, 0, 1], "").as_deref(), Some("lo"));
        let near = format!("{head}{near}");
        assert_eq!(towards([8, 8, 8, 8], &near), None);
        assert_eq!(towards([8, 8, 8, 8], "\u{1}\n\n\t"), None);
    }
}
