//! CLIENT TRACKING on one connection: the keys that it caches, and its invalidation messages.

use quorate_replica::front::ConnectionId;

use super::Connection;
use crate::{
    command::{NOT_AN_INTEGER, SYNTAX, Spec},
    front::{
        shared::Shared,
        table::key_places,
        tracking::{CachedKeys, TrackingState},
    },
    resp::{
        integer::parse_integer,
        reply::{Reply, Version},
        request::Arguments,
    },
};

/// Channel of the notices for RESP2 connections.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// Maximum number of prefixes of a client, and maximum length of each.
const PREFIXES_MAX: usize = 1024;
const PREFIX_BYTES_MAX: usize = 1024;

impl Connection {
    /// Returns the connection that receives this one's notices, if tracking is on.
    pub(in crate::front) fn notice_receiver(&self) -> Option<ConnectionId> {
        self.tracking.as_ref().map(|tracked| tracked.redirect.unwrap_or(self.id))
    }

    /// Tracks the keys of a read. Those of a transaction are tracked from EXEC on, as they may
    /// change before.
    pub(super) fn note_read(&mut self, spec: &Spec, request: &Arguments<'_>, shared: &mut Shared) {
        let Some(tracked) = &self.tracking else { return };
        if !tracked.caches_reads() || !spec.flags.contains(&"readonly") {
            return;
        }
        let keys: Vec<&[u8]> =
            key_places(spec, request).into_iter().flatten().map(|at| request.at(at)).collect();
        match &mut self.transaction {
            Some(multi) => multi.read(&keys),
            None => shared.record_cached_reads(self.id, keys.into_iter()),
        }
    }

    /// Ends the effect of CLIENT CACHING, which applies to one request.
    pub(in crate::front) fn end_caching(&mut self, request: &Arguments<'_>) {
        if let Some(tracked) = &mut self.tracking
            && self.transaction.is_none()
            && !request.at(0).eq_ignore_ascii_case(b"client")
        {
            tracked.caching_was_set = false;
        }
    }

    /// Handles the subcommands of CLIENT that concern tracking. Returns `false` for others.
    pub(super) fn client_tracking(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        r: &mut Reply<'_>,
    ) -> bool {
        let done = match &*arguments.at(1).to_ascii_lowercase() {
            b"tracking" => self.handle_tracking(arguments, shared),
            b"caching" => self.handle_caching(arguments.at(2)),
            b"getredir" => {
                r.integer(self.redirect_id());
                return true;
            }
            b"trackinginfo" => {
                self.tracking_info(r);
                return true;
            }
            _ => return false,
        };
        match done {
            Ok(()) => r.ok(),
            Err(text) => r.error(&text),
        }
        true
    }

    fn handle_tracking(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
    ) -> Result<(), String> {
        let wanted = Options::read(arguments, shared)?;
        match &*arguments.at(2).to_ascii_lowercase() {
            b"off" => {
                self.stop_tracking(shared);
                return Ok(());
            }
            b"on" => {}
            _ => return Err(SYNTAX.to_owned()),
        }
        let known = self.tracking.as_ref().map(|tracked| &tracked.cached);
        let cached = wanted.cached_keys(known)?;
        shared.replace_tracked_keys(self.id, known, &cached);
        let Options { redirect, noloop, .. } = wanted;
        self.tracking = Some(TrackingState { cached, redirect, noloop, caching_was_set: false });
        Ok(())
    }

    pub(super) fn stop_tracking(&mut self, shared: &mut Shared) {
        if let Some(tracked) = self.tracking.take() {
            shared.stop_tracking(self.id, &tracked.cached);
        }
    }

