//! Notifications to a service manager by systemd's protocol (`sd_notify`): that the node is ready,
//! its status, that it is alive.
//!
//! A node whose environment names no socket has no manager; then nothing here does anything.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use quorate::{NodeId, Status};
use quorate_core::effect::Role;
use quorate_log::Reading;
use quorate_net::{Handle, Unanswered};

use crate::output::progress;

/// The variables of the protocol.
const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_OF: &str = "WATCHDOG_PID";
/// Time within which a starting node has made progress, or reported that it waits.
const EXTENSION: Duration = Duration::from_mins(2);
/// Interval of equal lines: that it starts, and what the node is.
const EVERY: Duration = Duration::from_secs(5);
/// Longest wait for a manager that reads nothing, which must not block a node.
const SEND_WAIT: Duration = Duration::from_secs(5);

/// The way to the service manager.
#[derive(Clone, Debug)]
pub(crate) struct Manager(Option<Arc<Way>>);

#[derive(Debug)]
struct Way {
    socket: UnixDatagram,
    /// Time the manager waits for a sign of life of the node.
    patience: Option<Duration>,
    told: Mutex<Told>,
}

/// State reported to the manager.
#[derive(Debug, Default)]
struct Told {
    ready: bool,
    stopping: bool,
    status: String,
    alive: Option<Instant>,
}

impl Manager {
    /// Connects to the manager named by the environment. If it cannot be reached, this is logged,
    /// and the node does without it.
    pub(crate) fn of_environment() -> Self {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let Some(place) = variable(SOCKET) else {
            return Self(None);
        };
        let patience = patience(variable(WATCHDOG).as_deref(), variable(WATCHDOG_OF).as_deref());
        match connect(&place) {
            Ok(socket) => Self(Some(Arc::new(Way { socket, patience, told: Mutex::default() }))),
            Err(error) => {
                progress(&format!("cannot notify the service manager: {SOCKET}={place}: {error}"));
                Self(None)
            }
        }
    }

    /// The node listens, or runs. From now on it must say that it turns.
    pub(crate) fn ready(&self) {
        self.tell(|told| {
            let first = !told.ready;
            told.ready = true;
            told.alive = first.then(Instant::now).or(told.alive);
            first.then(|| "READY=1".to_owned())
        });
    }

    /// Reports the current activity.
    pub(crate) fn does(&self, what: &str) {
        // It is a line of the protocol.
        let what: String =
            what.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        self.tell(|told| {
            let new = told.status != what;
            new.then(|| {
                let text = format!("STATUS={what}");
                told.status = what;
                text
            })
        });
    }

    /// Reports how much of the log is read.
    pub(crate) fn reads(&self, reading: Reading) {
        if let (Some(_), Some(percent)) = (&self.0, (reading.read * 100).checked_div(reading.of)) {
            self.does(&format!("reading the log: {percent}%"));
            self.turns();
        }
    }

    /// Said by what must not stand still, whenever it has gone on: the start, and then the reactor.
    /// A start gets more time by it, and a node that is ready stays alive.
    pub(crate) fn turns(&self) {
        let Some(way) = &self.0 else { return };
        self.tell(|told| {
            let every = match (told.ready, way.patience) {
                (false, _) => EVERY,
                (true, Some(patience)) => patience / 3,
                (true, None) => return None,
            };
            let due = told.alive.is_none_or(|last| last.elapsed() >= every);
            due.then(|| {
                told.alive = Some(Instant::now());
                match told.ready {
                    true => "WATCHDOG=1".to_owned(),
                    false => format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()),
                }
            })
        });
    }

    /// Reports that the node is stopping.
    pub(crate) fn stopping(&self) {
        self.tell(|told| {
            told.stopping = true;
            Some("STOPPING=1\nSTATUS=stopping: finishing accepted requests".to_owned())
        });
    }

    /// Asks the reactor all the time, in a thread of its own, and says that the node turns only
    /// when there was an answer. A thread that said so by itself would do it for a reactor that
    /// hangs, too.
    pub(crate) fn follow(&self, handle: Handle) -> io::Result<()> {
        let Some(way) = &self.0 else { return Ok(()) };
        let pause = way.patience.map_or(EVERY, |patience| patience / 3);
        let pause = pause.min(EVERY);
        let manager = self.clone();
        let ask = move || {
            loop {
                match handle.status() {
                    Ok(status) => {
                        manager.turns();
                        manager.does(&in_brief(&status));
                    }
                    Err(Unanswered::Stopped) => return,
                    Err(Unanswered::Busy | Unanswered::TimedOut) => {}
                }
                thread::sleep(pause);
            }
        };
        thread::Builder::new().name("manager".to_owned()).spawn(ask).map(drop)
    }

    /// Sends what there is to be said of what is known; nothing once the node stops.
    fn tell(&self, say: impl FnOnce(&mut Told) -> Option<String>) {
        let Some(way) = &self.0 else { return };
        let mut told = way.lock();
        if told.stopping {
            return;
        }
        if let Some(text) = say(&mut told) {
            // A manager that is gone, or does not read, cannot be notified.
            let _ = way.socket.send(text.as_bytes());
        }
    }
}

impl Way {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A path, or a name in the kernel's own space, which begins with `@`.
fn connect(place: &str) -> io::Result<UnixDatagram> {
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(SEND_WAIT))?;
    Ok(socket)
}

/// Returns the manager's watchdog timeout for this process; `None` if there is none, or it is meant
/// for another process.
fn patience(microseconds: Option<&str>, process: Option<&str>) -> Option<Duration> {
    let other = process.is_some_and(|id| id.parse() != Ok(process::id()));
    let microseconds = microseconds?.parse().ok().filter(|number| *number > 0)?;
    (!other).then(|| Duration::from_micros(microseconds))
}

/// Returns the line that `systemctl status` shows of a running node.
fn in_brief(status: &Status) -> String {
    let NodeId(node) = status.member.node;
    let role = match (status.role, status.leader) {
        (Role::Leader, _) => "leads".to_owned(),
        (_, Some(leader)) => format!("follows node {leader}"),
        (_, None) => "knows no leader".to_owned(),
    };
    let trouble = status.error.iter().map(|error| format!("; {error}"));
    let trouble: String = trouble.collect();
    format!("node {node} {role}{trouble}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_of_another_process_or_none_is_none() {
        let own = process::id().to_string();
        let ms = |text, process| patience(text, process).map(|patience| patience.as_millis());
        assert_eq!(ms(Some("30000000"), None), Some(30_000));
        assert_eq!(ms(Some("30000000"), Some(&own)), Some(30_000));
        assert_eq!(ms(Some("30000000"), Some("1")), None);
        assert_eq!(ms(Some("30000000"), Some("me")), None);
        assert_eq!(ms(Some("0"), None), None);
        assert_eq!(ms(Some("soon"), None), None);
        assert_eq!(ms(None, Some(&own)), None);
    }
}
