//! TUN device that reads and writes the IP packets of a network namespace.
#![allow(
    unsafe_code,
    reason = "TUNSETIFF gives an open file its device; no library that we use wraps this ioctl"
)]

use std::{
    fs::File,
    io::{self, ErrorKind, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt as _,
    },
};

use rustix::{
    fs::OFlags,
    ioctl::{Updater, ioctl, opcode},
};

/// Size of a device name with its terminating zero byte (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;
/// Flags for IP packets without a link layer (`IFF_TUN`) and prefix (`IFF_NO_PI`).
const TUN_FLAGS: u16 = 0x0001 | 0x1000;
/// Value of `_IOW('T', 202, int)`, which linux/if_tun.h defines.
const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);

/// The fields of `struct ifreq` (linux/if.h) that TUNSETIFF uses. 40 bytes long.
#[repr(C)]
#[derive(Debug)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    padding: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);

/// Open TUN device, removed on drop. Reads and writes do not block.
#[derive(Debug)]
pub struct TunDevice(File);

impl TunDevice {
    /// Creates a device in the caller's namespace. It can be moved to another namespace afterwards.
    pub fn create(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= NAME_BYTES || !name.is_ascii() {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("no name of a device: {name:?}"),
            ));
        }
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
        let file =
            File::options().read(true).write(true).custom_flags(flags).open("/dev/net/tun")?;
        let mut request =
            InterfaceRequest { name: [0; NAME_BYTES], flags: TUN_FLAGS, padding: [0; 22] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: TUNSETIFF reads a `struct ifreq` of 40 bytes from its argument and writes one
        // back; `request` has that size and layout, any bytes are valid in it, and it outlives the
        // call.
        unsafe { ioctl(&file, Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request)) }?;
        Ok(Self(file))
    }

    /// Reads the next packet; `None` if there is none at present.
    pub fn read_packet<'a>(&mut self, into: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        loop {
            match self.0.read(into) {
                Ok(bytes) => return Ok(Some(&into[..bytes])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a packet to the namespace. Returns whether the device accepted it. A lost packet is
    /// no error, as in any network.
    pub fn write_packet(&mut self, packet: &[u8]) -> bool {
        self.0.write(packet).is_ok_and(|sent| sent == packet.len())
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_kernel_would_cut_off_is_refused() {
        for name in ["", "a-name-of-16-byte", "naïve"] {
            let error = TunDevice::create(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        }
    }
}
