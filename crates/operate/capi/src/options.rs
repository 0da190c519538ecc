//! Options of a handle. Names and values are strings, as listed in `quorate.h`.

use std::{collections::BTreeMap, time::Duration};

use quorate::{Builder, Class, Device, Place, Protection};

use crate::{
    error::{Code, Failed},
    submits::BUNDLE_BYTES_MAX,
    values::{
        command::{BUNDLE_HEADER_BYTES, LENGTH_FIELD_BYTES, VALUE_OVERHEAD_BYTES, WhenFull},
        machine::SERVICE_NAME,
    },
};

/// Upper bound for the configured maximum value size, in bytes, because a frame between a node and
/// an attached program contains a whole value.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// Settings of nodes and attached programs. Each uses only the settings that apply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Data folder of the node.
    pub data_folder: Option<String>,
    /// Id of the node.
    pub node_id: Option<u32>,
    /// Peer addresses of the nodes, by node id.
    pub peer_addresses: BTreeMap<u32, String>,
    /// Peer address of this node; `None` if it is the entry in `peer_addresses`.
    pub peer_address: Option<String>,
    /// Device that votes for the node.
    pub device: Device,
    /// Network interface of the device.
    pub device_interface: Option<String>,
    /// Set if every sender on the device's network interface is trusted.
    pub device_trusted: bool,
    /// Set to discard the contents of the data folder at start.
    pub start_empty: bool,
    /// Address on which the node listens for attaching programs, if any.
    pub listen_address: Option<String>,
    /// Addresses of the nodes to attach to.
    pub attach_addresses: Vec<String>,
    /// Durability class of the group.
    pub durability: Option<Class>,
    /// Maximum size of a value in bytes.
    pub value_bytes_max: usize,
    /// Maximum total size in bytes of the retained values.
    pub retained_bytes_max: u64,
    /// Behaviour when the retained values reach their limit.
    pub when_full: WhenFull,
    /// Time limit for each request.
    pub request_timeout: Duration,
    /// Maximum time for which opening a handle waits for the node. If it is zero, opening does not
    /// wait.
    pub start_timeout: Duration,
    /// Maximum interval in milliseconds between a leader's messages.
    pub heartbeat_ms: Option<u64>,
    /// Range in milliseconds from which the election timeout is drawn at random.
    pub election_ms: Option<(u64, u64)>,
    /// Size in bytes of a new log segment.
    pub log_segment_bytes: Option<u64>,
    /// Growth of the log after which a snapshot is taken, as a multiple of the size of a snapshot.
    pub snapshot_ratio: Option<u32>,
    /// Maximum number of programs attached to the node at a time.
    pub attached_programs_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data_folder: None,
            node_id: None,
            peer_addresses: BTreeMap::new(),
            peer_address: None,
            device: Device::Off,
            device_interface: None,
            device_trusted: false,
            start_empty: false,
            listen_address: None,
            attach_addresses: Vec::new(),
            durability: None,
            value_bytes_max: 8 << 20,
            retained_bytes_max: 256 << 20,
            when_full: WhenFull::Refuse,
            request_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(30),
            heartbeat_ms: None,
            election_ms: None,
            log_segment_bytes: None,
            snapshot_ratio: None,
            attached_programs_max: 64,
        }
    }
}

