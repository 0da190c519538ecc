//! Protection against untrusted peers and clients: certificates, or the operator's statement that
//! the network is trusted.

use std::path::{Path, PathBuf};

use quorate::{NodeFiles, NodeTrust, Protection};

use super::layers::Layers;
use crate::{output::Problem, values::switch};

/// Protection requested by the settings, before its files have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrustSettings {
    Loopback,
    Insecure,
    Tls(NodeFiles),
}

impl TrustSettings {
    /// Reads the certificate files and returns the resulting protection.
    pub(crate) fn load_files(&self) -> Result<Protection, Problem> {
        match self {
            Self::Loopback => Ok(Protection::Loopback),
            Self::Insecure => Ok(Protection::Insecure),
            Self::Tls(files) => Ok(Protection::Tls(NodeTrust::load(files.clone())?)),
        }
    }
}

/// Resolves the certificate settings.
pub(super) fn resolve_trust(layers: &Layers<'_>) -> Result<TrustSettings, Problem> {
    let path = |name| {
        layers.optional(name, "a path", |text| (!text.is_empty()).then(|| PathBuf::from(text)))
    };
    let insecure = layers.optional("insecure", "on or off", switch)?;
    let folder = path("tls")?;
    let [cert, key, ca] = [path("tls-cert")?, path("tls-key")?, path("tls-ca")?];
    let [server_cert, server_key] = [path("tls-server-cert")?, path("tls-server-key")?];
    let client_ca = path("tls-client-ca")?;
    let all = [&cert, &key, &ca, &server_cert, &server_key, &client_ca];
    if folder.is_none() && all.into_iter().all(Option::is_none) {
        return Ok(match insecure {
            Some(true) => TrustSettings::Insecure,
            _ => TrustSettings::Loopback,
        });
    }
    if insecure == Some(true) {
        let what = "--insecure and certificates exclude each other";
        return Err(Problem::usage_error(what)
            .with_hint("leave out --insecure: connections are authenticated by certificates"));
    }
    if server_cert.is_some() != server_key.is_some() {
        let what = "--tls-server-cert and --tls-server-key belong together";
        return Err(Problem::usage_error(what).with_hint("give both, or neither"));
    }
    let Some(folder) = folder else {
        let (Some(cert), Some(key), Some(ca)) = (cert, key, ca) else {
            let what =
                "--tls-cert, --tls-key and --tls-ca are all needed, unless --tls DIR is given";
            return Err(Problem::usage_error(what)
                .with_hint("'quorate cert node' creates a folder for --tls with all three files"));
        };
        return Ok(TrustSettings::Tls(NodeFiles {
            server_cert: server_cert.unwrap_or_else(|| cert.clone()),
            server_key: server_key.unwrap_or_else(|| key.clone()),
            client_ca: client_ca.unwrap_or_else(|| ca.clone()),
            peer_cert: cert,
            key,
            peer_ca: ca,
        }));
    };
    let usual = NodeFiles::in_folder(Path::new(&folder));
    Ok(TrustSettings::Tls(NodeFiles {
        peer_cert: cert.unwrap_or(usual.peer_cert),
        key: key.unwrap_or(usual.key),
        peer_ca: ca.unwrap_or(usual.peer_ca),
        server_cert: server_cert.unwrap_or(usual.server_cert),
        server_key: server_key.unwrap_or(usual.server_key),
        client_ca: client_ca.unwrap_or(usual.client_ca),
    }))
}