    fn handle_caching(&mut self, answer: &[u8]) -> Result<(), String> {
        let tracked = self.tracking.as_mut();
        let tracked = tracked.filter(|tracked| {
            matches!(tracked.cached, CachedKeys::ReadOnOptIn | CachedKeys::ReadUnlessOptOut)
        });
        let Some(tracked) = tracked else {
            return Err(
                "ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                        OPTIN or OPTOUT mode enabled"
                    .to_owned(),
            );
        };
        match (&*answer.to_ascii_lowercase(), &tracked.cached) {
            (b"yes", CachedKeys::ReadOnOptIn) | (b"no", CachedKeys::ReadUnlessOptOut) => {
                tracked.caching_was_set = true;
                Ok(())
            }
            (b"yes", _) => {
                Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
                    .to_owned())
            }
            (b"no", _) => {
                Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
                    .to_owned())
            }
            _ => Err(SYNTAX.to_owned()),
        }
    }

    /// Returns the id of the client that receives the notices: 0 for this one, -1 without tracking.
    fn redirect_id(&self) -> i64 {
        self.tracking.as_ref().map_or(-1, |tracked| {
            tracked.redirect.map_or(0, |client| i64::try_from(client.0).unwrap_or(i64::MAX))
        })
    }

    fn tracking_info(&self, r: &mut Reply<'_>) {
        let mut flags: Vec<&str> = Vec::new();
        let mut prefixes: &[Box<[u8]>] = &[];
        match &self.tracking {
            None => flags.push("off"),
            Some(tracked) => {
                flags.push("on");
                match &tracked.cached {
                    CachedKeys::Read => {}
                    CachedKeys::ReadOnOptIn => flags.push("optin"),
                    CachedKeys::ReadUnlessOptOut => flags.push("optout"),
                    CachedKeys::Prefixes(all) => {
                        flags.push("bcast");
                        prefixes = all;
                    }
                }
                match (&tracked.cached, tracked.caching_was_set) {
                    (CachedKeys::ReadOnOptIn, true) => flags.push("caching-yes"),
                    (CachedKeys::ReadUnlessOptOut, true) => flags.push("caching-no"),
                    _ => {}
                }
                if tracked.noloop {
                    flags.push("noloop");
                }
            }
        }
        r.map(3);
        r.bulk(b"flags");
        r.set(flags.len());
        flags.iter().for_each(|flag| r.bulk(flag.as_bytes()));
        r.bulk(b"redirect");
        r.integer(self.redirect_id());
        r.bulk(b"prefixes");
        r.array(prefixes.len());
        prefixes.iter().for_each(|prefix| r.bulk(prefix));
    }

    /// Notifies the client that the connection receiving its notices is closed.
    pub(in crate::front) fn send_broken(&mut self, shared: &mut Shared) {
        if self.version == Version::Resp3 {
            let mut neutral = Vec::new();
            let r = &mut Reply(&mut neutral);
            r.push(2);
            r.bulk(b"tracking-redir-broken");
            r.integer(self.redirect_id());
            self.send_after_replies(&neutral, shared);
        }
    }

    /// Notifies the client that a key may have changed, or all keys if `None`.
    pub(in crate::front) fn send_changed(
        &mut self,
        key: Option<&[u8]>,
        of_other: bool,
        shared: &mut Shared,
    ) {
        let mut neutral = Vec::new();
        let r = &mut Reply(&mut neutral);
        match (self.version, of_other) {
            (Version::Resp3, _) => {
                r.push(2);
                r.bulk(b"invalidate");
            }
            // A message on the channel, to which the receiving connection subscribes.
            (Version::Resp2, true) if !self.subscriptions.is_empty() => {
                r.push(3);
                r.bulk(b"message");
                r.bulk(CHANNEL);
            }
            (Version::Resp2, _) => return,
        }
        match key {
            Some(key) => {
                r.array(1);
                r.bulk(key);
            }
            None => r.null(),
        }
        self.send_after_replies(&neutral, shared);
    }
}

/// Arguments of CLIENT TRACKING.
#[derive(Default)]
struct Options {
    redirect: Option<ConnectionId>,
    broadcasts: bool,
    prefixes: Vec<Box<[u8]>>,
    opts_in: bool,
    opts_out: bool,
    noloop: bool,
}

