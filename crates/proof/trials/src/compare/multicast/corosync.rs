//! Configuration of a Corosync daemon for the multicast comparison.

use std::fmt::Write as _;

use super::{NETWORK_ADDRESS, address};

/// Returns the best settings found for `members` members: bytes per packet, packets per token
/// rotation of all members, and packets per rotation of one member.
///
/// A packet of 8900 bytes holds a message of 8 KiB, and the kernel fragments it for the link. 28 of
/// these packets are Corosync's own limit (256 000 bytes per token). With more packets, the queue
/// of the machine, which all receivers share, overflows, and members spend their time on repairs.
/// The last arm is Corosync's default.
const fn best_settings(members: u32) -> (u32, u32, u32) {
    match members {
        0..=8 => (8900, 50, 28),
        9..=16 => (8900, 20, 20),
        _ => (1500, 50, 17),
    }
}

/// Returns the configuration file of a node in a group of `nodes`, with its state in the folder
/// `state`.
pub(super) fn config_file(nodes: u32, state: &str) -> String {
    let (packet, all, most) = best_settings(nodes);
    let mut out = format!(
        "totem {{
  version: 2
  cluster_name: compare
  transport: udp
  crypto_cipher: none
  crypto_hash: none
  netmtu: {packet}
  window_size: {all}
  max_messages: {most}
  interface {{
    ringnumber: 0
    bindnetaddr: {NETWORK_ADDRESS}
    mcastaddr: 239.81.84.71
    mcastport: 7467
  }}
}}
system {{
  move_to_root_cgroup: no
  state_dir: {state}
}}
resources {{
  watchdog_device: off
}}
logging {{
  to_stderr: yes
  to_syslog: no
  to_logfile: no
}}
nodelist {{
"
    );
    for node in 1..=nodes {
        let _ =
            writeln!(out, "  node {{\n    ring0_addr: {}\n    nodeid: {node}\n  }}", address(node));
    }
    out + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_lists_all_members_and_only_its_own_folder() {
        let text = config_file(3, "/dev/shm/x/1");
        for wanted in [
            "transport: udp\n",
            "bindnetaddr: 10.213.79.0\n",
            "max_messages: 28\n",
            "state_dir: /dev/shm/x/1\n",
            "to_syslog: no\n",
            "watchdog_device: off\n",
            "    ring0_addr: 10.213.79.3\n    nodeid: 3\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert!(config_file(15, "x").contains("window_size: 20\n  max_messages: 20\n"));
        assert!(config_file(26, "x").contains("netmtu: 1500\n"));
        assert_eq!(text.matches("nodeid:").count(), 3);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
