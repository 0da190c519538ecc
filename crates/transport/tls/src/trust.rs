//! A node's identity and trusted authorities, loaded from files and reloaded while it runs.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use quorate_access::Who;
use rustls::{
    ClientConfig, ServerConfig,
    client::{Resumption, WebPkiServerVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName},
    server::NoServerSessionStorage,
    version::TLS13,
};
use x509_parser::parse_x509_certificate;

use crate::{
    files::{self, ClientFiles, NodeFiles, TlsFilesError},
    names::NodeName,
    session::Session,
    verify::{
        ANY_NODE, IncomingClientVerifier, NodeServerVerifier, PeerClientVerifier,
        any_node_named_by, chain_verifier_for, identity_of,
    },
};

/// Validity period of a certificate, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub begins_unix_s: i64,
    pub ends_unix_s: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// Use of the certificate: `node`, `peers authority`, and so on.
    pub purpose: &'static str,
    pub file: String,
    pub validity: Validity,
}

/// Protection of a node against unauthorized connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Only its own machine can reach the node.
    #[default]
    Loopback,
    /// The node is unprotected, by the operator's choice: anyone who can reach it is trusted.
    Insecure,
    /// The node requires certificates.
    Tls(NodeTrust),
}

impl Protection {
    /// Returns the identity and trust, or `None` if there are no certificates.
    pub const fn trust(&self) -> Option<&NodeTrust> {
        match self {
            Self::Tls(trust) => Some(trust),
            Self::Loopback | Self::Insecure => None,
        }
    }
}

/// A node's identity and trust. Clones share the certificates, including reloaded ones.
#[derive(Clone, Debug)]
pub struct NodeTrust {
    files: Arc<NodeFiles>,
    own_name: NodeName,
    current: Arc<RwLock<Arc<LoadedTrust>>>,
}

#[derive(Debug)]
struct LoadedTrust {
    /// Certificates in use, the node's own last. A reload compares only these, because each key
    /// belongs to one of them.
    source_certificates: Vec<CertificateDer<'static>>,
    expiries: Vec<CertificateExpiry>,
    incoming_peer_config: Arc<ServerConfig>,
    outgoing_peer_config: Arc<ClientConfig>,
    incoming_client_config: Arc<ServerConfig>,
    operator_config: Arc<ServerConfig>,
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

impl PartialEq for NodeTrust {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.current, &other.current)
    }
}

impl Eq for NodeTrust {}

impl NodeTrust {
    /// Loads the files. They determine the node and its cluster.
    pub fn load(files: NodeFiles) -> Result<Self, TlsFilesError> {
        let own = files::certificates(&files.peer_cert)?;
        let own = any_node_named_by(&own[0]).ok_or_else(|| {
            let what =
                "does not name a node: it needs one DNS name such as node-1.CLUSTER.quorate.internal";
            TlsFilesError::invalid_contents(&files.peer_cert, what)
        })?;
        let in_force = LoadedTrust::load(&files, &own)?;
        Ok(Self {
            files: Arc::new(files),
            own_name: own,
            current: Arc::new(RwLock::new(Arc::new(in_force))),
        })
    }

    /// Reloads the files. Returns whether they changed. On an error, the current certificates
    /// remain in use.
    pub fn reload(&self) -> Result<bool, TlsFilesError> {
        let new = LoadedTrust::load(&self.files, &self.own_name)?;
        if new.source_certificates == self.in_force().source_certificates {
            return Ok(false);
        }
        let mut now = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(new);
        Ok(true)
    }

