//! Watches, from a client's point of view.

use quorate_etcd::proto::{
    etcdserverpb::{
        CompactionRequest, DeleteRangeRequest, PutRequest, WatchCancelRequest, WatchCreateRequest,
        WatchProgressRequest, WatchRequest, WatchResponse, watch_client::WatchClient,
        watch_request::RequestUnion,
    },
    mvccpb::Event,
};
use tokio::{sync::mpsc, time::timeout};
use tonic::{Streaming, codegen::tokio_stream::Stream};

use super::{Busy, Node, get, put, runtime, three};

const WAIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Stream of a client's requests.
struct Requests(mpsc::Receiver<WatchRequest>);

impl Stream for Requests {
    type Item = WatchRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<WatchRequest>> {
        self.0.poll_recv(context)
    }
}

struct Watching {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Watching {
    async fn at(node: &Node) -> Self {
        let (requests, sent) = mpsc::channel(16);
        let mut client = WatchClient::new(node.channel());
        let answers = client.watch(Requests(sent)).await.unwrap().into_inner();
        Self { requests, answers }
    }

    async fn send(&self, request: RequestUnion) {
        let request_union = Some(request);
        self.requests.send(WatchRequest { request_union }).await.unwrap();
    }

    async fn next(&mut self) -> WatchResponse {
        let answer = timeout(WAIT, self.answers.message()).await.expect("in time");
        answer.unwrap().expect("the stream goes on")
    }

    /// Creates a watcher and returns the response.
    async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        self.send(RequestUnion::CreateRequest(request)).await;
        let answer = self.next().await;
        assert!(answer.created);
        answer
    }

    async fn events(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < count {
            events.extend(self.next().await.events);
        }
        events
    }
}

fn of(key: &'static str, range_end: &'static str) -> WatchCreateRequest {
    WatchCreateRequest {
        key: key.into(),
        range_end: range_end.into(),
        ..WatchCreateRequest::default()
    }
}

/// Returns the key of an event, the value of a put, and the revision.
fn said(event: &Event) -> (String, Option<String>, i64) {
    let kv = event.kv.as_ref().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = (event.r#type == 0).then(|| text(&kv.value));
    (text(&kv.key), value, kv.mod_revision)
}

fn told(key: &str, value: Option<&str>, revision: i64) -> (String, Option<String>, i64) {
    (key.to_owned(), value.map(str::to_owned), revision)
}

fn delete(key: &'static str) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() }
}

#[test]
fn watchers_are_told_what_they_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        kv.put(put("a", "1")).await.unwrap();
        let mut watching = Watching::at(&node).await;
        let one = watching.create(of("a", "")).await;
        assert_eq!((one.watch_id, one.header.unwrap().revision), (0, 2));
        let prefix = WatchCreateRequest { prev_kv: true, watch_id: 7, ..of("a", "b") };
        assert_eq!(watching.create(prefix.clone()).await.watch_id, 7);
        let again = watching.create(prefix).await;
        assert_eq!((again.watch_id, again.canceled), (-1, true));
        assert_eq!(again.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
        let empty = watching.create(of("b", "a")).await;
        assert_eq!((empty.watch_id, empty.canceled), (-1, true));
        let deletions = WatchCreateRequest { filters: vec![0], ..of("", "\0") };
        assert_eq!(watching.create(deletions).await.watch_id, 1);
        kv.put(put("ab", "2")).await.unwrap();
        let heard = watching.next().await;
        assert_eq!((heard.watch_id, heard.events.len()), (7, 1));
        kv.delete_range(delete("a")).await.unwrap();
        let mut heard = Vec::new();
        for _ in 0..3 {
            let answer = watching.next().await;
            assert_eq!(answer.header.unwrap().revision, 4);
            let [event] = &answer.events[..] else {
                panic!("one event");
            };
            assert_eq!(said(event), told("a", None, 4));
            heard.push((answer.watch_id, event.prev_kv.is_some()));
        }
        heard.sort_unstable();
        assert_eq!(heard, [(0, false), (1, false), (7, true)]);
        // A cancelled watcher gets nothing more.
        let cancel = WatchCancelRequest { watch_id: 7 };
        watching.send(RequestUnion::CancelRequest(cancel)).await;
        let ended = watching.next().await;
        assert_eq!((ended.watch_id, ended.canceled), (7, true));
        kv.put(put("a", "3")).await.unwrap();
        let heard = watching.next().await;
        assert_eq!((heard.watch_id, said(&heard.events[0])), (0, told("a", Some("3"), 5)));
        watching.send(RequestUnion::ProgressRequest(WatchProgressRequest {})).await;
        let progress = watching.next().await;
        assert_eq!((progress.watch_id, progress.header.unwrap().revision), (-1, 5));
    });
}

