//! Authenticates and authorises every request to the admin address before it is served.
//!
//! Callers prove their identity by a certificate, or by a name and a password (HTTP Basic, which
//! browsers support). Roles come from the replicated users' table; while that is empty, from the
//! users of the service's clients, if it has any ([`ClientUsers`]). All actions are audited,
//! including refused ones ([`super::audit`]).

use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use base64ct::{Base64, Encoding as _};
use quorate_access::{Role, Users, Who, password, users::UNMATCHABLE_HASH};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Duration, Instant, sleep},
};

use super::{Admin, BODY_BYTES_MAX, Phase, UNKNOWN_USERS_TEXT, failure::Failure};

/// Maximum number of concurrent password checks. Further requests are refused as busy.
const PASSWORD_CHECKS_MAX: usize = 2;

/// Maximum time for which an action waits for the users' table, which is polled every
/// `USERS_POLL_INTERVAL`.
const USERS_TIMEOUT: Duration = Duration::from_secs(5);
const USERS_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Peer of a connection, with the identity that the connection established.
#[derive(Clone, Debug)]
pub(super) struct PeerIdentity {
    /// Identity that the TLS handshake proved.
    pub(super) identity: Who,
    pub(super) from: SocketAddr,
}

/// A function that returns whether a caller has all rights in the service: the user with a name and
/// password, or else the one named in a certificate. `None` if the service requires no users.
pub type RootCheck = Box<
    dyn Fn(Option<String>, Option<(String, String)>) -> BoxedFuture<Result<Option<bool>, String>>
        + Send
        + Sync,
>;
type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Users of the service's clients. They restrict callers while the users' table is empty: a caller
/// who may not read all data through the service may not back it up, either.
#[derive(Clone, Default)]
pub(super) struct ClientUsers(pub(super) Arc<OnceLock<RootCheck>>);

impl fmt::Debug for ClientUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientUsers").field(&self.0.get().is_some()).finish()
    }
}

/// Identity and role of the caller of one request.
#[derive(Clone, Debug)]
pub(super) struct Requester {
    pub(super) name: String,
    /// Proof of identity: `certificate`, `password` or `nothing`.
    pub(super) identity_proof: &'static str,
    pub(super) role: Option<Role>,
    /// Set if the role is not from the users' table, but from the users of the service's clients.
    pub(super) is_from_service: bool,
}

/// Permits that limit concurrent password checks.
#[derive(Clone, Debug)]
pub(super) struct PasswordChecks(Arc<Semaphore>);

impl Default for PasswordChecks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PASSWORD_CHECKS_MAX)))
    }
}

/// Returns the lowest role that may send a request, or `None` if it needs no authentication.
fn required_role(method: &Method, path: &str) -> Option<Role> {
    match (method.as_str(), path) {
        // Process supervisors poll these paths without credentials. The responses contain nothing
        // secret.
        ("GET" | "HEAD", "/health" | "/ready") => None,
        ("GET" | "HEAD", "/users" | "/audit") => Some(Role::Admin),
        // A backup contains all data.
        ("GET" | "HEAD", "/backup") => Some(Role::Operator),
        ("GET" | "HEAD", _) => Some(Role::Reader),
        // Some of these requests require a higher role, which their handlers check with
        // [`check_role`].
        (_, "/transfer" | "/snapshot" | "/scrub" | "/tuning" | "/act" | "/members") => {
            Some(Role::Operator)
        }
        (_, path) if path.starts_with("/doctor/") => Some(Role::Operator),
        // Joining, users, and any path that is added later.
        _ => Some(Role::Admin),
    }
}

/// Returns whether a request is an action. Actions are audited.
fn is_action(needs: Option<Role>, method: &Method, path: &str) -> bool {
    (needs >= Some(Role::Operator) && !method.is_safe()) || path == "/backup"
}

/// Checks for a role that a handler requires in addition to the role for the path.
pub(super) fn check_role(asker: &Requester, needs: Role) -> Result<(), Failure> {
    match asker.role {
        Some(role) if role >= needs => Ok(()),
        _ => Err(forbidden_error(asker, needs)),
    }
}

/// Authenticates and authorises a request, then serves or refuses it. Actions are audited.
pub(super) async fn authorize_request(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let needs = required_role(&method, &path);
    let Some(role) = needs else {
        return next.run(request).await;
    };
    let caller = request.extensions().get::<PeerIdentity>().cloned();
    let proved = caller.as_ref().is_some_and(|caller| caller.identity != Who::Anonymous);
    if admin.protection.trust().is_some() && !proved {
        return certificate_required().into_response();
    }
    let asker = match identify_caller(&admin, caller.as_ref(), request.headers(), role).await {
        Ok(asker) => asker,
        Err(failure) => return failure.into_response(),
    };
    let action = is_action(needs, &method, &path);
    let (request, body) = match take_body(request, action).await {
        Ok(taken) => taken,
        Err(failure) => return failure.into_response(),
    };
    let may = asker.role >= needs;
    let response = if may {
        let mut request = request;
        request.extensions_mut().insert(asker.clone());
        next.run(request).await
    } else {
        refuse_request(&asker, role)
    };
    if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        admin.refused_requests.fetch_add(1, Ordering::Relaxed);
    }
    if action {
        let from = caller.map_or_else(String::new, |caller| caller.from.to_string());
        let what = format!("{method} {path}");
        admin
            .audit_log
            .record_request(&admin, &asker, from, what, &body, response.status().as_u16(), may)
            .await;
    }
    response
}

