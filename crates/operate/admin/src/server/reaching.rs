//! `POST /doctor/multicast…`: sends and counts numbered datagrams for `quorate doctor`.
//!
//! A node runs at most one listener, on a separate thread that ends after its time limit. Senders
//! run on a blocking thread. The reactor is needed only to look up the node's peer address. The
//! counts have a fixed size ([`quorate_packets::socket::reach`]).

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddrV4, ToSocketAddrs as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use axum::{Json, extract::State, http::StatusCode};
use quorate_packets::socket::{
    SocketError,
    interface::interface_towards,
    reach::{self, ReachListener},
};

use super::{
    Admin, SERVES,
    failure::{Failure, JsonBody},
    turn::ExclusiveTurn,
};
use crate::reaching::{
    DATAGRAMS_MAX, HeardRequest, HeardView, LISTEN_MS_MAX, ListenRequest, Listening, OfSender,
    SendRequest, Sent, parse_token,
};

const _: () = assert!(DATAGRAMS_MAX == reach::DATAGRAMS_MAX);
/// File with the kernel's IPv4 routing table.
const ROUTES_FILE: &str = "/proc/net/route";
/// Hint that asks for an explicit interface.
const INTERFACE_HINT: &str =
    "name one with \"interface\" (quorate doctor --interface); `ip link` lists them";

/// The current listener, and whether a sender is active.
#[derive(Clone, Debug, Default)]
pub(super) struct MulticastListeners {
    current: Arc<Mutex<Option<ActiveListener>>>,
    listen_turn: ExclusiveTurn,
    send_turn: ExclusiveTurn,
}

/// Active listener. It ends when its counts are taken or a new listener replaces it.
#[derive(Debug)]
struct ActiveListener {
    token: u64,
    stop_flag: Arc<AtomicBool>,
    thread: JoinHandle<Result<HeardView, String>>,
}

impl MulticastListeners {
    fn lock_current(&self) -> MutexGuard<'_, Option<ActiveListener>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the group and starts counting datagrams. Returns the interface that was used.
    fn start_listening(
        &self,
        wish: &MulticastParameters,
        time: Duration,
    ) -> Result<String, Failure> {
        let turn = self.listen_turn.try_take();
        let turn = turn.ok_or_else(|| busy_failure("the node is already listening to a group"))?;
        let listener = ReachListener::join(wish.group, &wish.interface, wish.token);
        let mut listener = listener.map_err(multicast_failure)?;
        let interface = listener.interface().to_owned();
        let (end, until) = (Arc::new(AtomicBool::new(false)), Instant::now() + time);
        let ends = Arc::clone(&end);
        let thread = thread::Builder::new().name("doctor".to_owned());
        let thread = thread.spawn(move || {
            let left = || until.saturating_duration_since(Instant::now());
            // The node must survive a panic on this thread.
            SERVES.set(true);
            let listened = listener.count_until(left, &ends);
            drop(turn);
            listened.map_err(|error| error.to_string())?;
            Ok(counts_view(&listener))
        });
        let thread = thread.map_err(|error| {
            let why = format!("cannot start a thread to listen: {error}");
            Failure::unavailable("failed", &why)
        })?;
        *self.lock_current() = Some(ActiveListener { token: wish.token, stop_flag: end, thread });
        Ok(interface)
    }

    /// Stops the listener with token `token` and returns its counts, which can be taken only once.
    fn stop_and_count(&self, token: u64) -> Result<HeardView, Failure> {
        let taken = self.lock_current().take_if(|current| current.token == token);
        let ActiveListener { stop_flag: end, thread, .. } = taken.ok_or_else(|| {
            Failure::new(
                StatusCode::CONFLICT,
                "not_listening",
                "there is no listener with this token",
                "POST /doctor/multicast begins it; its result can be fetched once",
            )
        })?;
        end.store(true, Ordering::Release);
        let heard = thread.join();
        let heard = heard.unwrap_or_else(|_| Err("the thread that listened failed".to_owned()));
        heard.map_err(|why| Failure::unavailable("failed", &why))
    }

    fn send_datagrams(
        &self,
        wish: &MulticastParameters,
        sender: u32,
        count: u32,
    ) -> Result<Sent, Failure> {
        let turn = self.send_turn.try_take();
        let _turn = turn.ok_or_else(|| busy_failure("the node is already sending to a group"))?;
        let from = (wish.token, sender);
        let sent =
            reach::send_test_datagrams(wish.group, &wish.interface, from, count, thread::sleep);
        Ok(Sent { interface: wish.interface.clone(), sent: sent.map_err(multicast_failure)? })
    }
}

fn counts_view(listener: &ReachListener) -> HeardView {
    let heard = listener.sender_counts().into_iter().map(|heard| OfSender {
        sender: heard.sender,
        count: heard.count,
        repeated: heard.repeated_count,
    });
    HeardView { heard: heard.collect(), foreign: listener.foreign_count() }
}

