//! Serves a local tool's page: a document, its state as JSON, and the requests of its buttons.
//!
//! Only the page itself may send requests. Another site's page can neither read nor change
//! anything, even with DNS rebinding. The limits are those of the admin address.

use std::{io, net::TcpListener, sync::Arc, thread, time::Duration};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    add_fallbacks, browser, connections,
    dashboard::COLOURS_FILE,
    failure::{Failure, JsonBody},
};

/// Maximum time that a connection may remain open. The page polls several times a second on one
/// connection, and reconnects without interruption.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(3600);
/// Content security policy that forbids content from elsewhere, framing and forms.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Contents of a page, and the actions of its buttons.
pub trait PageBoard: Send + Sync + 'static {
    /// State that the page shows.
    type PageState: Serialize + Send;
    /// Request sent by a button. A body of any other form is rejected without calling the board.
    type ButtonRequest: DeserializeOwned + Send + 'static;
    /// Result of a button's request.
    type Outcome: Serialize + Send + 'static;

    /// Returns the current state. Must not block.
    fn page_state(&self) -> Self::PageState;

    /// Executes or refuses a button's request. Runs on a separate thread, and may block.
    fn execute_button(&self, ask: Self::ButtonRequest) -> Result<Self::Outcome, ButtonRefusal>;
}

/// Reason why a button's request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ButtonRefusal {
    /// Machine-readable code: lower-case words joined by `_`.
    pub code: &'static str,
    pub message: String,
}

impl From<ButtonRefusal> for Failure {
    fn from(refused: ButtonRefusal) -> Self {
        let status = StatusCode::CONFLICT;
        Self::new(status, refused.code, &refused.message, "look at the page again")
    }
}

/// Serves the page until the process ends, and returns the server's thread. The page is at `/`, the
/// colours at `/colours.css`, the state at `/state`, and buttons post their requests to `/ask`.
pub fn serve_page<B: PageBoard>(
    listener: TcpListener,
    html: &'static str,
    board: Arc<B>,
) -> io::Result<thread::JoinHandle<()>> {
    let limits =
        connections::Limits { lifetime_max: CONNECTION_LIFETIME, ..connections::Limits::default() };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(limits.connections_max)
        .build()?;
    let work = move || {
        runtime.block_on(async {
            match connections::into_async_listener(listener) {
                Ok(listener) => {
                    connections::serve(listener, page_router(html, board), None, limits).await
                }
                Err(error) => tracing::error!(%error, "cannot serve the page"),
            }
        });
    };
    thread::Builder::new().name("page".to_owned()).spawn(work)
}

fn page_router<B: PageBoard>(html: &'static str, board: Arc<B>) -> Router {
    let colours = || async { ([(CONTENT_TYPE, COLOURS_FILE.kind)], COLOURS_FILE.text) };
    let document = move || async move { ([(CONTENT_TYPE, "text/html; charset=utf-8")], html) };
    let pages = Router::new()
        .route("/", get(document))
        .route("/colours.css", get(colours))
        .route("/state", get(handle_state::<B>))
        .route("/ask", post(handle_button::<B>));
    add_fallbacks(pages, PATHS).layer(from_fn(refuse_other_pages)).with_state(board)
}

const PATHS: &str = "GET / /state /colours.css, POST /ask";

async fn handle_state<B: PageBoard>(State(board): State<Arc<B>>) -> Json<B::PageState> {
    Json(board.page_state())
}

async fn handle_button<B: PageBoard>(
    State(board): State<Arc<B>>,
    JsonBody(ask): JsonBody<B::ButtonRequest>,
) -> Result<Json<B::Outcome>, Failure> {
    let asked = tokio::task::spawn_blocking(move || board.execute_button(ask)).await;
    let told = asked.map_err(|_| Failure::unavailable("failed", "it could not be asked for"))?;
    Ok(Json(told?))
}

