//! A single device: its thread, and the guarantees of its handle.

use std::sync::Arc;

use quorate_device::{Network, SoftwareDevice, udp};
use quorate_offload::{
    Address,
    port::{Device, Drained},
};

use crate::software::group::settings;

fn own() -> Address {
    udp::address("10.0.0.1:47100".parse().unwrap())
}

fn start(wake: Arc<dyn Fn() + Send + Sync>) -> SoftwareDevice {
    let wire = Network::new(0, 0, 0, 0).join(own().mac).unwrap();
    SoftwareDevice::start(settings(own(), udp::all_hosts(47_100)), wire, wake).unwrap()
}

/// Dropping a device joins its thread.
#[test]
fn a_device_that_is_dropped_ends_its_thread() {
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(|| ());
    for _ in 0..50 {
        let device = start(Arc::clone(&wake));
        assert_eq!(Arc::strong_count(&wake), 2);
        drop(device);
        assert_eq!(Arc::strong_count(&wake), 1);
    }
}

/// The device wakes the owner when a drain has completed.
#[test]
fn a_drain_is_over_and_says_so() {
    let (rings, hears) = std::sync::mpsc::channel();
    let mut device = start(Arc::new(move || {
        let _ = rings.send(());
    }));
    assert_eq!(device.drain_progress(), Drained::Complete);
    for _ in 0..100 {
        device.begin_drain();
        while device.drain_progress() != Drained::Complete {
            hears.recv().unwrap();
        }
    }
}

/// If the thread died, a drain never completes.
#[test]
fn a_device_whose_thread_died_is_not_drained() {
    let mut device = start(Arc::new(|| panic!("the owner's wake-up fails: this is a test")));
    device.begin_drain();
    // The first drain completes before the owner is woken, the next one never.
    let mut died = false;
    for _ in 0..1_000_000 {
        device.begin_drain();
        died = device.drain_progress() == Drained::Unknown;
        if died {
            break;
        }
        std::thread::yield_now();
    }
    assert!(died);
}
