//! The key-value client: numbers its commands, and retries each until it has a reply.

use std::{
    collections::VecDeque,
    io, thread,
    time::{Duration, Instant},
};

use quorate_tls::{ClientTrust, stream::is_tls_failure};

use crate::{
    attempt::{Verdict, classify_reply},
    database,
    error::Error,
    link::{Link, encode_command},
    login::Login,
    open::{CommandState, OpenCommand, OwedReply, Transaction},
    reply::Reply,
};

/// Maximum number of outstanding commands: as many replies as a session stores ([session-2]).
pub const OUTSTANDING_MAX: usize = 64;
/// Interval at which a subscription calls `is_wanted`.
const SUBSCRIPTION_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Timeouts, identity and trust of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum time from sending a command until it fails.
    pub command_timeout: Duration,
    /// Time without a reply after which another node is tried.
    pub attempt_timeout: Duration,
    /// Delay after the first failed attempt. Doubles with each further one.
    pub backoff_min: Duration,
    /// Maximum delay after a failed attempt.
    pub backoff_max: Duration,
    /// Maximum size of a reply in bytes.
    pub reply_bytes_max: usize,
    /// Set if reads may be answered from a node's own, possibly stale state (`READONLY`).
    pub allow_stale_reads: bool,
    /// Number of the database of all commands, 0 to 15. Others than 0 need feature level 10.
    pub database: u8,
    /// Certificate and authorities, for nodes that require TLS.
    pub tls: Option<ClientTrust>,
    /// Credentials; `None` to connect without.
    pub login: Option<Login>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command_timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(200),
            reply_bytes_max: 64 << 20,
            allow_stale_reads: false,
            database: 0,
            tls: None,
            login: None,
        }
    }
}

/// A client of a cluster. Use one per thread.
#[derive(Debug)]
pub struct Client {
    addresses: Vec<String>,
    /// Index of the current address, or of the next one to connect to.
    address_index: usize,
    options: Options,
    link: Option<Link>,
    /// Replies to what was sent on the connection, in order.
    owed_replies: VecDeque<OwedReply>,
    /// Set if the node must be sent the numbers of the received replies, because it has no list of
    /// them or its store of replies is full.
    must_acknowledge: bool,
    session_id: Option<String>,
    next_command_number: u64,
    open: VecDeque<OpenCommand>,
    /// Id of the first command in `open`.
    first_open_id: u64,
    consecutive_failures: u32,
    /// Number of consecutive attempts that failed because of TLS or of the client's database.
    tls_failures: usize,
}

impl Client {
    /// Creates a client that connects to the first of `addresses` (each `HOST:PORT`) that accepts
    /// it.
    ///
    /// # Panics
    ///
    /// Panics if `addresses` is empty.
    pub fn new<A: Into<String> + Clone>(addresses: &[A], options: Options) -> Self {
        assert!(!addresses.is_empty(), "a client needs an address");
        Self {
            addresses: addresses.iter().cloned().map(Into::into).collect(),
            address_index: 0,
            options,
            link: None,
            owed_replies: VecDeque::new(),
            must_acknowledge: false,
            session_id: None,
            next_command_number: 1,
            open: VecDeque::new(),
            first_open_id: 0,
            consecutive_failures: 0,
            tls_failures: 0,
        }
    }

    /// Returns the id of the registered session, if any.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// Returns the number of commands whose outcome has not been received.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Executes a command exactly once and returns its reply.
    pub fn run(&mut self, arguments: &[&[u8]]) -> Result<Reply, Error> {
        self.check_none_outstanding()?;
        self.send(arguments)?;
        self.receive()
    }

    /// Executes a read, without a session because it can be retried freely.
    pub fn read(&mut self, arguments: &[&[u8]]) -> Result<Reply, Error> {
        self.check_none_outstanding()?;
        database::check_command(arguments)?;
        self.push(arguments, false);
        self.receive()
    }

