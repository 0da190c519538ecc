//! State shown on the demo's page, and the requests sent by its buttons.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    client,
    server::page::{self, ButtonRefusal},
    view::{DeviceView, NodeView},
};
use quorate_client::{Client, Error, Options, Reply};
use serde::{Deserialize, Serialize};

use super::{
    load::{self, Figures},
    parts::{self, DeviceKind, Part, Parts, Works},
};

/// Interval between polls of a node.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// Timeout for a request to a node.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(300);
/// Maximum age of a node's status to be shown as current.
const STATUS_AGE_MAX: Duration = Duration::from_millis(1500);
/// Timeout for a key operation from the page.
const KEY_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum length of a key in bytes.
const KEY_BYTES_MAX: usize = 100;
const VALUE_BYTES_MAX: usize = 1000;
/// Number of events shown.
const SHOWN_EVENTS_MAX: usize = 40;

/// Request sent by a button.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, tag = "ask", rename_all = "snake_case")]
pub(super) enum Ask {
    Fail {
        part: Part,
        /// Node that the part belongs to.
        node: u32,
    },
    Restore {
        part: Part,
        /// Node that the part belongs to.
        node: u32,
    },
    /// Makes a node the leader.
    Lead {
        /// Node that becomes the leader.
        node: u32,
    },
    /// Writes a key.
    Set { key: String, value: String },
    /// Reads a key.
    Get { key: String },
}

/// Action that the demo's main thread executes. Actions run in the order of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceAction {
    Fail(Part, u32),
    Restore(Part, u32),
    Lead(u32),
}

/// Response to a button's request.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ButtonReply {
    /// Message shown to the viewer.
    said: String,
    /// Value of the key that was read. Null if the key is absent.
    value: Option<String>,
    /// Duration of the key operation in microseconds.
    us: u64,
}

/// Phase of the demo, as shown on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Running,
    /// All parts are being restored and the nodes compared.
    Ending,
    Over,
}

/// Kind of an event, which determines how the page shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A part has failed.
    Fail,
    /// A part has been restored.
    Restore,
    Note,
}

/// An event shown on the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Event {
    number: u64,
    ms: u64,
    kind: Kind,
    text: String,
}

/// Part of the page's state that the demo's main thread writes.
#[derive(Debug)]
pub(super) struct StageState {
    pub(super) phase: Phase,
    /// Description of the action in progress, if any.
    pub(super) busy: Option<String>,
    pub(super) working_parts: [Works; 3],
    pub(super) failures: u64,
    /// Number of acknowledged writes lost, according to the final comparison.
    pub(super) lost_at_end: Option<u64>,
    events: VecDeque<Event>,
    event_count: u64,
}

/// A document with which the page is updated.
#[derive(Serialize)]
pub(super) struct Shown {
    phase: Phase,
    busy: Option<String>,
    elapsed_ms: u64,
    /// Set if each node has a separate network. Otherwise `why_not` gives the reason.
    own_networks: bool,
    why_not: Option<String>,
    failures: u64,
    lost_at_end: Option<u64>,
    leader: Option<u32>,
    nodes: Vec<Node>,
    load: Figures,
    events: Vec<Event>,
}

/// A node as shown on the page: its reported state and its working parts.
#[derive(Serialize)]
struct Node {
    node: u32,
    wanted: DeviceKind,
    works: Works,
    /// Set if the node responded recently. The following fields come from that response.
    answers: bool,
    role: Option<String>,
    ballot: Option<String>,
    decided: Option<u64>,
    applied: Option<u64>,
    durable: Option<u64>,
    store: Option<String>,
    device: Option<Device>,
    error: Option<String>,
}

/// A device as reported by its node.
#[derive(Serialize)]
struct Device {
    kind: String,
    name: String,
    used: bool,
    votes_in: Option<String>,
    gives_out_slots: bool,
    votes: u64,
    given: u64,
    why: Option<String>,
}

