//! Emulates a segment of a local network: a switch, and a link of limited speed to each namespace.

use std::{fmt, io, net::Ipv4Addr, process::Command, thread};

use crate::{
    namespace::{self, namespace_command, run_ip},
    run::read_output,
};

const SWITCH_NAMESPACE: &str = "switch";
const MEGABIT: u64 = 1_000_000;
/// Default capacity of a link's queue in bytes.
const QUEUE_BYTES: u64 = 4 << 20;
/// Name of the interface that connects a node to its peers.
pub const PEERS_INTERFACE: &str = "peers";

/// Network segment in which a switch has links of the same speed to all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lan {
    link_megabits: u64,
}

impl Lan {
    /// Parses a speed such as `100mbit` or `1gbit`.
    pub fn parse_speed(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let number: u64 = number.parse().ok()?;
        let megabits = match unit {
            "mbit" => number,
            "gbit" => number.checked_mul(1000)?,
            _ => return None,
        };
        (1..=100_000).contains(&megabits).then_some(Self { link_megabits: megabits })
    }

    pub fn name(&self) -> String {
        match (self.link_megabits / 1000, self.link_megabits % 1000) {
            (gigabits, 0) => format!("{gigabits}gbit"),
            _ => format!("{}mbit", self.link_megabits),
        }
    }

    /// Returns the speed of each link in Mbit/s. It is the same in both directions.
    pub const fn link_megabits(&self) -> u64 {
        self.link_megabits
    }

    /// Returns a segment with `percent` percent of this segment's speed.
    fn with_percent(self, percent: u64) -> Self {
        let megabits = (self.link_megabits * percent / 100).max(1);
        Self { link_megabits: megabits }
    }

    /// Returns the parameters of `tc` for a link: rate, burst and queue limit.
    fn tc_parameters(&self) -> String {
        self.tc_parameters_with(QUEUE_BYTES)
    }

    /// Returns the parameters of `tc` for a link with a given queue capacity.
    fn tc_parameters_with(&self, queue_bytes: u64) -> String {
        let bits = self.link_megabits * MEGABIT;
        // The burst lasts a millisecond, but is at least as large as a packet before segmentation.
        let burst = (bits / 8 / 1000).max(16 << 10);
        format!("rate {bits}bit burst {burst} limit {queue_bytes}")
    }
}

impl fmt::Display for Lan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabits = self.link_megabits;
        write!(
            f,
            "emulated segment: {megabits} Mbit/s from each node to the switch, and from the switch to each node"
        )
    }
}

/// Connects namespaces 1, 2, 3 and so on, at `address`, to a new switch that floods multicast.
/// Returns whether the links preserve the order of packets, which requires real root.
pub fn set_up_switch(lan: Lan, nodes: u32, address: impl Fn(u32) -> Ipv4Addr) -> io::Result<bool> {
    let mut ordered = true;
    run_ip(&format!("link add {SWITCH_NAMESPACE} type bridge mcast_snooping 0"))?;
    run_ip(&format!("link set {SWITCH_NAMESPACE} up"))?;
    for node in 1..=nodes {
        let port = format!("p{node}");
        run_ip(&format!("link add {port} type veth peer name {PEERS_INTERFACE} netns n{node}"))?;
        run_ip(&format!("link set {port} master {SWITCH_NAMESPACE} up"))?;
        run_ip(&format!("-n n{node} addr add {}/24 dev {PEERS_INTERFACE}", address(node)))?;
        run_ip(&format!("-n n{node} link set {PEERS_INTERFACE} up"))?;
        let tbf = format!("root tbf {}", lan.tc_parameters());
        run_tc(&format!("qdisc add dev {port} {tbf}"))?;
        run_tc(&format!("-n n{node} qdisc add dev {PEERS_INTERFACE} {tbf}"))?;
        ordered &= process_in_order(Command::new("sh"), &port).is_ok();
        ordered &= process_in_order(namespace_shell(node), PEERS_INTERFACE).is_ok();
    }
    Ok(ordered)
}

/// Adds an interface in the switch's namespace, and connects it to the switch by a fast link.
pub fn add_switch_interface(interface: &str) -> io::Result<()> {
    namespace::connect_to_switch(SWITCH_NAMESPACE, interface)
}

