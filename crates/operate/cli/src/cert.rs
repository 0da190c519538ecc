//! `quorate cert`: a small authority for those who have none.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use quorate_tls::authority::{self, AuthorityError};
use serde::Serialize;

use crate::output::{Exit, Output, Problem};

/// What is to be made.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Make the authorities of a cluster: one for nodes, one for clients
    Init(InitArgs),
    /// Make what a node needs: a folder for its --tls
    Node(NodeArgs),
    /// Make what a program or a person needs: a folder for --tls of every command
    Client(ClientArgs),
}

/// Where, and for how long.
#[derive(Args, Clone, Debug)]
struct Common {
    /// The folder of the authorities; whoever has it can make certificates
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
    /// Make it again although it is there: authorities keep their last certificate beside the new one, so that both
    /// are trusted
    #[arg(long)]
    renew: bool,
}

/// Flags.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
quorate cert init --cluster orders
quorate cert node 1 --host 10.0.0.1 --host db1.example.com     copy certs/node-1 to node 1
quorate cert client ann                                        copy certs/client-ann to ann

certs/ca.key and certs/clients-ca.key stay where you are: who has them can become a node.
To exchange authorities: init --renew, copy the two authority files to all nodes, then node --renew and
client --renew. Nodes read what changed within a second.")]
pub(crate) struct InitArgs {
    /// What the cluster is called in certificates: small letters, digits and dashes
    #[arg(long, value_name = "NAME", default_value = "quorate")]
    cluster: String,
    /// Days until the authorities end
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
    #[command(flatten)]
    common: Common,
}

/// Flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArgs {
    /// The node's id
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    node: u32,
    /// A name or address at which clients and operators reach it; may be given again. localhost, 127.0.0.1 and ::1 are
    /// always among them
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Days until it ends
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
    #[command(flatten)]
    common: Common,
}

/// Flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// What it is called: small letters, digits and dashes
    name: String,
    /// Days until it ends
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
    #[command(flatten)]
    common: Common,
}

/// What was made.
#[derive(Debug, Serialize)]
struct Made {
    folder: PathBuf,
    cluster: String,
    days: u32,
}

/// Runs the command.
pub(crate) fn run(command: &CertCommand, output: Output) -> Result<Exit, Problem> {
    let (made, next) = match command {
        CertCommand::Init(InitArgs {
            cluster,
            days,
            common,
        }) => {
            authority::init(&common.dir, cluster, *days, common.renew).map_err(problem)?;
            let dir = common.dir.clone();
            (
                made(dir, common, *days)?,
                "next: quorate cert node 1 --host HOST",
            )
        }
        CertCommand::Node(NodeArgs {
            node,
            host,
            days,
            common,
        }) => {
            let here = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
            let mut hosts = here.to_vec();
            hosts.extend(host.iter().filter(|host| !here.contains(host)).cloned());
            let own = authority::node(&common.dir, *node, &hosts, *days, common.renew);
            (
                made(own.map_err(problem)?, common, *days)?,
                "copy it to the node, and start that with --tls and the folder",
            )
        }
        CertCommand::Client(ClientArgs { name, days, common }) => {
            let own = authority::client(&common.dir, name, *days, common.renew);
            (
                made(own.map_err(problem)?, common, *days)?,
                "copy it to who needs it: quorate status --tls FOLDER; redis-cli --tls with the three files",
            )
        }
    };
    output.result(&made, || {
        format!(
            "{}  (cluster {}, {} days)\n{next}",
            made.folder.display(),
            made.cluster,
            made.days
        )
    });
    Ok(Exit::Done)
}

fn made(folder: PathBuf, common: &Common, days: u32) -> Result<Made, Problem> {
    Ok(Made {
        folder,
        cluster: authority::cluster(&common.dir).map_err(problem)?,
        days,
    })
}

fn problem(error: AuthorityError) -> Problem {
    let hint = match &error {
        AuthorityError::Exists(_) => "--renew makes it again; another --dir is for another cluster",
        AuthorityError::NoAuthority { .. } => {
            "'quorate cert init' makes one; --dir says where it is"
        }
        AuthorityError::BadName(_) => "such as orders or ann-2",
        AuthorityError::BadHost(_) => "such as 10.0.0.1 or db1.example.com",
        AuthorityError::Io { .. } => "choose a folder with --dir that you can write to",
        AuthorityError::Make(_) => "",
    };
    let exit = match &error {
        AuthorityError::Io { .. } | AuthorityError::Make(_) => Exit::Failed,
        _ => Exit::Usage,
    };
    Problem::new(exit, "cert", error).hint(hint)
}
