//! `quorate bench wan`: makes the emulated network, and lets bare programs find out what it carries.

use super::{args::WanArgs, grid::ceilings, publish, session::Session, wan};
use crate::output::{Exit, Problem};

/// Runs the command.
pub(super) fn run(args: &WanArgs) -> Result<Exit, Problem> {
    if let Some(why) = wan::enter()? {
        return publish::skip(&why, &args.files);
    }
    publish::check(&args.files)?;
    let session = Session::over(Some(args.profile.profile()))?;
    let mut document = publish::document();
    if let Some(network) = session.network() {
        document.ceilings.extend(ceilings(network.measure()?));
        document.notes.push(network.profile().to_string());
        let counts = network.counts();
        document.notes.push(format!(
            "the relay took {} packets of {} bytes and dropped {}",
            counts.packets, counts.bytes, counts.dropped
        ));
    }
    publish::publish(&document, &args.files)
}
