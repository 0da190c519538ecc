//! Protection against cross-site requests. A page in a browser may read a node's state, but only
//! the node's own pages may change it.
//!
//! Any page can make the browser send requests to this machine. With DNS rebinding, such requests
//! even appear to come from the node's own page. Browsers add the origin to every request that
//! changes state. Other programs do not, and their requests are accepted.

use std::net::IpAddr;

use axum::{
    http::{
        HeaderMap, HeaderValue, Method,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, ORIGIN,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    response::Response,
};

/// Header in which newer browsers report how the page's site relates to the address.
const FETCH_SITE_HEADER: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Security headers: no framing, no caching, no referrer.
const SECURITY_HEADERS: [(HeaderName, &str); 4] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
];

/// Adds the security headers and a content security policy to a response.
pub(super) fn add_security_headers(response: &mut Response, policy: &'static str) {
    for (name, value) in SECURITY_HEADERS.into_iter().chain([(CONTENT_SECURITY_POLICY, policy)]) {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
}

/// Returns whether another site's page sent this state-changing request.
pub(super) fn is_foreign_change(method: &Method, headers: &HeaderMap) -> bool {
    if method.is_safe() {
        return false;
    }
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let foreign_page = text(ORIGIN).is_some_and(|origin| {
        let schemes = ["http://", "https://"];
        let mut pages = schemes.iter().filter_map(|scheme| origin.strip_prefix(scheme));
        let page = pages.next().unwrap_or("");
        // Unlike a name, an IP address cannot be rebound.
        text(HOST) != Some(page) || !is_literal_address(page)
    });
    is_foreign_site(headers) || foreign_page
}

/// Returns whether the browser reports that a page of another site sent the request. Such a page
/// could not read the response, but would occupy a connection.
pub(super) fn is_foreign_site(headers: &HeaderMap) -> bool {
    let site = headers.get(FETCH_SITE_HEADER).map(|value| value.to_str().unwrap_or(""));
    site.is_some_and(|site| !["same-origin", "none"].contains(&site))
}

/// Returns whether a page that this address served sent the request. The host must be an address. A
/// request that changes state must also contain its origin.
pub(super) fn is_same_origin(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_said = method.is_safe() || text(ORIGIN).is_some();
    text(HOST).is_some_and(is_literal_address) && is_said && !is_foreign_change(method, headers)
}

/// Returns whether the authority has the form `ADDRESS[:PORT]` or is `localhost`.
fn is_literal_address(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(host, _)| host),
        None => authority.split(':').next().unwrap_or(""),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &Method, headers: &[(&str, &str)]) -> bool {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        };
        is_foreign_change(method, &headers.iter().map(pair).collect())
    }

    #[test]
    fn changes_from_foreign_pages_are_refused() {
        let post = Method::POST;
        assert!(!check(&post, &[("host", "node1.example:7452")]), "a program");
        assert!(!check(&post, &[]), "an old one");
        for own in ["127.0.0.1:7452", "[::1]:7452", "10.0.0.5", "localhost:7452"] {
            for scheme in ["http", "https"] {
                let origin = format!("{scheme}://{own}");
                let headers =
                    [("host", own), ("origin", &*origin), ("sec-fetch-site", "same-origin")];
                assert!(!check(&post, &headers), "{origin}");
            }
        }
        for (host, origin) in [
            ("127.0.0.1:7452", "https://evil.example"),
            ("127.0.0.1:7452", "http://evil.example"),
            ("127.0.0.1:7452", "http://127.0.0.1:8080"),
            ("127.0.0.1:7452", "null"),
            ("127.0.0.1:7452", ""),
            // A name rebound to this address.
            ("evil.example:7452", "http://evil.example:7452"),
            ("evil.example:7452", "https://evil.example:7452"),
            ("127.0.0.1:7452", "https://127.0.0.1:8080"),
            ("1.2.3.4.evil.example", "http://1.2.3.4.evil.example"),
            ("", "http://"),
        ] {
            let headers = [("host", host), ("origin", origin)];
            assert!(check(&post, &headers), "{host} {origin}");
            assert!(!check(&Method::GET, &headers), "looking is harmless");
        }
        for site in ["cross-site", "same-site"] {
            assert!(check(&post, &[("host", "127.0.0.1:7452"), ("sec-fetch-site", site)]));
        }
    }
}
