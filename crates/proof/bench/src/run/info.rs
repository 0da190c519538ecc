//! Properties that a running cluster reports. The bench's flags must not contradict them.

use std::{
    io::{self, Read as _, Write as _},
    time::{Duration, Instant},
};

use crate::{
    door::ClientAddress,
    introduction::{self, ANSWER_BYTES_MAX, ClientProtocol, INTRODUCTION_REQUEST, Introduction},
    protocol::Malformed,
};

use super::measure::Service;
use crate::problem::Problem;

/// Timeout for a reply. Without one, the properties of the node count as unknown.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
const READ_BYTES: usize = 16 << 10;

/// Class, store and version of a cluster, each `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterInfo {
    pub(super) durability: Option<String>,
    pub(super) store: Option<String>,
    pub(super) version: Option<String>,
}

impl ClusterInfo {
    /// Queries every node. Redis does not report these properties and does not have to. Unreachable
    /// nodes are ignored, because the load will fail on them.
    pub(super) fn query_nodes(service: Service, doors: &[ClientAddress]) -> Result<Self, Problem> {
        let mut all = Vec::new();
        for door in doors {
            let (address, answer) = (door.name(), query_node(door).unwrap_or(Ok(None)));
            let answer = answer.map_err(|malformed| {
                Problem::usage_error(format_args!("--connect {address}: {malformed}"))
                    .with_hint("--connect takes client addresses (nodes print them as client=…); nodes with certificates need --tls")
            })?;
            if let Some(said) = answer {
                check_service(service, address, said.protocol)?;
                all.push((address, said));
            }
        }
        Self::agreed_properties(&all)
    }

    /// Returns the properties on which the nodes agree. Fails if they differ in class or store,
    /// which belong to the cluster; versions may differ during an upgrade.
    fn agreed_properties(all: &[(&str, Introduction)]) -> Result<Self, Problem> {
        Ok(Self {
            durability: agreed_value(all, |said| said.durability.as_deref())?,
            store: agreed_value(all, |said| said.store.as_deref())?,
            version: agreed_value(all, |said| said.version.as_deref()).unwrap_or_default(),
        })
    }

    /// Describes the version of the nodes. A report names the commit of the bench, which may differ
    /// from that of the nodes.
    pub(super) fn describe_version(&self) -> String {
        let nodes = self.version.as_ref().map_or_else(
            || "the nodes do not all say the same version, or none".to_owned(),
            |version| format!("the nodes say that they are version {version}"),
        );
        format!("{nodes}; the commit of the report is that of the bench")
    }