fn busy_failure(why: &str) -> Failure {
    let hint = "another 'quorate doctor' may be running; it takes at most ten seconds";
    Failure::new(StatusCode::CONFLICT, "busy", why, hint)
}

fn multicast_failure(why: SocketError) -> Failure {
    let (status, hint) = match why {
        SocketError::Interface { .. } => (StatusCode::UNPROCESSABLE_ENTITY, INTERFACE_HINT),
        _ => (
            StatusCode::CONFLICT,
            "does the interface do multicast? `quorate doctor` on that machine says more",
        ),
    };
    Failure::new(status, "no_multicast", &why.to_string(), hint)
}

/// Validated parameters of a listen or send request.
struct MulticastParameters {
    group: SocketAddrV4,
    interface: String,
    token: u64,
}

impl MulticastParameters {
    async fn new(
        admin: &Admin,
        (group, text): (&str, &str),
        interface: Option<String>,
    ) -> Result<Self, Failure> {
        let group = reach::parse_group(group).map_err(|why| {
            refused_parameter(&format!("\"group\": {group}: {why}"), "such as 239.81.84.69:7460")
        })?;
        let token = parse_token(text).ok_or_else(|| {
            refused_parameter(
                "\"token\": not 16 hexadecimal digits",
                "docs/operate.md shows the body",
            )
        })?;
        let interface = match interface {
            Some(interface) => interface,
            None => peer_interface(admin).await?,
        };
        Ok(Self { group, interface, token })
    }
}

fn refused_parameter(why: &str, hint: &'static str) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", why, hint)
}

/// Returns the interface that has the node's peer address.
async fn peer_interface(admin: &Admin) -> Result<String, Failure> {
    let (status, _) = admin.status().await?;
    let own = status.member.node;
    let mut peers = status.peers.iter();
    let own = peers.find(|peer| peer.member.node == own);
    let place = own.map_or_else(String::new, |own| own.addresses.peer.clone());
    let found = tokio::task::spawn_blocking(move || {
        let mut places = place.to_socket_addrs().ok()?;
        let address = places.find_map(|place| match place.ip() {
            IpAddr::V4(address) if address != Ipv4Addr::UNSPECIFIED => Some(address),
            _ => None,
        })?;
        let routes = fs::read_to_string(ROUTES_FILE).unwrap_or_default();
        interface_towards(address, &routes).map(str::to_owned)
    });
    found.await.ok().flatten().ok_or_else(|| {
        let why = "the interface of the node's peer address is not known";
        Failure::new(StatusCode::CONFLICT, "no_interface", why, INTERFACE_HINT)
    })
}

/// Runs blocking work on a separate thread, so that other requests do not wait for it.
async fn run_on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<Json<T>, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|_| Err(Failure::unavailable("failed", "it could not be done")));
    done.map(Json)
}

/// Starts to count datagrams. Requires the JSON content type, as `transfer` does.
pub(super) async fn handle_listen(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<ListenRequest>,
) -> Result<Json<Listening>, Failure> {
    let listen_ms = request.listen_ms;
    if !(1..=LISTEN_MS_MAX).contains(&listen_ms) {
        return Err(refused_parameter(
            "\"listen_ms\" is 1 … 10000",
            "it ends earlier if it is asked what it heard",
        ));
    }
    let of = (&*request.group, &*request.token);
    let wish = MulticastParameters::new(&admin, of, request.interface).await?;
    let ears = admin.multicast_listeners.clone();
    run_on_thread(move || {
        let interface = ears.start_listening(&wish, Duration::from_millis(listen_ms))?;
        Ok(Listening { interface, listen_ms })
    })
    .await
}

/// Sends numbered datagrams. Requires the JSON content type for the same reason as `transfer`.
pub(super) async fn handle_send(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<SendRequest>,
) -> Result<Json<Sent>, Failure> {
    if !(1..=DATAGRAMS_MAX).contains(&request.count) {
        return Err(refused_parameter("\"count\" is 1 … 1000", "200 are enough to see losses"));
    }
    let of = (&*request.group, &*request.token);
    let wish = MulticastParameters::new(&admin, of, request.interface).await?;
    let ears = admin.multicast_listeners.clone();
    run_on_thread(move || ears.send_datagrams(&wish, request.sender, request.count)).await
}

/// Returns the counts and stops the listener. Requires the JSON content type, as `transfer` does.
pub(super) async fn handle_counts(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<HeardRequest>,
) -> Result<Json<HeardView>, Failure> {
    let token = parse_token(&request.token).ok_or_else(|| {
        refused_parameter("\"token\": not 16 hexadecimal digits", "docs/operate.md shows the body")
    })?;
    let ears = admin.multicast_listeners.clone();
    run_on_thread(move || ears.stop_and_count(token)).await
}