impl Options {
    /// Sets an option by name. Fails if the name is unknown or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Failed> {
        let text = || (!value.is_empty()).then(|| value.to_owned()).ok_or("not empty");
        let done = match name {
            "data" => text().map(|text| self.data_folder = Some(text)),
            "peer" => text().map(|text| self.peer_address = Some(text)),
            // `p4` needs a program that only Quorate's packages include.
            "device" => Device::from_name(value)
                .filter(|_| value != "p4")
                .map(|device| self.device = device)
                .ok_or("off, udp, packet, tc, kernel, rtl:FOLDER or process:COMMAND"),
            "device-interface" => text().map(|text| self.device_interface = Some(text)),
            "device-trusted" => match value {
                "yes" => {
                    self.device_trusted = true;
                    Ok(())
                }
                "no" => {
                    self.device_trusted = false;
                    Ok(())
                }
                _ => Err("yes or no"),
            },
            "start-empty" => match value {
                "yes" => {
                    self.start_empty = true;
                    Ok(())
                }
                "no" => {
                    self.start_empty = false;
                    Ok(())
                }
                _ => Err("yes or no"),
            },
            "listen" => text().map(|text| self.listen_address = Some(text)),
            "node" => parse_number(value, 1, u32::MAX.into())
                .map(|node| self.node_id = u32::try_from(node).ok())
                .ok_or("a number from 1"),
            "cluster" => parse_members(value)
                .map(|members| self.peer_addresses = members)
                .ok_or("different nodes such as 1=HOST:PORT,2=HOST:PORT"),
            "attach" => parse_addresses(value)
                .map(|nodes| self.attach_addresses = nodes)
                .ok_or("a list such as HOST:PORT,HOST:PORT"),
            "durability" => match value {
                "durable" => {
                    self.durability = Some(Class::Durable);
                    Ok(())
                }
                "volatile" => {
                    self.durability = Some(Class::Volatile);
                    Ok(())
                }
                _ => Err("durable or volatile"),
            },
            "value-max" => parse_number(value, 1, VALUE_BYTES_MAX as u64)
                .and_then(|bytes| usize::try_from(bytes).ok())
                .map(|bytes| self.value_bytes_max = bytes)
                .ok_or("bytes, from 1 to 64 MiB"),
            "held-max" => parse_number(value, 1 << 10, 1 << 40)
                .map(|bytes| self.retained_bytes_max = bytes)
                .ok_or("bytes, from 1024 to 2^40"),
            "when-full" => match value {
                "refuse" => {
                    self.when_full = WhenFull::Refuse;
                    Ok(())
                }
                "forget-oldest" => {
                    self.when_full = WhenFull::ForgetOldest;
                    Ok(())
                }
                _ => Err("refuse or forget-oldest"),
            },
            "request-ms" => parse_number(value, 10, 600_000)
                .map(|ms| self.request_timeout = Duration::from_millis(ms))
                .ok_or("milliseconds, from 10 to 600000"),
            "start-wait-ms" => parse_number(value, 0, 3_600_000)
                .map(|ms| self.start_timeout = Duration::from_millis(ms))
                .ok_or("milliseconds, up to 3600000"),
            "heartbeat-ms" => parse_number(value, 1, 60_000)
                .map(|ms| self.heartbeat_ms = Some(ms))
                .ok_or("milliseconds, from 1 to 60000"),
            "election-ms" => parse_range(value)
                .map(|range| self.election_ms = Some(range))
                .ok_or("milliseconds such as 100-200, the second not below the first"),
            "log-segment-bytes" => parse_number(value, 1 << 20, 1 << 32)
                .filter(|bytes| bytes.is_power_of_two())
                .map(|bytes| self.log_segment_bytes = Some(bytes))
                .ok_or("a power of two from 1 MiB to 4 GiB"),
            "snapshot-ratio" => parse_number(value, 1, 1000)
                .map(|ratio| self.snapshot_ratio = u32::try_from(ratio).ok())
                .ok_or("a number from 1 to 1000"),
            "attached-max" => parse_number(value, 1, 1024)
                .and_then(|most| usize::try_from(most).ok())
                .map(|most| self.attached_programs_max = most)
                .ok_or("a number from 1 to 1024"),
            _ => {
                let detail = format!("there is no option {name:?}");
                return Err(
                    Failed::new(Code::Invalid, detail).with_hint("quorate.h lists the options")
                );
            }
        };
        done.map_err(|wanted| {
            Failed::new(Code::Invalid, format!("{name} is {value:?}"))
                .with_hint(format!("give {wanted}"))
        })
    }

    /// Returns the maximum size in bytes of a value that also fits the limit of retained values.
    pub fn fitting_value_bytes_max(&self) -> usize {
        let held = self.retained_bytes_max.saturating_sub(VALUE_OVERHEAD_BYTES);
        usize::try_from(held).map_or(self.value_bytes_max, |held| held.min(self.value_bytes_max))
    }

    /// Returns the maximum size in bytes of a bundle, which fits at least one value of the maximum
    /// size.
    pub fn bundle_bytes_max(&self) -> usize {
        BUNDLE_BYTES_MAX.max(self.fitting_value_bytes_max() + LENGTH_FIELD_BYTES)
    }

    /// Returns the builder of a node with these options. Fails if there is no data folder.
    pub fn node_builder(&self) -> Result<Builder, Failed> {
        let missing =
            || Failed::new(Code::Invalid, "a node needs a folder").with_hint("set the option data");
        let mut builder = Builder::new(self.data_folder.as_deref().ok_or_else(missing)?);
        if let Some(node) = self.node_id {
            builder = builder.node(node);
        }
        if let Some(class) = self.durability {
            builder = builder.durability(class);
        }
        if let Some(peer) = &self.peer_address {
            builder = builder.peer(peer.clone());
        }
        let place = Place {
            interface: self.device_interface.clone(),
            trusted: self.device_trusted,
            ..Place::default()
        };
        // The C interface does not support certificates. docs/libquorate.md describes which
        // networks are safe.
        builder = builder.device(self.device.clone(), place).protection(Protection::Insecure);
        builder = builder.start_empty(self.start_empty);
        let members = self.peer_addresses.iter();
        builder = builder.cluster(members.map(|(node, address)| (*node, address.clone())));
        Ok(builder.settings(|settings| {
            settings.store = Some(SERVICE_NAME.to_owned());
            settings.store_default = SERVICE_NAME.to_owned();
            let largest = self.value_bytes_max.saturating_add(LENGTH_FIELD_BYTES);
            settings.command_bytes_max = BUNDLE_HEADER_BYTES + largest.max(BUNDLE_BYTES_MAX);
            settings.client_timeout_ms =
                u64::try_from(self.request_timeout.as_millis()).unwrap_or(u64::MAX);
            settings.heartbeat_ms = self.heartbeat_ms.unwrap_or(settings.heartbeat_ms);
            settings.election_ms = self.election_ms.unwrap_or(settings.election_ms);
            settings.snapshot_ratio = self.snapshot_ratio.unwrap_or(settings.snapshot_ratio);
            if let Some(bytes) = self.log_segment_bytes {
                settings.log_segment_bytes = bytes;
                settings.log_ready_bytes = bytes;
            }
        }))
    }
}

