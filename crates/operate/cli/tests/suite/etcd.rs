//! Nodes with `--service etcd`. They print which clients may connect, and their service cannot be
//! changed later.

use std::path::Path;

use quorate_admin::client;
use quorate_testbed::nodes::fetch;
use serde_json::Value as Json;

use crate::common::{Cluster, NodeProcess, START_TIMEOUT, quorate, quorate_json, single, wait_for};

#[test]
fn a_cluster_keeps_the_service_that_it_began_with() {
    let mut cluster = Cluster::start(3, &["--service", "etcd"]);
    let serves = |cluster: &Cluster| {
        for address in cluster.clients() {
            let version = fetch(&address, "/version", START_TIMEOUT).unwrap();
            assert!(version.contains(r#""etcdserver":"3.6.0""#), "{version}");
            wait_for("a healthy node", || {
                let health = fetch(&address, "/health", START_TIMEOUT)?;
                (health == r#"{"health":"true","reason":""}"#).then_some(())
            });
        }
    };
    serves(&cluster);
    let status = cluster.status(1).unwrap();
    assert_eq!(status["store"], "etcd-memory");
    cluster.node(1).kill().unwrap();
    let data = cluster.node(1).spec.data_folder.display().to_string();
    let any = "127.0.0.1:0";
    let places = ["--client", any, "--admin", any, "--stream", any, "--peer", any];
    let refused = quorate(&[&["start", "--data", &data, "--service", "kv"], &places[..]].concat());
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("this node's cluster serves etcd, not kv"), "{said}");
    cluster.node(1).restart().unwrap();
    cluster.wait_until_all_serve();
    serves(&cluster);
}

/// Sends a JSON request and returns the node's response.
fn ask(address: &str, path: &str, body: &str) -> Json {
    let answer = client::post(address, path, body, START_TIMEOUT).unwrap();
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

/// Keys and their history survive even on a single node, and the next start needs no flags.
#[test]
fn keys_on_disk_are_there_after_a_kill() {
    let mut cluster = Cluster::start(1, &["--service", "etcd", "--store", "lsm"]);
    assert_eq!(cluster.status(1).unwrap()["store"], "etcd-lsm");
    let address = cluster.clients().remove(0);
    // "foo", and "1" to "3", in Base64.
    for value in ["MQ==", "Mg==", "Mw=="] {
        let put = format!(r#"{{"key":"Zm9v","value":"{value}"}}"#);
        let answer = ask(&address, "/v3/kv/put", &put);
        assert!(answer["header"]["revision"].is_string(), "{answer}");
    }
    let compact = r#"{"revision":"3","physical":true}"#;
    let answer = ask(&address, "/v3/kv/compaction", compact);
    assert_eq!(answer["header"]["revision"], "4", "{answer}");
    let range = |address: &str, revision: u32| {
        let body = format!(r#"{{"key":"Zm9v","revision":"{revision}"}}"#);
        ask(address, "/v3/kv/range", &body)
    };
    let now = |address: &str| {
        let there = range(address, 0);
        let kv = &there["kvs"][0];
        assert_eq!((&kv["value"], &kv["version"]), (&"Mw==".into(), &"3".into()));
        assert_eq!(range(address, 3)["kvs"][0]["value"], "Mg==");
        let gone = range(address, 2);
        assert!(gone.to_string().contains("has been compacted"), "{gone}");
        ask(address, "/v3/maintenance/hash", "{}")["hash"].clone()
    };
    let before = now(&address);
    cluster.node(1).kill().unwrap();
    let folder = cluster.node(1).spec.data_folder.join("etcd");
    assert!(folder.is_dir());
    cluster.node(1).restart().unwrap();
    cluster.wait_until_all_serve();
    let address = cluster.clients().remove(0);
    assert_eq!(now(&address), before);
}

/// Revisions that clients saw after the backup are not assigned again.
#[test]
fn a_restored_cluster_goes_on_above_the_revisions_that_clients_have_seen() {
    let mut cluster = Cluster::start(1, &["--service", "etcd"]);
    let put = |address: &str| ask(address, "/v3/kv/put", r#"{"key":"Zm9v"}"#);
    let address = cluster.clients().remove(0);
    assert_eq!(put(&address)["header"]["revision"], "2");
    let folder = tempfile::tempdir().unwrap();
    let [file, plain, raised] = ["backup", "plain", "raised"].map(|name| folder.path().join(name));
    let file = file.to_str().unwrap();
    let admin = cluster.node(1).ready.admin.clone();
    assert!(quorate(&["backup", "--to", file, "--admin", &admin]).status.success());
    assert_eq!(put(&address)["header"]["revision"], "3");
    let restore = |data: &Path, more: &[&str]| {
        let restore = ["restore", file, "--data", data.to_str().unwrap()];
        let output = quorate(&[&restore[..], more].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (done, said) = restore(&plain, &[]);
    assert_eq!(done, Some(0), "{said}");
    assert!(said.contains("its revision is 2") && said.contains("--bump-revision"), "{said}");
    assert_eq!(restore(&raised, &["--bump-revision", "1000"]).0, Some(2));
    let flags = ["--mark-compacted", "--bump-revision", "9223372036854775807"];
    assert_eq!(restore(&raised, &flags).0, Some(2));
    let (done, said) = restore(&raised, &["--bump-revision", "1000", "--mark-compacted"]);
    assert_eq!((done, said.contains("--bump-revision")), (Some(0), false), "{said}");
    let mut node = NodeProcess::spawn(single(&raised, &[])).unwrap();
    node.wait_ready().unwrap();
    let address = &node.ready.client;
    let seen = wait_for("an answer", || {
        let answer = ask(address, "/v3/kv/range", r#"{"key":"Zm9v","revision":"3"}"#);
        answer["message"].as_str().map(str::to_owned)
    });
    assert!(seen.contains("has been compacted"), "{seen}");
    assert_eq!(put(address)["header"]["revision"], "1003");
}

/// Authentication is enabled in this etcd snapshot, but its passwords cannot be used here. No user
/// could log in, so nothing is written. With a new password for root, clients of the new cluster
/// must log in.
#[test]
fn a_snapshot_of_etcd_with_users_needs_a_new_password_of_root() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let snapshot = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../services/etcd/tests/suite/import/etcd-3.7.3.db"
    );
    let restore = |more: &[&str]| {
        let restore = [
            "restore",
            "--from-etcd",
            snapshot,
            "--data",
            data.as_str(),
            "--peer",
            "127.0.0.1:7451",
        ];
        quorate(&[&restore[..], more].concat())
    };
    let refused = restore(&[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("its passwords cannot be restored"), "{said}");
    assert!(said.contains("--root-password-file"), "{said}");
    assert!(!Path::new(&data).exists(), "nothing is written");
    let password = folder.path().join("password");
    std::fs::write(&password, "sesame\n").unwrap();
    let done = restore(&["--root-password-file", &password.display().to_string()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let status = quorate(&["restore", "--from-etcd", snapshot, "--json"]);
    let status: Json = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["auth_enabled"], &status["total_key"]), (&true.into(), &29.into()));
}

#[test]
fn bad_tokens_and_retentions_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0";
    let start = |flag: &str, value: &str| {
        let data = folder.path().join("data").display().to_string();
        let places = ["--client", any, "--admin", any, "--stream", any, "--peer", any];
        let start = ["start", "--service", "etcd", "--data", data.as_str(), flag, value];
        let refused = quorate(&[&start[..], &places].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        said
    };
    let said = start("--etcd-auth-token", "jws");
    assert!(said.contains("--etcd-auth-token: \"jws\" is no kind of token"), "{said}");
    let said = start("--etcd-auth-token", "jwt,sign-method=HS256,priv-key=/nowhere/key");
    assert!(said.contains("cannot read /nowhere/key"), "{said}");
    let said = start("--etcd-auto-compaction", "1");
    assert!(said.contains("--etcd-auto-compaction: say off, a time such as 1h"), "{said}");
}

/// A user who may not read all keys from etcd's port may not read them from the admin server.
#[test]
fn once_auth_is_enabled_operators_need_the_role_root() {
    let mut cluster = Cluster::start(1, &["--service", "etcd"]);
    let client = cluster.clients().remove(0);
    let admin = cluster.nodes.admin_addresses().swap_remove(0);
    let folder = tempfile::tempdir().unwrap();
    let [to, secret] = ["backup", "secret"].map(|name| folder.path().join(name));
    std::fs::write(&secret, "sesame\n").unwrap();
    let [to, secret] = [&to, &secret].map(|path| path.to_str().unwrap());
    let run = |login: Option<&str>, words: &[&str]| {
        let mut words = [words, &["--admin", &admin, "--json"]].concat();
        words.extend(login.into_iter().flat_map(|name| ["--login", name, "--login-file", secret]));
        quorate_json(&words)
    };
    let backup = ["backup", "--to", to];
    ask(&client, "/v3/kv/put", r#"{"key":"Zm9v","value":"MQ=="}"#);
    assert_eq!(run(None, &backup).0, 0);
    for (path, body) in [
        ("/v3/auth/user/add", r#"{"name":"root","password":"sesame"}"#),
        ("/v3/auth/user/add", r#"{"name":"ann","password":"sesame"}"#),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        let answer = ask(&client, path, body);
        assert!(answer["error"].is_null(), "{path}: {answer}");
    }
    for words in [
        &backup[..],
        &["scrub"],
        &["user", "set", "eve", "--role", "admin", "--password-file", secret],
        &["member", "add", "--peer", "127.0.0.1:1"],
    ] {
        for login in [None, Some("ann"), Some("eve")] {
            let (exit, said) = run(login, words);
            let hint = said["error"]["hint"].as_str().unwrap_or_default();
            assert!(exit == 1 && hint.contains("role root in etcd"), "{login:?} {words:?}: {said}");
        }
    }
    assert_eq!(run(None, &["status"]).0, 0);
    std::fs::write(secret, "guess\n").unwrap();
    assert_eq!(run(Some("root"), &backup).0, 1);
    std::fs::write(secret, "sesame\n").unwrap();
    assert_eq!(run(Some("root"), &backup).0, 0);
    let (_, said) = run(Some("root"), &["audit"]);
    let records = said.as_array().unwrap();
    let named = ["root", "-", "ann"].map(|who| records.iter().any(|one| one["who"] == who));
    assert_eq!(named, [true, true, false], "{said}");

    // A node that starts knows its users before it serves anyone.
    cluster.node(1).kill().unwrap();
    cluster.node(1).restart().unwrap();
    assert_ne!(run(None, &backup).0, 0);
    cluster.wait_until_all_serve();
    assert_eq!(run(None, &backup).0, 1);
    assert_eq!(run(Some("root"), &backup).0, 0);
}
