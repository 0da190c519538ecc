//! Users on real nodes: the first admin, roles by password at every port, revocation, restarts, the
//! audit log, and that no password is written anywhere.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
};

use crate::common::{START_TIMEOUT, program, quorate, wait_for};
use quorate_testbed::{
    nodes::{NodeCluster, fetch_metrics},
    process,
};
use serde_json::Value as Json;

/// Password that does not occur anywhere by chance.
const SECRET: &str = "sesame-4711-sesame";

struct Guarded {
    nodes: NodeCluster,
    secret: PathBuf,
}

impl Guarded {
    fn start(flags: &[&str]) -> Self {
        let mut nodes = NodeCluster::with_empty_folder("quorate-users-").unwrap();
        let specs = process::loopback_cluster(&program(), nodes.data_folder(), 3, flags).unwrap();
        nodes.start(specs).unwrap();
        nodes.wait_until_all_ready().unwrap();
        // Outside of any node's folder.
        let secret = nodes.data_folder().join("secret");
        fs::write(&secret, format!("{SECRET}\n")).unwrap();
        Self { nodes, secret }
    }

    /// Runs a command as a user. Returns the exit code, and standard output as JSON.
    fn run(&self, login: Option<&str>, words: &[&str]) -> (i32, Json) {
        let mut all = words.to_vec();
        let admin = self.nodes.admin_addresses().join(",");
        all.extend(["--json", "--admin", &admin]);
        if let Some(login) = login {
            all.extend(["--login", login, "--login-file", self.secret.to_str().unwrap()]);
        }
        let output = quorate(&all);
        let text = String::from_utf8(output.stdout).unwrap();
        let json = serde_json::from_str(&text);
        let json = json.unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"));
        (output.status.code().unwrap(), json)
    }

    fn set(&self, login: Option<&str>, name: &str, role: &str) -> (i32, Json) {
        let secret = self.secret.to_str().unwrap();
        let words = ["user", "set", name, "--role", role, "--password-file", secret];
        self.run(login, &words)
    }

    /// Runs a client command as a user. Returns the exit code and standard output.
    fn run_client(&self, login: &str, words: &[&str]) -> (i32, String) {
        let secret = self.secret.to_str().unwrap();
        let login = ["--login", login, "--login-file", secret, "--json"];
        let output = quorate(&[words, &login].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), text)
    }

    /// Checks that `web` writes and `eye` reads byte streams, and that only writers may run the
    /// benchmark.
    fn passwords_for_streams_and_bench(&self) {
        let nodes = self.nodes.all().iter();
        let streams: Vec<&str> = nodes.map(|node| &*node.ready.stream).collect();
        let streams = streams.join(",");
        let at = ["--stream", &*streams];
        let file = self.nodes.data_folder().join("put");
        fs::write(&file, "three words here").unwrap();
        let file = file.to_str().unwrap();
        let put = |name| [&["stream", "put", file, "--name", name], &at[..]].concat();
        let cat = [&["stream", "cat", "notes"], &at[..]].concat();
        let (exit, text) = self.run_client("web", &put("notes"));
        assert_eq!(exit, 0, "{text}");
        for user in ["eye", "web"] {
            let (exit, text) = self.run_client(user, &cat);
            assert_eq!((exit, &*text), (0, "three words here"), "{user}");
        }
        let refused = |login: &str, words: &[&str], code: &str| {
            let (exit, text) = self.run_client(login, words);
            assert_eq!(exit, 1, "{text}");
            let json: Json = serde_json::from_str(&text).unwrap();
            assert_eq!(self::code(&json), code, "{text}");
        };
        refused("eye", &put("others"), "forbidden");
        refused("stranger", &put("others"), "wrong_password");
        // Reading and writing fail with a wrong password and without a user.
        let other = self.nodes.data_folder().join("other");
        fs::write(&other, "not-the-password\n").unwrap();
        let wrong = ["--login", "web", "--login-file", other.to_str().unwrap()];
        for (login, expected) in [(&wrong[..], "wrong_password"), (&[], "forbidden")] {
            let ls = [&["stream", "ls"], &at[..]].concat();
            for words in [&put("others"), &ls] {
                let output = quorate(&[&words[..], login, &["--json"]].concat());
                assert_eq!(output.status.code(), Some(1), "{output:?}");
                let json: Json = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(code(&json), expected, "{json}");
            }
        }
        let anonymous = [&cat[..], &["--json"]].concat();
        let output = quorate(&anonymous);
        assert_eq!(output.status.code(), Some(1));

        let connect = self.nodes.client_addresses().join(",");
        let bench: Vec<&str> =
            "bench kv --value-size 16 --outstanding 4 --duration 200ms --warmup 50ms --repeat 1"
                .split(' ')
                .chain(["--connect", &connect])
                .collect();
        let (exit, document) = crate::common::once_answered(|| {
            let (exit, text) = self.run_client("web", &bench);
            (exit, serde_json::from_str(&text).unwrap())
        });
        assert_eq!(exit, 0, "{document}");
        assert_eq!(document["rows"][0]["errors"], 0, "{document}");
        let (exit, text) = self.run_client("stranger", &bench);
        assert_ne!(exit, 0, "{text}");
        assert!(text.contains("WRONGPASS"), "{text}");
    }

    fn client(&self, node: u32) -> Resp {
        Resp::new(&self.nodes.client_addresses()[node as usize - 1])
    }
}

