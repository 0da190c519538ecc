//! How nodes are to speak with each other.

use std::path::Path;

use quorate_net::plane::{BadKeys, KeyFile, Wanted};
use quorate_replica::status::Way;

use super::{layers::Layers, parse_switch};
use crate::output::{Exit, Problem};

/// What is said of planes.
pub(super) fn resolve(layers: &Layers<'_>) -> Result<Wanted, Problem> {
    let file = layers.optional("plane-key", "a path", |text| {
        (!text.is_empty()).then(|| text.to_owned())
    })?;
    let keys = file.map(|file| KeyFile::read(Path::new(&file)));
    let wanted = Wanted {
        way: layers.required("plane", "tcp, udp, multicast or ethernet", Way::named)?,
        interface: layers.optional("plane-interface", "the name of an interface", |text| {
            (!text.is_empty()).then(|| text.to_owned())
        })?,
        group: layers.optional("plane-group", "ADDRESS:PORT", |text| text.parse().ok())?,
        keys: keys.transpose().map_err(bad_keys)?,
        trusted: layers
            .optional("plane-trusted", "on or off", parse_switch)?
            .unwrap_or_default(),
    };
    if wanted.keys.is_some() && wanted.trusted {
        return Err(
            Problem::usage("--plane-key and --plane-trusted exclude each other")
                .hint("with a key nobody needs to be trusted"),
        );
    }
    Ok(wanted)
}

fn bad_keys(error: BadKeys) -> Problem {
    let hint = error.hint();
    Problem::new(Exit::Usage, "plane_key", error).hint(hint)
}
