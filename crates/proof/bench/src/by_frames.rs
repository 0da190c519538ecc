//! Load from a client that sends frames to devices ([`quorate_frame_client`]). Commands due at the
//! same time share frames as far as they fit.

use std::{io, net::SocketAddr, time::Duration};

use quorate_frame_client::{FrameClient, Options, Outcome};

use crate::{
    generator::RunningLoad,
    load::{CommandOutcome, LoadDriver, LoadPlan},
    schedule::Nanos,
};

/// Connection index of all commands: to the load, the client is a single connection.
const ONLY_CONNECTION: usize = 0;
/// Maximum wait before the load checks for a stop request.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Starts a client on an interface, using the log service of the given nodes.
pub(crate) fn start(
    plan: LoadPlan,
    nodes: Vec<SocketAddr>,
    interface: String,
    value_bytes: usize,
) -> io::Result<RunningLoad> {
    let plan = LoadPlan { connections: 1, ..plan };
    RunningLoad::spawn(move |shared| {
        let opened = FrameClient::open(&nodes, &interface, Options::default());
        let mut client = opened.map_err(io::Error::other)?;
        let command = vec![b'x'; value_bytes];
        let fit = (1..).take_while(|count| client.batch_capacity(*count) >= count * value_bytes);
        let fit = fit.last().ok_or_else(|| {
            let room = client.batch_capacity(1);
            io::Error::other(format!("a frame has room for a value of {room} bytes at most"))
        })?;
        let started = shared.begin();
        let since = || Nanos::try_from(started.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        let mut load = LoadDriver::new(plan, 0);
        while !shared.is_stopped() && !load.is_over(since()) {
            let now = since();
            let mut due = 0;
            while load.take_due_command(now).is_some() {
                due += 1;
            }
            while due > 0 {
                let count = due.min(fit);
                let commands = std::iter::repeat_n(&command[..], count);
                let taken = client.submit(count as u64, commands);
                taken.map_err(|why| io::Error::other(format!("not taken: {why:?}")))?;
                due -= count;
            }
            let wait = Duration::from_nanos(load.next_wakeup().saturating_sub(since()));
            client.poll(wait.min(STOP_CHECK_INTERVAL)).map_err(io::Error::other)?;
            let now = since();
            while let Some(done) = client.take_completed() {
                let answer = match done.outcome {
                    Outcome::Executed(_) => CommandOutcome::Done,
                    Outcome::Unknown => CommandOutcome::Error(b"UNKNOWN"),
                };
                for _ in 0..done.tag {
                    load.handle_reply(now, ONLY_CONNECTION, answer);
                }
            }
            shared.publish_progress(load.completed());
        }
        Ok(load.finish())
    })
}
