//! Disk failures of the store, during commands and before its first read.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{RecvTimeoutError, channel},
    },
    time::Duration,
};

use quorate::{Health, Slot, StateMachine as _};
use quorate_etcd::{
    auth::{AuthChange, NewUser, Sender, auth_change::AuthChangeKind},
    command::{Command, Page, Query, decode_reply},
    mvcc::Paging,
    proto::etcdserverpb::RangeRequest,
    refusal::Refusal,
    service::Service,
};
use quorate_kv::store::lsm::{Access, Delays, Disk, DiskSpace, Options};

use super::{Log, commands_before, compare, slot};
use crate::{
    common::{Home, apply_bytes, image, limits, load, on_disk},
    dice::Dice,
};

/// Disk that fails as a test requests.
#[derive(Debug, Default)]
struct Moody {
    /// Failing access, and the number of accesses that succeed first.
    fails: Mutex<Option<(Access, u64)>>,
}

impl Moody {
    fn set(&self, fails: Option<(Access, u64)>) {
        *self.fails.lock().unwrap() = fails;
    }
}

impl Disk for Moody {
    fn free_space(&self, _: &Path) -> io::Result<DiskSpace> {
        let (free, total) = (1 << 40, 1 << 41);
        Ok(DiskSpace { free, total })
    }

    fn try_writing(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn allows(&self, access: Access) -> io::Result<()> {
        let mut fails = self.fails.lock().unwrap();
        match &mut *fails {
            Some((of, 0)) if *of == access => Err(io::ErrorKind::Other.into()),
            Some((of, left)) if *of == access => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn options(disk: &Arc<Moody>) -> Options {
    let soon = Duration::from_millis(1);
    Options {
        limits: limits(),
        delays: Delays { busy: soon, while_full: soon, retry_min: soon, retry_max: soon },
        disk: Arc::clone(disk) as Arc<dyn Disk>,
    }
}

/// Waits until the store works again and has been read, as a replica does. Returns its slot.
fn until_back(service: &mut Service) -> Slot {
    let (_alive, never) = channel::<()>();
    for _ in 0..60_000 {
        if let Health::Back(_) = service.health() {
            let (at, _) = service.recovered();
            if !service.has_failed() {
                return at;
            }
        }
        let waited = never.recv_timeout(Duration::from_millis(1));
        assert_eq!(waited, Err(RecvTimeoutError::Timeout));
    }
    panic!("it never came back");
}

/// A failed read, at any point of a command, voids the whole run, and the log is executed again.
#[test]
fn a_read_that_fails_in_a_command_voids_the_run() {
    let mut failures = 0;
    for seed in 0..6 {
        let mut dice = Dice::new(seed);
        let disk = Arc::new(Moody::default());
        let folder = tempfile::tempdir().unwrap();
        let mut service = Service::new(Box::new(on_disk(&folder, options(&disk))));
        let (mut model, mut log, mut at) = (Home::in_memory(), Log::default(), 0);
        for _ in 0..3 {
            log.grow(&mut model, &mut dice, 100);
            while at < log.0.len() {
                let access = dice.of(&[Access::Read, Access::Read, Access::Write]);
                let fails = dice.one_in(15).then(|| (access, dice.next() % 30));
                if fails.is_some() {
                    disk.set(fails);
                }
                let to = (at + 1 + dice.below(5)).min(log.0.len());
                let is_well = matches!(service.health(), Health::Well | Health::Behind);
                let done = is_well.then(|| log.apply(&mut service, at..to)).flatten();
                match done {
                    Some((now, same)) => {
                        assert!(same, "{seed} {at}");
                        at = now;
                    }
                    None => {
                        disk.set(None);
                        at = commands_before(until_back(&mut service));
                        failures += 1;
                    }
                }
            }
            disk.set(None);
            if service.health() != Health::Well {
                at = commands_before(until_back(&mut service));
                let to = log.0.len();
                assert_eq!(log.apply(&mut service, at..to), Some((to, true)));
                at = to;
            }
            compare(&mut model, &mut service, &log);
        }
    }
    assert!(failures > 10, "{failures}");
}

/// A store that is not open looks empty, as if no login were required. So clients are refused until
/// the users have been read.
#[test]
fn nobody_is_let_in_before_users_are_read() {
    let disk = Arc::new(Moody::default());
    let folder = tempfile::tempdir().unwrap();
    let ask = |service: &Service, by: &Sender| {
        let mut reply = Vec::new();
        let range = RangeRequest { key: "a".into(), ..RangeRequest::default() };
        let query = Query::Page(Paging::new(range).next(1)).encode();
        service.query(&by.prepend_to(query), 0, &mut reply);
        decode_reply::<Page>(reply).unwrap()
    };
    let mut service = Service::new(Box::new(on_disk(&folder, options(&disk))));
    let change = |what| Command::Auth(AuthChange { kind: Some(what) }).encode();
    let root = NewUser { name: "root".into(), hash: String::new() };
    let granted = quorate_etcd::proto::etcdserverpb::AuthUserGrantRoleRequest {
        user: "root".into(),
        role: "root".into(),
    };
    apply_bytes(&mut service, &change(AuthChangeKind::UserAdd(root)));
    apply_bytes(&mut service, &change(AuthChangeKind::UserGrant(granted)));
    assert!(ask(&service, &Sender::Anonymous).is_ok());
    apply_bytes(&mut service, &change(AuthChangeKind::Enable(vec![7; 32].into())));
    assert_eq!(ask(&service, &Sender::Anonymous), Err(Refusal::UserEmpty));
    service.commit(slot(5), &[]);
    drop(service);
    disk.set(Some((Access::Open, 0)));
    let mut service = Service::new(Box::new(on_disk(&folder, options(&disk))));
    assert!(service.has_failed());
    assert_eq!(ask(&service, &Sender::Anonymous), Err(Refusal::UserEmpty));
    // The client may use another node.
    let user = Sender::User { name: "root".into(), auth_revision: 3 };
    assert_eq!(ask(&service, &user), Err(Refusal::AuthOutdated));
    disk.set(None);
    assert_eq!(until_back(&mut service), slot(5));
    assert_eq!(ask(&service, &Sender::Anonymous), Err(Refusal::UserEmpty));
    assert!(ask(&service, &user).is_ok());
}

/// [scrub-8] A damaged store discards all data and loads another node's image.
#[test]
fn a_store_is_built_anew() {
    let mut dice = Dice::new(5);
    let disk = Arc::new(Moody::default());
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::new(Box::new(on_disk(&folder, options(&disk))));
    let (mut model, mut log) = (Home::in_memory(), Log::default());
    assert!(model.renew().is_err());
    log.grow(&mut model, &mut dice, 200);
    let all = log.0.len();
    assert_eq!(log.apply(&mut service, 0..all), Some((all, true)));
    let (_alive, never) = channel::<()>();
    let mut renewed = service.renew();
    for _ in 0..10_000 {
        // The tree does not exist before it is requested.
        if renewed.is_ok() {
            break;
        }
        let _ = never.recv_timeout(Duration::from_millis(1));
        service.start_sync();
        service.health();
        renewed = service.renew();
    }
    renewed.unwrap();
    assert_eq!(until_back(&mut service), Slot::FIRST);
    assert_eq!(service.mvcc().bytes(), 0);
    load(&mut service, &image(&mut model, 300));
    compare(&mut model, &mut service, &log);
    log.grow(&mut model, &mut dice, 100);
    let more = log.0.len();
    assert_eq!(log.apply(&mut service, all..more), Some((more, true)));
    compare(&mut model, &mut service, &log);
}