    fn in_force(&self) -> Arc<LoadedTrust> {
        let now = self.current.read().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    pub const fn own_name(&self) -> &NodeName {
        &self.own_name
    }

    pub fn expiries(&self) -> Vec<CertificateExpiry> {
        self.in_force().expiries.clone()
    }

    /// Returns the configuration for connections that clients and nodes of the cluster may make.
    pub fn clients_config(&self) -> Arc<ServerConfig> {
        self.in_force().incoming_client_config.clone()
    }

    /// Returns the configuration for connections to the admin address. A client may connect without
    /// a certificate; the server then decides what to serve.
    pub fn operators_config(&self) -> Arc<ServerConfig> {
        self.in_force().operator_config.clone()
    }

    /// Returns the identity in a verified certificate chain.
    pub fn identity_of(&self, certificates: Option<&[CertificateDer<'_>]>) -> Who {
        let first = certificates.and_then(<[_]>::first);
        first.map_or(Who::Anonymous, |first| identity_of(first, &self.own_name.cluster))
    }

    /// Creates the session of an incoming peer connection.
    pub fn incoming_peer_session(&self) -> Session {
        Session::server(self.in_force().incoming_peer_config.clone(), self.own_name.cluster.clone())
    }

    /// Creates the session of an incoming client connection.
    pub fn incoming_client_session(&self) -> Session {
        Session::server(
            self.in_force().incoming_client_config.clone(),
            self.own_name.cluster.clone(),
        )
    }

    /// Creates the session of an outgoing connection to a peer. `None` means any node of the
    /// cluster.
    pub fn outgoing_peer_session(&self, node: Option<u32>) -> Session {
        let name = match node {
            Some(node) => NodeName { cluster: self.own_name.cluster.clone(), node }.to_string(),
            None => ANY_NODE.to_owned(),
        };
        let config = self.in_force().outgoing_peer_config.clone();
        let cluster = self.own_name.cluster.clone();
        match ServerName::try_from(name) {
            Ok(name) => Session::client(config, name, cluster),
            Err(error) => Session::failed(error.to_string()),
        }
    }
}

/// A client's identity and trust.
#[derive(Clone, Debug)]
pub struct ClientTrust(Arc<ClientConfig>);

impl PartialEq for ClientTrust {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientTrust {}

impl ClientTrust {
    pub fn load(files: &ClientFiles) -> Result<Self, TlsFilesError> {
        let provider = provider();
        let roots = Arc::new(files::root_store(&files.ca)?);
        let judge = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let judge = judge.map_err(|error| TlsFilesError::invalid_contents(&files.ca, error))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| TlsFilesError::invalid_contents(&files.ca, error))?
            .dangerous()
            .with_custom_certificate_verifier(judge)
            .with_client_auth_cert(files::certificates(&files.cert)?, files::key(&files.key)?)
            .map_err(|error| TlsFilesError::invalid_contents(&files.key, error))?;
        Ok(Self(Arc::new(config)))
    }

    /// Creates the session of a connection to a node. `host` is a name or an address, without a
    /// port.
    pub fn session_to_host(&self, host: &str) -> Result<Session, String> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
        Ok(Session::client(self.0.clone(), name, String::new()))
    }

    /// Creates the session of a connection to `place`, given as HOST:PORT with IPv6 addresses in
    /// brackets.
    pub fn session_to_address(&self, place: &str) -> Result<Session, String> {
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        self.session_to_host(host.trim_start_matches('[').trim_end_matches(']'))
    }

    /// Returns the configuration, for a library that makes its own connections.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}

impl LoadedTrust {
    fn load(files: &NodeFiles, own: &NodeName) -> Result<Self, TlsFilesError> {
        let provider = provider();
        let node = files::certificates(&files.peer_cert)?;
        let server = files::certificates(&files.server_cert)?;
        let peers_ca = files::certificates(&files.peer_ca)?;
        let clients_ca = files::certificates(&files.client_ca)?;
        if any_node_named_by(&node[0]).as_ref() != Some(own) {
            return Err(TlsFilesError::invalid_contents(
                &files.peer_cert,
                format!("does not name {own}, which is this node"),
            ));
        }
        let expiries = [
            ("node", &files.peer_cert, &node),
            ("server", &files.server_cert, &server),
            ("nodes' authority", &files.peer_ca, &peers_ca),
            ("clients' authority", &files.client_ca, &clients_ca),
        ];
        let expiries = expiries.into_iter().flat_map(|(what, path, all)| {
            all.iter().map(move |certificate| {
                Ok(CertificateExpiry {
                    purpose: what,
                    file: path.display().to_string(),
                    validity: validity(certificate)
                        .map_err(|error| TlsFilesError::invalid_contents(path, error))?,
                })
            })
        });
        let expiries = expiries.collect::<Result<Vec<_>, TlsFilesError>>()?;

        let peers_roots = files::root_store(&files.peer_ca)?;
        let clients_roots = files::root_store(&files.client_ca)?;
        let peers = || -> Result<PeerClientVerifier, TlsFilesError> {
            let chain = chain_verifier_for(peers_roots.clone(), &provider);
            Ok(PeerClientVerifier {
                chain_verifier: chain
                    .map_err(|error| TlsFilesError::invalid_contents(&files.peer_ca, error))?,
                cluster: own.cluster.clone(),
            })
        };
        let clients = chain_verifier_for(clients_roots, &provider)
            .map_err(|error| TlsFilesError::invalid_contents(&files.client_ca, error))?;
        let clients = |mandatory| -> Result<Arc<IncomingClientVerifier>, TlsFilesError> {
            Ok(Arc::new(IncomingClientVerifier {
                client_verifier: clients.clone(),
                peer_verifier: peers()?,
                requires_certificate: mandatory,
            }))
        };
        let serve = |judge, chain: &[CertificateDer<'static>], key_file| {
            let config = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&TLS13])
                .map_err(|error| TlsFilesError::invalid_contents(key_file, error))?
                .with_client_cert_verifier(judge)
                .with_single_cert(chain.to_vec(), files::key(key_file)?);
            let mut config =
                config.map_err(|error| TlsFilesError::invalid_contents(key_file, error))?;
            // Sessions are not resumed, so that every connection must present its certificate
            // again, even if it was trusted before.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Ok(Arc::new(config))
        };
        let peers_in = serve(Arc::new(peers()?), &node, &files.key)?;
        let clients_in = serve(clients(true)?, &server, &files.server_key)?;
        let operators_in = serve(clients(false)?, &server, &files.server_key)?;
        let signatures = WebPkiServerVerifier::builder_with_provider(
            Arc::new(peers_roots.clone()),
            provider.clone(),
        );
        let judge = NodeServerVerifier {
            roots: peers_roots,
            signatures: signatures
                .build()
                .map_err(|error| TlsFilesError::invalid_contents(&files.peer_ca, error))?,
            provider: provider.clone(),
            cluster: own.cluster.clone(),
        };
        let mut peers_out = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| TlsFilesError::invalid_contents(&files.peer_ca, error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(judge))
            .with_client_auth_cert(node.clone(), files::key(&files.key)?)
            .map_err(|error| TlsFilesError::invalid_contents(&files.key, error))?;
        peers_out.resumption = Resumption::disabled();
        // A server name in clear text would reveal the cluster.
        peers_out.enable_sni = false;
        let made_of = [peers_ca, clients_ca, server, node].concat();
        Ok(Self {
            source_certificates: made_of,
            expiries,
            incoming_peer_config: peers_in,
            outgoing_peer_config: Arc::new(peers_out),
            incoming_client_config: clients_in,
            operator_config: operators_in,
        })
    }
}

/// Returns the validity of each certificate in a file.
pub fn read_validities(path: &Path) -> Result<Vec<Validity>, TlsFilesError> {
    let all = files::certificates(path)?;
    let all = all.iter().map(|certificate| {
        validity(certificate).map_err(|error| TlsFilesError::invalid_contents(path, error))
    });
    all.collect()
}

fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, String> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
    let valid = parsed.validity();
    Ok(Validity {
        begins_unix_s: valid.not_before.timestamp(),
        ends_unix_s: valid.not_after.timestamp(),
    })
}
