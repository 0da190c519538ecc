//! Imports of etcd snapshots: faithful copies, and no trust in the file.

mod file;
mod hostile;
mod real;
mod same;

use quorate_etcd::import::{
    ImageItems, ImportError, ImportSettings, SnapshotContents, verify_checksum,
};

/// Time at which imported leases start again.
pub const NOW_MS: u64 = 1_700_000_000_000;

/// Returns the items of the image made from a file.
pub fn import(file: &Vec<u8>) -> Result<Vec<Vec<u8>>, ImportError> {
    import_with(file, None)
}

/// Returns the items of the image made from a file, with a new password of root.
pub fn import_with(file: &Vec<u8>, root_hash: Option<&str>) -> Result<Vec<Vec<u8>>, ImportError> {
    let (bytes, _) = verify_checksum(file)?;
    let contents = SnapshotContents::read(file, bytes)?;
    let settings =
        ImportSettings { now_ms: NOW_MS, secret: [7; 32], root_hash: root_hash.map(str::to_owned) };
    let mut items = ImageItems::new(&contents, &settings)?;
    let (mut all, mut item) = (Vec::new(), Vec::new());
    while items.next(&mut item)? {
        all.push(item.clone());
    }
    let mut again = 0;
    items.rewind();
    while items.next(&mut item)? {
        assert_eq!(item, all[again], "the same each time");
        again += 1;
    }
    assert_eq!(again, all.len());
    Ok(all)
}
