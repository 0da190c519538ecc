//! Keeping leases alive: whatever is asked for while one command is under way goes into the next one.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::{
    asking::{Asking, patiently},
    errors,
};
use crate::command::{Command, KeptAlive, Lasting};

/// Leases in one command.
const IDS_MAX: usize = 1000;
/// Those that wait for the next one; others wait in their streams.
const WAITING_MAX: usize = 4096;

/// A lease that was kept alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) id: i64,
    /// Seconds; 0: there is no such lease.
    pub(super) ttl: i64,
    pub(super) revision: i64,
}

/// One that is to be.
#[derive(Debug)]
pub(super) struct Wanted {
    id: i64,
    tell: oneshot::Sender<Result<Kept, Status>>,
}

/// Whom to ask.
#[derive(Clone, Debug)]
pub(super) struct Keeper(mpsc::Sender<Wanted>);

/// Both ends.
pub(super) fn keeper() -> (Keeper, mpsc::Receiver<Wanted>) {
    let (ask, asked) = mpsc::channel(WAITING_MAX);
    (Keeper(ask), asked)
}

impl Keeper {
    /// Has a lease kept alive; what becomes of it is still to come.
    pub(super) async fn keep(
        &self,
        id: i64,
    ) -> Result<oneshot::Receiver<Result<Kept, Status>>, Status> {
        let (tell, told) = oneshot::channel();
        let sent = self.0.send(Wanted { id, tell }).await;
        sent.map_err(|_| errors::stopped())?;
        Ok(told)
    }
}

/// Keeps alive what is asked for.
pub(super) async fn run(asking: Arc<Asking>, mut asked: mpsc::Receiver<Wanted>) {
    let mut all = Vec::new();
    while asked.recv_many(&mut all, IDS_MAX).await > 0 {
        let ids: Vec<i64> = all.iter().map(|wanted| wanted.id).collect();
        let lasting = patiently(|| {
            let ids = ids.clone();
            asking
                .execute_at::<Lasting>(move |now_ms| Command::KeepAlive(KeptAlive { ids, now_ms }))
        });
        let lasting = lasting.await;
        for (at, Wanted { id, tell }) in all.drain(..).enumerate() {
            let kept = match &lasting {
                Ok((lasting, _)) => Ok(Kept {
                    id,
                    ttl: lasting.ttls.get(at).copied().unwrap_or(0),
                    revision: lasting.revision,
                }),
                Err(status) => Err(status.clone()),
            };
            // Who gave up does not concern the others.
            drop(tell.send(kept));
        }
    }
}
