//! Verifies the certificate in a handshake: its chain to an authority, and its name, which must
//! belong to this cluster.

use std::sync::Arc;

use quorate_access::Who;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use webpki::EndEntityCert;

use crate::names::{ClientName, NodeName};

/// Returns the id of the node of `cluster` that a certificate names; `None` unless it names exactly
/// one node.
pub(crate) fn node_named_by(certificate: &CertificateDer<'_>, cluster: &str) -> Option<u32> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let mut nodes = parsed.valid_dns_names().filter_map(NodeName::parse);
    let first = nodes.next()?;
    (first.cluster == cluster && nodes.next().is_none()).then_some(first.node)
}

/// Returns the node that a certificate names, in any cluster.
pub(crate) fn any_node_named_by(certificate: &CertificateDer<'_>) -> Option<NodeName> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let mut nodes = parsed.valid_dns_names().filter_map(NodeName::parse);
    let first = nodes.next()?;
    nodes.next().is_none().then_some(first)
}

/// Returns the identity that a certificate has in this cluster. A certificate cannot be both a
/// node's and a client's; if it names both, it counts as the node's.
pub(crate) fn identity_of(certificate: &CertificateDer<'_>, cluster: &str) -> Who {
    let node = node_named_by(certificate, cluster).map(Who::Node);
    let client = || client_named_by(certificate, cluster).map(Who::Client);
    node.or_else(client).unwrap_or(Who::Unnamed)
}

/// Returns the common name in the first certificate, which identifies users that another authority
/// certified.
pub fn common_name(certificates: Option<&[CertificateDer<'_>]>) -> Option<String> {
    let first = certificates?.first()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(first).ok()?;
    let name = parsed.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

/// Returns the name of the client of this cluster that a certificate names.
pub(crate) fn client_named_by(certificate: &CertificateDer<'_>, cluster: &str) -> Option<String> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let mut clients = parsed.valid_dns_names().filter_map(ClientName::parse);
    clients.find(|name| name.cluster == cluster).map(|name| name.client)
}

fn wrong_node_error() -> Error {
    Error::InvalidCertificate(CertificateError::NotValidForName)
}

/// Implements the verification of handshake signatures by delegating to the verifier in a field.
macro_rules! signatures_by {
    ($field:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.$field.verify_tls12_signature(message, cert, dss)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.$field.verify_tls13_signature(message, cert, dss)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.$field.supported_verify_schemes()
        }
    };
}

/// A verifier for incoming peer connections. Accepts nodes of the cluster with a certificate of its
/// authority.
#[derive(Debug)]
pub(crate) struct PeerClientVerifier {
    pub(crate) chain_verifier: Arc<dyn ClientCertVerifier>,
    pub(crate) cluster: String,
}

impl ClientCertVerifier for PeerClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // The names of authorities are not sent, because they would reveal the cluster to
        // strangers.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain_verifier.verify_client_cert(end_entity, intermediates, now)?;
        node_named_by(end_entity, &self.cluster).ok_or_else(wrong_node_error)?;
        Ok(verified)
    }

    signatures_by!(chain_verifier);
}

/// A verifier for incoming client connections. Accepts clients, operators, and the cluster's own
/// nodes.
#[derive(Debug)]
pub(crate) struct IncomingClientVerifier {
    pub(crate) client_verifier: Arc<dyn ClientCertVerifier>,
    pub(crate) peer_verifier: PeerClientVerifier,
    /// Set if a client must present a certificate. One that is presented is always verified.
    pub(crate) requires_certificate: bool,
}

impl ClientCertVerifier for IncomingClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.requires_certificate
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let by_clients = self.client_verifier.verify_client_cert(end_entity, intermediates, now);
        by_clients.or_else(|error| {
            let as_peer = self.peer_verifier.verify_client_cert(end_entity, intermediates, now);
            as_peer.map_err(|_| error)
        })
    }

    signatures_by!(client_verifier);
}

/// Verifier for the node that this node connects to. The expected name is that of one node, or
/// [`ANY_NODE`].
#[derive(Debug)]
pub(crate) struct NodeServerVerifier {
    pub(crate) roots: RootCertStore,
    pub(crate) signatures: Arc<WebPkiServerVerifier>,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) cluster: String,
}

/// Expected name that stands for any node of the cluster.
pub(crate) const ANY_NODE: &str = "any-node.quorate.internal";

impl ServerCertVerifier for NodeServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        let node = node_named_by(end_entity, &self.cluster).ok_or_else(wrong_node_error)?;
        let ServerName::DnsName(wanted) = server_name else {
            return Err(wrong_node_error());
        };
        let wanted = wanted.as_ref();
        let dialled = NodeName { cluster: self.cluster.clone(), node };
        if wanted == ANY_NODE || wanted == dialled.to_string() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(wrong_node_error())
        }
    }

    signatures_by!(signatures);
}

/// Returns a verifier that accepts any certificate of the given authorities.
pub(crate) fn chain_verifier_for(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| error.to_string())
}
