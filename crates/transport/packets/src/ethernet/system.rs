//! System calls that no safe library provides: options and addresses of packet sockets, and
//! properties of interfaces.
//!
//! The rest of the crate may rely on this: each function here is safe for all arguments.
#![allow(
    unsafe_code,
    reason = "rustix has neither the options and addresses of packet sockets nor these ioctls"
)]

use std::{io, ptr};

use libc::{
    c_int, packet_mreq, sock_filter, sock_fprog, sockaddr_ll, socklen_t, tpacket_req, tpacket_stats,
};
use rustix::{
    fd::{AsRawFd as _, BorrowedFd},
    ioctl::{Opcode, Updater, ioctl},
    net::{
        AddressFamily,
        addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque},
    },
};

use crate::ethernet::{Mac, shape::RingShape};

/// Maximum length of an interface's name, including its terminator (`IFNAMSIZ`).
const INTERFACE_NAME_BYTES: usize = 16;
/// `SIOCGIFMTU` and `SIOCGIFHWADDR` of linux/sockios.h.
const GET_MTU: Opcode = 0x8921;
const GET_HARDWARE: Opcode = 0x8927;
/// `SIOCGIFFLAGS`.
const GET_FLAGS: Opcode = 0x8913;
/// `SIOCETHTOOL` of linux/sockios.h, and its command for the driver (`ETHTOOL_GDRVINFO` of
/// linux/ethtool.h).
const ETHTOOL: Opcode = 0x8946;
const ETHTOOL_GET_DRIVER: u32 = 3;
/// `ETHTOOL_GFLAGS`, and `ETH_FLAG_RXVLAN` in its result.
const ETHTOOL_GET_FLAGS: u32 = 0x25;
const FLAG_RX_VLAN: u32 = 1 << 8;
/// `PACKET_MR_MULTICAST`, as wide as its field.
const MULTICAST_MEMBERSHIP: u16 = 0;
/// `PACKET_OTHERHOST` of linux/if_packet.h.
const OTHERHOST: u32 = 3;
/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h.
const IGNORE_OUTGOING: c_int = 23;
const _: () = assert!(MULTICAST_MEMBERSHIP as c_int == libc::PACKET_MR_MULTICAST);

/// The name of an interface, followed by zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterfaceName([u8; INTERFACE_NAME_BYTES]);

impl InterfaceName {
    /// Creates a name. Returns `None` if the kernel would truncate it or interpret it as a pattern.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'%';
        let fits = !name.is_empty() && name.len() < INTERFACE_NAME_BYTES && name.bytes().all(plain);
        let mut bytes = [0; INTERFACE_NAME_BYTES];
        fits.then(|| bytes[..name.len()].copy_from_slice(name.as_bytes()))?;
        Some(Self(bytes))
    }
}

