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
    files::{self, BadFiles, ClientFiles, Files},
    names::NodeName,
    session::Session,
    verify::{ANY_NODE, ClientsIn, PeersIn, PeersOut, any_node_of, chain_in, who},
};

/// Validity period of a certificate, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub begins_unix_s: i64,
    pub ends_unix_s: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Use of the certificate: `node`, `peers authority`, and so on.
    pub what: &'static str,
    pub file: String,
    pub valid: Validity,
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
    Tls(Trust),
}

impl Protection {
    /// Returns the identity and trust, or `None` if there are no certificates.
    pub const fn trust(&self) -> Option<&Trust> {
        match self {
            Self::Tls(trust) => Some(trust),
            Self::Loopback | Self::Insecure => None,
        }
    }
}

/// A node's identity and trust. Clones share the certificates, including reloaded ones.
#[derive(Clone, Debug)]
pub struct Trust {
    files: Arc<Files>,
    own: NodeName,
    now: Arc<RwLock<Arc<InForce>>>,
}

#[derive(Debug)]
struct InForce {
    /// Certificates in use, the node's own last. A reload compares only these, because each key
    /// belongs to one of them.
    made_of: Vec<CertificateDer<'static>>,
    expiries: Vec<Expiry>,
    peers_in: Arc<ServerConfig>,
    peers_out: Arc<ClientConfig>,
    clients_in: Arc<ServerConfig>,
    operators_in: Arc<ServerConfig>,
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.now, &other.now)
    }
}

impl Eq for Trust {}

impl Trust {
    /// Loads the files. They determine the node and its cluster.
    pub fn load(files: Files) -> Result<Self, BadFiles> {
        let own = files::certificates(&files.cert)?;
        let own = any_node_of(&own[0]).ok_or_else(|| {
            let what =
                "does not name a node: it needs one DNS name such as node-1.CLUSTER.quorate.internal";
            BadFiles::contents(&files.cert, what)
        })?;
        let in_force = InForce::load(&files, &own)?;
        Ok(Self { files: Arc::new(files), own, now: Arc::new(RwLock::new(Arc::new(in_force))) })
    }

    /// Reloads the files. Returns whether they changed. On an error, the current certificates
    /// remain in use.
    pub fn reload(&self) -> Result<bool, BadFiles> {
        let new = InForce::load(&self.files, &self.own)?;
        if new.made_of == self.in_force().made_of {
            return Ok(false);
        }
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(new);
        Ok(true)
    }

    fn in_force(&self) -> Arc<InForce> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    pub const fn own(&self) -> &NodeName {
        &self.own
    }

    pub fn expiries(&self) -> Vec<Expiry> {
        self.in_force().expiries.clone()
    }

    /// Returns the configuration for connections that clients and nodes of the cluster may make.
    pub fn clients_config(&self) -> Arc<ServerConfig> {
        self.in_force().clients_in.clone()
    }

    /// Returns the configuration for connections to the admin address. A client may connect without
    /// a certificate; the server then decides what to serve.
    pub fn operators_config(&self) -> Arc<ServerConfig> {
        self.in_force().operators_in.clone()
    }

    /// Returns the identity in a verified certificate chain.
    pub fn who(&self, certificates: Option<&[CertificateDer<'_>]>) -> Who {
        let first = certificates.and_then(<[_]>::first);
        first.map_or(Who::Anonymous, |first| who(first, &self.own.cluster))
    }

    /// Creates the session of an incoming peer connection.
    pub fn peer_in(&self) -> Session {
        Session::server(self.in_force().peers_in.clone(), self.own.cluster.clone())
    }

    /// Creates the session of an incoming client connection.
    pub fn client_in(&self) -> Session {
        Session::server(self.in_force().clients_in.clone(), self.own.cluster.clone())
    }

    /// Creates the session of an outgoing connection to a peer. `None` means any node of the
    /// cluster.
    pub fn peer_out(&self, node: Option<u32>) -> Session {
        let name = match node {
            Some(node) => NodeName { cluster: self.own.cluster.clone(), node }.to_string(),
            None => ANY_NODE.to_owned(),
        };
        let config = self.in_force().peers_out.clone();
        let cluster = self.own.cluster.clone();
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
    pub fn load(files: &ClientFiles) -> Result<Self, BadFiles> {
        let provider = provider();
        let roots = Arc::new(files::roots(&files.ca)?);
        let judge = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let judge = judge.map_err(|error| BadFiles::contents(&files.ca, error))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| BadFiles::contents(&files.ca, error))?
            .dangerous()
            .with_custom_certificate_verifier(judge)
            .with_client_auth_cert(files::certificates(&files.cert)?, files::key(&files.key)?)
            .map_err(|error| BadFiles::contents(&files.key, error))?;
        Ok(Self(Arc::new(config)))
    }

    /// Creates the session of a connection to a node. `host` is a name or an address, without a
    /// port.
    pub fn session(&self, host: &str) -> Result<Session, String> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
        Ok(Session::client(self.0.clone(), name, String::new()))
    }