async fn refuse_other_pages(request: Request, next: Next) -> Response {
    let mut response = match browser::is_same_origin(request.method(), request.headers()) {
        true => next.run(request).await,
        false => Failure::new(
            StatusCode::FORBIDDEN,
            "foreign_page",
            "the request did not come from this page",
            "open the page by the address that was printed",
        )
        .into_response(),
    };
    browser::add_security_headers(&mut response, CONTENT_POLICY);
    response
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpStream},
        sync::atomic::{AtomicU32, Ordering},
    };

    use serde::Deserialize;

    use super::{super::BODY_BYTES_MAX, *};

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, tag = "ask", rename_all = "snake_case")]
    enum Ask {
        Add { number: u32 },
        Explode {},
    }

    #[derive(Default)]
    struct Sum(AtomicU32);

    impl PageBoard for Sum {
        type PageState = u32;
        type ButtonRequest = Ask;
        type Outcome = u32;

        fn page_state(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }

        fn execute_button(&self, ask: Ask) -> Result<u32, ButtonRefusal> {
            match ask {
                Ask::Add { number } => Ok(self.0.fetch_add(number, Ordering::SeqCst) + number),
                Ask::Explode {} => {
                    Err(ButtonRefusal { code: "not_now", message: "it is \"wet\"".to_owned() })
                }
            }
        }
    }

    const HTML: &str = "<!doctype html><title>sum</title>";

    fn page() -> (SocketAddr, Arc<Sum>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let board = Arc::new(Sum::default());
        serve_page(listener, HTML, board.clone()).unwrap();
        (address, board)
    }

    fn send(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Presses a button as a browser would, and returns the response.
    fn press(address: SocketAddr, body: &str) -> String {
        let headers = format!(
            "Host: {address}\r\nOrigin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/json\r\n"
        );
        send(address, "POST", "/ask", &headers, body)
    }

    fn status(text: &str) -> &str {
        text.split(' ').nth(1).unwrap_or_default()
    }

    #[test]
    fn page_state_and_actions_are_served() {
        let (address, board) = page();
        let host = format!("Host: {address}\r\n");
        let document = send(address, "GET", "/", &host, "");
        assert_eq!(status(&document), "200");
        assert!(document.ends_with(HTML), "{document}");
        let kept = "default-src 'none'";
        assert!(document.contains(kept), "nothing from elsewhere");
        assert!(document.to_lowercase().contains("x-frame-options: deny\r\n"));
        let pressed = press(address, r#"{"ask":"add","number":7}"#);
        assert!(pressed.ends_with("\r\n7"), "{pressed}");
        assert_eq!(board.page_state(), 7);
        let state = send(address, "GET", "/state", &host, "");
        assert!(state.ends_with("\r\n7"), "{state}");
        // `localhost` is accepted as well.
        let named = format!("Host: localhost:{}\r\n", address.port());
        assert_eq!(status(&send(address, "GET", "/", &named, "")), "200");
    }

    #[test]
    fn unknown_actions_are_refused() {
        let (address, board) = page();
        for body in [
            "",
            "7",
            "{}",
            r#"{"ask":"add"}"#,
            r#"{"ask":"add","number":-1}"#,
            r#"{"ask":"add","number":1,"more":1}"#,
            r#"{"ask":"subtract","number":1}"#,
            r#"{"ask":"add","number":1}{"#,
        ] {
            let text = press(address, body);
            assert!(["400", "422"].contains(&status(&text)), "{body}: {text}");
            assert!(text.contains("\"code\":\"bad_request\""), "{body}: {text}");
        }
        let long = format!(r#"{{"ask":"add",{}"number":1}}"#, " ".repeat(BODY_BYTES_MAX));
        assert_eq!(status(&press(address, &long)), "413");
        let refused = press(address, r#"{"ask":"explode"}"#);
        assert_eq!(status(&refused), "409");
        assert!(refused.contains(r#""message":"it is \"wet\"""#), "{refused}");
        let host = format!("Host: {address}\r\nOrigin: http://{address}\r\n");
        for (method, path, expected) in [
            ("GET", "/ask", "405"),
            ("POST", "/state", "405"),
            ("DELETE", "/", "405"),
            ("GET", "/status", "404"),
        ] {
            let text = send(address, method, path, &host, "");
            assert_eq!(status(&text), expected, "{method} {path}");
        }
        let text = send(address, "POST", "/ask", &host, r#"{"ask":"add","number":1}"#);
        assert_eq!(status(&text), "415", "a form can be sent by any page");
        assert_eq!(board.page_state(), 0);
    }

    #[test]
    fn requests_from_other_pages_are_refused() {
        let (address, board) = page();
        let json = "Content-Type: application/json\r\n";
        let add = r#"{"ask":"add","number":1}"#;
        for headers in [
            // Without an origin the request does not come from the page.
            format!("Host: {address}\r\n"),
            format!("Host: {address}\r\nOrigin: http://evil.example\r\n"),
            format!("Host: {address}\r\nOrigin: null\r\n"),
            format!("Host: {address}\r\nOrigin: http://127.0.0.1:1\r\n"),
            format!(
                "Host: {address}\r\nOrigin: http://{address}\r\nSec-Fetch-Site: cross-site\r\n"
            ),
            // A name rebound to this address.
            "Host: evil.example\r\nOrigin: http://evil.example\r\n".to_owned(),
            format!("Origin: http://{address}\r\n"),
        ] {
            let text = send(address, "POST", "/ask", &format!("{headers}{json}"), add);
            assert_eq!(status(&text), "403", "{headers}{text}");
            assert!(text.contains("\"code\":\"foreign_page\""), "{text}");
        }
        for headers in ["Host: evil.example\r\n", "Host: \r\n", ""] {
            let text = send(address, "GET", "/state", headers, "");
            assert_eq!(status(&text), "403", "{headers}{text}");
        }
        assert_eq!(board.page_state(), 0);
    }
}
