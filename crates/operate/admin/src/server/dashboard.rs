//! The dashboard at the admin address: its page at `/`, data at `/events`, buttons at `/act`.
//!
//! The page consists of this crate's [`files`], without a build step or external resources. While
//! any page is open, this node gathers data from all nodes once a second for all of them:
//! [`audience`] counts the pages, and [`gather`] queries the nodes. Buttons send the same requests
//! as programs, to this node or through it to another one ([`act`]). The page shows refusals.

mod act;
mod audience;
mod files;
mod gather;

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, HeaderName},
    },
    response::{IntoResponse as _, Response},
    routing::{get, post},
};

use super::{
    Admin, browser,
    failure::Failure,
    pieces::{ChunkedBody, LongResponse},
};

pub(super) use act::ForwardLimit;
pub(super) use audience::DashboardPages;
pub(super) use files::COLOURS_FILE;
pub(super) use gather::CONCURRENT_QUERIES_MAX;

/// Content security policy that permits only the page's own files, and no inline scripts or styles.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Header that keeps proxies from buffering the event stream.
const UNBUFFERED_HEADER: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

pub(super) fn routes() -> Router<Admin> {
    let mut router =
        Router::new().route("/events", get(handle_events)).route("/act", post(act::handle_act));
    for file in files::ALL_FILES {
        let answer = move || async move {
            let mut response = ([(CONTENT_TYPE, file.kind)], file.text).into_response();
            browser::add_security_headers(&mut response, CONTENT_POLICY);
            response
        };
        router = router.route(file.path, get(answer));
    }
    router
}

/// Streams a document every second until the page disconnects or the connection reaches its time
/// limit. The page then reconnects.
async fn handle_events(
    State(admin): State<Admin>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    if browser::is_foreign_site(&headers) {
        return Err(Failure::foreign_page());
    }
    let joined = admin.dashboard_pages.add_page().ok_or_else(|| {
        Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many pages watch this node",
            "close one, or open the page of another node",
        )
    })?;
    if joined.is_first {
        tokio::spawn(gather::gather_documents(admin.clone()));
    }
    let body = Body::new(ChunkedBody::new(joined.documents, None));
    let kind = [(CONTENT_TYPE, "text/event-stream"), UNBUFFERED_HEADER];
    let mut response = (kind, body).into_response();
    browser::add_security_headers(&mut response, CONTENT_POLICY);
    response.extensions_mut().insert(LongResponse(joined.exemption));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpStream,
        time::Duration,
    };

    use quorate_core::node_id::NodeId;
    use serde_json::Value;

    use super::*;
    use crate::client;

    const WAIT: Duration = Duration::from_secs(60);

    fn admin() -> (Admin, String) {
        let admin =
            Admin::start("127.0.0.1:0", NodeId(7), quorate_tls::Protection::Loopback).unwrap();
        let address = admin.address().to_string();
        (admin, address)
    }

    /// Opens the event stream. Returns the head of the response and the rest of the stream.
    fn watch(address: &str) -> (String, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        write!(stream, "GET /events HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
        }
        (head, stream)
    }

    fn document(stream: &mut BufReader<TcpStream>) -> Value {
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "it goes on");
            if let Some(json) = line.strip_prefix("data: ") {
                return serde_json::from_str(json).unwrap();
            }
        }
    }

    #[test]
    fn page_loads_only_files_of_this_node() {
        let (_admin, address) = admin();
        for file in files::ALL_FILES {
            let response = client::get(&address, file.path, WAIT).unwrap();
            assert_eq!((response.status, &*response.body), (200, file.text));
            for elsewhere in ["http://", "https://", "//cdn", "eval(", "innerHTML"] {
                let svg = file.text.replace("http://www.w3.org/2000/svg", "");
                assert!(!svg.contains(elsewhere), "{}: {elsewhere}", file.path);
            }
        }
        let document = client::get(&address, "/", WAIT).unwrap().body;
        for (at, _) in document.match_indices("\"/page/") {
            let path = document[at + 1..].split('"').next().unwrap();
            assert!(files::ALL_FILES.iter().any(|file| file.path == path), "{path}");
        }
    }

    /// The stream also works while the node starts, when operators need it most.
    #[test]
    fn stream_sends_a_document_every_second_even_while_starting() {
        let (admin, address) = admin();
        admin.set_starting("waiting for the founder");
        let (head, mut stream) = watch(&address);
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        assert!(
            head.to_lowercase()
                .contains("content-security-policy: default-src 'none'; script-src 'self';"),
            "{head}"
        );
        for _ in 0..2 {
            let document = document(&mut stream);
            assert_eq!(document["here"], 7, "{document}");
            let node = &document["nodes"][0];
            assert_eq!(node["trouble"], "waiting for the founder", "{document}");
            assert_eq!(node["view"], Value::Null);
        }
    }

    #[test]
    fn watchers_are_bounded_and_leaving_frees_a_place() {
        let (admin, address) = admin();
        let mut watching: Vec<_> = (0..audience::PAGES_MAX).map(|_| watch(&address)).collect();
        let (head, _) = watch(&address);
        assert!(head.starts_with("HTTP/1.0 503"), "{head}");
        // The remaining watchers are still served.
        assert!(document(&mut watching[0].1)["here"].is_u64());
        let mut foreign = TcpStream::connect(&address).unwrap();
        write!(foreign, "GET /events HTTP/1.0\r\nSec-Fetch-Site: cross-site\r\n\r\n").unwrap();
        let mut text = String::new();
        foreign.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.0 403"), "{text}");
        watching.pop();
        while watch(&address).0.starts_with("HTTP/1.0 503") {
            std::thread::yield_now();
        }
        drop(watching);
        while admin.dashboard_pages.has_gatherer() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn unknown_actions_are_refused_with_a_reason() {
        let (_admin, address) = admin();
        for (body, status, code) in [
            (r#"{"node":7,"act":{"transfer":{"to":2}}}"#, 503, "starting"),
            (r#"{"node":2,"act":{"snapshot":{}}}"#, 503, "starting"),
            (r#"{"node":7,"act":{"stop":{}}}"#, 422, "bad_request"),
            (r#"{"node":7,"act":{"transfer":{"force":true}}}"#, 422, "bad_request"),
            (r#"{"node":7,"act":{"snapshot":{}},"more":1}"#, 422, "bad_request"),
        ] {
            let response = client::post(&address, "/act", body, WAIT).unwrap();
            assert_eq!(response.status, status, "{body}: {}", response.body);
            let refusal = response.parse_json::<Value>().unwrap_err();
            assert_eq!(refusal.code, code, "{body}: {}", response.body);
        }
    }
}