#[test]
fn a_watcher_begins_in_the_past_if_that_is_still_known() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        for value in ["1", "2", "3"] {
            kv.put(put("a", value)).await.unwrap();
            kv.put(put("b", value)).await.unwrap();
        }
        let mut watching = Watching::at(&node).await;
        let past = |start_revision| WatchCreateRequest { start_revision, ..of("a", "") };
        watching.create(past(3)).await;
        let events = watching.events(2).await;
        let expected = [told("a", Some("2"), 4), told("a", Some("3"), 6)];
        assert_eq!(events.iter().map(said).collect::<Vec<_>>(), expected);
        // A revision in the future.
        watching.create(past(9)).await;
        kv.put(put("a", "4")).await.unwrap();
        assert_eq!(watching.next().await.watch_id, 0);
        kv.put(put("a", "5")).await.unwrap();
        let mut heard = [watching.next().await.watch_id, watching.next().await.watch_id];
        heard.sort_unstable();
        assert_eq!(heard, [0, 1]);
        let compaction = CompactionRequest { revision: 6, physical: true };
        kv.compact(compaction).await.unwrap();
        watching.create(past(5)).await;
        let ended = watching.next().await;
        assert_eq!((ended.watch_id, ended.canceled, ended.compact_revision), (2, true, 6));
        watching.create(past(6)).await;
        let events = watching.events(3).await;
        assert_eq!(said(&events[0]), told("a", Some("3"), 6));
    });
}

/// A watcher that leaves more events unread than any queue holds still gets all, once and in order,
/// at any node.
#[test]
fn a_slow_watcher_misses_nothing_and_stops_nobody() {
    const PUTS: usize = 3000;
    let folder = tempfile::tempdir().unwrap();
    let nodes = three(folder.path());
    runtime().block_on(async {
        let mut watching = Vec::new();
        for node in &nodes {
            let mut one = Watching::at(node).await;
            let request = WatchCreateRequest {
                prev_kv: watching.len() == 1,
                fragment: true,
                start_revision: 2,
                ..of("k", "l")
            };
            one.create(request).await;
            watching.push(one);
        }
        let large = PutRequest { value: vec![7; 3000].into(), ..put("k", "") };
        let mut writers = Vec::new();
        for node in &nodes {
            let (mut kv, large) = (node.kv(), large.clone());
            writers.push(tokio::spawn(async move {
                for _ in 0..PUTS / 3 {
                    kv.put(large.clone()).await.unwrap();
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        for one in &mut watching {
            let events = one.events(PUTS).await;
            let revisions: Vec<i64> = events.iter().map(|event| said(event).2).collect();
            let expected: Vec<i64> = (2..).take(PUTS).collect();
            assert_eq!(revisions, expected);
        }
        assert!(watching.len() == 3);
        let found = nodes[0].kv().range(get("k")).await.unwrap().into_inner();
        assert_eq!(found.kvs[0].version, i64::try_from(PUTS).unwrap());
    });
}

/// A stream survives a busy node: its query is retried until the node answers.
#[test]
fn a_busy_node_ends_no_stream() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        kv.put(put("a", "1")).await.unwrap();
        let mut watching = Watching::at(&node).await;
        watching.create(of("a", "")).await;
        let busy = Busy::make(&node);
        let past = WatchCreateRequest { start_revision: 2, ..of("a", "") };
        watching.send(RequestUnion::CreateRequest(past)).await;
        let shortly = std::time::Duration::from_millis(300);
        let ended = timeout(shortly, watching.answers.message()).await;
        assert!(ended.is_err(), "the node cannot answer: {ended:?}");
        drop(busy);
        let created = watching.next().await;
        assert_eq!((created.watch_id, created.created, created.canceled), (1, true, false));
        assert_eq!(said(&watching.events(1).await[0]), told("a", Some("1"), 2));
    });
}

/// Watchers may use half of the memory for clients, and their keys count.
#[test]
fn memory_for_watchers_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut watching = Watching::at(&node).await;
        let large = |watch_id| WatchCreateRequest {
            key: vec![7; 1 << 20].into(),
            watch_id,
            ..WatchCreateRequest::default()
        };
        let mut last = 0;
        let refused = loop {
            last += 1;
            assert!(last < 17, "more than half of 32 MiB");
            let created = watching.create(large(last)).await;
            if created.canceled {
                break created;
            }
        };
        assert_eq!(refused.cancel_reason, "etcdserver: too many requests");
        assert!(last > 12, "{last}");
        // Other streams are served, and there is space again once a watcher has ended.
        node.kv().put(put("a", "1")).await.unwrap();
        let cancel = WatchCancelRequest { watch_id: 1 };
        watching.send(RequestUnion::CancelRequest(cancel)).await;
        assert!(watching.next().await.canceled);
        assert!(!watching.create(large(1)).await.canceled);
    });
}

/// Each of many watchers of a key gets all events, those of a revision together.
#[test]
fn many_watchers_of_one_key_are_told_the_same() {
    const WATCHERS: usize = 300;
    const PUTS: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut watching = Watching::at(&node).await;
        for _ in 0..WATCHERS {
            watching.create(of("a", "")).await;
        }
        let mut kv = node.kv();
        for _ in 0..PUTS {
            kv.put(put("a", "1")).await.unwrap();
        }
        let mut heard = std::collections::BTreeMap::<i64, Vec<i64>>::new();
        let mut count = 0;
        while count < WATCHERS * PUTS {
            let answer = watching.next().await;
            count += answer.events.len();
            let revisions = answer.events.iter().map(|event| said(event).2);
            heard.entry(answer.watch_id).or_default().extend(revisions);
        }
        let expected: Vec<i64> = (2..).take(PUTS).collect();
        assert_eq!(heard.len(), WATCHERS);
        assert!(heard.values().all(|revisions| *revisions == expected));
    });
}
