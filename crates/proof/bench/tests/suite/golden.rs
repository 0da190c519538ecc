//! Reports compared with files. `UPDATE_GOLDEN=1 cargo test -p quorate-bench` rewrites them.

use std::{env, fs, path::Path};

use quorate_bench::{
    device::DeviceWork,
    environment::{Commit, Environment},
    lan::{
        DatagramTransport, Lan,
        figures::{BareMeasurement, BareSetting as OfSegment, SegmentFigures},
        receiver::Reception,
    },
    load::OfferedLoad,
    probe::MeasuredCeiling,
    repetition::{GENERATOR_ROLE, Repetition, RoleUsage},
    report::{BenchReport, ModelComparison, PublishedComparison},
    row::{FixedBatching, Row, RowSetting},
    samples::Samples,
    schedule::SECOND,
    stream::{AcknowledgementCounts, figures::StreamSetting, speech::StreamProtocol},
};
use quorate_testbed::usage::ResourceUsage;

fn environment() -> Environment {
    Environment {
        commit: Commit(Some("0123abc".to_owned())),
        kernel: "Linux 6.18.0".to_owned(),
        cpus: 2,
        cpu_model: "A CPU <with> \"quotes\" & more".to_owned(),
    }
}

fn setting(offer: OfferedLoad) -> RowSetting {
    RowSetting {
        reads_percent: 50,
        connections: 16,
        disk_flush_ms: 1.0,
        ..RowSetting::new("kv", "durable", "memory", 64, offer)
    }
}

/// Returns a repetition with one latency for every microsecond from `least_us` up.
fn repetition(completed: u64, least_us: u64) -> Repetition {
    let mut samples = Samples {
        completed,
        measured_ns: SECOND,
        sent_count: completed,
        replies_over_time: vec![10, 20, 30],
        ..Samples::default()
    };
    (0..completed).for_each(|n| samples.latencies.record((least_us + n % 100) * 1000));
    let role = |role: &str, user_s| RoleUsage {
        role: role.to_owned(),
        usage: ResourceUsage { user_s, system_s: 0.02, context_switches: 300 },
    };
    Repetition {
        replies_between_readings: completed,
        samples,
        roles: vec![role("leader", 0.03), role("followers", 0.04), role(GENERATOR_ROLE, 0.01)],
        log_writes: Some(3000),
        flushes: Some(3000),
        foreign_cpu: Some(0.25),
        leader_batches: Some(completed / 8),
        leader_peer_bytes: Some(completed * 200),
        dropped_packets: None,
        delivered_per_s: None,
        device_work: None,
    }
}

/// Returns a row of nodes with kernel devices, which assigned all slots but the first.
fn device_row() -> Row {
    let mut setting = setting(OfferedLoad::Closed { outstanding: 8 });
    setting.scenario = "kernel-paxos-fig5".to_owned();
    (setting.durability, setting.disk_flush_ms) = ("volatile".to_owned(), 0.0);
    setting.plane = Some("tcp + kernel".to_owned());
    let mut repetition = repetition(8000, 80);
    repetition.device_work = Some(DeviceWork {
        name: "in the kernel at peers, by tc".to_owned(),
        decided: 1000,
        assigned_slots: 999,
        withdrawals: 0,
        values_too_long: 0,
    });
    Row::new(&setting, &environment(), &[repetition]).unwrap()
}

fn stream_row() -> Row {
    let offer = OfferedLoad::Open { per_second: 4000 };
    let mut setting = setting(offer);
    (setting.scenario, setting.store) = ("stream".to_owned(), "streams".to_owned());
    setting.connections = 2;
    let asked = StreamSetting {
        protocol: StreamProtocol::Raw,
        write_bytes: 64,
        offer,
        gathers_writes: true,
    };
    let mut acknowledged =
        AcknowledgementCounts { count: 500, bytes: 3000 * 64, ..AcknowledgementCounts::default() };
    (1..=100).for_each(|us| acknowledged.latencies_from_call.record(us * 1000));
    let all = [repetition(3000, 90)];
    let row = Row::from_streams(&setting, &environment(), asked, &all, &[acknowledged]);
    let mut row = row.unwrap();
    let figures = row.stream.as_mut().unwrap();
    figures.set_cpu(&row.roles, 64, |role| 1 + usize::from(role == "followers"));
    row
}

