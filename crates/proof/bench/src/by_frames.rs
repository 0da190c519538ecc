//! Load from a client that sends frames to devices ([`quorate_frame_client`]). Commands due at the
//! same time share frames as far as they fit.

use std::{io, net::SocketAddr, time::Duration};

use quorate_frame_client::{FrameClient, Options, Outcome};

use crate::{
    generator::RunningLoad,
    load::{Answer, Load, Plan},
    schedule::Nanos,
};

/// Connection index of all commands: to the load, the client is a single connection.
const ONLY: usize = 0;
/// Maximum wait before the load checks for a stop request.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Starts a client on an interface, using the log service of the given nodes.
pub(crate) fn start(
    plan: Plan,
    nodes: Vec<SocketAddr>,
    interface: String,
    value_bytes: usize,
) -> io::Result<RunningLoad> {
    let plan = Plan { connections: 1, ..plan };
    RunningLoad::spawn(move |shared| {
        let opened = FrameClient::open(&nodes, &interface, Options::default());
        let mut client = opened.map_err(io::Error::other)?;
        let command = vec![b'x'; value_bytes];
        let fit = (1..).take_while(|count| client.room(*count) >= count * value_bytes);
        let fit = fit.last().ok_or_else(|| {
            let room = client.room(1);
            io::Error::other(format!("a frame has room for a value of {room} bytes at most"))
        })?;
        let started = shared.begin();
        let since = || Nanos::try_from(started.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        let mut load = Load::new(plan, 0);
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
            client.turn(wait.min(WAIT_MAX)).map_err(io::Error::other)?;
            let now = since();
            while let Some(done) = client.take_done() {
                let answer = match done.outcome {
                    Outcome::Executed(_) => Answer::Done,
                    Outcome::Unknown => Answer::Error(b"UNKNOWN"),
                };
                for _ in 0..done.tag {
                    load.replied(now, ONLY, answer);
                }
            }
            shared.publish_progress(load.completed());
        }
        Ok(load.finish())
    })
}
