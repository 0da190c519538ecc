//! Keyspace events: notifications about keys that commands change, as in Redis.
//!
//! Every node generates events while it executes commands, as selected by its own [`Setting`].
//! Events are not part of the state.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use super::state::{WriteContext, notice};
use crate::{
    key::Key,
    store::collection::{Header, Kind},
};

/// Event classes and the two forms of notification, as bits. No format contains these numbers.
pub(super) mod class {
    pub(crate) const KEYSPACE: u32 = 1 << 0;
    pub(crate) const KEYEVENT: u32 = 1 << 1;
    pub(crate) const GENERIC: u32 = 1 << 2;
    pub(crate) const STRING: u32 = 1 << 3;
    pub(crate) const LIST: u32 = 1 << 4;
    pub(crate) const SET: u32 = 1 << 5;
    pub(crate) const HASH: u32 = 1 << 6;
    pub(crate) const ZSET: u32 = 1 << 7;
    pub(crate) const EXPIRED: u32 = 1 << 8;
    pub(crate) const NEW: u32 = 1 << 9;
    pub(crate) const STREAM: u32 = 1 << 11;
    // Never generated: keys are not evicted, and modules are not supported.
    pub(crate) const EVICTED: u32 = 1 << 10;
    pub(crate) const MODULE: u32 = 1 << 12;
    /// Notices of changed keys, for clients that cache them.
    pub(crate) const TRACKED: u32 = 1 << 13;
    /// Notices of changed streams for clients that wait for entries.
    pub(crate) const AWAITED: u32 = 1 << 14;
}

use class::{
    AWAITED, EVICTED, EXPIRED, GENERIC, HASH, KEYEVENT, KEYSPACE, LIST, MODULE, NEW, SET, STREAM,
    STRING, TRACKED, ZSET,
};

/// Letters of the classes included in `A`.
const ALL: &[(char, u32)] = &[
    ('g', GENERIC),
    ('$', STRING),
    ('l', LIST),
    ('s', SET),
    ('h', HASH),
    ('z', ZSET),
    ('x', EXPIRED),
    ('e', EVICTED),
    ('t', STREAM),
    ('d', MODULE),
];
/// Letters of the classes not included in `A`.
const OTHERS: &[(char, u32)] = &[('n', NEW), ('K', KEYSPACE), ('E', KEYEVENT)];

/// Events selected by `notify-keyspace-events` on this node, and whether any client caches keys.
/// Clones share the setting.
#[derive(Clone, Debug, Default)]
pub struct Setting(Arc<EventSettings>);

#[derive(Debug, Default)]
struct EventSettings {
    classes: AtomicU32,
    tracked: AtomicBool,
    awaited: AtomicBool,
}

impl Setting {
    /// Returns the selected classes. Without a form of notification, only `TRACKED` is possible.
    pub(crate) fn selected_classes(&self) -> u32 {
        // Relaxed, because a command that is being executed may use the old setting.
        let set = self.0.classes.load(Ordering::Relaxed);
        let tracked = if self.is_tracked() { TRACKED } else { 0 };
        let awaited = if self.is_awaited() { AWAITED } else { 0 };
        match set & (KEYSPACE | KEYEVENT) {
            0 => tracked | awaited,
            _ => set | tracked | awaited,
        }
    }

    /// Formats the setting as in CONFIG GET.
    pub fn text(&self) -> String {
        let set = self.0.classes.load(Ordering::Relaxed);
        let all = ALL.iter().fold(0, |all, (_, class)| all | class);
        let mut text = String::new();
        if set & all == all {
            text.push('A');
        }
        let named = ALL.iter().filter(|_| set & all != all).chain(OTHERS);
        let named = named.filter(|(_, class)| set & class != 0);
        text.extend(named.map(|(letter, _)| *letter));
        text
    }

    pub fn set(&self, classes: u32) {
        self.0.classes.store(classes, Ordering::Relaxed);
    }

    /// Returns whether any client caches keys.
    pub(crate) fn is_tracked(&self) -> bool {
        self.0.tracked.load(Ordering::Relaxed)
    }

    pub(crate) fn track(&self, wanted: bool) {
        self.0.tracked.store(wanted, Ordering::Relaxed);
    }

    /// Returns whether clients wait for entries of streams.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.awaited.load(Ordering::Relaxed)
    }

    /// Turns the notices of changed streams on or off.
    pub(crate) fn await_entries(&self, wanted: bool) {
        self.0.awaited.store(wanted, Ordering::Relaxed);
    }

    /// Parses a selection such as `KEA` into classes.
    pub fn parse(text: &[u8]) -> Result<u32, &'static str> {
        let mut set = 0;
        for byte in text {
            let letter = char::from(*byte);
            let mut letters = ALL.iter().chain(OTHERS);
            set |= match letter {
                'A' => ALL.iter().fold(0, |all, (_, class)| all | class),
                'm' => {
                    return Err("key misses ('m') are not reported: reads are not in the log");
                }
                _ => match letters.find(|(known, _)| *known == letter) {
                    Some((_, class)) => *class,
                    None => return Err("Invalid event class character. Use 'Ag$lshzxeKEtdn'."),
                },
            };
        }
        Ok(set)
    }
}

