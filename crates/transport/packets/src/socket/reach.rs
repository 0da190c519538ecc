//! Multicast test: sends and counts numbered datagrams to find whether a multicast group reaches
//! its members.
//!
//! It is independent of the packet plane: the counts show whether switches and firewalls let
//! multicast through. All sizes are fixed: a listener records up to [`SENDERS_MAX`] senders, and a
//! bit for each of their datagrams. The caller provides the clock.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt},
};

use crate::socket::{Interface, SocketError};

/// Maximum number of datagrams of one sender.
pub const DATAGRAMS_MAX: u32 = 1000;
/// Maximum number of senders that a listener distinguishes.
pub const SENDERS_MAX: usize = 64;
/// Interval between datagrams, long enough that no buffer fills up.
const SEND_INTERVAL: Duration = Duration::from_micros(200);
/// Silence after which counting ends, once the end has been requested.
const END_SILENCE: Duration = Duration::from_millis(100);
/// First bytes of each datagram.
const MAGIC: &[u8; 8] = b"quorate?";
/// Length of a datagram in bytes: the magic, a token, the sender, and its number.
pub const BYTES: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGroup {
    /// The text is not an IPv4 multicast group with a port.
    #[error("it is no multicast group of IPv4: they are 224.0.1.0 to 239.255.255.255, with a port")]
    NoGroup,
    /// The address is in the range reserved for routing protocols.
    #[error("224.0.0.0 to 224.0.0.255 belong to routing protocols")]
    ReservedRange,
    #[error("port 0 is no port")]
    NoPort,
}

