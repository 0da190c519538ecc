//! Roles, passwords and certificates, from the point of view of a Redis client.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use quorate_access::{Checker, Command, Password, Role, Users, Who};
use quorate_replica::front::{ConnectionId, Front as _};

use crate::common::{Node, World, request};

/// Prefix of a password hash in these tests. The password follows in plain text.
const HASH: &str = "$argon2id$";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.|";
const NO_AUTH: &str = "-NOAUTH Authentication required.|";

/// Password checker that completes each check when the test asks for it.
#[derive(Clone, Debug, Default)]
struct Desk(Arc<Mutex<Queues>>);

#[derive(Debug, Default)]
struct Queues {
    waiting: VecDeque<(u64, bool)>,
    done: VecDeque<(u64, bool)>,
    full: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap()
    }
}

impl Checker for Desk {
    fn check(&mut self, ticket: u64, hash: &str, password: &[u8]) -> bool {
        let mut queues = self.lock();
        let fits = hash.strip_prefix(HASH).map(str::as_bytes) == Some(password);
        if !queues.full {
            queues.waiting.push_back((ticket, fits));
        }
        !queues.full
    }

    fn verdict(&mut self) -> Option<(u64, bool)> {
        self.lock().done.pop_front()
    }
}

struct Guarded {
    node: Node,
    desk: Desk,
}

impl Guarded {
    /// Creates a node without the user table.
    fn unknown() -> Self {
        let mut node = Node::new(World::memory());
        let desk = Desk::default();
        node.front = node.front.with_checker(Box::new(desk.clone()));
        node.world.users = None;
        Self { node, desk }
    }

    /// Creates a node without the user table, on which the time to wait for it has passed.
    fn impatient() -> Self {
        let mut guarded = Self::unknown();
        let client = guarded.connect(Who::Anonymous);
        assert_eq!(guarded.say(client, "GET k"), "", "it waits");
        guarded.wait_ms(5_000);
        let heard = guarded.node.take(client);
        assert!(heard.starts_with("-NOQUORUM "), "{heard}");
        guarded
    }

    /// Advances the time with one turn per second, as on an idle node.
    fn wait_ms(&mut self, mut ms: u64) {
        while ms > 0 {
            let step = ms.min(1_000);
            self.node.world.wall_ms += step;
            self.turn();
            ms -= step;
        }
    }

    /// Creates a node with the admin `ann` and with a user for each other role. Names of users are
    /// the names of the roles, and passwords are equal to the names.
    fn new() -> Self {
        let mut guarded = Self::unknown();
        guarded.node.world.users = Some(Users::NONE);
        guarded.set("ann", Role::Admin, true);
        for role in [Role::Reader, Role::Writer, Role::Operator] {
            guarded.set(role.name(), role, true);
        }
        guarded
    }

    fn set(&mut self, name: &str, role: Role, with_password: bool) {
        let hash = Password::Hash(format!("{HASH}{name}"));
        self.change(Command::Set {
            name: name.to_owned(),
            role: Some(role),
            password: if with_password { hash } else { Password::None },
        });
    }

    fn change(&mut self, command: Command) {
        let world = &mut self.node.world;
        let users = world.users.as_mut().unwrap();
        users.execute(&command.encode()).unwrap();
        world.users_version += 1;
    }

    /// Completes all pending password checks.
    fn judge(&mut self) {
        {
            let mut queues = self.desk.lock();
            let waiting = std::mem::take(&mut queues.waiting);
            queues.done.extend(waiting);
        }
        self.turn();
    }

    fn turn(&mut self) {
        self.node.front.run_turn(&mut self.node.world);
        self.node.settle();
    }

    fn connect(&mut self, who: Who) -> ConnectionId {
        self.node.connect_as(who)
    }

    fn client(&mut self, name: &str) -> ConnectionId {
        self.connect(Who::Client(name.to_owned()))
    }

