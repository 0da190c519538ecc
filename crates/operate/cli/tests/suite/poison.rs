//! Poisonous requests to real processes: too large, too long or invalid ones get an error, and the
//! processes keep running.

use crate::common::{Cluster, wait_for};
use quorate_client::{Client, Error, Reply};

const LONGEST: usize = (64 << 10) - 16;

fn refused(client: &mut Client, words: &[&[u8]]) -> String {
    match client.read(words) {
        Err(Error::Refused(text)) => text,
        other => panic!("{}: {other:?}", words[0].escape_ascii()),
    }
}

/// Keys of any length are handled. A key that the store could not accept once ended every node, and
/// again at each start.
#[test]
fn keys_of_any_length_end_no_node() {
    for store in ["lsm", "memory"] {
        let mut cluster = Cluster::start(3, &["--store", store]);
        let mut client = cluster.client_from(1);
        for bytes in [LONGEST + 1, 65_523, 65_529, 65_535, 65_536, 70_000, 1 << 20] {
            let key = vec![b'k'; bytes];
            let requests: [&[&[u8]]; 12] = [
                &[b"SET", &key, b"v"],
                &[b"SET", &key, b"v", b"EX", b"100"],
                &[b"MSET", b"a", b"1", &key, b"v"],
                &[b"GET", &key],
                &[b"TTL", &key],
                &[b"EXISTS", b"a", &key],
                &[b"INCR", &key],
                &[b"DEL", &key],
                &[b"RENAME", b"a", &key],
                &[b"COPY", b"a", &key],
                &[b"EXPIRE", &key, b"10"],
                &[b"WATCH", &key],
            ];
            for request in requests {
                let text = refused(&mut client, request);
                assert!(text.contains("a key, or a pattern of keys, may have 65520 bytes"));
            }
        }
        // The longest key allowed, with every prefix that may be added to it on disk.
        let longest = vec![b'l'; LONGEST];
        for options in [&[][..], &[&b"PX"[..], b"300"]] {
            let set = [&[&b"SET"[..], &longest, b"1"][..], options].concat();
            assert_eq!(client.read(&set), Ok(Reply::Simple("OK".into())));
        }
        wait_for("its deadline", || {
            (client.read(&[b"EXISTS", &longest]) == Ok(Reply::Integer(0))).then_some(())
        });
        for (key, value) in [(&longest[..], &b"kept"[..]), (b"", b"empty"), (b"\0\r\n", b"")] {
            assert_eq!(client.read(&[b"SET", key, value]), Ok(Reply::Simple("OK".into())));
        }
        cluster.kill_all_at_once();
        cluster.restart_all();
        cluster.wait_until_all_serve();
        cluster.wait_until_equal();
        for id in 1..=3 {
            let mut client = cluster.client_of(id);
            let value = client.read(&[b"GET", &longest]);
            assert_eq!(value, Ok(Reply::Bulk(b"kept".to_vec())));
            assert_eq!(client.read(&[b"DBSIZE"]), Ok(Reply::Integer(3)));
        }
        assert!(
            cluster.nodes.all_mut().iter_mut().all(|node| node.child.try_wait().unwrap().is_none())
        );
    }
}
