//! JSON Web Tokens: signed with an operator's key, accepted by every holder of the public key.

use std::{fs, path::Path, time::Duration};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use quorate_etcd::{front::TokenKind, proto::etcdserverpb::AuthUserChangePasswordRequest};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{
    Node,
    auth::{INVALID, auth, enable, login, with},
    check, get, put, runtime, three_with,
};

/// Creates a key pair in files named `name`.
fn pair(folder: &Path, name: &str, of: &'static rcgen::SignatureAlgorithm) -> KeyPair {
    let pair = KeyPair::generate_for(of).unwrap();
    fs::write(folder.join(name), pair.serialize_pem()).unwrap();
    fs::write(folder.join(format!("{name}.pub")), pair.public_key_pem()).unwrap();
    pair
}

/// Returns the flag for tokens, with key files in a folder.
fn flag(folder: &Path, options: &str) -> String {
    format!("jwt,{}", options.replace('@', &format!("{}/", folder.display())))
}

fn tokens(folder: &Path, options: &str) -> Result<TokenKind, String> {
    TokenKind::parse_flag(&flag(folder, options)).map_err(|bad| bad.to_string())
}

async fn reads(node: &Node, token: &str) -> Result<(), Status> {
    node.kv().range(with(token, get("a"))).await.map(drop)
}

fn claims(name: &str, revision: u64, seconds: i64) -> Value {
    let exp = get_current_timestamp().saturating_add_signed(seconds);
    json!({ "username": name, "revision": revision, "exp": exp })
}

/// A token is valid at every member with the key. The third node has only the public key: it
/// accepts tokens of the others and refuses logins.
#[test]
fn a_web_token_is_good_at_every_member_that_has_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let signs = pair(at, "k", &PKCS_ECDSA_P256_SHA256);
    pair(at, "other", &PKCS_ECDSA_P256_SHA256);
    let both = tokens(at, "sign-method=ES256,pub-key=@k.pub,priv-key=@k,ttl=10m").unwrap();
    let checks = tokens(at, "sign-method=ES256,pub-key=@k.pub").unwrap();
    let nodes = three_with(at, &[both.clone(), both, checks]);
    runtime().block_on(async {
        let root = enable(&nodes[0]).await;
        assert_eq!(root.split('.').count(), 3, "{root}");
        let ann = login(&nodes[1], "ann", "sesame").await.unwrap();
        for node in &nodes {
            reads(node, &root).await.unwrap();
            node.kv().put(with(&ann, put("a", "1"))).await.unwrap();
            let denied = node.kv().put(with(&ann, put("b", "1"))).await;
            check(denied, Code::PermissionDenied, "etcdserver: permission denied");
        }
        let refused = login(&nodes[2], "ann", "sesame").await;
        let what = "auth: token signing attempted with verify-only key";
        check(refused, Code::Unknown, what);
        // Another issuer may sign if it knows the revision, but not with another key or algorithm.
        let key = EncodingKey::from_ec_pem(signs.serialize_pem().as_bytes()).unwrap();
        let other = fs::read(at.join("other")).unwrap();
        let other = EncodingKey::from_ec_pem(&other).unwrap();
        let public = EncodingKey::from_secret(signs.public_key_pem().as_bytes());
        let sign = |algorithm, claims: &Value, key: &EncodingKey| {
            encode(&Header::new(algorithm), claims, key).unwrap()
        };
        let [head, body, signature] = [0, 1, 2].map(|at| root.split('.').nth(at).unwrap());
        let said = Base64UrlUnpadded::decode_vec(body).unwrap();
        let said: Value = serde_json::from_slice(&said).unwrap();
        assert_eq!(said["username"], "root");
        let now = said["revision"].as_u64().unwrap();
        let good = claims("ann", now, 60);
        reads(&nodes[2], &sign(Algorithm::ES256, &good, &key)).await.unwrap();
        for token in [
            sign(Algorithm::ES256, &good, &other),
            sign(Algorithm::HS256, &good, &public),
            sign(Algorithm::ES256, &claims("ann", 1, 60), &key),
            sign(Algorithm::ES256, &claims("ann", now + 1, 60), &key),
            sign(Algorithm::ES256, &claims("eve", now, 60), &key),
            sign(Algorithm::ES256, &claims("ann", now, -2), &key),
            sign(Algorithm::ES256, &json!({ "username": "ann", "revision": now }), &key),
            sign(Algorithm::ES256, &json!({ "exp": get_current_timestamp() + 60 }), &key),
            // {"alg":"none","typ":"JWT"}
            format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{body}."),
            format!("{head}.{body}."),
            format!("{head}.{body}.{}", "A".repeat(signature.len())),
            format!("{head}.{body}"),
            "x".repeat(9000),
            "..".to_owned(),
            String::new(),
        ] {
            check(reads(&nodes[2], &token).await, Code::Unauthenticated, INVALID);
        }
        // A new password invalidates earlier logins.
        let change = AuthUserChangePasswordRequest {
            name: "ann".to_owned(),
            password: "open".to_owned(),
            ..AuthUserChangePasswordRequest::default()
        };
        let mut users = auth(&nodes[0]);
        let change = users.user_change_password(with(&root, change));
        change.await.unwrap();
        reads(&nodes[1], &root).await.unwrap();
        for node in &nodes[..2] {
            check(reads(node, &ann).await, Code::Unauthenticated, INVALID);
        }
        let again = login(&nodes[0], "ann", "open").await.unwrap();
        reads(&nodes[2], &again).await.unwrap();
    });
}