/// `struct ifreq` of linux/if.h: a name, and the requested property.
#[repr(C)]
#[derive(Debug)]
struct InterfaceRequest {
    name: [u8; INTERFACE_NAME_BYTES],
    property: [u8; 24],
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

/// Queries a property of an interface.
fn query_interface<const WHAT: Opcode>(
    socket: BorrowedFd<'_>,
    name: InterfaceName,
) -> io::Result<[u8; 24]> {
    const { assert!(WHAT == GET_MTU || WHAT == GET_HARDWARE || WHAT == GET_FLAGS) };
    let mut request = InterfaceRequest { name: name.0, property: [0; 24] };
    // SAFETY: each of these operations reads a `struct ifreq` from its argument and writes one
    // back. `request` has that length, consists of bytes only, so any contents are valid, and
    // outlives the call.
    unsafe { ioctl(socket, Updater::<WHAT, InterfaceRequest>::new(&mut request)) }?;
    Ok(request.property)
}

/// Returns the maximum length of a frame without its Ethernet header, in bytes.
pub(crate) fn mtu(socket: BorrowedFd<'_>, name: InterfaceName) -> io::Result<usize> {
    let [a, b, c, d, ..] = query_interface::<GET_MTU>(socket, name)?;
    usize::try_from(c_int::from_ne_bytes([a, b, c, d])).map_err(io::Error::other)
}

/// Returns whether the interface is administratively up, even if it has no carrier.
pub(crate) fn is_up(socket: BorrowedFd<'_>, name: InterfaceName) -> io::Result<bool> {
    let [low, ..] = query_interface::<GET_FLAGS>(socket, name)?;
    Ok(c_int::from(low) & libc::IFF_UP != 0)
}

/// Returns the hardware type and the address of the interface.
pub(crate) fn hardware(socket: BorrowedFd<'_>, name: InterfaceName) -> io::Result<(u16, Mac)> {
    let [a, b, mac @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
        query_interface::<GET_HARDWARE>(socket, name)?;
    Ok((u16::from_ne_bytes([a, b]), Mac(mac)))
}

/// `struct ethtool_drvinfo` of linux/ethtool.h.
#[repr(C)]
struct DriverInfo {
    command: u32,
    name: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct Offloads {
    command: u32,
    flags: u32,
}

/// `struct ifreq` with a pointer to an ethtool command.
#[repr(C)]
struct EthtoolRequest<T> {
    name: [u8; INTERFACE_NAME_BYTES],
    command: *mut T,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<DriverInfo>() == 196);
const _: () = assert!(size_of::<EthtoolRequest<DriverInfo>>() == size_of::<libc::ifreq>());

/// Returns the name of the interface's driver. Fails if the driver does not report it.
pub(crate) fn driver(socket: BorrowedFd<'_>, name: InterfaceName) -> io::Result<String> {
    let mut driver = DriverInfo { command: ETHTOOL_GET_DRIVER, name: [0; 32], rest: [0; 160] };
    let mut question = EthtoolRequest { name: name.0, command: &raw mut driver, rest: [0; 16] };
    // SAFETY: the operation reads a `struct ifreq` from its argument, and writes at most a `struct
    // ethtool_drvinfo` to the address in it. Both have their full length, are valid whatever is
    // written, and outlive the call.
    unsafe { ioctl(socket, Updater::<ETHTOOL, EthtoolRequest<DriverInfo>>::new(&mut question)) }?;
    let name = driver.name.split(|byte| *byte == 0).next();
    Ok(String::from_utf8_lossy(name.unwrap_or_default()).into_owned())
}

/// Returns whether an interface removes VLAN tags from the frames that it receives.
pub(crate) fn takes_tags(socket: BorrowedFd<'_>, name: InterfaceName) -> io::Result<bool> {
    let mut offloads = Offloads { command: ETHTOOL_GET_FLAGS, flags: 0 };
    let mut question = EthtoolRequest { name: name.0, command: &raw mut offloads, rest: [0; 16] };
    // SAFETY: the operation reads a `struct ifreq` from its argument, and writes at most a `struct
    // ethtool_value` to the address in it. Both have their full length, are valid whatever is
    // written, and outlive the call.
    unsafe { ioctl(socket, Updater::<ETHTOOL, EthtoolRequest<Offloads>>::new(&mut question)) }?;
    Ok(offloads.flags & FLAG_RX_VLAN != 0)
}

/// A condition on one byte of a frame: its masked bits must have one of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCondition {
    /// Offset of the byte, counted from the destination address.
    pub byte_offset: u32,
    pub mask: u8,
    /// The two accepted values.
    pub accepted: [u8; 2],
}

/// Returns the filter offset of ancillary data about a frame (`SKF_AD_OFF`): its EtherType,
/// audience, interface, or whether a tag was removed.
const fn ancillary_offset(at: u32) -> u32 {
    (-0x1000_i32).cast_unsigned() + at
}
const ETHER_TYPE: u32 = ancillary_offset(0);
const PACKET_TYPE: u32 = ancillary_offset(4);
const INTERFACE: u32 = ancillary_offset(8);
const IS_TAGGED: u32 = ancillary_offset(48);

fn filter_jump(code: u32, when: u8, otherwise: u8, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt: when, jf: otherwise, k }
}
fn filter_load(width: u32, k: u32) -> sock_filter {
    filter_jump(libc::BPF_LD | width | libc::BPF_ABS, 0, 0, k)
}
fn jump_if_equal(k: u32, when: u8, otherwise: u8) -> sock_filter {
    filter_jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, when, otherwise, k)
}
fn return_bytes(bytes: u32) -> sock_filter {
    filter_jump(libc::BPF_RET | libc::BPF_K, 0, 0, bytes)
}

/// Restricts the socket to frames that match these bits and that arrived at this interface, for it
/// or for a group. VLAN frames are excluded: the kernel removes their tags, and assigns them to
/// another interface or to none.
pub(crate) fn filter_frames(
    socket: BorrowedFd<'_>,
    index: u32,
    only: ByteCondition,
) -> io::Result<()> {
    let ByteCondition { byte_offset: at, mask, accepted: [one, other] } = only;
    attach_filter(
        socket,
        &mut [
            filter_load(libc::BPF_W, PACKET_TYPE),
            jump_if_equal(OTHERHOST, 7, 0),
            filter_load(libc::BPF_W, INTERFACE),
            jump_if_equal(index, 0, 5),
            filter_load(libc::BPF_B, at),
            filter_jump(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, mask.into()),
            jump_if_equal(one.into(), 1, 0),
            jump_if_equal(other.into(), 0, 1),
            return_bytes(u32::MAX),
            return_bytes(0),
        ],
    )
}