/// A client that sends lines and reads the first line of each reply.
struct Resp(BufReader<TcpStream>);

impl Resp {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut heard = String::new();
        self.0.read_line(&mut heard).unwrap();
        // Read the text of a bulk string.
        if heard.starts_with('$') && !heard.starts_with("$-1") {
            heard.clear();
            self.0.read_line(&mut heard).unwrap();
        }
        heard.trim_end().to_owned()
    }
}

fn code(json: &Json) -> &str {
    json["error"]["code"].as_str().unwrap_or("done")
}

/// Collects all files below a folder.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, into),
            false => into.push(path),
        }
    }
}

#[test]
fn the_first_user_is_an_admin_and_from_then_on_roles_count_at_every_node() {
    let mut cluster = Guarded::start(&["--store", "memory"]);
    let (exit, json) = cluster.run(None, &["user", "list"]);
    assert_eq!((exit, &json["open"]), (0, &Json::Bool(true)));
    let mut early = cluster.client(1);
    assert_eq!(early.say("SET k v"), "+OK");

    // An admin cannot lock out all users.
    let (exit, json) = cluster.set(None, "bob", "reader");
    assert_eq!((exit, code(&json)), (1, "refused"), "{json}");
    let (exit, json) = cluster.run(None, &["user", "set", "ann", "--role", "admin"]);
    assert_eq!((exit, code(&json)), (1, "refused"), "{json}");
    assert!(json["error"]["message"].as_str().unwrap().contains("no admin has a password"));
    for bad in [
        &["user", "set", "Ann", "--role", "admin"][..],
        &["user", "set", "ann", "--role", "root"],
        &["user", "remove", "stranger"],
        &["user", "open"],
    ] {
        let (exit, json) = cluster.run(None, bad);
        assert!(exit == 1 || exit == 2, "{bad:?}: {json}");
        assert!(!json["error"]["message"].as_str().unwrap().is_empty());
    }
    assert_eq!(early.say("GET k"), "v", "nothing has changed");

    let (exit, json) = cluster.set(None, "ann", "admin");
    assert_eq!(exit, 0, "{json}");
    let (exit, json) = cluster.set(None, "web", "writer");
    assert_eq!((exit, code(&json)), (1, "forbidden"), "{json}");
    for (name, role) in [("web", "writer"), ("eye", "reader"), ("ops", "operator")] {
        let (exit, json) = cluster.set(Some("ann"), name, role);
        assert_eq!(exit, 0, "{json}");
    }

    // Every node uses the new table once it has applied it.
    for node in 1..=3 {
        let mut client = cluster.client(node);
        wait_for("the users to be known", || {
            client.say("GET k").starts_with("-NOAUTH").then_some(())
        });
        assert!(client.say("AUTH web wrong").starts_with("-WRONGPASS"));
        wait_for("the writer to be known", || {
            (client.say(&format!("AUTH web {SECRET}")) == "+OK").then_some(())
        });
        assert_eq!(client.say("ACL WHOAMI"), "web");
        assert_eq!(client.say(&format!("SET k{node} v")), "+OK");
        let refused = client.say("FLUSHALL");
        assert!(refused.ends_with("needs the role operator; web has writer"), "{refused}");
    }
    assert!(early.say("GET k").starts_with("-NOAUTH"), "who was connected before, too");

    cluster.passwords_for_streams_and_bench();

    // The admin address.
    for (login, words, done) in [
        (None, &["status"][..], false),
        (Some("eye"), &["status"], true),
        (Some("eye"), &["transfer"], false),
        (Some("eye"), &["user", "list"], false),
        (Some("ops"), &["snapshot"], true),
        (Some("ops"), &["member", "add", "--peer", "127.0.0.1:1"], false),
        (Some("ops"), &["audit"], false),
        (Some("stranger"), &["status"], false),
        (Some("ann"), &["user", "list"], true),
    ] {
        let (exit, json) = cluster.run(login, words);
        assert_eq!(exit == 0, done, "{login:?}: {words:?}: {json}");
    }
    // A refusal for want of a role ends a command, which would repeat others.
    let (_, json) = cluster.run(Some("eye"), &["status"]);
    let leader = json["leader"].to_string();
    let (exit, json) = cluster.run(Some("web"), &["member", "drain", &leader]);
    assert_eq!((exit, code(&json)), (1, "refused"), "{json}");
    assert!(json["error"]["message"].as_str().unwrap().contains("needs operator"), "{json}");
    let (_, json) = cluster.run(Some("stranger"), &["status"]);
    assert_eq!(json["error"]["message"], "the name or the password is wrong", "{json}");
    let address = &cluster.nodes.admin_addresses()[0];
    for (path, answer) in [("/health", "200"), ("/ready", "200"), ("/", "401"), ("/metrics", "401")]
    {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.contains(answer), "{path}: {first}");
        let asks = lines
            .map_while(Result::ok)
            .any(|line| line.to_lowercase().starts_with("www-authenticate: basic"));
        assert_eq!(asks, answer == "401", "{path}");
    }

    // Actions and refused attempts are recorded, but passwords are not.
    let (exit, json) = cluster.run(Some("ann"), &["audit"]);
    assert_eq!(exit, 0, "{json}");
    let records = json.as_array().unwrap();
    let has = |who: &str, action: &str, status: u64| {
        let mut all = records.iter();
        all.any(|one| one["who"] == who && one["action"] == action && one["status"] == status)
    };
    assert!(has("-", "POST /users", 200), "the first, without a name: {json}");
    assert!(has("ann", "POST /users", 200), "{json}");
    assert!(has("ops", "POST /snapshot", 200), "{json}");
    assert!(has("eye", "POST /transfer", 403), "{json}");
    let attempts = records.iter().filter(|one| one["who"] == "web");
    assert_eq!(attempts.count(), 1, "{json}");
    assert!(records.iter().all(|one| one["untold"].is_null()), "{json}");

    // [access-4] A node that starts with an empty folder admits no client until it has caught up.
    let place = cluster.nodes.client_addresses()[2].clone();
    cluster.nodes.node(3).unwrap().kill().unwrap();
    cluster.nodes.respawn(3).unwrap();
    let stream = wait_for("node 3 to listen", || TcpStream::connect(&place).ok());
    stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    let mut client = Resp(BufReader::new(stream));
    let heard = client.say("SET stolen 1");
    assert!(heard.starts_with("-NOAUTH") || heard.starts_with("-NOQUORUM"), "{heard}");
    wait_for("node 3 to know the reader", || {
        (client.say(&format!("AUTH eye {SECRET}")) == "+OK").then_some(())
    });
    assert_eq!(client.say("GET stolen"), "$-1");

    cluster.nodes.node(3).unwrap().wait_ready().unwrap();

    // [access-2] A removed user has no access.
    let (exit, _) = cluster.run(Some("ann"), &["user", "remove", "eye"]);
    assert_eq!(exit, 0);
    wait_for("the reader to be gone", || client.say("GET k").starts_with("-NOPERM").then_some(()));
    let (exit, json) = cluster.run(Some("ann"), &["user", "remove", "ann"]);
    assert_eq!((exit, code(&json)), (1, "refused"), "{json}");
    let (exit, json) = cluster.run(Some("ann"), &["user", "open", "--yes"]);
    assert_eq!((exit, &json["open"]), (0, &Json::Bool(true)));
    wait_for("all clients to be let in", || (client.say("SET k w") == "+OK").then_some(()));

    // Refused requests are counted.
    let text = fetch_metrics(&cluster.nodes.admin_addresses()[0]).unwrap();
    for name in ["client_forbidden", "client_wrong_passwords", "admin_refused"] {
        let begins = format!("quorate_{name}_total ");
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix(&begins)?.parse::<u64>().ok());
        assert!(count > Some(0), "{name}: {count:?}");
    }

    let mut all = Vec::new();
    files(cluster.nodes.data_folder(), &mut all);
    assert!(all.iter().any(|path| path.ends_with("audit.jsonl")));
    for path in all.iter().filter(|path| **path != cluster.secret) {
        // The nodes are running, so a listed file may be gone.
        let Ok(bytes) = fs::read(path) else {
            continue;
        };
        let found = String::from_utf8_lossy(&bytes).contains(SECRET);
        assert!(!found, "{} holds the password", path.display());
    }
}