impl WriteContext<'_> {
    pub(super) fn event(&mut self, class: u32, name: &str, key: Key<'_>) {
        if self.events & class != 0 {
            self.tell_event(name, key);
        }
    }

    #[cold]
    fn tell_event(&mut self, name: &str, key: Key<'_>) {
        let key = key.bytes();
        let database = self.store.selected().number();
        if self.events & KEYSPACE != 0 {
            let space = format!("__keyspace@{database}__:");
            let subject = [&[notice::CHANNEL][..], space.as_bytes(), key].concat();
            let message = name.as_bytes().into();
            self.notices.push((subject.into(), message));
        }
        if self.events & KEYEVENT != 0 {
            let channel = format!("__keyevent@{database}__:{name}");
            let subject = [&[notice::CHANNEL][..], channel.as_bytes()].concat();
            self.notices.push((subject.into(), key.into()));
        }
    }

    /// Notifies the fronts that a key changes, if any client caches keys.
    pub(super) fn notify_changed(&mut self, key: Key<'_>) {
        if self.events & TRACKED != 0 {
            let subject = [&[notice::CHANGED][..], key.bytes()].concat();
            self.notices.push((subject.into(), Box::default()));
        }
    }

    /// Tells the fronts that a stream changes or a key is removed, if clients wait for entries.
    pub(super) fn notify_blocked_readers(&mut self, key: Key<'_>) {
        if self.events & AWAITED != 0 {
            let database = self.store.selected().number();
            let subject = [&[notice::STREAM, database][..], key.bytes()].concat();
            if self.notices.last().is_none_or(|(last, _)| **last != *subject) {
                self.notices.push((subject.into(), Box::default()));
            }
        }
    }

    /// Tells the fronts that all keys change.
    pub(super) fn notify_all_changed(&mut self) {
        if self.events & (TRACKED | AWAITED) != 0 {
            self.notices.push((notice::ALL_CHANGED.into(), Box::default()));
        }
    }

    /// Generates the events that precede the change of a key: its expiry if it is stored past its
    /// deadline, and its creation if it is absent.
    pub(super) fn about_to_change(&mut self, key: Key<'_>, set: bool) {
        self.notify_changed(key);
        if self.events & (EXPIRED | NEW | HASH | GENERIC) != 0 {
            self.emit_before_change(key, set);
        }
    }

    #[cold]
    fn emit_before_change(&mut self, key: Key<'_>, set: bool) {
        // This lookup is not counted as work: the event setting belongs to the node, whereas the
        // cost of a script must be equal on all nodes.
        let group_ms = self.store.time();
        let exists = self.store.stored(key).is_some_and(|entry| entry.exists_at(group_ms));
        if !exists {
            self.notify_expired(key);
        }
        if !exists && set {
            self.event(NEW, "new", key);
        }
    }

    /// Generates the expiry event of a key that has expired and is about to be removed.
    pub(super) fn notify_expired(&mut self, key: Key<'_>) {
        let Some(entry) = self.store.stored(key) else {
            return;
        };
        let now_ms = self.store.time();
        let own = entry.own_deadline().is_some_and(|own| own <= now_ms);
        let header = Header::from_bytes(&entry.value).filter(|_| entry.kind == Kind::Hash);
        let timed = header.is_some_and(|header| header.field_deadlines.is_some());
        drop(entry);
        if own || !timed {
            return self.event(EXPIRED, "expired", key);
        }
        // The key has expired together with its last field.
        self.event(HASH, "hexpired", key);
        self.event(GENERIC, "del", key);
    }

    /// Removes a key and returns whether it existed.
    pub(super) fn remove(&mut self, key: Key<'_>) -> bool {
        self.about_to_change(key, false);
        self.notify_blocked_readers(key);
        self.store.remove(key)
    }

    /// Removes a key, with a `del` event, and returns whether it existed.
    pub(super) fn delete(&mut self, key: Key<'_>) -> bool {
        let was_there = self.remove(key);
        if was_there {
            self.event(GENERIC, "del", key);
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_redis_does() {
        let setting = Setting::default();
        for (text, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("AnEK", "AnKE"),
            ("Egx", "gxE"),
            ("Kg$lshzxetd", "AK"),
            ("K$z", "$zK"),
            ("nde", "edn"),
        ] {
            setting.set(Setting::parse(text.as_bytes()).unwrap());
            assert_eq!(setting.text(), shown, "{text}");
            let told = text.contains(['K', 'E']);
            assert_eq!(setting.selected_classes() != 0, told, "{text}");
        }
        for text in ["m", "KEAm", "KEAq", "K E", "\u{e9}"] {
            assert!(Setting::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