/// Restricts the socket to frames of `ether_type` that arrived for it or for a multicast group. If
/// the VLAN or priority tag of a frame was removed, the frame is truncated to `bytes` bytes.
pub(crate) fn truncate_tagged(
    socket: BorrowedFd<'_>,
    ether_type: u16,
    bytes: u32,
) -> io::Result<()> {
    attach_filter(
        socket,
        &mut [
            filter_load(libc::BPF_W, ETHER_TYPE),
            jump_if_equal(ether_type.into(), 0, 6),
            filter_load(libc::BPF_W, PACKET_TYPE),
            jump_if_equal(OTHERHOST, 4, 0),
            filter_load(libc::BPF_W, IS_TAGGED),
            jump_if_equal(0, 1, 0),
            return_bytes(bytes),
            return_bytes(u32::MAX),
            return_bytes(0),
        ],
    )
}

fn attach_filter(socket: BorrowedFd<'_>, steps: &mut [sock_filter]) -> io::Result<()> {
    let len = u16::try_from(steps.len()).map_err(io::Error::other)?;
    let program = sock_fprog { len, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads a whole `sock_fprog`, and the steps that it counts and points to.
    // Both outlive the call, and the kernel keeps a copy.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            ptr::from_ref(&program).cast(),
            socklen_of::<sock_fprog>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Address to which a packet socket is bound: an interface and an EtherType.
pub(crate) struct SocketBinding(sockaddr_ll);

impl SocketBinding {
    pub(crate) const fn new(index: u32, ether_type: u16) -> Self {
        Self(sockaddr_ll {
            sll_family: AddressFamily::PACKET.as_raw(),
            sll_protocol: ether_type.to_be(),
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        })
    }
}

// SAFETY: the pointer is to a whole, initialised `sockaddr_ll` that lives as long as `self`, and
// the length is its size. System calls accept it as an address.
unsafe impl SocketAddrArg for SocketBinding {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(ptr::from_ref(&self.0).cast(), socklen_of::<sockaddr_ll>())
    }
}

/// Selects version 2 of the slot layout. The socket must not have a ring yet.
pub(crate) fn set_layout(socket: BorrowedFd<'_>) -> io::Result<()> {
    let version: c_int = libc::tpacket_versions::TPACKET_V2 as c_int;
    set(socket, libc::PACKET_VERSION, &version)
}

/// Creates a receive ring of shape `shape`. A shape without blocks removes the ring.
pub(crate) fn set_receive_ring(socket: BorrowedFd<'_>, shape: RingShape) -> io::Result<()> {
    let number = |of: usize| u32::try_from(of).map_err(io::Error::other);
    let request = tpacket_req {
        tp_block_size: number(shape.block_bytes)?,
        tp_block_nr: number(shape.blocks)?,
        tp_frame_size: number(shape.slot_bytes)?,
        tp_frame_nr: number(shape.slots())?,
    };
    set(socket, libc::PACKET_RX_RING, &request)
}

/// Makes the interface receive a multicast group while the socket is open.
pub(crate) fn join(socket: BorrowedFd<'_>, index: u32, group: Mac) -> io::Result<()> {
    let [a, b, c, d, e, f] = group.0;
    let request = packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: MULTICAST_MEMBERSHIP,
        mr_alen: 6,
        mr_address: [a, b, c, d, e, f, 0, 0],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Keeps the socket from receiving frames that this machine sends.
pub(crate) fn ignore_outgoing(socket: BorrowedFd<'_>) -> io::Result<()> {
    let yes: c_int = 1;
    set(socket, IGNORE_OUTGOING, &yes)
}

#[allow(clippy::cast_possible_truncation, reason = "structures of less than a hundred bytes")]
const fn socklen_of<T>() -> socklen_t {
    assert!(size_of::<T>() < 100);
    size_of::<T>() as socklen_t
}

/// Sets an option of packet sockets. The caller must pass a value of the option's type.
fn set<T: Copy>(socket: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    let length = socklen_of::<T>();
    let value = ptr::from_ref(value).cast();
    // SAFETY: the kernel reads at most `length` bytes at `value`, which is a whole `T` that
    // outlives the call. The options of this file are numbers and structures without pointers, so
    // nothing else is read or kept.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the number of frames lost since the last call because the ring was full.
pub(crate) fn take_lost_count(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut statistics = tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = socklen_of::<tpacket_stats>();
    // SAFETY: the kernel writes at most `length` bytes at `statistics`, a whole structure of two
    // numbers, and the written length at `length`. Both outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            ptr::from_mut(&mut statistics).cast(),
            &raw mut length,
        )
    };
    if answer == 0 { Ok(statistics.tp_drops) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_change_are_refused() {
        for name in ["", "a-name-of-16-byte", "naïve", "../lo", "eth%d", "a b", "a\0b"] {
            assert!(InterfaceName::new(name).is_none(), "{name}");
        }
        assert_eq!(InterfaceName::new("fifteen-bytes-0").unwrap().0, *b"fifteen-bytes-0\0");
    }
}