impl Options {
    fn read(arguments: &Arguments<'_>, shared: &mut Shared) -> Result<Self, String> {
        let (mut options, mut at) = (Self::default(), 3);
        while at < arguments.len() {
            let has_value = at + 1 < arguments.len();
            match &*arguments.at(at).to_ascii_lowercase() {
                b"redirect" if options.redirect.is_some() => {
                    return Err(
                        "ERR A client can only redirect to a single other client".to_owned()
                    );
                }
                b"redirect" if has_value => {
                    at += 1;
                    let id = parse_integer(arguments.at(at)).ok_or(NOT_AN_INTEGER)?;
                    let known = shared.clients.oldest_first().iter().find_map(|client| {
                        (u64::try_from(id) == Ok(client.id.0)).then_some(client.id)
                    });
                    let unknown = "ERR The client ID you want redirect to does not exist";
                    options.redirect = Some(known.ok_or(unknown)?);
                }
                b"prefix" if has_value => {
                    at += 1;
                    if options.prefixes.len() == PREFIXES_MAX {
                        return Err(format!("ERR a client can have {PREFIXES_MAX} prefixes"));
                    }
                    let prefix = arguments.at(at);
                    if prefix.len() > PREFIX_BYTES_MAX {
                        return Err(format!("ERR a prefix can have {PREFIX_BYTES_MAX} bytes"));
                    }
                    options.prefixes.push(prefix.into());
                }
                b"bcast" => options.broadcasts = true,
                b"optin" => options.opts_in = true,
                b"optout" => options.opts_out = true,
                b"noloop" => options.noloop = true,
                _ => return Err(SYNTAX.to_owned()),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Returns the keys that the client caches, given these options and its current setting.
    fn cached_keys(&self, known: Option<&CachedKeys>) -> Result<CachedKeys, String> {
        let error = |text: &str| Err(format!("ERR {text}"));
        if !self.broadcasts && !self.prefixes.is_empty() {
            return error("PREFIX option requires BCAST mode to be enabled");
        }
        if self.broadcasts != matches!(known, Some(CachedKeys::Prefixes(_))) && known.is_some() {
            return error(
                "You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            );
        }
        if self.broadcasts && (self.opts_in || self.opts_out) {
            return error("OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.opts_in && self.opts_out {
            return error("You can't specify both OPTIN mode and OPTOUT mode");
        }
        let switches = self.opts_in && matches!(known, Some(CachedKeys::ReadUnlessOptOut))
            || self.opts_out && matches!(known, Some(CachedKeys::ReadOnOptIn));
        if switches {
            return error(
                "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            );
        }
        Ok(match self {
            Self { broadcasts: true, .. } => CachedKeys::Prefixes(self.all_prefixes(known)?),
            Self { opts_in: true, .. } => CachedKeys::ReadOnOptIn,
            Self { opts_out: true, .. } => CachedKeys::ReadUnlessOptOut,
            _ => CachedKeys::Read,
        })
    }

    /// Returns the old and new prefixes of the client. If there are none, every key matches.
    fn all_prefixes(&self, known: Option<&CachedKeys>) -> Result<Vec<Box<[u8]>>, String> {
        let mut all = match known {
            Some(CachedKeys::Prefixes(known)) => known.clone(),
            _ => Vec::new(),
        };
        let wanted = match &*self.prefixes {
            [] if all.is_empty() => &[Box::default()],
            wanted => wanted,
        };
        for prefix in wanted {
            let overlapping =
                all.iter().find(|other| other.starts_with(prefix) || prefix.starts_with(other));
            match overlapping {
                Some(other) if other == prefix && known.is_some() => {}
                Some(other) => {
                    return Err(format!(
                        "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client \
                         must not overlap.",
                        prefix.escape_ascii(),
                        other.escape_ascii()
                    ));
                }
                None if all.len() == PREFIXES_MAX => {
                    return Err(format!("ERR a client can have {PREFIXES_MAX} prefixes"));
                }
                None => all.push(prefix.clone()),
            }
        }
        Ok(all)
    }
}