/// Returns the error for a caller without a certificate. With TLS, only health probes need none.
fn certificate_required() -> Failure {
    Failure::new(
        StatusCode::FORBIDDEN,
        "no_certificate",
        "this needs a client certificate; only GET /health and GET /ready are served without one",
        "use --tls with the folder of a client's certificate; docs/operate/tls.md shows how to make one",
    )
}

/// Reads the body of an action for the audit log. Returns an error if the body is too large.
async fn take_body(request: Request, action: bool) -> Result<(Request, Bytes), Failure> {
    if !action {
        return Ok((request, Bytes::new()));
    }
    let (head, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "the body is too large or incomplete",
            "requests are much smaller",
        )
    })?;
    Ok((Request::from_parts(head, Body::from(bytes.clone())), bytes))
}

fn refuse_request(asker: &Requester, needs: Role) -> Response {
    let mut response = forbidden_error(asker, needs).into_response();
    if asker.role.is_none() {
        // Makes a browser prompt for a name and a password.
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let basic = HeaderValue::from_static("Basic realm=\"quorate\", charset=\"UTF-8\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, basic);
    }
    response
}

fn forbidden_error(asker: &Requester, needs: Role) -> Failure {
    let Requester { name, role, .. } = asker;
    let (code, what) = match role {
        Some(role) => ("forbidden", format!("{name} has the role {role}, but this needs {needs}")),
        None if asker.identity_proof == "nothing" => {
            ("not_proved", "this needs a role, and the request does not identify a user".to_owned())
        }
        None => ("no_role", format!("{name} has no role")),
    };
    if asker.is_from_service {
        let what = "etcd's clients must log in, so this needs a user with the role root";
        let hint = "use --login NAME with the password of a user who has the role root in etcd, or --tls with the \
                    certificate of one";
        return Failure::new(StatusCode::FORBIDDEN, "needs_root", what, hint);
    }
    let hint = "use --tls with the certificate of a user, or --login NAME with a password; `quorate user list` shows who \
                may do what";
    Failure::new(StatusCode::FORBIDDEN, code, &what, hint)
}

/// Identifies the caller by password or else by certificate, and looks up the caller's role.
async fn identify_caller(
    admin: &Admin,
    caller: Option<&PeerIdentity>,
    headers: &HeaderMap,
    needs: Role,
) -> Result<Requester, Failure> {
    let who = caller.map_or(Who::Anonymous, |caller| caller.identity.clone());
    let (name, by) = match &who {
        Who::Node(node) => (format!("node {node}"), "certificate"),
        Who::Client(name) => (name.clone(), "certificate"),
        Who::Anonymous | Who::Unnamed => ("-".to_owned(), "nothing"),
    };
    let certified = |role| Requester { name, identity_proof: by, role, is_from_service: false };
    if let Who::Node(_) = who {
        return Ok(certified(Some(Role::Admin)));
    }
    if matches!(&*admin.lock_phase(), Phase::Starting(_)) {
        // A starting node has no state to change, and all pages only report the progress of the
        // start.
        return Ok(certified(Some(Role::Admin)));
    }
    let users = match loaded_users(admin, needs).await? {
        Some(users) => users,
        // [access-4] Reads are permitted, or no operator could examine a node without a leader.
        None if needs == Role::Reader => return Ok(certified(Some(Role::Reader))),
        None => return Err(Failure::unavailable("unknown_users", UNKNOWN_USERS_TEXT)),
    };
    let login = parse_login(headers);
    if users.is_unrestricted() {
        return match admin.client_users.0.get() {
            Some(has_root) if needs > Role::Reader => {
                identify_by_service(has_root, certified(None), who, login).await
            }
            _ => Ok(certified(Some(Role::Admin))),
        };
    }
    let Some((name, password)) = login else {
        return Ok(certified(users.role(&who, None)));
    };
    let _place = admin.password_checks.0.try_acquire().map_err(|_| {
        Failure::unavailable("busy", "too many passwords are being checked already")
    })?;
    let user = users.get(&name);
    let hash = user.and_then(|user| user.hash.clone());
    let known = hash.is_some();
    let hash = hash.unwrap_or_else(|| UNMATCHABLE_HASH.into());
    let fits = spawn_blocking(move || password::matches_hash(&hash, &password)).await;
    let fits = known && fits.unwrap_or(false);
    Ok(Requester {
        role: user.filter(|_| fits).map(|user| user.role),
        // An unknown name may be a password that was typed into the wrong field.
        name: if known { name } else { "-".to_owned() },
        identity_proof: "password",
        is_from_service: false,
    })
}

/// Identifies a caller who needs more than the role of a reader among the users of the service's
/// clients. Users with all rights there may do everything, others nothing.
async fn identify_by_service(
    has_root: &RootCheck,
    certified: Requester,
    who: Who,
    login: Option<(String, Vec<u8>)>,
) -> Result<Requester, Failure> {
    let client = match who {
        Who::Client(name) => Some(name),
        _ => None,
    };
    // A password that is not text matches none.
    let login = login.map(|(name, word)| (name, String::from_utf8(word).unwrap_or_default()));
    let named = login.as_ref().map(|(name, _)| name.clone());
    let has_root = has_root(client, login).await;
    let has_root = has_root.map_err(|why| Failure::unavailable("unknown_users", &why))?;
    let role = (has_root != Some(false)).then_some(Role::Admin);
    let (name, by) = match named {
        // An unknown name may be a password that was typed into the wrong field.
        Some(_) if has_root == Some(false) => ("-".to_owned(), "password"),
        Some(name) if has_root == Some(true) => (name, "password"),
        _ => (certified.name, certified.identity_proof),
    };
    Ok(Requester { name, identity_proof: by, role, is_from_service: true })
}

/// Returns the users' table if the node has it. A request that changes state waits for it, as it
/// would wait for a leader.
async fn loaded_users(admin: &Admin, needs: Role) -> Result<Option<Users>, Failure> {
    let until = Instant::now() + USERS_TIMEOUT;
    loop {
        let users = admin.run_blocking(|handle, _| handle.users()).await?;
        let users = users.map_err(Failure::unanswered)?;
        if users.is_some() || needs == Role::Reader || Instant::now() >= until {
            return Ok(users);
        }
        sleep(USERS_POLL_INTERVAL).await;
    }
}

/// Parses the name and the password of the Basic authorization header, if there is one.
fn parse_login(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, text) = value.split_once(' ')?;
    let bytes =
        scheme.eq_ignore_ascii_case("basic").then(|| Base64::decode_vec(text.trim()).ok())??;
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let name = std::str::from_utf8(&bytes[..colon]).ok()?;
    Some((name.to_owned(), bytes[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that is not listed requires the admin role.
    #[test]
    fn changes_require_the_operator_role() {
        let get = |path| required_role(&Method::GET, path);
        let post = |path| required_role(&Method::POST, path);
        for path in ["/health", "/ready"] {
            assert_eq!(get(path), None);
        }
        for path in ["/", "/status", "/metrics", "/members", "/tuning", "/events", "/page/x"] {
            assert_eq!(get(path), Some(Role::Reader), "{path}");
        }
        for path in
            ["/transfer", "/snapshot", "/tuning", "/act", "/members", "/doctor/multicast/send"]
        {
            assert_eq!(post(path), Some(Role::Operator), "{path}");
        }
        assert_eq!(get("/backup"), Some(Role::Operator));
        for path in ["/join", "/users", "/health", "/anything"] {
            assert_eq!(post(path), Some(Role::Admin), "{path}");
        }
        for path in ["/users", "/audit"] {
            assert_eq!(get(path), Some(Role::Admin), "{path}");
        }
        assert_eq!(required_role(&Method::DELETE, "/status"), Some(Role::Admin));
    }

    #[test]
    fn service_users_have_all_rights_or_none() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let has_root: RootCheck = Box::new(|certified, login| {
            let root = match login {
                Some(login) => login == ("root".to_owned(), "sesame".to_owned()),
                None => certified.as_deref() == Some("root"),
            };
            Box::pin(std::future::ready(Ok(Some(root))))
        });
        let client = |name: &str| Who::Client(name.to_owned());
        let login = |name: &str, password: &[u8]| Some((name.to_owned(), password.to_owned()));
        for (who, login, name, by, may) in [
            (client("root"), None, "root", "certificate", true),
            (client("ann"), None, "ann", "certificate", false),
            (client("ann"), login("root", b"sesame"), "root", "password", true),
            (client("root"), login("ann", b"sesame"), "-", "password", false),
            (Who::Unnamed, login("root", b"\xff"), "-", "password", false),
            (Who::Unnamed, None, "-", "nothing", false),
            (Who::Anonymous, None, "-", "nothing", false),
        ] {
            let (own, proof) = match &who {
                Who::Client(own) => (own.clone(), "certificate"),
                _ => ("-".to_owned(), "nothing"),
            };
            let certified =
                Requester { name: own, identity_proof: proof, role: None, is_from_service: false };
            let asker = identify_by_service(&has_root, certified, who.clone(), login);
            let asker = runtime.block_on(asker).unwrap();
            assert_eq!((&*asker.name, asker.identity_proof), (name, by), "{who:?}");
            assert_eq!(asker.role, may.then_some(Role::Admin), "{who:?}");
        }
    }

    #[test]
    fn basic_auth_credentials_are_decoded() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(text).unwrap());
            parse_login(&headers)
        };
        let expected = Some(("ann".to_owned(), b"a:b".to_vec()));
        assert_eq!(read("Basic YW5uOmE6Yg=="), expected);
        assert_eq!(read("basic YW5uOmE6Yg=="), expected);
        for bad in ["Basic", "Basic !!!", "Basic YW5u", "Bearer YW5uOmE6Yg==", "Basic /zp4"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