    /// Sends a command, completes password checks, and returns the replies.
    fn say(&mut self, client: ConnectionId, text: &str) -> String {
        let mut heard = self.node.say(client, text);
        self.judge();
        heard += &self.node.take(client);
        heard
    }

    fn logged_in(&mut self, name: &str) -> ConnectionId {
        let client = self.connect(Who::Anonymous);
        assert_eq!(self.say(client, &format!("AUTH {name} {name}")), "+OK|");
        client
    }
}

/// [access-1] Each role may execute exactly its commands.
#[test]
fn each_role_may_do_what_it_may_and_no_more() {
    let mut guarded = Guarded::new();
    let reads = [
        "OBJECT ENCODING k",
        "MEMORY USAGE k",
        "INFO commandstats",
        "SLOWLOG HELP",
        "LATENCY LATEST",
        "GET k",
        "MGET k",
        "SCAN 0",
        "PING",
        "INFO server",
        "CONFIG SET appendonly yes",
        "SUBSCRIBE c",
    ];
    let writes = [
        "SET k v",
        "DEL k",
        "INCR n",
        "PUBLISH c m",
        "EXPIRE k 10",
        "GETDEL k",
        "QUORATE SESSION",
        "CONFIG SET notify-keyspace-events KEA",
        "CLIENT UNBLOCK 99",
    ];
    let operator = ["FLUSHALL", "FLUSHDB", "SWAPDB 0 0", "CONFIG RESETSTAT", "LATENCY RESET"];
    let admin = [
        "ACL LIST",
        "ACL USERS",
        "ACL GETUSER ann",
        "SLOWLOG GET",
        "SLOWLOG LEN",
        "SLOWLOG RESET",
        "MONITOR",
    ];
    let rights = [
        ("reader", Role::Reader),
        ("writer", Role::Writer),
        ("operator", Role::Operator),
        ("ann", Role::Admin),
    ];
    for (name, role) in rights {
        for (needs, commands) in [
            (Role::Reader, &reads[..]),
            (Role::Writer, &writes[..]),
            (Role::Operator, &operator[..]),
            (Role::Admin, &admin[..]),
        ] {
            for command in commands {
                let client = guarded.logged_in(name);
                let digest = guarded.node.world.service.digest();
                let heard = guarded.say(client, command);
                let refused = heard.starts_with("-NOPERM User ");
                assert_eq!(refused, role < needs, "{name}: {command}: {heard}");
                if refused {
                    assert!(heard.contains(&format!("User {name} has no permissions")), "{heard}");
                    let roles = format!("needs the role {needs}; {name} has {role}|");
                    assert!(heard.ends_with(&roles), "{heard}");
                    assert_eq!(guarded.node.world.service.digest(), digest, "{command}");
                }
            }
        }
    }
}

#[test]
fn who_has_not_said_who_it_is_may_only_say_so() {
    let mut guarded = Guarded::new();
    let client = guarded.connect(Who::Anonymous);
    for command in ["PING", "GET k", "SET k v", "INFO", "QUORATE STATUS", "MULTI", "ACL WHOAMI"] {
        assert_eq!(guarded.say(client, command), NO_AUTH, "{command}");
    }
    let heard = guarded.say(client, "HELLO 3");
    assert!(heard.starts_with("-NOAUTH HELLO must be called"), "{heard}");
    assert_eq!(guarded.say(client, "AUTH writer wrong"), WRONG);
    assert_eq!(guarded.say(client, "AUTH stranger writer"), WRONG);
    assert_eq!(guarded.say(client, "AUTH writer"), WRONG);
    assert_eq!(guarded.say(client, "AUTH writer writer"), "+OK|");
    assert_eq!(guarded.say(client, "ACL WHOAMI"), "$6|writer|");
    assert_eq!(guarded.say(client, "SET k v"), "+OK|");
    // A wrong password leaves the authentication as it is, and RESET ends it.
    assert_eq!(guarded.say(client, "AUTH reader wrong"), WRONG);
    assert_eq!(guarded.say(client, "ACL WHOAMI"), "$6|writer|");
    assert_eq!(guarded.say(client, "RESET"), "+RESET|");
    assert_eq!(guarded.say(client, "GET k"), NO_AUTH);
    let heard = guarded.say(client, "HELLO 3 AUTH reader reader SETNAME me");
    assert!(heard.starts_with("%7|$6|server|$7|quorate|"), "{heard}");
    assert_eq!(guarded.say(client, "CLIENT GETNAME"), "$2|me|");
    assert!(guarded.say(client, "CLIENT LIST").contains(" user=reader "));
    assert_eq!(guarded.say(client, "HELLO 2 AUTH reader wrong"), WRONG);
    assert_eq!(guarded.say(client, "GET k"), "$1|v|");
}

