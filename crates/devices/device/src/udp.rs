//! Wire over UDP that sends one datagram to each device. It needs neither multicast nor privileges.
//!
//! A datagram contains the part of a frame after the encapsulation. The receiver reconstructs the
//! 42 bytes of encapsulation, so that the programs process whole frames ([`Encapsulation::Udp`]).
//! The kernel has already verified the datagram's checksum.
//!
//! On loopback every user of the machine can send, but the kernel reports the true source port, so
//! only members are accepted there ([offload-21]). In other networks all possible senders are
//! trusted.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Arc, Mutex, PoisonError},
};

use quorate_offload::{
    Address, Encapsulation, Header,
    checksum::ones_complement_sum,
    header::{HEADER_BYTES, ROOM_BYTES_MAX},
};

use crate::wire::{ArrivedFrames, Wire};

/// Returns the frame address of a device that receives datagrams at `at`.
pub fn address(at: SocketAddrV4) -> Address {
    let (ip, port) = (at.ip().octets(), at.port());
    let [high, low] = port.to_be_bytes();
    Address {
        // Locally administered. IP addresses that differ only in the first byte have the same MAC
        // address, but `ip` differs.
        mac: [2, ip[1], ip[2], ip[3], high, low],
        ip,
        port,
    }
}

/// Returns the pseudo-address of all devices of a group (see [`GroupMembers`]).
pub const fn all_hosts(port: u16) -> Address {
    Address { mac: [3, 0, 0, 0, 0, 1], ip: [224, 0, 0, 1], port }
}

/// Receivers of frames for the group. Clones share the list, which may change at any time.
#[derive(Clone, Debug, Default)]
pub struct GroupMembers(Arc<Mutex<Vec<SocketAddrV4>>>);

impl GroupMembers {
    /// Sets the members. The device itself may be among them, but receives no datagrams from
    /// itself.
    pub fn set(&self, members: Vec<SocketAddrV4>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }
}

#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    own_address: SocketAddrV4,
    members: GroupMembers,
    /// Set if frames are accepted from senders that are not members.
    accepts_strangers: bool,
    dropped_strangers: u64,
    bytes: Box<[u8]>,
}

impl Udp {
    /// Binds the socket to an address. Port 0 means any free port.
    pub fn bind(at: SocketAddrV4, members: GroupMembers) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let SocketAddr::V4(own) = socket.local_addr()? else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        Ok(Self {
            socket,
            accepts_strangers: !own.ip().is_loopback(),
            dropped_strangers: 0,
            own_address: own,
            members,
            bytes: vec![0; HEADER_BYTES + ROOM_BYTES_MAX + 1].into(),
        })
    }

    /// Returns the address to which other devices send.
    pub const fn own_address(&self) -> SocketAddrV4 {
        self.own_address
    }

    /// Receives one datagram, or returns `None` if none is waiting.
    fn receive_one(&mut self) -> Option<(usize, SocketAddr)> {
        loop {
            match self.socket.recv_from(&mut self.bytes) {
                Ok(taken) => return Some(taken),
                // The error concerns an earlier datagram, or a signal interrupted the call, so the
                // next attempt may succeed.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error)
                    if [
                        io::ErrorKind::ConnectionRefused,
                        io::ErrorKind::Interrupted,
                        io::ErrorKind::HostUnreachable,
                        io::ErrorKind::NetworkUnreachable,
                    ]
                    .contains(&error.kind()) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Wire for Udp {
    fn send(&mut self, frame: &[u8]) {
        let (Some(to), Some(datagram)) =
            (frame.get(30..38), frame.get(Encapsulation::Udp.header_offset()..))
        else {
            return;
        };
        // A datagram that the kernel does not accept is lost, as on any network.
        if frame[0] & 1 == 0 {
            let at = SocketAddrV4::new(
                Ipv4Addr::new(to[0], to[1], to[2], to[3]),
                u16::from_be_bytes([to[6], to[7]]),
            );
            let _ = self.socket.send_to(datagram, at);
            return;
        }
        let members = self.members.0.lock();
        for member in members.unwrap_or_else(PoisonError::into_inner).iter() {
            if *member != self.own_address {
                let _ = self.socket.send_to(datagram, member);
            }
        }
    }

    fn receive(&mut self, arrived: &mut ArrivedFrames) {
        let own = address(self.own_address);
        let members = self.members.clone();
        let members = members.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !arrived.is_full()
            && let Some((length, from)) = self.receive_one()
        {
            let (SocketAddr::V4(from), Some((header, room))) =
                (from, self.bytes[..length].split_first_chunk())
            else {
                continue;
            };
            let Some(header) =
                Header::read(header).filter(|header| header.sum == ones_complement_sum(0, room))
            else {
                continue;
            };
            if !self.accepts_strangers && !members.contains(&from) {
                self.dropped_strangers += 1;
                continue;
            }
            let frame = arrived.push();
            frame.resize(Encapsulation::Udp.room_offset() + room.len(), 0);
            if Encapsulation::Udp.write_frame(frame, &address(from), &own, &header, room).is_none()
            {
                arrived.drop_last();
            }
        }
    }

    fn dropped_strangers(&self) -> u64 {
        self.dropped_strangers
    }

    fn readable_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use quorate_offload::Descriptor;

    use super::*;

    /// [offload-21] On loopback, a frame from a member is accepted, and one from another sender is
    /// not.
    #[test]
    fn loopback_accepts_frames_from_members_only() {
        let bind = || {
            let members = GroupMembers::default();
            let any = "127.0.0.1:0".parse().unwrap();
            (Udp::bind(any, members.clone()).unwrap(), members)
        };
        let ((mut hears, members), (mut member, to), (mut stranger, other)) =
            (bind(), bind(), bind());
        members.set(vec![hears.own_address(), member.own_address()]);
        for to in [to, other] {
            to.set(vec![hears.own_address()]);
        }
        let mut arrived = ArrivedFrames::default();
        for (from, counter) in [(&mut stranger, 1), (&mut member, 2)] {
            let mut header = Header::new_submit(7, Descriptor::NONE, 0);
            header.value.counter = counter;
            let (own, all) = (address(from.own_address()), all_hosts(from.own_address().port()));
            let mut frame = [0; 42 + HEADER_BYTES + 8];
            let made = Encapsulation::Udp.write_frame(&mut frame, &own, &all, &header, &[5; 8]);
            from.send(made.unwrap());
        }
        while hears.dropped_strangers() == 0 || arrived.iter().next().is_none() {
            hears.receive(&mut arrived);
        }
        hears.receive(&mut arrived);
        let heard: Vec<_> = arrived.iter().collect();
        assert_eq!((heard.len(), hears.dropped_strangers()), (1, 1));
        assert_eq!(heard[0][95], 2);
    }
}
