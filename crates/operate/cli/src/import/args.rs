//! Arguments of `quorate import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{addresses::address_argument, config::DEFAULT_CLIENT};

/// Treatment of keys that the cluster already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Existing {
    /// Write nothing if there are any
    Refuse,
    /// Keep them as they are
    Skip,
    /// Overwrite them
    Replace,
}

/// Arguments of `quorate import`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
quorate import dump.rdb --dry-run          what would be written, and what cannot be
quorate import dump.rdb                    stops before the first write if a key exists
quorate import dump.rdb --existing skip    continues an import that was interrupted
quorate import redis://10.0.0.9:6379       copies a running server

Each key is written at once, with its expiry, or not at all. From a server, changes made at the source \
after its copy began are not included: stop its writers before, or import again with --existing \
replace.")]
pub(crate) struct ImportArgs {
    /// RDB file of Redis or Valkey, as written by SAVE or BGSAVE, or a running server as
    /// redis://[USER[:PASSWORD]@]HOST[:PORT], of which one full copy is taken
    #[arg(value_name = "FILE|URL")]
    pub(crate) file: PathBuf,
    /// File with the password of the server, or `-` for standard input; without it,
    /// QUORATE_SOURCE_PASSWORD is used
    #[arg(long, value_name = "FILE")]
    pub(crate) source_password_file: Option<PathBuf>,
    /// Client addresses of one or more nodes; the next one is tried when one does not answer
    #[arg(long, visible_alias = "to", env = "QUORATE_CLIENT", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_CLIENT, value_parser = address_argument)]
    pub(crate) client: Vec<String>,
    /// Database of the file to import; the cluster has one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) database: u64,
    /// Keys that the cluster already has
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Existing::Refuse)]
    pub(crate) existing: Existing,
    /// Import the rest, leaving out what cannot be taken over
    #[arg(long)]
    pub(crate) skip_unsupported: bool,
    /// Only show what would be written and what cannot be
    #[arg(long)]
    pub(crate) dry_run: bool,
}