/// Users survive in snapshots, in the store, and in a backup.
#[test]
fn users_survive_restarts_of_all_and_move_with_a_backup() {
    let mut cluster = Guarded::start(&[]);
    let (exit, json) = cluster.set(None, "ann", "admin");
    assert_eq!(exit, 0, "{json}");
    let (exit, json) = cluster.run(Some("ann"), &["snapshot"]);
    assert_eq!(exit, 0, "{json}");
    cluster.nodes.kill(&[1, 2, 3]).unwrap();
    cluster.nodes.restart(&[1, 2, 3]).unwrap();
    for node in 1..=3 {
        let mut client = cluster.client(node);
        let heard = client.say("GET k");
        assert!(heard.starts_with("-NO"), "no client is let in: {heard}");
        wait_for("the admin to be known", || {
            (client.say(&format!("AUTH ann {SECRET}")) == "+OK").then_some(())
        });
    }
    let file = cluster.nodes.data_folder().join("backup");
    let file = file.to_str().unwrap();
    let (exit, json) = cluster.run(Some("ann"), &["backup", "--to", file]);
    assert_eq!(exit, 0, "{json}");
    let data = cluster.nodes.data_folder().join("restored");
    let restored = quorate(&["restore", file, "--data", data.to_str().unwrap(), "--json"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stdout));
}