    /// Sends `SUBSCRIBE` or `PSUBSCRIBE`, and passes each message to `on_message`, beginning with
    /// the acknowledgements, until it or `is_wanted` returns `false`. Fails if the connection ends,
    /// because messages would then be missed.
    pub fn subscribe(
        &mut self,
        arguments: &[&[u8]],
        is_wanted: impl Fn() -> bool,
        mut on_message: impl FnMut(&Reply) -> bool,
    ) -> Result<(), Error> {
        self.check_none_outstanding()?;
        let until = Instant::now() + self.options.command_timeout;
        while let Err(error) = self.ensure_connected(until) {
            let text = error.to_string();
            self.move_to_next_node(&text);
            if is_permanent_refusal(&text)
                || self.is_tls_refused()
                || !is_wanted()
                || time_left(until).is_zero()
            {
                self.tls_failures = 0;
                return Err(Error::NotExecuted(text));
            }
            self.back_off(until);
        }
        let mut link = self.link.take().expect("connected just above");
        let mut bytes = Vec::new();
        encode_command(arguments, &mut bytes);
        let ended = |error: io::Error| Error::NotExecuted(error.to_string());
        link.send(&bytes, self.options.attempt_timeout).map_err(ended)?;
        loop {
            match link.receive(SUBSCRIPTION_CHECK_INTERVAL) {
                Ok(Reply::Error(text)) => return Err(Error::Refused(text)),
                Ok(message) if !on_message(&message) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(ended(error)),
                Ok(_) | Err(_) if !is_wanted() => return Ok(()),
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn check_none_outstanding(&self) -> Result<(), Error> {
        if self.open.is_empty() { Ok(()) } else { Err(Error::TooManyOutstanding) }
    }

    /// Sends a command without waiting for its reply. If it is retried, it may be executed after
    /// later commands, so wait for the reply where order matters.
    pub fn send(&mut self, arguments: &[&[u8]]) -> Result<(), Error> {
        if self.open.len() >= OUTSTANDING_MAX {
            return Err(Error::TooManyOutstanding);
        }
        database::check_command(arguments)?;
        self.push(arguments, true);
        self.send_if_connected();
        Ok(())
    }

    /// Sends a transaction as [`Self::send`] does a command. Its reply is the array of replies.
    pub fn send_transaction(&mut self, commands: Transaction) -> Result<(), Error> {
        if self.open.len() >= OUTSTANDING_MAX {
            return Err(Error::TooManyOutstanding);
        }
        database::check_transaction(commands.selects())?;
        self.push(&[b"EXEC"], true).transaction = Some(commands);
        self.send_if_connected();
        Ok(())
    }

    /// Prepares a read, which is sent together with others by [`Self::receive`].
    pub fn prepare_read(&mut self, arguments: &[&[u8]]) -> Result<(), Error> {
        if self.open.len() >= OUTSTANDING_MAX {
            return Err(Error::TooManyOutstanding);
        }
        database::check_command(arguments)?;
        self.push(arguments, false);
        Ok(())
    }

    fn send_if_connected(&mut self) {
        // A failure needs no handling here, because `receive` sends the command again.
        if let Some(link) = self.link.take()
            && self.session_id.is_some()
        {
            self.link = Some(link);
            if let Err(error) = self.send_waiting() {
                self.move_to_next_node(&error.to_string());
            }
        }
    }

    fn push(&mut self, arguments: &[&[u8]], is_numbered: bool) -> &mut OpenCommand {
        let number = is_numbered.then_some(self.next_command_number);
        self.next_command_number += u64::from(is_numbered);
        self.open.push_back(OpenCommand {
            arguments: arguments.iter().map(|argument| argument.to_vec()).collect(),
            transaction: None,
            queueing_error: None,
            command_number: number,
            deadline: Instant::now() + self.options.command_timeout,
            may_have_run: false,
            state: CommandState::Waiting,
            last_failure: "no node was reached".to_owned(),
        });
        self.open.back_mut().expect("pushed just above")
    }

    /// Returns the outcome of the oldest outstanding command.
    pub fn receive(&mut self) -> Result<Reply, Error> {
        loop {
            let front = self.open.front().ok_or(Error::NoneOutstanding)?;
            if matches!(front.state, CommandState::Done(_)) || Instant::now() >= front.deadline {
                let open = self.open.pop_front().expect("looked at just above");
                self.first_open_id += 1;
                // The command's number in the session may be reused although no reply arrived.
                self.must_acknowledge |= open.is_pending();
                return open.into_outcome();
            }
            let until = front.deadline;
            self.send_and_handle_reply(until);
        }
    }

    /// Connects if necessary, sends waiting commands, and handles one reply.
    fn send_and_handle_reply(&mut self, until: Instant) {
        if let Err(error) = self.ensure_connected(until).and_then(|()| self.send_waiting()) {
            let text = error.to_string();
            if text.starts_with("NOSESSION") {
                return self.on_session_lost(None);
            }
            if is_permanent_refusal(&text) {
                return self.fail_all_outstanding(&text);
            }
            return self.try_next_node(&text, until);
        }
        let wait = self.options.attempt_timeout.min(time_left(until));
        let link = self.link.as_mut().expect("connected just above");
        match link.receive(wait) {
            Ok(reply) => {
                let surplus = self.owed_replies.len() <= 1 && link.has_surplus();
                self.on_reply(reply, until);
                if surplus {
                    self.move_to_next_node("the node sent an unrequested reply");
                }
            }
            Err(error) => self.try_next_node(&error.to_string(), until),
        }
    }

    /// Switches to the next node, unless every node has failed because of TLS or refused the
    /// client's database.
    fn try_next_node(&mut self, why: &str, until: Instant) {
        self.move_to_next_node(why);
        match self.is_tls_refused() {
            true => self.fail_all_outstanding(why),
            false => self.back_off(until),
        }
    }

    const fn is_tls_refused(&self) -> bool {
        self.tls_failures >= self.addresses.len()
    }

    fn on_reply(&mut self, reply: Reply, until: Instant) {
        // `send_and_handle_reply` has just sent the waiting commands, so each has its replies.
        let owed = self.owed_replies.pop_front();
        let Some(OwedReply::Queued(id) | OwedReply::Outcome(id)) = owed else {
            return;
        };
        // The client has already reported the outcome of this command as unknown.
        let Some(index) = id.checked_sub(self.first_open_id) else {
            return;
        };
        let open = &mut self.open[usize::try_from(index).expect("at most OPEN_MAX are open")];
        if let (Some(OwedReply::Queued(_)), reply) = (owed, &reply) {
            if let (Reply::Error(text), None) = (reply, &open.queueing_error) {
                open.queueing_error = Some(text.clone());
            }
            return;
        }
        let is_multi_open = open.leaves_multi_open(&reply);
        match classify_reply(open.deciding_reply(reply)) {
            Verdict::Done(outcome) => {
                open.state = CommandState::Done(outcome);
                (self.consecutive_failures, self.tls_failures) = (0, 0);
                if is_multi_open {
                    self.disconnect();
                }
            }
            Verdict::Retry { may_have_run: doubt, try_other_node: elsewhere, text } => {
                open.may_have_run |= doubt;
                self.must_acknowledge |= text.starts_with("SESSIONFULL");
                open.state = CommandState::Waiting;
                open.last_failure.clone_from(&text);
                if elsewhere {
                    self.move_to_next_node(&text);
                } else {
                    self.consecutive_failures += 1;
                }
                self.back_off(until);
            }
            Verdict::SessionLost => self.on_session_lost(Some(id)),
        }
    }

    /// [session-4] Fails all outstanding numbered commands, because a command that may have run in
    /// the old session must never be repeated in a new one.
    fn on_session_lost(&mut self, refused: Option<u64>) {
        for (id, open) in (self.first_open_id..).zip(&mut self.open) {
            let sent = matches!(open.state, CommandState::Sent) && Some(id) != refused;
            if open.command_number.is_some() && !matches!(open.state, CommandState::Done(_)) {
                let may_have_run = open.may_have_run || sent;
                open.state = CommandState::Done(Err(Error::SessionLost { may_have_run }));
            }
        }
        self.session_id = None;
        self.next_command_number = 1;
        self.disconnect();
    }

    /// Fails all outstanding commands, because every node rejects the user or denies it writes.
    fn fail_all_outstanding(&mut self, why: &str) {
        self.disconnect();
        self.tls_failures = 0;
        for open in &mut self.open {
            let may_have_run = open.may_have_run && open.command_number.is_some();
            let error = match may_have_run {
                true => Error::UnknownOutcome(why.to_owned()),
                false if is_tls_failure(why) => Error::NotExecuted(why.to_owned()),
                false => Error::Refused(why.to_owned()),
            };
            if open.is_pending() {
                open.state = CommandState::Done(Err(error));
            }
        }
    }

    fn ensure_connected(&mut self, until: Instant) -> io::Result<()> {
        if self.link.is_none() {
            let wait = self.options.attempt_timeout.min(time_left(until));
            let address = &self.addresses[self.address_index];
            let mut link = Link::connect(
                address,
                self.options.tls.as_ref(),
                wait,
                self.options.reply_bytes_max,
            )?;
            if let Some(Login { name, password }) = &self.options.login {
                let auth: [&[u8]; 3] = [b"AUTH", name.as_bytes(), password.as_bytes()];
                link.run_setup_command(&auth, wait)?;
            }
            database::select(&mut link, self.options.database, wait)?;
            if self.options.allow_stale_reads {
                link.run_setup_command(&[b"READONLY"], wait)?;
            }
            if let Some(session) = &self.session_id {
                link.run_setup_command(&[b"QUORATE", b"SESSION", session.as_bytes()], wait)?;
            }
            self.link = Some(link);
        }
        let numbered =
            self.open.iter().find(|open| open.command_number.is_some() && open.is_pending());
        if let (None, Some(first)) = (&self.session_id, numbered) {
            let wait = self.options.attempt_timeout.min(time_left(until));
            let link = self.link.as_mut().expect("connected just above");
            let reply = link.run_setup_command(&[b"QUORATE", b"SESSION"], wait);
            let reply = reply.map_err(|error| match error.to_string().starts_with("NOPERM") {
                true => query_refusal(first, link, wait).unwrap_or(error),
                false => error,
            })?;
            let id = reply.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            self.session_id = Some(id.ok_or_else(|| io::Error::other("no session id was given"))?);
        }
        Ok(())
    }

    fn send_waiting(&mut self) -> io::Result<()> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        let numbers = self
            .open
            .iter()
            .filter(|open| open.is_pending())
            .filter_map(|open| open.command_number);
        if self.must_acknowledge
            && let Some(oldest) = numbers.min()
        {
            let digits = oldest.to_string();
            encode_command(&[b"QUORATE", b"ACK", digits.as_bytes()], &mut bytes);
            self.owed_replies.push_back(OwedReply::Ignored);
            self.must_acknowledge = false;
        }
        for (id, open) in (self.first_open_id..).zip(&mut self.open) {
            if matches!(open.state, CommandState::Waiting) {
                open.encode(&mut bytes);
                open.state = CommandState::Sent;
                open.queueing_error = None;
                self.owed_replies
                    .extend((0..open.preceding_reply_count()).map(|_| OwedReply::Queued(id)));
                self.owed_replies.push_back(OwedReply::Outcome(id));
            }
        }
        if bytes.is_empty() { Ok(()) } else { link.send(&bytes, self.options.attempt_timeout) }
    }

    fn move_to_next_node(&mut self, why: &str) {
        self.disconnect();
        self.address_index = (self.address_index + 1) % self.addresses.len();
        self.consecutive_failures += 1;
        let is_refused = is_tls_failure(why) || database::is_refusal(why);
        self.tls_failures = if is_refused { self.tls_failures + 1 } else { 0 };
        for open in &mut self.open {
            why.clone_into(&mut open.last_failure);
        }
    }

    /// Drops the connection. Commands without a reply will be sent again, although they may have
    /// been executed.
    fn disconnect(&mut self) {
        self.link = None;
        self.owed_replies.clear();
        for open in &mut self.open {
            if matches!(open.state, CommandState::Sent) {
                open.may_have_run = true;
                open.state = CommandState::Waiting;
            }
        }
    }

    /// Delays the next attempt once every address has failed, because the failure of one node says
    /// nothing about the others.
    fn back_off(&self, until: Instant) {
        let rounds = self.consecutive_failures as usize / self.addresses.len();
        if let Some(doublings) = rounds.checked_sub(1) {
            let factor = 1 << doublings.min(10);
            let wait = (self.options.backoff_min * factor).min(self.options.backoff_max);
            thread::sleep(wait.min(time_left(until)));
        }
    }
}

/// Returns whether every node would refuse the user for the reason `text`.
fn is_permanent_refusal(text: &str) -> bool {
    ["NOAUTH", "NOPERM", "WRONGPASS"].iter().any(|code| text.starts_with(code))
}

/// Returns the error that a node reports for a command, which names it and the required role. The
/// command is not executed, because the connection has no session.
fn query_refusal(open: &OpenCommand, link: &mut Link, wait: Duration) -> Option<io::Error> {
    let mut bytes = Vec::new();
    open.encode(&mut bytes);
    link.send(&bytes, wait).ok()?;
    let mut refusal = None;
    for _ in 0..=open.preceding_reply_count() {
        match link.receive(wait).ok()? {
            Reply::Error(text) if refusal.is_none() && text.starts_with("NOPERM") => {
                refusal = Some(io::Error::other(text));
            }
            _ => {}
        }
    }
    refusal
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