    /// Checks that the value given for a flag does not contradict the cluster.
    pub(super) fn check_flag(
        flag: &str,
        given: Option<&str>,
        known: Option<&str>,
    ) -> Result<(), Problem> {
        match (given, known) {
            (Some(given), Some(known)) if given != known => {
                Err(Problem::usage_error(format_args!("--{flag} {given}: the cluster is {known}"))
                    .with_hint(format!("leave out --{flag}: the cluster has its own setting")))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that the nodes use the service's protocol. Otherwise the bench would wait for replies
/// that never arrive.
fn check_service(service: Service, address: &str, speaks: ClientProtocol) -> Result<(), Problem> {
    let (what, other) = match (service, speaks) {
        (Service::Kv, ClientProtocol::Resp) | (Service::Log, ClientProtocol::Frames) => {
            return Ok(());
        }
        (Service::Kv, ClientProtocol::Frames) => {
            ("the log service answers at this address", Service::Log)
        }
        (Service::Log, ClientProtocol::Resp) => {
            ("a key-value service answers at this address, in the Redis protocol", Service::Kv)
        }
    };
    let hint = format!("quorate bench {} --connect {address}", other.name());
    Err(Problem::usage_error(format_args!("--connect {address}: {what}")).with_hint(hint))
}

/// Returns the value that the nodes report. Fails if they differ.
fn agreed_value(
    all: &[(&str, Introduction)],
    of: impl Fn(&Introduction) -> Option<&str>,
) -> Result<Option<String>, Problem> {
    let mut words = all.iter().filter_map(|(address, said)| Some((address, of(said)?)));
    let Some((first, word)) = words.next() else {
        return Ok(None);
    };
    match words.find(|(_, other)| *other != word) {
        None => Ok(Some(word.to_owned())),
        Some((address, other)) => Err(Problem::usage_error(format_args!(
            "--connect: {first} is {word}, {address} is {other}"
        ))
        .with_hint("give the nodes of a single cluster")),
    }
}

/// Queries a node. Returns `None` if it closes the connection before its reply is complete.
fn query_node(door: &ClientAddress) -> io::Result<Result<Option<Introduction>, Malformed>> {
    let until = Instant::now() + REPLY_TIMEOUT;
    let stream = door.connect(REPLY_TIMEOUT)?;
    stream.socket().set_write_timeout(Some(REPLY_TIMEOUT))?;
    (&stream).write_all(INTRODUCTION_REQUEST)?;
    let mut answer = Vec::new();
    let mut scratch = vec![0; READ_BYTES];
    while answer.len() <= ANSWER_BYTES_MAX + READ_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.socket().set_read_timeout(Some(left))?;
        match (&stream).read(&mut scratch)? {
            0 => break,
            count => answer.extend_from_slice(&scratch[..count]),
        }
        match introduction::read(&answer) {
            Ok(None) => {}
            known => return Ok(known),
        }
    }
    Ok(Ok(None))
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener},
        thread,
    };

    use super::*;

    fn said(durability: &str, version: &str) -> Introduction {
        Introduction {
            protocol: ClientProtocol::Frames,
            durability: Some(durability.to_owned()),
            store: Some("none".to_owned()),
            version: Some(version.to_owned()),
        }
    }

    /// Starts a server that sends `bytes` to its first client, and returns its address.
    fn answering(bytes: &'static [u8]) -> ClientAddress {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut question = [0; INTRODUCTION_REQUEST.len()];
            client.read_exact(&mut question).unwrap();
            for byte in bytes {
                client.write_all(&[*byte]).unwrap();
            }
        });
        address.into()
    }

    #[test]
    fn class_store_and_version_are_parsed_or_unknown() {
        let ask = |bytes| ClusterInfo::query_nodes(Service::Kv, &[answering(bytes)]);
        let info = ask(b"$80\r\n# Server\r\nquorate_version:0.1.0\r\nquorate_store:lsm\r\nquorate_durability:durable\r\n\r\n");
        let info = info.unwrap();
        assert_eq!(info.durability.as_deref(), Some("durable"));
        assert_eq!(info.store.as_deref(), Some("lsm"));
        assert_eq!(info.version.as_deref(), Some("0.1.0"));
        let redis = ask(b"$21\r\nredis_version:7.0.0\r\n\r\n");
        assert_eq!(redis, Ok(ClusterInfo::default()));
        assert_eq!(ask(b""), Ok(ClusterInfo::default()), "it closed the connection");
        assert_eq!(ask(b"$9\r\nhalf"), Ok(ClusterInfo::default()));
    }

    #[test]
    fn unreachable_node_yields_no_info_and_no_error() {
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        assert_eq!(
            ClusterInfo::query_nodes(Service::Log, &[closed.into()]),
            Ok(ClusterInfo::default())
        );
    }

    #[test]
    fn the_other_protocol_is_refused_with_the_right_command() {
        let wrong = [
            (Service::Kv, &b"\x01\0\0\0\x03"[..], "quorate bench log"),
            (Service::Log, b"-NOAUTH Authentication required.\r\n", "quorate bench kv"),
            (Service::Kv, b"HTTP/1.1 400\r\n", "client addresses"),
            (Service::Log, b"HTTP/1.1 400\r\n", "client addresses"),
        ];
        for (service, bytes, hint) in wrong {
            let problem = ClusterInfo::query_nodes(service, &[answering(bytes)]).unwrap_err();
            assert_eq!(problem.code, "bad_configuration");
            assert!(problem.hint.contains(hint), "{problem}");
        }
    }

    #[test]
    fn nodes_of_two_clusters_are_refused_and_of_two_versions_not() {
        let of = |other| {
            ClusterInfo::agreed_properties(&[("a:1", said("durable", "0.1.0")), ("b:1", other)])
        };
        let problem = of(said("volatile", "0.1.0")).unwrap_err();
        assert_eq!(problem.message, "--connect: a:1 is durable, b:1 is volatile");
        let info = of(said("durable", "0.2.0")).unwrap();
        assert_eq!((info.durability.as_deref(), info.version), (Some("durable"), None));
    }

    #[test]
    fn a_flag_that_contradicts_the_cluster_is_refused() {
        assert!(ClusterInfo::check_flag("store", Some("lsm"), Some("memory")).is_err());
        assert!(ClusterInfo::check_flag("store", Some("lsm"), Some("lsm")).is_ok());
        assert!(ClusterInfo::check_flag("store", Some("lsm"), None).is_ok());
        assert!(ClusterInfo::check_flag("store", None, Some("lsm")).is_ok());
    }
}
