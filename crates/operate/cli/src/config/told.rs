//! Start settings that a node reports to other nodes, to detect differences. Only settings that all
//! nodes should share are reported, not addresses, folders, files and secrets. Of settings that
//! protect secrets, only the presence is reported.

use std::collections::BTreeMap;

use super::{
    layers::Layers,
    settings::{CONFIG, LISTEN, LOG_SEGMENT, SETTINGS},
};
use crate::values::size;

/// Settings that are not reported, because they differ between nodes, or take effect only at the
/// first start and are then recorded in the log.
const UNREPORTED_SETTINGS: [&str; 24] = [
    "data",
    "node",
    "cluster",
    "join",
    "as",
    "auxiliary",
    "quorum",
    LISTEN,
    "client",
    "peer",
    "admin",
    "stream",
    "stream-raw",
    "client-socket",
    "plane-interface",
    "plane-speed",
    "durability",
    "service",
    "store",
    "tls-server-cert",
    "tls-server-key",
    "log-format",
    CONFIG,
    LOG_SEGMENT,
];
/// Settings that are reported only as given or not given.
const PRESENCE_ONLY: [&str; 6] =
    ["tls", "tls-cert", "tls-key", "tls-ca", "tls-client-ca", "plane-key"];

/// Returns the values to report, resolved through all layers.
pub(super) fn reported_settings(layers: &Layers<'_>) -> BTreeMap<String, String> {
    let shared = SETTINGS.iter().filter(|one| !UNREPORTED_SETTINGS.contains(&one.name));
    let told = shared.filter_map(|setting| {
        let text = layers.text(setting.name)?;
        let value = match &*text {
            _ if PRESENCE_ONLY.contains(&setting.name) => "given",
            "true" => "on",
            "false" => "off",
            // The part after the colon is a command or a folder, which may differ.
            text if setting.name == "device" => text.split(':').next().unwrap_or_default(),
            text => text,
        };
        // Different units are not a difference. `--scrub-pace` has always been reported as it was
        // written.
        let bytes =
            size(value).filter(|_| setting.value == "BYTES" && setting.name != "scrub-pace");
        let value = bytes.map_or_else(|| value.to_owned(), |bytes| bytes.to_string());
        Some((setting.name.to_owned(), value))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::resolve;

    #[test]
    fn shared_settings_are_reported_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap();
        let keys = folder.path().join("secret");
        std::fs::write(&keys, format!("1 {}\n", "5e".repeat(32))).unwrap();
        let flags = [
            "--data",
            at,
            "--tls",
            at,
            "--plane",
            "udp",
            "--plane-key",
            keys.to_str().unwrap(),
            "--device",
            "process:cat /secret/x",
            "--log-max",
            "1GiB",
        ];
        let variables = [("QUORATE_READS", "lease"), ("QUORATE_CLIENT", "h:1")];
        let told = resolve(&flags, &variables).unwrap().reported_settings;
        let of = |name: &str| told.get(name).map(String::as_str);
        assert_eq!((of("reads"), of("election-ms")), (Some("lease"), Some("100-200")));
        assert_eq!((of("tls"), of("plane-key")), (Some("given"), Some("given")));
        assert_eq!((of("device"), of("log-max")), (Some("process"), Some("1073741824")));
        assert_eq!((of("data"), of("client"), of("thrifty")), (None, None, None));
        let all = format!("{told:?}");
        assert!(!all.contains("secret") && !all.contains("5e5e") && !all.contains(at), "{all}");
    }
}
