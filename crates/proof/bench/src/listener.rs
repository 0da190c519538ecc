//! Finds the process on this machine that listens at an address, using `/proc`.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

/// Code of the listening state in the kernel's socket tables.
const LISTEN_STATE: &str = "0A";

/// Location of the process that listens at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerLocation {
    OtherMachine,
    Process(u32),
    /// The process runs on this machine but cannot be determined.
    Unknown,
}

pub fn locate_listener(address: SocketAddr) -> ListenerLocation {
    // Only addresses of this machine can be bound. Port 0 selects any free port.
    if UdpSocket::bind((address.ip(), 0)).is_err() {
        return ListenerLocation::OtherMachine;
    }
    let table = |path| fs::read_to_string(path).unwrap_or_default();
    let v4 = socket_inode(&table("/proc/net/tcp"), address);
    let inode = v4.or_else(|| socket_inode(&table("/proc/net/tcp6"), address));
    inode.and_then(process_of_socket).map_or(ListenerLocation::Unknown, ListenerLocation::Process)
}

/// Returns the inode of the socket that listens at the port of `address`, either at its IP address
/// or at all addresses.
fn socket_inode(table: &str, address: SocketAddr) -> Option<u64> {
    let listening = table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (ip, port) = fields.next()?.split_once(':')?;
        let state = fields.nth(1)?;
        let fits = state == LISTEN_STATE
            && u16::from_str_radix(port, 16) == Ok(address.port())
            && matches_address(ip, address.ip());
        let inode = fields.nth(5)?;
        fits.then_some(inode)
    });
    listening?.parse().ok()
}

/// Returns whether a socket bound to a table entry accepts connections to the address. Entries are
/// hexadecimal in the machine's byte order. Of IPv6 entries only the unspecified address is
/// recognized.
fn matches_address(entry: &str, ip: IpAddr) -> bool {
    let everywhere = entry.bytes().all(|digit| digit == b'0');
    let here = u32::from_str_radix(entry, 16).map(|word| Ipv4Addr::from(word.to_ne_bytes()));
    everywhere || (entry.len() == 8 && here.is_ok_and(|here| ip.to_canonical() == IpAddr::V4(here)))
}

/// Returns the id of the process that has the socket with inode `inode` open.
fn process_of_socket(inode: u64) -> Option<u32> {
    let link = format!("socket:[{inode}]");
    let has = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut targets = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.any(|target| target.as_os_str().as_bytes() == link.as_bytes())
    };
    let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let id: u32 = path.file_name()?.to_str()?.parse().ok()?;
        Some((id, path))
    });
    let mut owners = processes.filter(|(_, path)| has(path));
    owners.next().map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listener_of_this_process_is_found() {
        let own = std::process::id();
        for at in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            assert_eq!(locate_listener(address), ListenerLocation::Process(own), "{at}");
        }
    }

    /// An address on another machine is recognized as such. The test's address is in 192.0.2.0/24,
    /// which is reserved for documentation.
    #[test]
    fn address_of_another_machine_is_elsewhere() {
        let address = SocketAddr::from(([192, 0, 2, 1], 7450));
        assert_eq!(locate_listener(address), ListenerLocation::OtherMachine);
    }

    #[test]
    fn malformed_socket_tables_have_no_inode() {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        for table in ["", "x", "head\n0: 0100007F:0050", "head\n 0: 0100007F:0050 0:0 0A"] {
            assert_eq!(socket_inode(table, address), None, "{table:?}");
        }
    }
}