#[test]
fn a_certificate_is_a_name_and_nodes_may_do_everything() {
    let mut guarded = Guarded::new();
    guarded.set("web", Role::Reader, false);
    let web = guarded.client("web");
    assert_eq!(guarded.say(web, "ACL WHOAMI"), "$3|web|");
    assert_eq!(guarded.say(web, "GET k"), "$-1|");
    assert!(guarded.say(web, "SET k v").starts_with("-NOPERM User web "));
    // AUTH fails for a user without a password.
    assert_eq!(guarded.say(web, "AUTH web web"), WRONG);
    assert_eq!(guarded.say(web, "AUTH writer writer"), "+OK|");
    assert_eq!(guarded.say(web, "SET k v"), "+OK|");
    let eve = guarded.client("eve");
    let heard = guarded.say(eve, "GET k");
    assert!(heard.starts_with("-NOPERM User eve of this certificate has no role"), "{heard}");
    let node = guarded.connect(Who::Node(2));
    assert_eq!(guarded.say(node, "FLUSHALL"), "+OK|");
    // From here on, clients may read without authentication.
    guarded.set("default", Role::Reader, false);
    let anonymous = guarded.connect(Who::Anonymous);
    for client in [eve, anonymous] {
        assert_eq!(guarded.say(client, "GET k"), "$-1|");
        assert!(guarded.say(client, "SET k v").starts_with("-NOPERM User "));
    }
    assert_eq!(guarded.say(anonymous, "AUTH whatever"), "+OK|", "it needs none");
    assert_eq!(guarded.say(anonymous, "ACL WHOAMI"), "$7|default|");
}

/// [access-2] A withdrawn permission is void from the next request on.
#[test]
fn what_is_taken_away_is_gone_at_the_next_request() {
    let mut guarded = Guarded::new();
    let client = guarded.logged_in("writer");
    assert_eq!(guarded.say(client, "SET k v"), "+OK|");
    assert_eq!(guarded.say(client, "MULTI"), "+OK|");
    assert_eq!(guarded.say(client, "SET k w"), "+QUEUED|");
    guarded.set("writer", Role::Reader, true);
    let heard = guarded.say(client, "EXEC");
    assert!(heard.starts_with("-EXECABORT "), "{heard}");
    assert_eq!(guarded.say(client, "GET k"), "$1|v|");
    let removed = Command::Remove { name: "writer".to_owned() };
    guarded.change(removed);
    assert_eq!(guarded.say(client, "GET k"), "-NOPERM User writer was removed|");
    guarded.change(Command::Open);
    assert_eq!(guarded.say(client, "SET k x"), "+OK|", "all may do everything again");
    let heard = guarded.say(client, "AUTH x");
    assert!(heard.starts_with("-ERR AUTH <password> called without"), "{heard}");
}

