//! Small certificate authority for clusters that have none. It consists of one authority for nodes
//! and one for clients.
//!
//! Its folder contains the private keys of both, and stays with the operator. Files for nodes and
//! clients are created in separate folders, to be copied to their machines.

use std::{
    fs,
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use thiserror::Error;
use x509_parser::{parse_x509_certificate, pem::parse_x509_pem};

use crate::names::{ClientName, NodeName, is_label};

/// Tolerance for clock differences: certificates become valid this long before they are created.
const BACKDATING: Duration = Duration::from_secs(3600);
const DAY_S: u64 = 24 * 3600;
/// Prefix of an authority's common name, followed by the name of its cluster.
const NODES_NAME_PREFIX: &str = "Quorate nodes of ";
const CLIENTS_NAME_PREFIX: &str = "Quorate clients of ";

#[derive(Debug, Error)]
pub enum AuthorityError {
    /// The file exists already and must not be overwritten.
    #[error("{path} exists already", path = .0.display())]
    FileExists(PathBuf),
    /// The folder contains no authority created by this program.
    #[error("{path} holds no authority that 'quorate cert init' made: {why}", path = folder.display())]
    NoAuthority { folder: PathBuf, why: String },
    #[error("'{0}' cannot be a name: small letters, digits and dashes, at most 63")]
    BadName(String),
    #[error("'{0}' is no host: a DNS name or an IP address, without a port")]
    BadHost(String),
    #[error("cannot write {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot make a certificate: {0}")]
    CertificateFailed(String),
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> Self {
        Self::CertificateFailed(error.to_string())
    }
}

/// Creates both authorities of a cluster in an empty folder. With `renew`, adds new authorities
/// instead. The files then contain the old and the new certificates, so that both are trusted, and
/// only the new ones sign.
pub fn create_authorities(
    folder: &Path,
    cluster: &str,
    days: u32,
    renew: bool,
) -> Result<(), AuthorityError> {
    if !is_label(cluster) {
        return Err(AuthorityError::BadName(cluster.to_owned()));
    }
    create_folder(folder)?;
    for (file, of) in [("ca", NODES_NAME_PREFIX), ("clients-ca", CLIENTS_NAME_PREFIX)] {
        let (cert, key) = (folder.join(format!("{file}.crt")), folder.join(format!("{file}.key")));
        let mut before = String::new();
        if cert.exists() || key.exists() {
            if !renew {
                return Err(AuthorityError::FileExists(cert));
            }
            let known = read_cluster_name(folder, file, of)?;
            if known != cluster {
                let why = format!("it is that of {known}");
                return Err(no_authority(folder, why));
            }
            let text = fs::read_to_string(&cert).map_err(io_error_at(&cert))?;
            // Only the previous certificate is kept. It remains trusted until all certificates that
            // it signed have been renewed.
            before = first_certificate(&text).to_owned();
        }
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, format!("{of}{cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, days);
        let pair = KeyPair::generate()?;
        let made = params.self_signed(&pair)?;
        write(&key, pair.serialize_pem().as_bytes(), true)?;
        write(&cert, format!("{}{before}", made.pem()).as_bytes(), false)?;
    }
    Ok(())
}

fn first_certificate(text: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    let text = text.trim_start();
    text.find(END).map_or(text, |at| &text[..at + END.len()])
}

pub fn cluster_name(folder: &Path) -> Result<String, AuthorityError> {
    read_cluster_name(folder, "ca", NODES_NAME_PREFIX)
}

/// Creates the folder `node-N` with the files that one node needs. Clients may connect to the node
/// at `hosts`.
pub fn issue_node_certificates(
    folder: &Path,
    node: u32,
    hosts: &[String],
    days: u32,
    renew: bool,
) -> Result<PathBuf, AuthorityError> {
    let name = NodeName { cluster: cluster_name(folder)?, node };
    let own = folder.join(format!("node-{node}"));
    create_folder(&own)?;
    let peers = AuthoritySigner::open(folder, "ca", NODES_NAME_PREFIX)?;
    let clients = AuthoritySigner::open(folder, "clients-ca", CLIENTS_NAME_PREFIX)?;
    for host in hosts {
        if host.is_empty() || (host.parse::<IpAddr>().is_err() && host.contains([':', '/', ' '])) {
            return Err(AuthorityError::BadHost(host.clone()));
        }
    }
    let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let names = vec![name.to_string()];
    peers.issue_certificate(&own, "node", &name.to_string(), names.clone(), &both, days, renew)?;
    let names = [names, hosts.to_vec()].concat();
    let serves = [ExtendedKeyUsagePurpose::ServerAuth];
    clients.issue_certificate(&own, "server", &name.to_string(), names, &serves, days, renew)?;
    copy(folder, &own, "ca.crt")?;
    copy(folder, &own, "clients-ca.crt")?;
    Ok(own)
}

/// Creates the folder `client-NAME` with the files that a program or a person needs.
pub fn issue_client_certificate(
    folder: &Path,
    client: &str,
    days: u32,
    renew: bool,
) -> Result<PathBuf, AuthorityError> {
    if !is_label(client) {
        return Err(AuthorityError::BadName(client.to_owned()));
    }
    let name = ClientName { cluster: cluster_name(folder)?, client: client.to_owned() };
    let own = folder.join(format!("client-{client}"));
    create_folder(&own)?;
    let clients = AuthoritySigner::open(folder, "clients-ca", CLIENTS_NAME_PREFIX)?;
    let uses = [ExtendedKeyUsagePurpose::ClientAuth];
    clients.issue_certificate(
        &own,
        "client",
        client,
        vec![name.to_string()],
        &uses,
        days,
        renew,
    )?;
    copy(folder, &own, "clients-ca.crt")?;
    Ok(own)
}

/// One of the two authorities, with its private key.
struct AuthoritySigner(Issuer<'static, KeyPair>);

impl AuthoritySigner {
    fn open(folder: &Path, file: &str, of: &str) -> Result<Self, AuthorityError> {
        read_cluster_name(folder, file, of)?;
        let at = |end: &str| folder.join(format!("{file}.{end}"));
        let text = |path: &Path| {
            fs::read_to_string(path)
                .map_err(|error| no_authority(folder, format!("{}: {error}", path.display())))
        };
        let key = KeyPair::from_pem(&text(&at("key"))?);
        // The parser's error is omitted, because it might contain parts of the key.
        let key = key.map_err(|_| no_authority(folder, format!("{file}.key is no private key")))?;
        let certificate = text(&at("crt"))?;
        let issuer = Issuer::from_ca_cert_pem(first_certificate(&certificate), key);
        Ok(Self(issuer.map_err(|error| no_authority(folder, error.to_string()))?))
    }

    #[expect(clippy::too_many_arguments, reason = "one certificate, said once")]
    fn issue_certificate(
        &self,
        own: &Path,
        file: &str,
        name: &str,
        names: Vec<String>,
        uses: &[ExtendedKeyUsagePurpose],
        days: u32,
        renew: bool,
    ) -> Result<(), AuthorityError> {
        let (cert, key) = (own.join(format!("{file}.crt")), own.join(format!("{file}.key")));
        if cert.exists() && !renew {
            return Err(AuthorityError::FileExists(cert));
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = uses.to_vec();
        set_validity(&mut params, days);
        let pair = KeyPair::generate()?;
        let made = params.signed_by(&pair, &self.0)?;
        write(&key, pair.serialize_pem().as_bytes(), true)?;
        write(&cert, made.pem().as_bytes(), false)
    }
}

/// Sets the validity to `days` days from now.
fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATING);
    params.not_after = epoch + now + Duration::from_secs(u64::from(days) * DAY_S);
}

fn no_authority(folder: &Path, why: String) -> AuthorityError {
    AuthorityError::NoAuthority { folder: folder.to_owned(), why }
}

fn read_cluster_name(folder: &Path, file: &str, of: &str) -> Result<String, AuthorityError> {
    let path = folder.join(format!("{file}.crt"));
    let refuse = |why: String| no_authority(folder, why);
    let bytes = fs::read(&path).map_err(|error| refuse(format!("{}: {error}", path.display())))?;
    let (_, pem) =
        parse_x509_pem(&bytes).map_err(|error| refuse(format!("{file}.crt: {error}")))?;
    let (_, parsed) = parse_x509_certificate(&pem.contents)
        .map_err(|error| refuse(format!("{file}.crt: {error}")))?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next().and_then(|name| name.as_str().ok()).unwrap_or_default();
    let cluster = name.strip_prefix(of).filter(|cluster| is_label(cluster));
    Ok(cluster.ok_or_else(|| refuse(format!("{file}.crt is that of '{name}'")))?.to_owned())
}

fn io_error_at(path: &Path) -> impl FnOnce(io::Error) -> AuthorityError {
    |source| AuthorityError::Io { path: path.to_owned(), source }
}

fn create_folder(folder: &Path) -> Result<(), AuthorityError> {
    fs::create_dir_all(folder).map_err(io_error_at(folder))
}

fn copy(from: &Path, to: &Path, file: &str) -> Result<(), AuthorityError> {
    let bytes = fs::read(from.join(file)).map_err(io_error_at(&from.join(file)))?;
    write(&to.join(file), &bytes, false)
}

/// Replaces a file atomically, so that a node that reads it concurrently finds either the old or
/// the new contents.
fn write(path: &Path, bytes: &[u8], secret: bool) -> Result<(), AuthorityError> {
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.mode(if secret { 0o600 } else { 0o644 });
    let written = options.open(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, path)).map_err(io_error_at(path))
}
