//! Notifies a service manager of readiness, status and watchdog signals over systemd's protocol
//! (`sd_notify`).
//!
//! Without a socket in the environment there is no manager, and all calls do nothing.

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
use quorate_log::ReadProgress;
use quorate_net::{Handle, Unanswered};

/// Environment variable with the path of the manager's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
const WATCHDOG_PID_VARIABLE: &str = "WATCHDOG_PID";
/// Start timeout to request from the manager whenever the start makes progress.
const START_EXTENSION: Duration = Duration::from_mins(2);
/// Interval at which notifications are repeated: progress of the start, then the node's status.
const REPEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Send timeout. A manager that does not read must not block the node.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the service manager, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct ServiceManager(Option<Arc<Connection>>);

#[derive(Debug)]
struct Connection {
    socket: UnixDatagram,
    /// Watchdog timeout set by the manager.
    watchdog_timeout: Option<Duration>,
    last_reported: Mutex<ReportedState>,
}

/// State most recently reported to the manager.
#[derive(Debug, Default)]
struct ReportedState {
    ready: bool,
    stopping: bool,
    status: String,
    last_alive_at: Option<Instant>,
}

impl ServiceManager {
    /// Connects to the manager named by the environment. If that fails, logs the failure and
    /// continues without a manager.
    pub(crate) fn from_environment() -> Self {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let Some(place) = variable(SOCKET_VARIABLE) else {
            return Self(None);
        };
        let patience = parse_watchdog_timeout(
            variable(WATCHDOG_VARIABLE).as_deref(),
            variable(WATCHDOG_PID_VARIABLE).as_deref(),
        );
        match connect(&place) {
            Ok(socket) => Self(Some(Arc::new(Connection {
                socket,
                watchdog_timeout: patience,
                last_reported: Mutex::default(),
            }))),
            Err(error) => {
                tracing::warn!(
                    "cannot notify the service manager: {SOCKET_VARIABLE}={place}: {error}"
                );
                Self(None)
            }
        }
    }

    /// Reports that the node is ready. The watchdog applies from now on.
    pub(crate) fn report_ready(&self) {
        self.send_message(|told| {
            let first = !told.ready;
            told.ready = true;
            told.last_alive_at = first.then(Instant::now).or(told.last_alive_at);
            first.then(|| "READY=1".to_owned())
        });
    }

    /// Reports the node's current activity.
    pub(crate) fn report_activity(&self, what: &str) {
        // A line break would end the message, because the protocol is line-based.
        let what: String =
            what.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        self.send_message(|told| {
            let new = told.status != what;
            new.then(|| {
                let text = format!("STATUS={what}");
                told.status = what;
                text
            })
        });
    }

    /// Reports how much of the log has been read.
    pub(crate) fn report_reading(&self, reading: ReadProgress) {
        if let (Some(_), Some(percent)) = (&self.0, (reading.read * 100).checked_div(reading.total))
        {
            self.report_activity(&format!("reading the log: {percent}%"));
            self.report_progress();
        }
    }

    /// Reports progress of the start or of the reactor. This extends the start timeout until the
    /// node is ready, and resets the watchdog afterwards.
    pub(crate) fn report_progress(&self) {
        let Some(way) = &self.0 else { return };
        self.send_message(|told| {
            let every = match (told.ready, way.watchdog_timeout) {
                (false, _) => REPEAT_INTERVAL,
                (true, Some(patience)) => patience / 3,
                (true, None) => return None,
            };
            let due = told.last_alive_at.is_none_or(|last| last.elapsed() >= every);
            due.then(|| {
                told.last_alive_at = Some(Instant::now());
                match told.ready {
                    true => "WATCHDOG=1".to_owned(),
                    false => format!("EXTEND_TIMEOUT_USEC={}", START_EXTENSION.as_micros()),
                }
            })
        });
    }

    /// Reports that the node is stopping.
    pub(crate) fn report_stopping(&self) {
        self.send_message(|told| {
            told.stopping = true;
            Some("STOPPING=1\nSTATUS=stopping: finishing accepted requests".to_owned())
        });
    }

    /// Starts a thread that polls the reactor and reports progress only after a response, so that
    /// the watchdog detects a hanging reactor.
    pub(crate) fn follow_reactor(&self, handle: Handle) -> io::Result<()> {
        let Some(way) = &self.0 else { return Ok(()) };
        let pause = way.watchdog_timeout.map_or(REPEAT_INTERVAL, |patience| patience / 3);
        let pause = pause.min(REPEAT_INTERVAL);
        let manager = self.clone();
        let ask = move || {
            loop {
                match handle.status() {
                    Ok(status) => {
                        manager.report_progress();
                        manager.report_activity(&status_line(&status));
                    }
                    Err(Unanswered::Stopped) => return,
                    Err(Unanswered::Busy | Unanswered::TimedOut) => {}
                }
                thread::sleep(pause);
            }
        };
        thread::Builder::new().name("manager".to_owned()).spawn(ask).map(drop)
    }

    /// Sends the message returned by `say`, unless the node is stopping.
    fn send_message(&self, say: impl FnOnce(&mut ReportedState) -> Option<String>) {
        let Some(way) = &self.0 else { return };
        let mut told = way.lock();
        if told.stopping {
            return;
        }
        if let Some(text) = say(&mut told) {
            // Ignore errors: the manager may have exited, or may not be reading.
            let _ = way.socket.send(text.as_bytes());
        }
    }
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, ReportedState> {
        self.last_reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to the socket at a path. A name that begins with `@` denotes an abstract socket.
fn connect(place: &str) -> io::Result<UnixDatagram> {
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

/// Returns the watchdog timeout, if the manager has set one for this process.
fn parse_watchdog_timeout(microseconds: Option<&str>, process: Option<&str>) -> Option<Duration> {
    let other = process.is_some_and(|id| id.parse() != Ok(process::id()));
    let microseconds = microseconds?.parse().ok().filter(|number| *number > 0)?;
    (!other).then(|| Duration::from_micros(microseconds))
}

/// Returns the line that `systemctl status` shows for a running node.
fn status_line(status: &Status) -> String {
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
    fn watchdog_of_another_process_is_ignored() {
        let own = process::id().to_string();
        let ms = |text, process| {
            parse_watchdog_timeout(text, process).map(|patience| patience.as_millis())
        };
        assert_eq!(ms(Some("30000000"), None), Some(30_000));
        assert_eq!(ms(Some("30000000"), Some(&own)), Some(30_000));
        assert_eq!(ms(Some("30000000"), Some("1")), None);
        assert_eq!(ms(Some("30000000"), Some("me")), None);
        assert_eq!(ms(Some("0"), None), None);
        assert_eq!(ms(Some("soon"), None), None);
        assert_eq!(ms(None, Some(&own)), None);
    }
}
