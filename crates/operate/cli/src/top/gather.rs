//! Polls each node in a separate thread, so that a slow node delays neither the keys nor other
//! nodes.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{client, look::query_node, tuning::TuningView, view::Answer};

use super::places::{PolledAddress, PolledAddresses};

/// Timeout for a request to a node.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_millis(2500);

/// Result of a request to a node.
pub(super) enum NodeResponse {
    /// Response to a status request, with the node's address.
    Answer(String, Answer),
    /// Tuner status, with the id of the leader that sent it.
    Tuning(u32, Box<TuningView>),
}

enum GatherEvent {
    Answer(String, Answer),
    Tuning(Option<(u32, Box<TuningView>)>),
}

/// Polls all nodes at once and then at every interval, until the receiver is dropped.
pub(super) fn start(given: &[String], every: Duration) -> std::io::Result<Receiver<NodeResponse>> {
    let (news, listens) = channel();
    let places = PolledAddresses::new(given);
    thread::Builder::new()
        .name("gather".to_owned())
        .spawn(move || poll_until_end(places, every, &news))?;
    Ok(listens)
}

fn poll_until_end(mut places: PolledAddresses, every: Duration, news: &Sender<NodeResponse>) {
    let (heard, hears) = channel();
    let mut is_tuning_asked = false;
    loop {
        let until = Instant::now() + every;
        request_statuses(places.take_due(false), &heard);
        if let Some((leader, address)) = places.leader().filter(|_| !is_tuning_asked) {
            is_tuning_asked = request_tuning(leader, address.to_owned(), heard.clone());
        }
        loop {
            match hears.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(GatherEvent::Answer(address, answer)) => {
                    let answer = places.record_response(&address, answer);
                    if news.send(NodeResponse::Answer(address, answer)).is_err() {
                        return;
                    }
                    request_statuses(places.take_due(true), &heard);
                }
                Ok(GatherEvent::Tuning(said)) => {
                    is_tuning_asked = false;
                    let said = said.map(|(node, view)| NodeResponse::Tuning(node, view));
                    if said.is_some_and(|said| news.send(said).is_err()) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
    }
}

fn request_statuses(places: Vec<PolledAddress>, heard: &Sender<GatherEvent>) {
    for place in places {
        let (node, address) = (place.expected_node(), place.address.clone());
        let tell = heard.clone();
        let asking = thread::Builder::new().name("ask".to_owned()).spawn(move || {
            let answer = query_node(node, &address, REQUEST_TIMEOUT);
            // Sending fails if the receiver has been dropped.
            let _ = tell.send(GatherEvent::Answer(address, answer));
        });
        if let Err(error) = asking {
            let error = format!("cannot start a thread for {}: {error}", place.address);
            let answer = Answer::Unreachable { node, error };
            let _ = heard.send(GatherEvent::Answer(place.address, answer));
        }
    }
}

/// Requests the tuner status of the leader. Returns whether a response will arrive.
fn request_tuning(leader: u32, address: String, heard: Sender<GatherEvent>) -> bool {
    let asking = thread::Builder::new().name("ask".to_owned()).spawn(move || {
        let said = client::get(&address, "/tuning", REQUEST_TIMEOUT).ok();
        let view = said.and_then(|response| response.parse_json::<TuningView>().ok());
        let _ = heard.send(GatherEvent::Tuning(view.map(|view| (leader, Box::new(view)))));
    });
    asking.is_ok()
}
