use serde_json::Value;

use crate::lab::{Lab, RunCarom as _, build_lab, parsed};
use crate::{Image, MIB};

fn sent(lab: &Lab, bytes: usize, more: &[&str]) -> (Value, Vec<Value>, Vec<String>) {
    let image = Image::new(bytes);
    let count = lab.hosts().len() - 1;
    let mut receivers = image.receivers(lab, count, more);
    let sender = image.send(lab, &count.to_string(), more).ended_with(0);
    let mut told = Vec::new();
    for (place, receiver) in receivers.iter_mut().enumerate() {
        image.assert_received(place + 1, receiver);
        told.push(parsed(receiver.wrote.seen.last().expect("a summary")));
    }
    let summary = parsed(sender.wrote.seen.last().expect("a summary"));
    (summary, told, sender.said.seen.clone())
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("no {name} in {of}"))
}

/// The port of one receiver drops packets of more than 1300 bytes. Earlier versions sent that
/// receiver nothing through the stream, and it fetched everything after 10 s.
#[test]
fn stream_fits_a_hop_narrower_than_the_interface() {
    let Some(lab) = build_lab(3, 1500) else { return };
    for host in lab.hosts() {
        host.set_gso(false).expect("the host exists");
    }
    lab.host(2).narrow(1300).expect("the host exists");
    let (summary, _, said) = sent(&lab, 24 * MIB, &[]);
    let network = &summary["network"];
    assert_eq!(number(network, "path_mtu"), 1300, "{summary}");
    let told = said.iter().filter(|line| line.contains("is 1300 bytes, not 1500"));
    assert_eq!(told.count(), 1, "{said:#?}");
    for row in summary["receivers"].as_array().expect("receivers") {
        let (stream, bytes) = (number(row, "stream_bytes"), number(&summary, "bytes"));
        assert!(stream > bytes / 2, "the data took another path: {summary}");
    }
}

#[test]
fn jumbo_frames_are_used_if_they_are_asked_for_and_come_through() {
    let Some(lab) = build_lab(3, 9000) else { return };
    for host in lab.hosts() {
        host.set_gso(false).expect("the host exists");
    }
    let (summary, told, _) = sent(&lab, 24 * MIB, &["--mtu", "9000"]);
    assert_eq!(number(&summary["network"], "path_mtu"), 9000, "{summary}");
    let large = 24 * MIB as u64 / 4000;
    assert!(number(&summary["network"], "data_sent") < large, "{summary}");
    assert!(told.iter().all(|it| number(&it["network"], "path_mtu") == 9000), "{told:?}");
    let (summary, ..) = sent(&lab, MIB, &[]);
    assert_eq!(number(&summary["network"], "path_mtu"), 1500, "no larger size was requested");
}

#[test]
fn the_mtu_is_that_of_the_own_interface_whatever_sys_shows() {
    let Some(lab) = build_lab(2, 1000) else { return };
    let image = Image::new(MIB);
    let mut receivers = image.receivers(&lab, 1, &[]);
    let args = ["send", &image.file, "--to", "g", "--receivers", "1", "--json"];
    let args = [&args[..], &["--interface", "eth0"]].concat();
    let sender = lab.host(1).start_with_foreign_sys(&args).ended_with(0);
    receivers[0].end_with(0);
    let summary = parsed(sender.wrote.seen.last().expect("a summary"));
    let network = &summary["network"];
    assert_eq!((number(network, "path_mtu"), number(network, "send_too_large")), (1000, 0));
    assert_eq!(number(&summary["receivers"][0], "sender_bytes"), 0, "{summary}");
}
