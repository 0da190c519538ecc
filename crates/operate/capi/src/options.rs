//! Options of a handle. Names and values are strings, as listed in `quorate.h`.

use std::{collections::BTreeMap, time::Duration};

use quorate::{Builder, Class, Device, Place, Protection};

use crate::{
    error::{Code, Failed},
    submits::BUNDLE_BYTES,
    values::{
        command::{BUNDLE_HEAD, LENGTH_BYTES, VALUE_OVERHEAD, WhenFull},
        machine::STORE,
    },
};

/// Upper bound for the configured maximum value size, in bytes, because a frame between a node and
/// an attached program contains a whole value.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// Settings of nodes and attached programs. Each uses only the settings that apply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Data folder of the node.
    pub data: Option<String>,
    /// Id of the node.
    pub node: Option<u32>,
    /// Peer addresses of the nodes, by node id.
    pub cluster: BTreeMap<u32, String>,
    /// Peer address of this node; `None` if it is the entry in `cluster`.
    pub peer: Option<String>,
    /// Device that votes for the node.
    pub device: Device,
    /// Network interface of the device.
    pub device_interface: Option<String>,
    /// Set if every sender on the device's network interface is trusted.
    pub device_trusted: bool,
    /// Set to discard the contents of the data folder at start.
    pub start_empty: bool,
    /// Address on which the node listens for attaching programs, if any.
    pub listen: Option<String>,
    /// Addresses of the nodes to attach to.
    pub attach: Vec<String>,
    /// Durability class of the group.
    pub class: Option<Class>,
    /// Maximum size of a value in bytes.
    pub value_bytes_max: usize,
    /// Maximum total size in bytes of the retained values.
    pub held_bytes_max: u64,
    /// Behaviour when the retained values reach their limit.
    pub when_full: WhenFull,
    /// Time limit for each request.
    pub request: Duration,
    /// Maximum time for which opening a handle waits for the node. If it is zero, opening does not
    /// wait.
    pub start_wait: Duration,
    /// Maximum interval in milliseconds between a leader's messages.
    pub heartbeat_ms: Option<u64>,
    /// Range in milliseconds from which the election timeout is drawn at random.
    pub election_ms: Option<(u64, u64)>,
    /// Size in bytes of a new log segment.
    pub log_segment_bytes: Option<u64>,
    /// Growth of the log after which a snapshot is taken, as a multiple of the size of a snapshot.
    pub snapshot_ratio: Option<u32>,
    /// Maximum number of programs attached to the node at a time.
    pub attached_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: None,
            node: None,
            cluster: BTreeMap::new(),
            peer: None,
            device: Device::Off,
            device_interface: None,
            device_trusted: false,
            start_empty: false,
            listen: None,
            attach: Vec::new(),
            class: None,
            value_bytes_max: 8 << 20,
            held_bytes_max: 256 << 20,
            when_full: WhenFull::Refuse,
            request: Duration::from_secs(5),
            start_wait: Duration::from_secs(30),
            heartbeat_ms: None,
            election_ms: None,
            log_segment_bytes: None,
            snapshot_ratio: None,
            attached_max: 64,
        }
    }
}