impl Device {
    fn new(view: &DeviceView) -> Self {
        Self {
            kind: view.kind.clone(),
            name: view.name.clone(),
            used: view.used,
            votes_in: view.armed.clone(),
            gives_out_slots: view.gives_from.is_some(),
            votes: view.votes,
            given: view.given,
            why: view.why.clone(),
        }
    }
}

/// Last status of a node, and the time at which it arrived.
type LastStatus = Option<(Instant, Box<NodeView>)>;

/// State shared by the main thread, the polling threads and the page's server.
pub(super) struct Board {
    started_at: Instant,
    own_networks: bool,
    no_networks_reason: Option<String>,
    client_addresses: Vec<String>,
    device_kinds: [DeviceKind; 3],
    stage: Mutex<StageState>,
    last_statuses: [Mutex<LastStatus>; 3],
    load: Arc<load::Observations>,
    action_queue: SyncSender<DeviceAction>,
    is_over: AtomicBool,
    /// Set if a viewer has seen the final result.
    is_end_seen: AtomicBool,
    /// Time of the page's last request for its state.
    last_page_request_at: Mutex<Option<Instant>>,
}

impl Board {
    pub(super) fn new(
        parts: &Parts,
        why_not: Option<String>,
        clients: Vec<String>,
        load: Arc<load::Observations>,
        acts: SyncSender<DeviceAction>,
    ) -> Self {
        let stage = StageState {
            phase: Phase::Running,
            busy: None,
            working_parts: parts.working_parts(),
            failures: 0,
            lost_at_end: None,
            events: VecDeque::new(),
            event_count: 0,
        };
        Self {
            started_at: Instant::now(),
            own_networks: why_not.is_none(),
            no_networks_reason: why_not,
            client_addresses: clients,
            device_kinds: parts.device_kinds(),
            stage: Mutex::new(stage),
            last_statuses: Default::default(),
            load,
            action_queue: acts,
            is_over: AtomicBool::new(false),
            is_end_seen: AtomicBool::new(false),
            last_page_request_at: Mutex::default(),
        }
    }

    /// Starts one thread per node that polls the node's status until the demo ends.
    pub(super) fn start_polling(self: &Arc<Self>, admins: Vec<String>) {
        for (at, admin) in admins.into_iter().enumerate().take(self.last_statuses.len()) {
            let board = Arc::clone(self);
            thread::spawn(move || {
                while !board.is_over.load(Ordering::SeqCst) {
                    if let Some(view) = query_status(&admin) {
                        *lock(&board.last_statuses[at]) = Some((Instant::now(), Box::new(view)));
                    }
                    thread::sleep(POLL_INTERVAL);
                }
            });
        }
    }