/// [access-4] The first user is refused while a node is disconnected. That node would admit every
/// client for a while after its return, since it does not know of the user.
#[test]
fn the_first_user_is_refused_while_a_node_is_away() {
    let mut cluster = Guarded::start(&["--store", "memory"]);
    cluster.nodes.kill(&[3]).unwrap();
    wait_for("the others to notice", || {
        let sees = |node| {
            let members = cluster.nodes.status(node)?.members;
            members.iter().any(|peer| peer.node == 3 && !peer.connected).then_some(())
        };
        sees(1).and(sees(2))
    });
    let (exit, json) = cluster.set(None, "ann", "admin");
    assert_eq!((exit, code(&json)), (1, "refused"), "{json}");
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("node 3 is not connected"), "{json}");
    assert!(json["error"]["hint"].as_str().unwrap().contains("--yes"));
    let (_, json) = cluster.run(None, &["user", "list"]);
    assert_eq!(json["open"], true, "nothing has changed");

    let secret = cluster.secret.to_str().unwrap();
    let words = ["user", "set", "ann", "--role", "admin", "--password-file", secret];
    let (exit, json) = cluster.run(None, &[&words[..], &["--yes"]].concat());
    assert_eq!(exit, 0, "{json}");
    // Only the first user needs confirmation.
    let (exit, json) = cluster.set(Some("ann"), "web", "writer");
    assert_eq!(exit, 0, "{json}");
}