    /// Creates the session of a connection to `place`, given as HOST:PORT with IPv6 addresses in
    /// brackets.
    pub fn session_at(&self, place: &str) -> Result<Session, String> {
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        self.session(host.trim_start_matches('[').trim_end_matches(']'))
    }

    /// Returns the configuration, for a library that makes its own connections.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}

impl InForce {
    fn load(files: &Files, own: &NodeName) -> Result<Self, BadFiles> {
        let provider = provider();
        let node = files::certificates(&files.cert)?;
        let server = files::certificates(&files.server_cert)?;
        let peers_ca = files::certificates(&files.ca)?;
        let clients_ca = files::certificates(&files.client_ca)?;
        if any_node_of(&node[0]).as_ref() != Some(own) {
            return Err(BadFiles::contents(
                &files.cert,
                format!("does not name {own}, which is this node"),
            ));
        }
        let expiries = [
            ("node", &files.cert, &node),
            ("server", &files.server_cert, &server),
            ("nodes' authority", &files.ca, &peers_ca),
            ("clients' authority", &files.client_ca, &clients_ca),
        ];
        let expiries = expiries.into_iter().flat_map(|(what, path, all)| {
            all.iter().map(move |certificate| {
                Ok(Expiry {
                    what,
                    file: path.display().to_string(),
                    valid: validity(certificate)
                        .map_err(|error| BadFiles::contents(path, error))?,
                })
            })
        });
        let expiries = expiries.collect::<Result<Vec<_>, BadFiles>>()?;

        let peers_roots = files::roots(&files.ca)?;
        let clients_roots = files::roots(&files.client_ca)?;
        let peers = || -> Result<PeersIn, BadFiles> {
            let chain = chain_in(peers_roots.clone(), &provider);
            Ok(PeersIn {
                chain: chain.map_err(|error| BadFiles::contents(&files.ca, error))?,
                cluster: own.cluster.clone(),
            })
        };
        let clients = chain_in(clients_roots, &provider)
            .map_err(|error| BadFiles::contents(&files.client_ca, error))?;
        let clients = |mandatory| -> Result<Arc<ClientsIn>, BadFiles> {
            Ok(Arc::new(ClientsIn { clients: clients.clone(), peers: peers()?, mandatory }))
        };
        let serve = |judge, chain: &[CertificateDer<'static>], key_file| {
            let config = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&TLS13])
                .map_err(|error| BadFiles::contents(key_file, error))?
                .with_client_cert_verifier(judge)
                .with_single_cert(chain.to_vec(), files::key(key_file)?);
            let mut config = config.map_err(|error| BadFiles::contents(key_file, error))?;
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
        let judge = PeersOut {
            roots: peers_roots,
            signatures: signatures.build().map_err(|error| BadFiles::contents(&files.ca, error))?,
            provider: provider.clone(),
            cluster: own.cluster.clone(),
        };
        let mut peers_out = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| BadFiles::contents(&files.ca, error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(judge))
            .with_client_auth_cert(node.clone(), files::key(&files.key)?)
            .map_err(|error| BadFiles::contents(&files.key, error))?;
        peers_out.resumption = Resumption::disabled();
        // A server name in clear text would reveal the cluster.
        peers_out.enable_sni = false;
        let made_of = [peers_ca, clients_ca, server, node].concat();
        Ok(Self {
            made_of,
            expiries,
            peers_in,
            peers_out: Arc::new(peers_out),
            clients_in,
            operators_in,
        })
    }
}

/// Returns the validity of each certificate in a file.
pub fn validities(path: &Path) -> Result<Vec<Validity>, BadFiles> {
    let all = files::certificates(path)?;
    let all = all
        .iter()
        .map(|certificate| validity(certificate).map_err(|error| BadFiles::contents(path, error)));
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