    pub(super) fn lock_stage(&self) -> MutexGuard<'_, StageState> {
        lock(&self.stage)
    }

    /// Adds an event to the page.
    pub(super) fn add_event(&self, kind: Kind, text: &str) {
        let ms = self.elapsed_ms();
        let mut stage = self.lock_stage();
        stage.event_count += 1;
        let number = stage.event_count;
        stage.events.push_back(Event { number, ms, kind, text: text.to_owned() });
        while stage.events.len() > SHOWN_EVENTS_MAX {
            stage.events.pop_front();
        }
    }

    /// Returns the leader in the highest ballot reported recently, if that node is running.
    pub(super) fn reported_leader(&self) -> Option<u32> {
        let works = self.lock_stage().working_parts;
        let views = self.last_statuses.iter().filter_map(fresh_status);
        let claims = views.filter_map(|view| Some((view.ballot, view.leader?)));
        let (_, leader) = claims.max_by_key(|(ballot, _)| *ballot)?;
        let mut all = parts::ALL_NODES.iter().zip(works);
        all.any(|(node, works)| *node == leader && works.node).then_some(leader)
    }

    /// Stops polling. If a browser shows the page, waits until it has shown the result.
    pub(super) fn end_polling(&self, patience: Duration) {
        self.is_over.store(true, Ordering::SeqCst);
        let until = Instant::now() + patience;
        let watched = lock(&self.last_page_request_at).is_some_and(|at| at.elapsed() < patience);
        while watched && !self.is_end_seen.load(Ordering::SeqCst) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn shown_node(&self, at: usize, works: Works) -> Node {
        let view =
            if works.node { self.last_statuses.get(at).and_then(fresh_status) } else { None };
        let view = view.as_deref();
        Node {
            node: parts::ALL_NODES[at],
            wanted: self.device_kinds[at],
            works,
            answers: view.is_some(),
            role: view.map(|view| view.role.clone()),
            ballot: view.map(|view| {
                let ballot = &view.ballot;
                format!("{}.{}.{}", ballot.era, ballot.round, ballot.node)
            }),
            decided: view.map(|view| view.decided),
            applied: view.map(|view| view.applied),
            durable: view.map(|view| view.durable),
            store: view.map(|view| view.store.clone()),
            device: view.and_then(|view| view.device.as_ref().map(Device::new)),
            error: view.and_then(|view| view.error.clone()),
        }
    }

    /// Queues an action, or refuses it if it is impossible in the current state.
    fn queue_action(&self, act: DeviceAction) -> Result<ButtonReply, ButtonRefusal> {
        let leader = self.reported_leader();
        let stage = self.lock_stage();
        if stage.phase != Phase::Running {
            return Err(button_refusal("over", "the demo is ending"));
        }
        let obstacle = match act {
            DeviceAction::Fail(part, node) => {
                parts::action_obstacle(stage.working_parts, part, node, true)
            }
            DeviceAction::Restore(part, node) => {
                parts::action_obstacle(stage.working_parts, part, node, false)
            }
            DeviceAction::Lead(_) if leader.is_none() => Some("no leader now".to_owned()),
            DeviceAction::Lead(node) => {
                parts::action_obstacle(stage.working_parts, Part::Node, node, true)
            }
        };
        if let Some(why) = obstacle {
            return Err(button_refusal("not_now", why));
        }
        match self.action_queue.try_send(act) {
            Ok(()) => {
                Ok(ButtonReply { said: "it is being done".to_owned(), ..ButtonReply::default() })
            }
            Err(TrySendError::Full(_)) => {
                Err(button_refusal("busy", "too much is being done already"))
            }
            Err(TrySendError::Disconnected(_)) => Err(button_refusal("over", "the demo has ended")),
        }
    }

    /// Runs a client command through any node. Returns the reply and its latency in microseconds.
    fn key(
        &self,
        command: impl FnOnce(&mut Client) -> Result<Reply, Error>,
    ) -> Result<(Reply, u64), ButtonRefusal> {
        let options = Options {
            command_timeout: KEY_TIMEOUT,
            attempt_timeout: Duration::from_secs(1),
            ..Options::default()
        };
        let begun = Instant::now();
        let reply = command(&mut Client::new(&self.client_addresses, options));
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        match reply {
            Ok(reply) => Ok((reply, us)),
            Err(error) => Err(button_refusal("no_answer", error)),
        }
    }
}

impl page::PageBoard for Board {
    type PageState = Shown;
    type ButtonRequest = Ask;
    type Outcome = ButtonReply;

    fn page_state(&self) -> Shown {
        *lock(&self.last_page_request_at) = Some(Instant::now());
        let leader = self.reported_leader();
        let load = self.load.figures();
        let stage = self.lock_stage();
        if stage.phase == Phase::Over {
            self.is_end_seen.store(true, Ordering::SeqCst);
        }
        let nodes = stage.working_parts.into_iter().enumerate();
        Shown {
            phase: stage.phase,
            busy: stage.busy.clone(),
            elapsed_ms: self.elapsed_ms(),
            own_networks: self.own_networks,
            why_not: self.no_networks_reason.clone(),
            failures: stage.failures,
            lost_at_end: stage.lost_at_end,
            leader,
            nodes: nodes.map(|(at, works)| self.shown_node(at, works)).collect(),
            load,
            events: stage.events.iter().cloned().collect(),
        }
    }