/// A numbered command requires the `writer` role and the role that the inner command requires.
#[test]
fn numbered_commands_and_transactions_hide_nothing() {
    let mut guarded = Guarded::new();
    let client = guarded.logged_in("writer");
    assert_eq!(guarded.say(client, "QUORATE SESSION").chars().next(), Some('$'));
    assert_eq!(guarded.say(client, "QUORATE SEQ 1 SET k v"), "+OK|");
    let heard = guarded.say(client, "QUORATE SEQ 2 FLUSHALL");
    let said = "-NOPERM User writer has no permissions to run the 'flushall' command: it needs the role \
                operator; writer has writer|";
    assert_eq!(heard, said);
    assert_eq!(guarded.say(client, "MULTI"), "+OK|");
    assert!(guarded.say(client, "FLUSHALL").starts_with("-NOPERM "));
    assert!(guarded.say(client, "EXEC").starts_with("-EXECABORT "));
    assert_eq!(guarded.say(client, "GET k"), "$1|v|");
    let reader = guarded.logged_in("reader");
    for command in ["QUORATE SESSION 1.0", "QUORATE SEQ 1 SET k w", "QUORATE SEQ 1 GET k"] {
        let heard = guarded.say(reader, command);
        assert!(heard.starts_with("-NOPERM "), "{command}");
        assert!(heard.ends_with("needs the role writer; reader has reader|"), "{heard}");
    }
    let heard = guarded.say(reader, "QUORATE SEQ 1 GET k");
    assert!(heard.contains("the 'quorate|seq' command"), "{heard}");
    assert_eq!(guarded.say(reader, "MULTI"), "+OK|");
    assert!(guarded.say(reader, "SET k w").starts_with("-NOPERM "));
    assert!(guarded.say(reader, "QUORATE SEQ 1 EXEC").starts_with("-NOPERM "));
    assert_eq!(guarded.say(client, "GET k"), "$1|v|");
}

/// Requests after AUTH wait for its result, because client libraries pipeline their first requests.
#[test]
fn what_comes_behind_a_password_waits_for_it() {
    let mut guarded = Guarded::new();
    let client = guarded.connect(Who::Anonymous);
    let mut bytes = request(&["AUTH", "writer", "writer"]);
    bytes.extend(request(&["SET", "k", "v"]));
    bytes.extend(request(&["AUTH", "reader", "wrong"]));
    bytes.extend(request(&["GET", "k"]));
    guarded.node.feed(client, &bytes);
    guarded.node.settle();
    assert_eq!(guarded.node.take(client), "", "it is being checked");
    assert!(guarded.node.front.is_busy(client), "an answer is owed");
    guarded.judge();
    assert_eq!(guarded.node.take(client), "+OK|+OK|");
    guarded.judge();
    assert_eq!(guarded.node.take(client), format!("{WRONG}$1|v|"));
    // The result is ignored if the client has disconnected.
    guarded.node.feed(client, &request(&["AUTH", "reader", "reader"]));
    guarded.node.front.handle_closed(client, &mut guarded.node.world);
    guarded.judge();
}

#[test]
fn a_password_that_changes_while_it_is_checked_does_not_fit() {
    let mut guarded = Guarded::new();
    let client = guarded.connect(Who::Anonymous);
    guarded.node.feed(client, &request(&["AUTH", "writer", "writer"]));
    guarded.change(Command::Set {
        name: "writer".to_owned(),
        role: None,
        password: Password::Hash(format!("{HASH}other")),
    });
    guarded.judge();
    assert_eq!(guarded.node.take(client), WRONG);
    assert_eq!(guarded.say(client, "AUTH writer other"), "+OK|");
}

#[test]
fn guessing_ends_the_connection_and_a_full_desk_says_so() {
    let mut guarded = Guarded::new();
    let client = guarded.connect(Who::Anonymous);
    guarded.desk.lock().full = true;
    let heard = guarded.say(client, "AUTH writer writer");
    assert_eq!(heard, "-BUSY too many passwords are being checked; try again|");
    guarded.desk.lock().full = false;
    for guess in 0..10 {
        assert!(!guarded.node.front.should_close(client), "after {guess}");
        assert_eq!(guarded.say(client, &format!("AUTH writer {guess}")), WRONG);
    }
    assert!(guarded.node.front.should_close(client));
}

