//! Name resolution for peers. It runs outside the reactor, because a look-up may take seconds.

use std::{net::ToSocketAddrs, sync::Arc};

use quorate_core::node_id::NodeId;

use crate::handle::{Notification, ReactorMailbox, Resolved};

/// Looks up a name in a new thread and sends the result to the reactor's mailbox.
pub(crate) fn resolve(node: NodeId, name: String, shared: Arc<ReactorMailbox>) {
    let (worker, wanted) = (shared.clone(), name.clone());
    let spawned = std::thread::Builder::new().name("resolve".to_owned()).spawn(move || {
        let addresses = match name.to_socket_addrs() {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err(format!("cannot look up {name}: {error}")),
        };
        worker.send_notification(Notification::Resolved(Resolved { node, name, addresses }));
    });
    if let Err(error) = spawned {
        let addresses = Err(format!("cannot start a thread to look a name up: {error}"));
        shared.send_notification(Notification::Resolved(Resolved {
            node,
            name: wanted,
            addresses,
        }));
    }
}
