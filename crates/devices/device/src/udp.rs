//! Wire over UDP that sends one datagram to each device. It needs neither multicast nor privileges.
//!
//! A datagram contains the part of a frame after the encapsulation. The receiver reconstructs the
//! 42 bytes of encapsulation, so that the programs process whole frames ([`Form::Udp`]). The kernel
//! has already verified the datagram's checksum.
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
    Address, Form, Header,
    checksum::sum,
    header::{HEADER_BYTES, ROOM_BYTES_MAX},
};

use crate::wire::{Arrived, Wire};

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

/// Returns the pseudo-address of all devices of a group (see [`Members`]).
pub const fn all_hosts(port: u16) -> Address {
    Address { mac: [3, 0, 0, 0, 0, 1], ip: [224, 0, 0, 1], port }
}

/// Receivers of frames for the group. Clones share the list, which may change at any time.
#[derive(Clone, Debug, Default)]
pub struct Members(Arc<Mutex<Vec<SocketAddrV4>>>);

impl Members {
    /// Sets the members. The device itself may be among them, but receives no datagrams from
    /// itself.
    pub fn set(&self, members: Vec<SocketAddrV4>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }
}

#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    own: SocketAddrV4,
    members: Members,
    /// Set if frames are accepted from senders that are not members.
    heeds_strangers: bool,
    strangers: u64,
    bytes: Box<[u8]>,
}

impl Udp {
    /// Binds the socket to an address. Port 0 means any free port.
    pub fn bind(at: SocketAddrV4, members: Members) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let SocketAddr::V4(own) = socket.local_addr()? else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        Ok(Self {
            socket,
            heeds_strangers: !own.ip().is_loopback(),
            strangers: 0,
            own,
            members,
            bytes: vec![0; HEADER_BYTES + ROOM_BYTES_MAX + 1].into(),
        })
    }

    /// Returns the address to which other devices send.
    pub const fn own(&self) -> SocketAddrV4 {
        self.own
    }

    /// Receives one datagram, or returns `None` if none is waiting.
    fn take(&mut self) -> Option<(usize, SocketAddr)> {
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
        let (Some(to), Some(datagram)) = (frame.get(30..38), frame.get(Form::Udp.header_at()..))
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
            if *member != self.own {
                let _ = self.socket.send_to(datagram, member);
            }
        }
    }

    fn receive(&mut self, arrived: &mut Arrived) {
        let own = address(self.own);
        let members = self.members.clone();
        let members = members.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !arrived.is_full()
            && let Some((length, from)) = self.take()
        {
            let (SocketAddr::V4(from), Some((header, room))) =
                (from, self.bytes[..length].split_first_chunk())
            else {
                continue;
            };
            let Some(header) = Header::read(header).filter(|header| header.sum == sum(0, room))
            else {
                continue;
            };
            if !self.heeds_strangers && !members.contains(&from) {
                self.strangers += 1;
                continue;
            }
            let frame = arrived.push();
            frame.resize(Form::Udp.room_at() + room.len(), 0);
            if Form::Udp.write(frame, &address(from), &own, &header, room).is_none() {
                arrived.drop_last();
            }
        }
    }

    fn strangers(&self) -> u64 {
        self.strangers
    }

    fn socket(&self) -> BorrowedFd<'_> {
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
            let members = Members::default();
            let any = "127.0.0.1:0".parse().unwrap();
            (Udp::bind(any, members.clone()).unwrap(), members)
        };
        let ((mut hears, members), (mut member, to), (mut stranger, other)) =
            (bind(), bind(), bind());
        members.set(vec![hears.own(), member.own()]);
        for to in [to, other] {
            to.set(vec![hears.own()]);
        }
        let mut arrived = Arrived::default();
        for (from, counter) in [(&mut stranger, 1), (&mut member, 2)] {
            let mut header = Header::submit(7, Descriptor::NONE, 0);
            header.value.counter = counter;
            let (own, all) = (address(from.own()), all_hosts(from.own().port()));
            let mut frame = [0; 42 + HEADER_BYTES + 8];
            let made = Form::Udp.write(&mut frame, &own, &all, &header, &[5; 8]);
            from.send(made.unwrap());
        }
        while hears.strangers() == 0 || arrived.iter().next().is_none() {
            hears.receive(&mut arrived);
        }
        hears.receive(&mut arrived);
        let heard: Vec<_> = arrived.iter().collect();
        assert_eq!((heard.len(), hears.strangers()), (1, 1));
        assert_eq!(heard[0][95], 2);
    }
}