/// Parses `ADDRESS:PORT` of a multicast group, and checks that it may be tested.
pub fn parse_group(text: &str) -> Result<SocketAddrV4, InvalidGroup> {
    let group: SocketAddrV4 = text.trim().parse().map_err(|_| InvalidGroup::NoGroup)?;
    match group.ip().octets() {
        [224, 0, 0, _] => Err(InvalidGroup::ReservedRange),
        _ if !group.ip().is_multicast() => Err(InvalidGroup::NoGroup),
        _ if group.port() == 0 => Err(InvalidGroup::NoPort),
        _ => Ok(group),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderCounts {
    /// Number by which the sender identifies itself in its datagrams.
    pub sender: u32,
    pub count: u32,
    pub repeated_count: u32,
}

/// A socket that counts the datagrams with its token.
#[derive(Debug)]
pub struct ReachListener {
    socket: OwnedFd,
    interface: String,
    counts: ReceivedCounts,
}

impl ReachListener {
    /// Joins the multicast group on an interface. The kernel buffers datagrams from now on.
    pub fn join(group: SocketAddrV4, interface: &str, token: u64) -> Result<Self, SocketError> {
        let socket = open(group.into())?;
        let interface = Interface::look_up(interface, &socket)?;
        sockopt::set_socket_reuseaddr(&socket, true).map_err(option_error("SO_REUSEADDR"))?;
        // A socket that is bound to the group does not receive datagrams for other addresses with
        // the same port.
        net::bind(&socket, &group)
            .map_err(|error| SocketError::Bind { address: group.into(), source: error.into() })?;
        let any = Ipv4Addr::UNSPECIFIED;
        sockopt::set_ip_add_membership_with_ifindex(&socket, group.ip(), &any, interface.index)
            .map_err(|error| SocketError::Join {
                group: group.into(),
                interface: interface.name.clone(),
                source: error.into(),
            })?;
        Ok(Self { socket, interface: interface.name, counts: ReceivedCounts::new(token) })
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Counts datagrams as long as `left` returns a remaining time, or until `end` is set and no
    /// more datagrams arrive.
    pub fn count_until(
        &mut self,
        mut left: impl FnMut() -> Duration,
        end: &AtomicBool,
    ) -> io::Result<()> {
        loop {
            let left = left();
            if left.is_zero() {
                return Ok(());
            }
            let ending = end.load(Ordering::Acquire);
            if !self.readable_within(left.min(END_SILENCE))? {
                // No datagram has arrived since before `end` was checked.
                if ending {
                    return Ok(());
                }
                continue;
            }
            self.count_waiting()?;
        }
    }

    pub fn sender_counts(&self) -> Vec<SenderCounts> {
        self.counts.sender_counts()
    }

    /// Returns the number of datagrams that are not part of the test.
    pub fn foreign_count(&self) -> u64 {
        self.counts.foreign()
    }

    fn readable_within(&self, wait: Duration) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let wait = Timespec::try_from(wait).ok();
        match poll(&mut polled, wait.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Counts a bounded number of waiting datagrams, so that the caller can check the time however
    /// many arrive.
    fn count_waiting(&mut self) -> io::Result<()> {
        // One byte more than the test's datagrams have, to detect longer ones.
        let mut datagram = [0; BYTES + 1];
        for _ in 0..64 {
            match net::recv(&self.socket, &mut datagram, RecvFlags::TRUNC) {
                Ok((_, length)) => {
                    self.counts.count_datagram(&datagram[..length.min(datagram.len())])
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Sends datagrams 0 to `count` − 1 to the multicast group, from an interface and only to its
/// network segment. This machine receives them, too. `pause` waits after each datagram, so that no
/// buffer fills. Returns how many the kernel accepted.
pub fn send_test_datagrams(
    group: SocketAddrV4,
    interface: &str,
    (token, sender): (u64, u32),
    count: u32,
    mut pause: impl FnMut(Duration),
) -> Result<u32, SocketError> {
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let socket = open(any.into())?;
    let interface = Interface::look_up(interface, &socket)?;
    let from = Ipv4Addr::UNSPECIFIED;
    sockopt::set_ip_multicast_if_with_ifindex(&socket, &from, &from, interface.index)
        .map_err(option_error("IP_MULTICAST_IF"))?;
    sockopt::set_ip_multicast_ttl(&socket, 1).map_err(option_error("IP_MULTICAST_TTL"))?;
    sockopt::set_ip_multicast_loop(&socket, true).map_err(option_error("IP_MULTICAST_LOOP"))?;
    let mut sent = 0;
    for number in 0..count.min(DATAGRAMS_MAX) {
        let datagram = datagram(token, sender, number);
        match net::sendto(&socket, &datagram, SendFlags::empty(), &group) {
            Ok(_) => sent += 1,
            // The device has no space. Treat the datagram as lost.
            Err(Errno::AGAIN | Errno::NOBUFS) => {}
            Err(error) => {
                return Err(SocketError::Send {
                    group: group.into(),
                    interface: interface.name,
                    source: error.into(),
                });
            }
        }
        pause(SEND_INTERVAL);
    }
    Ok(sent)
}

fn open(address: SocketAddr) -> Result<OwnedFd, SocketError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let opened = net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
    opened.map_err(|error| SocketError::Bind { address, source: error.into() })
}

fn option_error(option: &'static str) -> impl FnOnce(Errno) -> SocketError {
    move |error| SocketError::Option { option, source: error.into() }
}

impl AsFd for ReachListener {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub fn datagram(token: u64, sender: u32, number: u32) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&token.to_le_bytes());
    bytes[16..20].copy_from_slice(&sender.to_le_bytes());
    bytes[20..].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[derive(Debug)]
pub struct ReceivedCounts {
    token: u64,
    senders: BTreeMap<u32, SenderRecord>,
    foreign: u64,
}

#[derive(Debug)]
struct SenderRecord {
    seen_numbers: [u64; (DATAGRAMS_MAX as usize).div_ceil(64)],
    repeated: u32,
}

impl ReceivedCounts {
    /// Creates counters for the datagrams with token `token`.
    pub const fn new(token: u64) -> Self {
        Self { token, senders: BTreeMap::new(), foreign: 0 }
    }

    /// Counts a datagram. One that is not part of the test only counts as foreign.
    pub fn count_datagram(&mut self, datagram: &[u8]) {
        if self.count_own(datagram).is_none() {
            self.foreign = self.foreign.saturating_add(1);
        }
    }

    fn count_own(&mut self, datagram: &[u8]) -> Option<()> {
        let datagram: &[u8; BYTES] = datagram.try_into().ok()?;
        let (magic, rest) = datagram.split_first_chunk::<8>()?;
        let (token, rest) = rest.split_first_chunk::<8>()?;
        let (sender, number) = rest.split_first_chunk::<4>()?;
        let number = u32::from_le_bytes(number.try_into().ok()?);
        let sender = u32::from_le_bytes(*sender);
        let ours = magic == MAGIC && u64::from_le_bytes(*token) == self.token;
        let known = self.senders.contains_key(&sender) || self.senders.len() < SENDERS_MAX;
        if !ours || !known || number >= DATAGRAMS_MAX {
            return None;
        }
        let of = self
            .senders
            .entry(sender)
            .or_insert(SenderRecord { seen_numbers: [0; _], repeated: 0 });
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if of.seen_numbers[word] & bit == 0 {
            of.seen_numbers[word] |= bit;
        } else {
            of.repeated = of.repeated.saturating_add(1);
        }
        Some(())
    }

    pub fn sender_counts(&self) -> Vec<SenderCounts> {
        let of = |(sender, of): (&u32, &SenderRecord)| SenderCounts {
            sender: *sender,
            count: of.seen_numbers.iter().map(|word| word.count_ones()).sum(),
            repeated_count: of.repeated,
        };
        self.senders.iter().map(of).collect()
    }

    /// Returns the number of datagrams that are not part of the test.
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_multicast_groups_are_accepted() {
        assert_eq!(
            parse_group(" 239.81.84.69:7460 "),
            Ok(SocketAddrV4::new(Ipv4Addr::new(239, 81, 84, 69), 7460))
        );
        for (text, why) in [
            ("10.0.0.1:7460", InvalidGroup::NoGroup),
            ("239.1.2.3", InvalidGroup::NoGroup),
            ("[ff02::1]:7460", InvalidGroup::NoGroup),
            ("255.255.255.255:7460", InvalidGroup::NoGroup),
            ("", InvalidGroup::NoGroup),
            ("224.0.0.18:7460", InvalidGroup::ReservedRange),
            ("239.1.2.3:0", InvalidGroup::NoPort),
        ] {
            assert_eq!(parse_group(text), Err(why), "{text}");
        }
    }

    #[test]
    fn datagrams_count_once_and_foreign_ones_separately() {
        let mut counts = ReceivedCounts::new(7);
        for number in [0, 1, 63, 64, DATAGRAMS_MAX - 1, 1] {
            counts.count_datagram(&datagram(7, 2, number));
        }
        counts.count_datagram(&datagram(7, 1, 5));
        let heard =
            |sender, count, repeated| SenderCounts { sender, count, repeated_count: repeated };
        assert_eq!(counts.sender_counts(), [heard(1, 1, 0), heard(2, 5, 1)]);
        let good = datagram(7, 2, 9);
        let long = [&good[..], &[0]].concat();
        let others = [datagram(8, 2, 9), datagram(7, 2, DATAGRAMS_MAX)];
        for bad in [&[][..], &good[..23], &long, b"quorate?", &others[0], &others[1]] {
            counts.count_datagram(bad);
        }
        assert_eq!(counts.foreign, 6);
        assert_eq!(counts.sender_counts(), [heard(1, 1, 0), heard(2, 5, 1)]);
    }

    /// A sender that knows the token cannot make the counts grow beyond their bound.
    #[test]
    fn number_of_senders_is_bounded() {
        let mut counts = ReceivedCounts::new(7);
        (0..200).for_each(|sender| counts.count_datagram(&datagram(7, sender, 0)));
        assert_eq!(counts.sender_counts().len(), SENDERS_MAX);
        counts.count_datagram(&datagram(7, 0, 1));
        assert_eq!(counts.sender_counts()[0].count, 2, "who is known goes on");
        let bytes = SENDERS_MAX * size_of::<SenderRecord>();
        assert!(bytes < 32 << 10, "{bytes}");
    }
}