#[cfg(test)]
mod tests {
    use quorate_core::node_id::NodeId;
    use serde_json::{Value, json};

    use super::*;
    use crate::{client, server::Admin};

    const WAIT: Duration = Duration::from_secs(60);
    const TOKEN: &str = "00000000000000a1";

    fn admin() -> String {
        let admin =
            Admin::start("127.0.0.1:0", NodeId(7), quorate_tls::Protection::Loopback).unwrap();
        admin.address().to_string()
    }

    /// Sends a request and returns the status code and the JSON document.
    fn post(address: &str, path: &str, body: &Value) -> (u16, Value) {
        let path = format!("/doctor/multicast{path}");
        let response = client::post(address, &path, &body.to_string(), WAIT).unwrap();
        let json = serde_json::from_str(&response.body).unwrap();
        (response.status, json)
    }

    /// Returns a multicast address with a UDP port that was free a moment ago.
    fn group() -> String {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        format!("239.81.84.71:{}", free.local_addr().unwrap().port())
    }

    fn wish(group: &str) -> Value {
        json!({"group": group, "interface": "lo", "listen_ms": 10_000, "token": TOKEN})
    }

    #[test]
    fn invalid_requests_are_refused_with_a_hint() {
        let (address, group) = (admin(), group());
        let with = |key: &str, value: Value| {
            let mut body = wish(&group);
            body[key] = value;
            body
        };
        for body in [
            with("group", json!("10.0.0.1:7460")),
            with("group", json!("224.0.0.1:7460")),
            with("group", json!("239.1.2.3")),
            with("listen_ms", json!(0)),
            with("listen_ms", json!(10_001)),
            with("listen_ms", json!(-1)),
            with("token", json!("x")),
            with("interface", json!("no/such")),
            with("more", json!(1)),
            json!({}),
        ] {
            let (status, json) = post(&address, "", &body);
            assert_eq!(status, 422, "{body} {json}");
            assert!(!json["error"]["hint"].as_str().unwrap().is_empty(), "{json}");
        }
        let sending = |count: u64| json!({"group": group, "interface": "lo", "token": TOKEN, "sender": 1, "count": count});
        for count in [0, 1001, u64::MAX] {
            assert_eq!(post(&address, "/send", &sending(count)).0, 422, "{count}");
        }
        assert_eq!(post(&address, "/heard", &json!({"token": "x"})).0, 422);
        let (status, json) = post(&address, "/heard", &json!({"token": TOKEN}));
        assert_eq!((status, &json["error"]["code"]), (409, &json!("not_listening")));
        // Without an interface the node must look up its own, which it cannot while starting.
        let (status, _) =
            post(&address, "", &json!({"group": group, "listen_ms": 5, "token": TOKEN}));
        assert_eq!(status, 503);
    }

    #[test]
    fn one_listener_at_a_time_and_results_are_returned_once() {
        let (address, group) = (admin(), group());
        let (status, json) = post(&address, "", &wish(&group));
        if status == 409 && json["error"]["code"] == "no_multicast" {
            let all = std::env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
            assert!(!all, "listening to a group is not tested: {json}");
            eprintln!("skipped: listening to a group: {json}");
            return;
        }
        assert_eq!((status, &json["interface"]), (200, &json!("lo")), "{json}");
        let (status, json) = post(&address, "", &wish(&group));
        assert_eq!((status, &json["error"]["code"]), (409, &json!("busy")), "{json}");
        let other = json!({"token": "00000000000000a2"});
        assert_eq!(post(&address, "/heard", &other).0, 409, "another caller's");

        let sending =
            json!({"group": group, "interface": "lo", "token": TOKEN, "sender": 9, "count": 20});
        let (status, json) = post(&address, "/send", &sending);
        assert_eq!((status, &json["sent"]), (200, &json!(20)), "{json}");
        let (status, json) = post(&address, "/heard", &json!({"token": TOKEN}));
        let heard = json!([{"sender": 9, "count": 20, "repeated": 0}]);
        assert_eq!((status, &json["heard"]), (200, &heard), "{json}");
        assert_eq!(post(&address, "/heard", &json!({"token": TOKEN})).0, 409, "once");

        // A new listener may start, and ends by itself without a request for its counts.
        let mut short = wish(&group);
        short["listen_ms"] = json!(1);
        assert_eq!(post(&address, "", &short).0, 200);
        let until = Instant::now() + WAIT;
        while post(&address, "", &short).0 == 409 {
            assert!(Instant::now() < until, "it never ends");
            thread::yield_now();
        }
        assert_eq!(post(&address, "/heard", &json!({"token": TOKEN})).0, 200);
    }
}
