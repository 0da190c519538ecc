//! JSON clients over HTTP/1, and gRPC reflection.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use super::{Node, runtime};

/// Posts a body and reads the head of the response. Returns the status code, and a reader for the
/// rest.
fn post(node: &Node, path: &str, token: &str, body: &str) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(&node.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let auth = match token {
        "" => String::new(),
        token => format!("Authorization: {token}\r\n"),
    };
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{auth}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses a large body does not read it.
    let _ = stream.write_all(body.as_bytes());
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let code = line.split(' ').nth(1).unwrap().parse().unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            return (code, reader);
        }
    }
}

fn ask_as(node: &Node, token: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
    let (code, mut reader) = post(node, path, token, body);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (code, json)
}

fn ask(node: &Node, path: &str, body: &str) -> (u16, serde_json::Value) {
    ask_as(node, "", path, body)
}

/// Returns the next line of a stream, without the lengths of chunks.
fn next(reader: &mut BufReader<TcpStream>) -> serde_json::Value {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.starts_with('{') {
            return serde_json::from_str(&line).unwrap();
        }
    }
}

#[test]
fn json_does_what_grpc_does() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    let (code, put) = ask(&node, "/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    assert_eq!((code, &put["header"]["revision"]), (200, &"2".into()));
    let (_, found) = ask(&node, "/v3/kv/range", r#"{"key":"Zm9v"}"#);
    assert_eq!((&found["kvs"][0]["value"], &found["count"]), (&"YmFy".into(), &"1".into()));
    assert_eq!(found["kvs"][0]["create_revision"], "2");
    let txn = r#"{"compare":[{"target":"VERSION","key":"Zm9v","version":"1","result":"EQUAL"}],
                  "success":[{"requestDeleteRange":{"key":"Zm9v"}}]}"#;
    let (_, done) = ask(&node, "/v3/kv/txn", txn);
    assert_eq!(
        (&done["succeeded"], &done["responses"][0]["response_delete_range"]["deleted"]),
        (&true.into(), &"1".into())
    );
    let (_, lease) = ask(&node, "/v3/lease/grant", r#"{"TTL":"60","ID":"7"}"#);
    assert_eq!((&lease["ID"], &lease["TTL"]), (&"7".into(), &"60".into()));
    let (_, mut kept) = post(&node, "/v3/lease/keepalive", "", r#"{"ID":"7"}"#);
    assert_eq!(next(&mut kept)["result"]["TTL"], "60");
    let (_, members) = ask(&node, "/v3/cluster/member/list", "{}");
    assert_eq!(
        (
            &members["members"][0]["ID"],
            members["members"][0]["clientURLs"].as_array().unwrap().len()
        ),
        (&"1".into(), 1)
    );
    let (_, status) = ask(&node, "/v3/maintenance/status", "");
    assert_eq!(status["version"], "3.6.0");
    let (code, refused) = ask(&node, "/v3/kv/range", r#"{"key":""}"#);
    let text = "etcdserver: key is not provided";
    assert_eq!(
        (code, &refused),
        (400, &serde_json::json!({"error": text, "code": 3, "message": text}))
    );
    let (code, refused) = ask(&node, "/v3/kv/range", r#"{"key":"Zm9v","revision":"99"}"#);
    assert_eq!((code, &refused["code"]), (400, &11.into()));
    let (code, refused) = ask(&node, "/v3/lease/revoke", r#"{"ID":"99"}"#);
    assert_eq!((code, &refused["code"]), (404, &5.into()));
    for bad in ["{", "[]", r#"{"key":1}"#, "\u{1}", &"[".repeat(5000)] {
        assert_eq!(ask(&node, "/v3/kv/put", bad).0, 400, "{bad}");
    }
    // A failing stream reports the error in a line.
    let (code, ended) = ask(&node, "/v3/election/observe", "{");
    assert_eq!((code, &ended["code"]), (400, &3.into()));
}

#[test]
fn bodies_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    let value = "A".repeat(5 << 20);
    let body = format!(r#"{{"key":"Zm9v","value":"{value}"}}"#);
    assert!(post_fails(&node, &body));
    // Small as text, but large once parsed.
    let body = format!(r#"{{"compare":[{}{{}}]}}"#, "{},".repeat(500_000));
    let (code, refused) = ask(&node, "/v3/kv/txn", &body);
    assert_eq!((code, &refused["message"]), (429, &"etcdserver: too many requests".into()));
    let largest = "AAAA".repeat(400_000);
    let body = format!(r#"{{"key":"Zm9v","value":"{largest}"}}"#);
    assert_eq!(ask(&node, "/v3/kv/put", &body).0, 200);
    let (_, found) = ask(&node, "/v3/kv/range", r#"{"key":"Zm9v"}"#);
    assert_eq!(found["kvs"][0]["value"], largest.as_str());
}

/// Returns whether the body is refused with a code, or the connection ends while it is sent.
fn post_fails(node: &Node, body: &str) -> bool {
    let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        post(node, "/v3/kv/put", "", body).0
    }));
    sent.map_or(true, |code| code == 400 || code == 429)
}

#[test]
fn a_watch_is_a_line_for_each_answer() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    let (code, mut lines) = post(&node, "/v3/watch", "", r#"{"create_request":{"key":"Zm9v"}}"#);
    assert_eq!(code, 200);
    assert_eq!(next(&mut lines)["result"]["created"], true);
    ask(&node, "/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#);
    let told = next(&mut lines);
    let kv = &told["result"]["events"][0]["kv"];
    assert_eq!((&kv["key"], &kv["value"]), (&"Zm9v".into(), &"YmFy".into()));
}

#[test]
fn json_logs_in() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    let root = r#"{"name":"root","password":"r00t"}"#;
    assert_eq!(ask(&node, "/v3/auth/user/add", root).0, 200);
    assert_eq!(ask(&node, "/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#).0, 200);
    assert_eq!(ask(&node, "/v3/auth/enable", "{}").0, 200);
    let put = r#"{"key":"Zm9v","value":"YmFy"}"#;
    let (code, refused) = ask(&node, "/v3/kv/put", put);
    assert_eq!((code, &refused["message"]), (400, &"etcdserver: user name is empty".into()));
    let (_, login) = ask(&node, "/v3/auth/authenticate", root);
    let token = login["token"].as_str().unwrap();
    assert_eq!(ask_as(&node, token, "/v3/kv/put", put).0, 200);
    let (code, refused) = ask_as(&node, "x.1", "/v3/kv/put", put);
    assert_eq!((code, &refused["code"]), (401, &16.into()));
}

/// Reflection lists the services in both versions, as programs use either.
#[test]
fn a_server_says_what_it_offers() {
    use prost_reflect::prost::Message;
    use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery};
    use tonic_prost::ProstCodec;

    /// Reflection request for the list of services, the same in both versions.
    #[derive(Clone, PartialEq, Message)]
    struct Ask {
        #[prost(string, tag = "7")]
        list_services: String,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Service {
        #[prost(string, tag = "1")]
        name: String,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Services {
        #[prost(message, repeated, tag = "1")]
        service: Vec<Service>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Said {
        #[prost(message, optional, tag = "6")]
        services: Option<Services>,
    }
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        for version in ["v1", "v1alpha"] {
            let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
            let mut grpc = Grpc::new(node.channel());
            grpc.ready().await.unwrap();
            let ask = Ask { list_services: "*".to_owned() };
            let asked = Request::new(tonic::codegen::tokio_stream::iter([ask]));
            let path = PathAndQuery::from_maybe_shared(path).unwrap();
            let said = grpc.streaming(asked, path, ProstCodec::<Ask, Said>::default()).await;
            let said = said.unwrap().into_inner().message().await.unwrap().unwrap();
            let names: Vec<String> =
                said.services.unwrap().service.into_iter().map(|one| one.name).collect();
            assert!(names.contains(&"etcdserverpb.KV".to_owned()), "{names:?}");
            assert!(names.contains(&"v3lockpb.Lock".to_owned()), "{names:?}");
        }
    });
}