#[test]
fn a_web_token_ends_when_it_says_so_however_often_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("secret"), [7; 32]).unwrap();
    let tokens = tokens(at, "sign-method=HS256,priv-key=@secret,ttl=2s").unwrap();
    let nodes = three_with(at, &[tokens]);
    runtime().block_on(async {
        enable(&nodes[0]).await;
        let ann = login(&nodes[0], "ann", "sesame").await.unwrap();
        let begun = get_current_timestamp();
        let refused = loop {
            if let Err(refused) = reads(&nodes[0], &ann).await {
                break refused;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(get_current_timestamp() < begun + 20, "it does not end");
        };
        check::<()>(Err(refused), Code::Unauthenticated, INVALID);
        // Not rejected before its expiry, to the second.
        assert!(get_current_timestamp() > begun);
    });
}

#[test]
fn keys_of_every_kind_are_taken_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    pair(at, "rsa", &PKCS_RSA_SHA256);
    pair(at, "p256", &PKCS_ECDSA_P256_SHA256);
    pair(at, "p384", &PKCS_ECDSA_P384_SHA384);
    pair(at, "ed", &PKCS_ED25519);
    pair(at, "ed2", &PKCS_ED25519);
    fs::write(at.join("long"), [7; 64]).unwrap();
    fs::write(at.join("short"), [7; 31]).unwrap();
    fs::write(at.join("huge"), vec![7; 65 << 10]).unwrap();
    let of = |method: &str, key: &str| {
        let options = format!("sign-method={method},pub-key=@{key}.pub,priv-key=@{key},ttl=1h");
        tokens(at, &options)
    };
    for (method, key) in [
        ("RS256", "rsa"),
        ("RS384", "rsa"),
        ("RS512", "rsa"),
        ("PS256", "rsa"),
        ("PS384", "rsa"),
        ("PS512", "rsa"),
        ("ES256", "p256"),
        ("ES384", "p384"),
        ("EdDSA", "ed"),
    ] {
        of(method, key).unwrap_or_else(|why| panic!("{method}: {why}"));
    }
    for method in ["HS256", "HS384", "HS512"] {
        tokens(at, &format!("sign-method={method},priv-key=@long")).unwrap();
    }
    assert!(matches!(TokenKind::parse_flag("simple"), Ok(TokenKind::Simple)));
    for (options, why) in [
        ("ttl=5m", "sign-method is missing"),
        ("sign-method=ES512,pub-key=@p256.pub", "not \"ES512\""),
        ("sign-method=none,pub-key=@p256.pub", "not \"none\""),
        ("sign-method=RS256,priv-key=@rsa", "pub-key is missing"),
        ("sign-method=HS256,pub-key=@long", "priv-key is missing"),
        ("sign-method=HS256,priv-key=@short", "at least 32 are needed"),
        ("sign-method=HS256,priv-key=@huge", "too long for a key"),
        ("sign-method=HS256,priv-key=@none", "No such file"),
        ("sign-method=RS256,pub-key=@p256.pub", "holds no key for RS256"),
        ("sign-method=ES256,pub-key=@p384.pub,priv-key=@p384", "key"),
        ("sign-method=ES256,pub-key=@rsa.pub", "holds no key for ES256"),
        ("sign-method=EdDSA,pub-key=@long", "holds no key for EdDSA"),
        ("sign-method=EdDSA,pub-key=@ed2.pub,priv-key=@ed", "is not the public key of"),
        ("sign-method=HS256,priv-key=@long,ttl=0s", "ttl"),
        ("sign-method=HS256,priv-key=@long,ttl=99999h", "ttl"),
        ("sign-method=HS256,priv-key=@long,ttl=", "\"ttl=\""),
        ("sign-method=HS256,priv-key=@long,ttl=1s,ttl=2s", "\"ttl=2s\""),
        ("sign-method=HS256,priv-key=@long,kid=x", "\"kid=x\""),
        ("sign-method", "\"sign-method\""),
    ] {
        let refused = tokens(at, options).map(drop).unwrap_err();
        assert!(refused.contains(why), "{options}: {refused}");
    }
    for flag in ["", "jwt", "JWT,sign-method=HS256", "simple,", "none"] {
        TokenKind::parse_flag(flag).map(drop).unwrap_err();
    }
}