/// Limits both directions of a node's link to a percentage of its speed.
pub fn limit_link(lan: Lan, node: u32, percent: u64) -> io::Result<()> {
    let tbf = format!("root tbf {}", lan.with_percent(percent).tc_parameters());
    run_tc(&format!("qdisc change dev p{node} {tbf}"))?;
    run_tc(&format!("-n n{node} qdisc change dev {PEERS_INTERFACE} {tbf}"))
}

/// Sets whether the switch forwards multicast to a node, as multicast snooping would decide. By
/// default it forwards to all nodes.
pub fn set_multicast(node: u32, passes: bool) -> io::Result<()> {
    let state = if passes { "on" } else { "off" };
    run_ip(&format!("link set dev p{node} type bridge_slave mcast_flood {state}"))
}

/// Sets the capacity of the switch's queue for a node's link. The switch drops further frames.
pub fn limit_queue(lan: Lan, node: u32, queue_bytes: u64) -> io::Result<()> {
    let tbf = lan.tc_parameters_with(queue_bytes);
    run_tc(&format!("qdisc change dev p{node} root tbf {tbf}"))
}

/// Removes the switch, the links and the namespaces. Ignores those that do not exist.
pub fn clear(nodes: u32) {
    for node in 1..=nodes {
        // A namespace removes its end of the link with a delay, but the name is needed now.
        let _ = run_ip(&format!("link del p{node}"));
        let _ = run_ip(&format!("netns del n{node}"));
    }
    let _ = run_ip(&format!("link del {SWITCH_NAMESPACE}"));
}

/// Parses the report of a receiver, `BYTES NANOSECONDS …`. Returns the rate in bytes per second.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn parse_rate(said: &str) -> Option<f64> {
    let mut words = said.split_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let (bytes, nanos) = (number()?, number()?);
    (nanos > 0).then(|| bytes as f64 * 1e9 / nanos as f64)
}

fn namespace_shell(node: u32) -> Command {
    let mut command = namespace_command(node);
    command.arg("sh");
    command
}

/// Makes the kernel process each flow of a device on one CPU. Otherwise a shaped queue releases
/// packets on several CPUs, which reorders them as no real link would.
fn process_in_order(mut shell: Command, device: &str) -> io::Result<()> {
    let all = u64::MAX >> 64_u32.saturating_sub(cpu_count());
    // A sysfs mount shows the devices of the namespace in which it was mounted.
    let set = format!(
        "unshare --mount sh -c 'mount -t sysfs sysfs /sys && \
         echo {all:x} > /sys/class/net/{device}/queues/rx-0/rps_cpus'"
    );
    read_output(shell.args(["-c", &set])).map(drop)
}

fn cpu_count() -> u32 {
    let count = thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(count.min(32)).unwrap_or(1)
}

fn run_tc(words: &str) -> io::Result<()> {
    read_output(Command::new("tc").args(words.split(' '))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_have_names() {
        let name = |text| Lan::parse_speed(text).map(|lan| (lan.name(), lan.link_megabits()));
        assert_eq!(name("1gbit"), Some(("1gbit".to_owned(), 1000)));
        assert_eq!(name("100mbit"), Some(("100mbit".to_owned(), 100)));
        assert_eq!(name("2500mbit"), Some(("2500mbit".to_owned(), 2500)));
        for bad in
            ["", "1", "gbit", "0mbit", "1kbit", "101gbit", "-1gbit", "99999999999999999999gbit"]
        {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn receiver_output_is_parsed_as_a_rate() {
        assert_eq!(parse_rate("1000 500000000\n"), Some(2000.0));
        assert_eq!(parse_rate("1000 500000000 7 9"), Some(2000.0));
        for bad in ["", "1000", "1000 0", "-1 5", "nothing at all"] {
            assert_eq!(parse_rate(bad), None, "{bad}");
        }
    }

    /// The format matches the syntax of `tc`.
    #[test]
    fn bucket_parameters_follow_the_syntax_of_tc() {
        let bucket = |text| Lan::parse_speed(text).unwrap().tc_parameters();
        assert_eq!(bucket("1gbit"), "rate 1000000000bit burst 125000 limit 4194304");
        assert_eq!(bucket("100mbit"), "rate 100000000bit burst 16384 limit 4194304");
        let shallow = Lan::parse_speed("100mbit").unwrap().tc_parameters_with(64 << 10);
        assert_eq!(shallow, "rate 100000000bit burst 16384 limit 65536");
    }
}