/// [access-4] A restarted node that lacks the user table admits no client.
#[test]
fn while_nobody_knows_who_may_do_what_requests_wait_as_for_a_leader() {
    let mut guarded = Guarded::unknown();
    let client = guarded.connect(Who::Anonymous);
    assert_eq!(guarded.say(client, "PING"), "+PONG|");
    assert_eq!(guarded.say(client, "SET k v"), "", "it waits");
    assert_eq!(guarded.node.world.asked.len(), 0);
    assert!(guarded.node.front.is_busy(client));
    let gone = guarded.connect(Who::Anonymous);
    assert_eq!(guarded.say(gone, "SET k x"), "");
    guarded.node.front.handle_closed(gone, &mut guarded.node.world);
    guarded.node.world.users = Some(Users::NONE);
    guarded.turn();
    assert_eq!(guarded.node.take(client), "+OK|");

    // After the time limit, the client gets an error.
    let mut guarded = Guarded::unknown();
    let client = guarded.connect(Who::Anonymous);
    assert_eq!(guarded.say(client, "SET k v"), "");
    guarded.wait_ms(4_999);
    assert_eq!(guarded.node.take(client), "");
    guarded.wait_ms(1);
    let heard = guarded.node.take(client);
    assert!(heard.starts_with("-NOQUORUM not executed: this node does not know yet"), "{heard}");
    assert_eq!(guarded.say(client, "GET k"), heard, "and at once");
    assert_eq!(guarded.say(client, "AUTH writer writer"), heard);
    // Once the users are known, clients must authenticate.
    guarded.node.world.users = Some(Users::NONE);
    guarded.set("ann", Role::Admin, true);
    assert_eq!(guarded.say(client, "GET k"), NO_AUTH);
}

/// [access-4] If WATCH is refused because the permissions are unknown, the transaction must not run
/// without it, even if they become known before its other commands.
#[test]
fn a_transaction_does_not_outlive_the_refusal_of_its_watch() {
    let mut guarded = Guarded::impatient();
    let client = guarded.connect(Who::Anonymous);
    let heard = guarded.say(client, "WATCH k");
    assert!(heard.starts_with("-NOQUORUM "), "{heard}");
    guarded.node.world.users = Some(Users::NONE);
    assert_eq!(guarded.say(client, "GET k"), "$-1|");
    assert_eq!(guarded.say(client, "MULTI"), "+OK|");
    assert_eq!(guarded.say(client, "SET k v"), "+QUEUED|");
    assert_eq!(
        guarded.say(client, "EXEC"),
        "-EXECABORT Transaction discarded because WATCH failed.|"
    );
    // The next transaction is not affected.
    assert_eq!(guarded.say(client, "WATCH k"), "+OK|");
    assert_eq!(guarded.say(client, "MULTI"), "+OK|");
    assert_eq!(guarded.say(client, "SET k v"), "+QUEUED|");
    assert_eq!(guarded.say(client, "EXEC"), "*1|+OK|");
}

/// [access-4] A transaction runs completely or not at all, whenever the permissions become known.
#[test]
fn a_transaction_is_never_executed_in_part_because_its_beginning_was_refused() {
    let words = ["MULTI", "SET k v", "SET l v", "EXEC"];
    for known_before in 0..=words.len() {
        let mut guarded = Guarded::impatient();
        let client = guarded.connect(Who::Anonymous);
        let mut heard = String::new();
        for (at, word) in words.iter().enumerate() {
            if at == known_before {
                guarded.node.world.users = Some(Users::NONE);
            }
            heard = guarded.say(client, word);
        }
        guarded.node.world.users = Some(Users::NONE);
        let found = guarded.say(client, "MGET k l");
        if known_before <= 1 {
            assert_eq!(heard, "*2|+OK|+OK|", "{known_before}");
            assert_eq!(found, "*2|$1|v|$1|v|", "{known_before}");
        } else {
            assert!(heard.starts_with("-EXECABORT "), "{known_before}: {heard}");
            assert_eq!(found, "*2|$-1|$-1|", "{known_before}");
        }
    }
}

