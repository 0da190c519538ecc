//! Experiments on emulated networks. Without root, the tests are skipped with a message.

use serde_json::Value as Json;

use crate::{once_answered, papers_json};

/// Returns whether the measurement was skipped. If so, prints the reason.
fn is_skipped(document: &Json) -> bool {
    let notes = document["notes"].as_array().unwrap().iter();
    let skipped = notes.filter_map(Json::as_str).find(|note| note.starts_with("skipped: "));
    if let Some(why) = skipped {
        eprintln!("{why}");
    }
    skipped.is_some()
}

fn note<'a>(document: &'a Json, words: &str) -> &'a str {
    let notes = document["notes"].as_array().unwrap().iter();
    let mut found = notes.filter_map(Json::as_str).filter(|note| note.contains(words));
    found.next().unwrap_or_else(|| panic!("{words}: {document}"))
}

/// Without nodes, all receivers get the frames of the bare sender, and every row lists the
/// obstacles.
#[test]
fn bare_senders_reach_bare_receivers_on_a_segment() {
    let arguments = ["ring-paxos-fig1", "--quick", "--json"];
    let short = ["--duration", "300ms", "--warmup", "200ms", "--repeat", "1"];
    let (code, document) = papers_json(&[&arguments[..], &short].concat());
    assert_eq!(code, 0, "{document}");
    if is_skipped(&document) {
        return;
    }
    let rows = document["rows"].as_array().unwrap();
    let groups = rows.iter().map(|row| &row["segment"]);
    let groups: Vec<(&Json, &Json)> =
        groups.map(|segment| (&segment["way"], &segment["receivers"])).collect();
    let wanted = [("multicast", 1), ("unicast", 1), ("multicast", 25), ("unicast", 25)];
    for (group, (way, receivers)) in groups.iter().zip(wanted) {
        assert!(*group.0 == way && *group.1 == receivers, "{document}");
    }
    assert_eq!(groups.len(), wanted.len());
    for row in rows {
        let segment = &row["segment"];
        let figure = |name: &str| segment[name].as_f64().unwrap();
        assert!(figure("slowest_mbit") > 0.0, "{row}");
        assert!((0.0..1.0).contains(&figure("loss")), "{row}");
        assert!(!segment["limit"].as_str().unwrap().is_empty(), "{row}");
        assert_eq!(row["p50_us"].as_f64(), Some(0.0), "no node replies: {row}");
    }
    let published = &document["published"][0];
    assert_eq!(published["published"].as_f64(), Some(10.0));
    assert!(published["ours"].is_null(), "a quick run has no 10 receivers");
    assert!(note(&document, "emulated segment").contains("100 Mbit/s"));
}

/// Nodes run with and without devices. In valid rows, the devices assigned the slots.
#[test]
fn planes_and_devices_stand_beside_published_figures() {
    let arguments = ["kernel-table2", "--quick", "--json"];
    let short = ["--duration", "300ms", "--warmup", "200ms", "--repeat", "1"];
    let arguments = [&arguments[..], &short].concat();
    let (_, document) = once_answered(|| papers_json(&arguments));
    if is_skipped(&document) {
        return;
    }
    let rows = document["rows"].as_array().unwrap().iter();
    let rows: Vec<&Json> = rows.filter(|row| row["system"] == "quorate").collect();
    let way = |row: &Json| row["plane"].as_str().unwrap().to_owned();
    let kernel = |row: &&&Json| way(row).starts_with("tcp + kernel");
    assert_eq!(rows.iter().filter(|row| !kernel(row)).count(), 6);
    for clients in ["tcp + kernel", "tcp + kernel, clients by frames"] {
        assert!(rows.iter().any(|row| way(row) == clients), "{document}");
    }
    for row in rows {
        assert_eq!(row["scenario"], "kernel-paxos-table2");
        if row["valid"] == true && kernel(&&row) {
            let share = row["device"]["slots_share"].as_f64().unwrap();
            assert!(share >= 0.9, "{row}");
            let name = row["device"]["name"].as_str().unwrap();
            assert!(name.starts_with("in the kernel"), "{row}");
        } else if row["valid"] == false {
            assert!(!row["why_not"].as_array().unwrap().is_empty(), "{row}");
        }
    }
    let published = document["published"].as_array().unwrap();
    assert_eq!(published.len(), 8);
    for one in published {
        let what = one["what"].as_str().unwrap();
        // A quick run includes the smallest and the largest load.
        let ends = what.contains("1 client;") || what.contains("8 clients;");
        if what.contains("ours: tcp + kernel") {
            assert!(ends || one["ours"].is_null(), "{one}");
        } else {
            assert_eq!(ends, !one["ours"].is_null(), "{one}");
        }
    }
    note(&document, "context switches, tcp, 1000 B, outstanding 8: leader ");
}

/// Six echo programs are measured. Those in the kernel are measured only if the kernel accepts
/// programs.
#[test]
fn echoes_in_user_space_and_in_the_kernel_are_measured() {
    let arguments = ["kernel-table1", "--quick", "--json"];
    let short = ["--duration", "100ms", "--warmup", "50ms", "--repeat", "1"];
    let (code, document) = papers_json(&[&arguments[..], &short].concat());
    if is_skipped(&document) {
        return;
    }
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 24, "six ways, two sizes, two loads");
    let refused = rows.iter().filter(|row| row["valid"] == false);
    assert_eq!(code == 0, refused.clone().count() == 0, "{document}");
    for row in refused {
        let way = row["plane"].as_str().unwrap();
        assert!(!way.contains("process"), "{row}");
    }
    for row in rows.iter().filter(|row| row["valid"] == true) {
        assert!(row["achieved_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["p50_us"].as_f64().unwrap() > 0.0, "{row}");
    }
    for one in document["published"].as_array().unwrap() {
        let of_process = one["what"].as_str().unwrap().contains("process");
        assert!(!of_process || one["ours"].as_f64().is_some(), "{one}");
    }
}

/// The smallest and the largest batch of each value size are measured and compared with the model.
#[test]
#[ignore = "two minutes: cargo xtask papers check"]
fn a_table_is_measured_with_fixed_batches_beside_its_model() {
    let arguments = ["jpaxos-table2", "--quick", "--wan", "half"];
    let short = ["--duration", "1s", "--warmup", "1s", "--json"];
    let (code, document) = papers_json(&[&arguments[..], &short].concat());
    if is_skipped(&document) {
        return;
    }
    assert_eq!(code, 0, "{document}");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "the smallest and the largest batch of each size");
    for row in rows {
        assert_eq!((row["errors"].as_u64(), row["lost"].as_u64()), (Some(0), Some(0)), "{row}");
        assert_eq!(row["wan"], "half");
        let held = row["commands_per_batch"].as_f64().unwrap();
        let most = row["batch_bytes"].as_f64().unwrap() / row["value_bytes"].as_f64().unwrap();
        // Few batches fit in one second, and replies belong to other batches.
        assert!(held <= most * 2.0, "a batch is as large as told: {row}");
    }
    assert_eq!(document["predictions"].as_array().unwrap().len(), 6);
    assert_eq!(document["published"].as_array().unwrap().len(), 15);
    assert!(note(&document, "parameters here").contains("φcli"));
}
