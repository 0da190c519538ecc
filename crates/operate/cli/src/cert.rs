//! `quorate cert`: a small certificate authority for clusters that have none.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use quorate_tls::authority::{self, AuthorityError};
use serde::Serialize;

use crate::output::{Exit, Output, Problem};
use crate::values::{Number, Unit, node_argument};

/// Subcommands of `quorate cert`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Create the authorities of a cluster: one for nodes, one for clients
    Init(InitArgs),
    /// Create a node's certificates: a folder for its --tls
    Node(NodeArgs),
    /// Create a client certificate for a program or a person: a folder for --tls
    Client(ClientArgs),
}

/// Folder of the authorities and renewal, common to all subcommands.
#[derive(Args, Clone, Debug)]
struct Common {
    /// Folder of the authorities; anyone who has it can create certificates
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
    /// Replace an existing certificate; an authority keeps its previous certificate next to the new
    /// one, so that both are trusted
    #[arg(long)]
    renew: bool,
}

/// Arguments of `quorate cert init`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
quorate cert init --cluster orders
quorate cert node 1 --host 10.0.0.1 --host db1.example.com     copy certs/node-1 to node 1
quorate cert client ann                                        copy certs/client-ann to ann

Keep certs/ca.key and certs/clients-ca.key on this machine: anyone who has them can create certificates.
To replace the authorities: run 'init --renew', copy ca.crt and clients-ca.crt to all nodes, then run 'node --renew'
and 'client --renew'. Nodes read changed files within a second.")]
pub(crate) struct InitArgs {
    /// Name of the cluster in certificates: lower-case letters, digits and dashes
    #[arg(long, value_name = "NAME", default_value = "quorate")]
    cluster: String,
    /// Days until the authorities expire
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = Number::between(1, 36500, Unit::Count).argument::<u32>())]
    days: u32,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `quorate cert node`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArgs {
    /// Id of the node
    #[arg(value_parser = node_argument)]
    node: u32,
    /// Name or address at which clients and operators reach the node; may be repeated. localhost,
    /// 127.0.0.1 and ::1 are always included
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Days until the certificate expires
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = Number::between(1, 36500, Unit::Count).argument::<u32>())]
    days: u32,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `quorate cert client`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// Name of the client: lower-case letters, digits and dashes
    name: String,
    /// Days until the certificate expires
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = Number::between(1, 36500, Unit::Count).argument::<u32>())]
    days: u32,
    #[command(flatten)]
    common: Common,
}

/// Result of `quorate cert`: the folder with the new files, and their validity.
#[derive(Debug, Serialize)]
struct Made {
    folder: PathBuf,
    cluster: String,
    days: u32,
}

pub(crate) fn run(command: &CertCommand, output: Output) -> Result<Exit, Problem> {
    let (made, next) = match command {
        CertCommand::Init(InitArgs { cluster, days, common }) => {
            authority::create_authorities(&common.dir, cluster, *days, common.renew)
                .map_err(authority_problem)?;
            let dir = common.dir.clone();
            (report_created(dir, common, *days)?, "next: quorate cert node 1 --host HOST")
        }
        CertCommand::Node(NodeArgs { node, host, days, common }) => {
            let here = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
            let mut hosts = here.to_vec();
            hosts.extend(host.iter().filter(|host| !here.contains(host)).cloned());
            let own =
                authority::issue_node_certificates(&common.dir, *node, &hosts, *days, common.renew);
            (
                report_created(own.map_err(authority_problem)?, common, *days)?,
                "copy it to the node, and start the node with --tls DIR",
            )
        }
        CertCommand::Client(ClientArgs { name, days, common }) => {
            let own = authority::issue_client_certificate(&common.dir, name, *days, common.renew);
            (
                report_created(own.map_err(authority_problem)?, common, *days)?,
                "copy it to its user: quorate status --tls DIR, or redis-cli --tls with the three files",
            )
        }
    };
    output.print_result(&made, || {
        format!("{}  (cluster {}, {} days)\n{next}", made.folder.display(), made.cluster, made.days)
    });
    Ok(Exit::Done)
}

fn report_created(folder: PathBuf, common: &Common, days: u32) -> Result<Made, Problem> {
    Ok(Made {
        folder,
        cluster: authority::cluster_name(&common.dir).map_err(authority_problem)?,
        days,
    })
}

fn authority_problem(error: AuthorityError) -> Problem {
    let hint = match &error {
        AuthorityError::FileExists(_) => {
            "replace it with --renew, or use another --dir for another cluster"
        }
        AuthorityError::NoAuthority { .. } => {
            "create one with 'quorate cert init', or give its folder with --dir"
        }
        AuthorityError::BadName(_) => "such as orders or ann-2",
        AuthorityError::BadHost(_) => "such as 10.0.0.1 or db1.example.com",
        AuthorityError::Io { .. } => "choose a folder with --dir that you can write to",
        AuthorityError::CertificateFailed(_) => "",
    };
    let exit = match &error {
        AuthorityError::Io { .. } | AuthorityError::CertificateFailed(_) => Exit::Failed,
        _ => Exit::Usage,
    };
    Problem::new(exit, "cert", error).with_hint(hint)
}