impl Options {
    /// Sets an option by name. Fails if the name is unknown or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Failed> {
        let text = || (!value.is_empty()).then(|| value.to_owned()).ok_or("not empty");
        let done = match name {
            "data" => text().map(|text| self.data = Some(text)),
            "peer" => text().map(|text| self.peer = Some(text)),
            // `p4` needs a program that only Quorate's packages include.
            "device" => Device::named(value)
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
            "listen" => text().map(|text| self.listen = Some(text)),
            "node" => number(value, 1, u32::MAX.into())
                .map(|node| self.node = u32::try_from(node).ok())
                .ok_or("a number from 1"),
            "cluster" => members(value)
                .map(|members| self.cluster = members)
                .ok_or("different nodes such as 1=HOST:PORT,2=HOST:PORT"),
            "attach" => addresses(value)
                .map(|nodes| self.attach = nodes)
                .ok_or("a list such as HOST:PORT,HOST:PORT"),
            "durability" => match value {
                "durable" => {
                    self.class = Some(Class::Durable);
                    Ok(())
                }
                "volatile" => {
                    self.class = Some(Class::Volatile);
                    Ok(())
                }
                _ => Err("durable or volatile"),
            },
            "value-max" => number(value, 1, VALUE_BYTES_MAX as u64)
                .and_then(|bytes| usize::try_from(bytes).ok())
                .map(|bytes| self.value_bytes_max = bytes)
                .ok_or("bytes, from 1 to 64 MiB"),
            "held-max" => number(value, 1 << 10, 1 << 40)
                .map(|bytes| self.held_bytes_max = bytes)
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
            "request-ms" => number(value, 10, 600_000)
                .map(|ms| self.request = Duration::from_millis(ms))
                .ok_or("milliseconds, from 10 to 600000"),
            "start-wait-ms" => number(value, 0, 3_600_000)
                .map(|ms| self.start_wait = Duration::from_millis(ms))
                .ok_or("milliseconds, up to 3600000"),
            "heartbeat-ms" => number(value, 1, 60_000)
                .map(|ms| self.heartbeat_ms = Some(ms))
                .ok_or("milliseconds, from 1 to 60000"),
            "election-ms" => range(value)
                .map(|range| self.election_ms = Some(range))
                .ok_or("milliseconds such as 100-200, the second not below the first"),
            "log-segment-bytes" => number(value, 1 << 20, 1 << 32)
                .filter(|bytes| bytes.is_power_of_two())
                .map(|bytes| self.log_segment_bytes = Some(bytes))
                .ok_or("a power of two from 1 MiB to 4 GiB"),
            "snapshot-ratio" => number(value, 1, 1000)
                .map(|ratio| self.snapshot_ratio = u32::try_from(ratio).ok())
                .ok_or("a number from 1 to 1000"),
            "attached-max" => number(value, 1, 1024)
                .and_then(|most| usize::try_from(most).ok())
                .map(|most| self.attached_max = most)
                .ok_or("a number from 1 to 1024"),
            _ => {
                let detail = format!("there is no option {name:?}");
                return Err(Failed::new(Code::Invalid, detail).hint("quorate.h lists the options"));
            }
        };
        done.map_err(|wanted| {
            Failed::new(Code::Invalid, format!("{name} is {value:?}"))
                .hint(format!("give {wanted}"))
        })
    }

    /// Returns the maximum size in bytes of a value that also fits the limit of retained values.
    pub fn largest_value(&self) -> usize {
        let held = self.held_bytes_max.saturating_sub(VALUE_OVERHEAD);
        usize::try_from(held).map_or(self.value_bytes_max, |held| held.min(self.value_bytes_max))
    }

    /// Returns the maximum size in bytes of a bundle, which fits at least one value of the maximum
    /// size.
    pub fn largest_bundle(&self) -> usize {
        BUNDLE_BYTES.max(self.largest_value() + LENGTH_BYTES)
    }

    /// Returns the builder of a node with these options. Fails if there is no data folder.
    pub fn builder(&self) -> Result<Builder, Failed> {
        let missing =
            || Failed::new(Code::Invalid, "a node needs a folder").hint("set the option data");
        let mut builder = Builder::new(self.data.as_deref().ok_or_else(missing)?);
        if let Some(node) = self.node {
            builder = builder.node(node);
        }
        if let Some(class) = self.class {
            builder = builder.durability(class);
        }
        if let Some(peer) = &self.peer {
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
        let members = self.cluster.iter();
        builder = builder.cluster(members.map(|(node, address)| (*node, address.clone())));
        Ok(builder.settings(|settings| {
            settings.store = Some(STORE.to_owned());
            settings.store_default = STORE.to_owned();
            let largest = self.value_bytes_max.saturating_add(LENGTH_BYTES);
            settings.command_bytes_max = BUNDLE_HEAD + largest.max(BUNDLE_BYTES);
            settings.client_timeout_ms =
                u64::try_from(self.request.as_millis()).unwrap_or(u64::MAX);
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

fn number(text: &str, from: u64, to: u64) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| plain)?;
    (from..=to).contains(&number).then_some(number)
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (number(from, 1, 600_000)?, number(to, 1, 600_000)?);
    (from <= to).then_some((from, to))
}

fn address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| text.to_owned())
}

fn addresses(text: &str) -> Option<Vec<String>> {
    text.split(',').map(|part| address(part.trim())).collect()
}

fn members(text: &str) -> Option<BTreeMap<u32, String>> {
    let mut members = BTreeMap::new();
    for part in text.split(',') {
        let (node, at) = part.trim().split_once('=')?;
        let node = u32::try_from(number(node, 1, u32::MAX.into())?).ok()?;
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
        assert_eq!(options.cluster[&2], "[::1]:2");
        assert_eq!((options.attach.len(), options.largest_value()), (2, 100));
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