    fn execute_button(&self, ask: Ask) -> Result<ButtonReply, ButtonRefusal> {
        match ask {
            Ask::Fail { part, node } => self.queue_action(DeviceAction::Fail(part, node)),
            Ask::Restore { part, node } => self.queue_action(DeviceAction::Restore(part, node)),
            Ask::Lead { node } => self.queue_action(DeviceAction::Lead(node)),
            Ask::Set { key, value } => {
                check_key_and_value(&key, &value)?;
                let words: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
                let (_, us) = self.key(|client| client.run(&words))?;
                Ok(ButtonReply { said: "stored at a majority".to_owned(), value: Some(value), us })
            }
            Ask::Get { key } => {
                check_key_and_value(&key, "")?;
                let (reply, us) = self.key(|client| client.read(&[b"GET", key.as_bytes()]))?;
                let value = reply.bytes();
                let value = value.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                let said = match value {
                    Some(_) => "read",
                    None => "there is no such key",
                };
                Ok(ButtonReply { said: said.to_owned(), value, us })
            }
        }
    }
}

/// Checks the length and characters of a key and a value entered on the page.
fn check_key_and_value(key: &str, value: &str) -> Result<(), ButtonRefusal> {
    let why = match () {
        () if key.is_empty() => "a key has at least one character".to_owned(),
        () if key.len() > KEY_BYTES_MAX => format!("a key here has up to {KEY_BYTES_MAX} bytes"),
        () if value.len() > VALUE_BYTES_MAX => {
            format!("a value here has up to {VALUE_BYTES_MAX} bytes")
        }
        () if key.starts_with(load::KEY_PREFIX) => {
            format!("keys that begin with {} are the writers'", load::KEY_PREFIX)
        }
        () => return Ok(()),
    };
    Err(button_refusal("bad_key", why))
}

fn button_refusal(code: &'static str, message: impl ToString) -> ButtonRefusal {
    ButtonRefusal { code, message: message.to_string() }
}

fn query_status(admin: &str) -> Option<NodeView> {
    client::get(admin, "/status", REQUEST_TIMEOUT).ok()?.parse_json().ok()
}

fn fresh_status(said: &Mutex<LastStatus>) -> Option<Box<NodeView>> {
    let said = lock(said);
    let (at, view) = said.as_ref()?;
    (at.elapsed() < STATUS_AGE_MAX).then(|| view.clone())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_button_requests_are_refused() {
        let read = |text| serde_json::from_str::<Ask>(text);
        let (part, node) = (Part::Device, 1);
        for (text, ask) in [
            (r#"{"ask":"fail","part":"device","node":1}"#, Ask::Fail { part, node }),
            (
                r#"{"ask":"restore","part":"node","node":3}"#,
                Ask::Restore { part: Part::Node, node: 3 },
            ),
            (r#"{"ask":"lead","node":2}"#, Ask::Lead { node: 2 }),
            (r#"{"ask":"get","key":"a"}"#, Ask::Get { key: "a".to_owned() }),
        ] {
            assert_eq!(read(text).unwrap(), ask);
        }
        for bad in [
            "{}",
            "[]",
            r#"{"ask":"end"}"#,
            r#"{"ask":"fail","part":"disk","node":1}"#,
            r#"{"ask":"fail","part":"node"}"#,
            r#"{"ask":"fail","part":"node","node":-1}"#,
            r#"{"ask":"fail","part":"node","node":1,"now":true}"#,
            r#"{"ask":"set","key":"a"}"#,
            r#"{"ask":"get","key":7}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_of_writers_and_long_keys_are_refused() {
        assert_eq!(check_key_and_value("a", ""), Ok(()));
        assert_eq!(check_key_and_value(&"k".repeat(100), &"v".repeat(1000)), Ok(()));
        let (long_key, long_value) = ("k".repeat(101), "v".repeat(1001));
        for (key, value) in [("", ""), (&*long_key, ""), ("a", &*long_value), ("load:0:1", "7")] {
            assert_eq!(check_key_and_value(key, value).unwrap_err().code, "bad_key");
        }
    }
}
