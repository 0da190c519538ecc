//! An interface of this machine, by its name.

use std::{fs, io};

use rustix::{fd::AsFd, net::netdevice::name_to_index};

use crate::socket::Failed;

/// Longest name: IFNAMSIZ without its zero.
const NAME_BYTES_MAX: usize = 15;

/// Where a group is joined, and from where it is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// As the system calls it.
    pub name: String,
    pub(crate) index: u32,
    /// Longest packet that leaves there, IP included, if the system says.
    pub mtu: Option<usize>,
}

impl Interface {
    /// The one of this name; any socket will do to ask.
    pub fn named(name: &str, socket: impl AsFd) -> Result<Self, Failed> {
        let failed = |source| Failed::Interface {
            name: name.to_owned(),
            source,
        };
        let plain = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('/');
        if !plain || name.starts_with('.') {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let index = name_to_index(socket, name).map_err(|error| failed(error.into()))?;
        let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok();
        Ok(Self {
            name: name.to_owned(),
            index,
            mtu: mtu.and_then(|text| text.trim().parse().ok()),
        })
    }
}