/// [access-2] A subscriber that loses the permission receives no more messages.
#[test]
fn a_subscription_ends_with_the_role() {
    let mut guarded = Guarded::new();
    let (reader, other) = (guarded.client("reader"), guarded.client("writer"));
    for client in [reader, other] {
        assert!(guarded.say(client, "SUBSCRIBE c").contains("subscribe"));
    }
    // Changes to other users do not end a subscription.
    guarded.set("eve", Role::Reader, false);
    guarded.turn();
    let publisher = guarded.client("ann");
    assert_eq!(guarded.say(publisher, "PUBLISH c 1"), ":2|");
    for client in [reader, other] {
        assert!(guarded.node.take(client).contains("message"));
    }
    guarded.change(Command::Remove { name: "reader".to_owned() });
    guarded.turn();
    assert!(guarded.node.take(reader).contains("NOPERM"));
    assert!(guarded.node.front.should_close(reader));
    assert!(!guarded.node.front.should_close(other));
    assert_eq!(guarded.node.front.refusal_counts().forbidden, 1);
    guarded.node.front.handle_closed(reader, &mut guarded.node.world);
    assert_eq!(guarded.say(publisher, "PUBLISH c 2"), ":1|");
    assert!(guarded.node.take(other).contains("message"));
}

/// [access-2] A client that tracks all keys with a prefix gets no invalidations after it has lost
/// its role.
#[test]
fn notices_of_changed_keys_end_with_the_role() {
    let mut guarded = Guarded::new();
    let (reader, writer) = (guarded.client("reader"), guarded.client("writer"));
    guarded.say(reader, "HELLO 3");
    assert_eq!(guarded.say(reader, "CLIENT TRACKING ON BCAST"), "+OK|");
    guarded.change(Command::Remove { name: "reader".to_owned() });
    guarded.turn();
    assert!(guarded.node.take(reader).contains("NOPERM"));
    assert!(guarded.node.front.should_close(reader));
    assert_eq!(guarded.say(writer, "SET secret v"), "+OK|");
    assert_eq!(guarded.node.take(reader), "");
}

/// [access-2] MONITOR ends when its client is no longer an admin.
#[test]
fn a_monitor_ends_with_the_role() {
    let mut guarded = Guarded::new();
    guarded.set("bob", Role::Admin, true);
    let (ann, writer) = (guarded.client("ann"), guarded.client("writer"));
    assert_eq!(guarded.say(ann, "MONITOR"), "+OK|");
    guarded.say(writer, "SET k v");
    assert!(guarded.node.take(ann).contains("\"SET\""));
    guarded.set("ann", Role::Operator, true);
    // Commands are hidden from a former admin even if the front has not noticed the change yet.
    guarded.node.say(writer, "SET k secret");
    let heard = guarded.node.take(ann);
    assert!(heard.starts_with("-NOPERM User ann ") && !heard.contains("secret"), "{heard}");
    assert!(guarded.node.front.should_close(ann));
    let eve = guarded.logged_in("ann");
    assert!(guarded.say(eve, "MONITOR").starts_with("-NOPERM "));
    guarded.set("ann", Role::Admin, true);
    assert_eq!(guarded.say(eve, "MONITOR"), "+OK|");
    guarded.change(Command::Remove { name: "ann".to_owned() });
    guarded.turn();
    assert!(guarded.node.take(eve).contains("-NOPERM "));
    assert!(guarded.node.front.should_close(eve));
}
