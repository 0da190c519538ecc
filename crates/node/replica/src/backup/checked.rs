//! A verified backup: its lengths, versions and checksums are correct, and it contains exactly one
//! snapshot.

use std::io::Read;

use super::file::{BackupHeader, BackupReader, BackupSummary, BadBackup, ContentKind};
use crate::{
    applying::{access, membership},
    group::Group,
    snapshots::{
        header::SnapshotHeader as StreamHeader,
        stream::{Item, ItemDecoder, Malformed},
    },
};
use quorate_access::Users;
use quorate_core::{level::Level, reconfigure::Eras};
use quorate_stream::Table as StreamTable;

/// Upper bound of positions in a stream. Each byte takes a slot, and there are fewer slots.
const POSITION_MAX: u64 = 1 << 62;

/// Summary of a verified backup.
#[derive(Clone, Debug)]
pub struct CheckedBackup {
    pub header: BackupHeader,
    /// Size and checksum of the backup.
    pub summary: BackupSummary,
    /// Number of byte streams. If the backup does not include their bytes
    /// ([`BackupHeader::stream_bytes`]), a new cluster has no streams.
    pub stream_count: u64,
    /// Number of bytes that the streams retained.
    pub stream_bytes: u64,
    /// Table of streams, if their bytes are in the backup.
    pub(super) stream_table: Option<StreamTable>,
    /// The group's table at the snapshot's slot.
    pub(super) table: Group,
    /// The eras at the snapshot's slot.
    pub(super) eras: Eras,
}

impl CheckedBackup {
    /// Returns the group's level at the snapshot's slot, which is the initial level of a new
    /// cluster ([level-10]).
    pub fn level(&self) -> Level {
        self.table.level()
    }
}

/// Progress through the stream: the header, then the metadata, then the service's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Header,
    Meta,
    Service,
}

/// Parts of a snapshot's stream other than the service's items.
#[derive(Debug, Default)]
struct OtherParts {
    header: Option<StreamHeader>,
    group: Option<(Group, Eras)>,
    stream_count: u64,
    stream_rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl OtherParts {
    fn take_item(&mut self, stage: &mut Stage, item: &Item<'_>) -> Result<(), Malformed> {
        let (here, once) = match item {
            Item::Header(_) => (Stage::Header, self.header.is_none()),
            Item::Meta(..) => (Stage::Meta, self.header.is_some()),
            Item::Service(_) => (Stage::Service, self.header.is_some()),
        };
        if here < *stage || !once {
            return Err(Malformed("its items are out of order"));
        }
        *stage = here;
        match item {
            Item::Header(bytes) => {
                let header = StreamHeader::decode(bytes);
                self.header =
                    Some(header.ok_or(Malformed("the snapshot's header makes no sense"))?);
            }
            Item::Meta(key, value) if *key == membership::GROUP_KEY => {
                let group = membership::decode(value);
                let group = group.ok_or(Malformed("the group's table makes no sense"))?;
                if group.0.level() > Level::NEWEST {
                    return Err(Malformed(
                        "it was made at a level that this release does not support: use a newer release",
                    ));
                }
                self.group = Some(group);
            }
            Item::Meta(key, value) if *key == access::USERS_KEY => {
                Users::decode(value).ok_or(Malformed("the users' table makes no sense"))?;
            }
            Item::Meta(key, value) if StreamTable::is_table_key(key) => {
                self.stream_count += u64::from(StreamTable::is_stream_key(key));
                self.stream_rows.push((key.to_vec(), value.to_vec()));
            }
            Item::Meta(..) => {}
            Item::Service(_) => {}
        }
        Ok(())
    }
}

/// Callback for the service's items, given the backup's header. It may refuse an item.
pub type ItemCallback<'a> = dyn FnMut(&BackupHeader, &[u8]) -> Result<(), String> + 'a;

/// Reads and verifies the whole backup. Passes each of the service's items to `each`, and reports
/// the number of bytes read to `tell`.
pub fn check_backup<R: Read>(
    from: R,
    each: &mut ItemCallback<'_>,
    tell: &mut dyn FnMut(&BackupHeader, u64),
) -> Result<CheckedBackup, BadBackup> {
    let mut reader = BackupReader::open(from)?;
    let header = reader.header().clone();
    let (mut items, mut found, mut stage) =
        (ItemDecoder::default(), OtherParts::default(), Stage::Header);
    let mut content = Vec::new();
    let summary = loop {
        tell(&header, reader.position());
        match reader.read_next(&mut content)? {
            ContentKind::End(summary) => break summary,
            // The reader verifies checksums, and the header states the number of bytes.
            ContentKind::Streams => continue,
            ContentKind::Snapshot => {}
        }
        let fed: Result<(), ItemRefused> = items.feed(&content, |item| {
            found.take_item(&mut stage, &item)?;
            match item {
                Item::Service(bytes) => each(&header, bytes).map_err(ItemRefused),
                Item::Header(_) | Item::Meta(..) => Ok(()),
            }
        });
        fed.map_err(|ItemRefused(what)| reader.damage_error(what))?;
    };
    let wrong = |what: &str| reader.damage_error(what);
    if !items.is_between_items() {
        return Err(wrong("its last item is cut short"));
    }
    let OtherParts {
        header: Some(of),
        group: Some((table, eras)),
        stream_count: streams,
        stream_rows: rows,
    } = found
    else {
        return Err(wrong("the snapshot lacks its header or the group's table"));
    };
    let same = (of.cluster, of.slot, of.eras.era()) == (header.cluster, header.slot, header.era);
    let class = eras.current().class() == header.class;
    let eras_agree = of.eras == eras && eras.era_start() <= header.slot;
    if !same || !class || !eras_agree || table.next_id() > header.next_id {
        return Err(wrong("its header is not that of its contents"));
    }
    let kept = StreamTable::restore(rows).map_err(|bad| bad.to_string());
    let kept = kept.and_then(|kept| match kept.retained_bytes() {
        Some(bytes) if kept.retained_ranges().all(|(_, range)| range.end <= POSITION_MAX) => {
            Ok((kept, bytes))
        }
        _ => Err("a stream is longer than any can be".to_owned()),
    });
    let (stream_bytes, stream_table) = match (header.stream_bytes, kept) {
        (None, kept) => (kept.map_or(0, |(_, bytes)| bytes), None),
        (Some(_), Err(what)) => return Err(wrong(&what)),
        (Some(said), Ok((_, bytes))) if said != bytes => {
            return Err(wrong("it has more or fewer bytes of streams than their table says"));
        }
        (Some(_), Ok((kept, bytes))) => (bytes, Some(kept)),
    };
    Ok(CheckedBackup {
        header,
        summary,
        stream_count: streams,
        stream_bytes,
        stream_table,
        table,
        eras,
    })
}

struct ItemRefused(String);

impl From<Malformed> for ItemRefused {
    fn from(Malformed(what): Malformed) -> Self {
        Self(what.to_owned())
    }
}