fn parse_number(text: &str, from: u64, to: u64) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| plain)?;
    (from..=to).contains(&number).then_some(number)
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (parse_number(from, 1, 600_000)?, parse_number(to, 1, 600_000)?);
    (from <= to).then_some((from, to))
}

fn address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| text.to_owned())
}

fn parse_addresses(text: &str) -> Option<Vec<String>> {
    text.split(',').map(|part| address(part.trim())).collect()
}

fn parse_members(text: &str) -> Option<BTreeMap<u32, String>> {
    let mut members = BTreeMap::new();
    for part in text.split(',') {
        let (node, at) = part.trim().split_once('=')?;
        let node = u32::try_from(parse_number(node, 1, u32::MAX.into())?).ok()?;
        if members.insert(node, address(at)?).is_some() {
            return None;
        }
    }
    Some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_checked_when_it_is_set() {
        let mut options = Options::default();
        for (name, value) in [
            ("data", "folder"),
            ("node", "2"),
            ("cluster", "1=a:1, 2=[::1]:2"),
            ("attach", "a:1,b:2"),
            ("device", "udp"),
            ("device-interface", "eth0"),
            ("device-trusted", "yes"),
            ("durability", "volatile"),
            ("value-max", "100"),
            ("held-max", "1024"),
            ("when-full", "forget-oldest"),
            ("election-ms", "100-200"),
        ] {
            options.set(name, value).unwrap();
        }
        assert_eq!(options.peer_addresses[&2], "[::1]:2");
        assert_eq!((options.attach_addresses.len(), options.fitting_value_bytes_max()), (2, 100));
        for (name, value) in [
            ("data", ""),
            ("node", "0"),
            ("node", "+1"),
            ("cluster", "1=a:1,1=b:1"),
            ("cluster", "1=a"),
            ("cluster", ""),
            ("attach", "a:1,"),
            ("attach", ":1"),
            ("device", "abacus"),
            ("device", "p4"),
            ("device-trusted", "on"),
            ("durability", "often"),
            ("value-max", "0"),
            ("value-max", "67108865"),
            ("held-max", "99999999999999999999"),
            ("election-ms", "200-100"),
            ("log-segment-bytes", "1048577"),
            ("nonsense", "1"),
        ] {
            let failed = options.set(name, value).unwrap_err();
            assert_eq!(failed.code, Code::Invalid, "{name}={value}");
            assert!(!failed.detail.is_empty() && !failed.hint.is_empty());
        }
    }
}