/// Returns a row of two senders at nine tenths of the link capacity. One of two receivers lost a
/// tenth of the datagrams.
fn segment_row() -> Row {
    let asked = OfSegment {
        transport: DatagramTransport::Multicast,
        senders: 2,
        receivers: 2,
        load_percent: Some(90),
        burst_datagrams: 44,
        queue_kib: Some(64),
    };
    let heard = |datagrams: u64| Reception {
        bytes: datagrams * 1472,
        nanos: SECOND,
        datagrams,
        expected_datagrams: 7400,
    };
    let found = BareMeasurement {
        receptions: vec![heard(7400), heard(6660)],
        senders_cpu_s: 0.25,
        elapsed_seconds: 1.0,
        cpu_busy_share: Some(0.97),
        foreign_cpu_share: Some(0.25),
    };
    let mut setting = setting(OfferedLoad::Open { per_second: 7430 });
    (setting.scenario, setting.system) = ("ring-paxos-fig2".to_owned(), "bare program".to_owned());
    (setting.store, setting.value_bytes) = ("none".to_owned(), 1472);
    (setting.durability, setting.disk_flush_ms) = ("volatile".to_owned(), 0.0);
    (setting.connections, setting.reads_percent) = (2, 0);
    setting.plane = Some(asked.describe());
    let mut repetition = Repetition {
        foreign_cpu: found.foreign_cpu_share,
        replies_between_readings: 6660,
        ..Repetition::default()
    };
    (repetition.samples.completed, repetition.samples.measured_ns) = (6660, SECOND);
    let mut row = Row::new(&setting, &environment(), &[repetition]).unwrap();
    let lan = Lan::parse_speed("100mbit").unwrap();
    row.set_segment(SegmentFigures::new(&asked, lan, &[found]));
    row
}

fn document() -> BenchReport {
    let environment = environment();
    let mut rows = Vec::new();
    for (outstanding, completed, least_us) in [(1, 1000, 90), (16, 9000, 100), (256, 30_000, 700)] {
        let all = [
            repetition(completed, least_us),
            repetition(completed + 100, least_us + 5),
            repetition(completed - 100, least_us + 10),
        ];
        let setting = setting(OfferedLoad::Closed { outstanding });
        let mut row = Row::new(&setting, &environment, &all).unwrap();
        row.set_bare_ceiling(40_000.0);
        rows.push(row);
    }
    for (window, completed) in [(1, 3000), (2, 5000)] {
        let mut fixed = setting(OfferedLoad::Closed { outstanding: 1200 });
        fixed.batching = Some(FixedBatching { batch_bytes: 512, window });
        fixed.wan = Some("jpaxos".to_owned());
        let mut all = [repetition(completed, 100_000)];
        all[0].dropped_packets = Some(7);
        rows.push(Row::new(&fixed, &environment, &all).unwrap());
    }
    let mut punctual = [repetition(4000, 50), repetition(3990, 60)];
    punctual[1].samples.late_count = 20;
    let offer = OfferedLoad::Open { per_second: 4000 };
    rows.push(Row::new(&setting(offer), &environment, &punctual).unwrap());
    let mut bad = [repetition(5000, 50)];
    bad[0].samples.errors = 3;
    bad[0].samples.first_error = Some("BUSY, not \"now\" <later>".to_owned());
    let offer = OfferedLoad::Open { per_second: 5000 };
    rows.push(Row::new(&setting(offer), &environment, &bad).unwrap());
    rows.push(device_row());
    rows.push(stream_row());
    rows.push(segment_row());
    BenchReport {
        command: "quorate bench kv --value-size 64".to_owned(),
        unix_time: 1_800_000_000,
        environment,
        ceilings: vec![MeasuredCeiling {
            name: "write 4 KiB and flush".to_owned(),
            value: 25_000.0,
            unit: "/s".to_owned(),
            p50_us: Some(38.0),
            p99_us: Some(55.0),
            cpu_us_per_op: None,
        }],
        rows,
        lives: Vec::new(),
        predictions: vec![ModelComparison {
            what: "64 B, batches of 512 B".to_owned(),
            predicted: 9500.0,
            measured: 9000.0,
            error: 0.055_56,
            window_cpu: 3.5,
            window_net: 7.25,
        }],
        published: vec![PublishedComparison {
            source: "A paper, Fig. 1".to_owned(),
            what: "Theirs: throughput".to_owned(),
            published: 10_000.0,
            unit: "/s".to_owned(),
            approximate: true,
            ours: Some(9000.0),
        }],
        notes: vec!["A note with <markup>.".to_owned()],
    }
}

#[track_caller]
fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    if wanted != text {
        let differs = wanted.lines().zip(text.lines()).find(|(a, b)| a != b);
        panic!("{name} differs, first here: {differs:#?}; see the top of this file");
    }
}

#[test]
fn json() {
    compare("report.json", &document().to_json());
}

#[test]
fn csv() {
    compare("report.csv", &document().to_csv());
}

#[test]
fn html() {
    let html = document().to_html();
    compare("report.html", &html);
    for elsewhere in ["http:", "https:", "<script", "<link", "@import", "url("] {
        assert!(!html.contains(elsewhere), "{elsewhere}");
    }
    assert!(!html.contains("<later>") && !html.contains("<markup>"));
}

/// A report without measurements is a valid page, and formatting it does not divide by zero.
#[test]
fn an_empty_report_is_a_page_as_well() {
    let mut document = document();
    document.rows.clear();
    document.ceilings.clear();
    document.published.clear();
    document.predictions.clear();
    assert!(document.to_html().ends_with("</body></html>\n"));
    assert_eq!(document.to_csv().lines().count(), 1);
}
