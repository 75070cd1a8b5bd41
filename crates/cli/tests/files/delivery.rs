use std::fs;
use std::io::Write as _;

use crate::{Net, Running, assert_says, noise, summary};

#[test]
fn file_and_directory_reach_all_receivers_despite_losses() {
    let net = Net::new(23_101);
    let big = noise(9_000_000, 1);
    net.write("big.bin", &big);
    fs::create_dir_all(net.path("tree/empty")).expect("a directory");
    net.write("tree/one", b"1");
    std::os::unix::fs::symlink("one", net.path("tree/link")).expect("a link");
    let receivers = ["a", "b", "c"].map(|name| net.recv(name, &["--loss", "2%"]));
    let sent =
        net.start(&["send", "big.bin", "tree", "--to", "g", "--receivers", "3"]).ended_with(0);
    for (name, receiver) in ["a", "b", "c"].iter().zip(receivers) {
        let received = receiver.ended_with(0);
        assert_eq!(summary(&received)["wrong_pieces"], 0);
        assert!(net.read(&format!("{name}/big.bin")) == big, "{name} has other bytes");
        assert_eq!(net.read(&format!("{name}/tree/link")), b"1");
        assert!(net.path(&format!("{name}/tree/empty")).is_dir());
        assert_eq!(
            fs::read_dir(net.path(name)).expect("the directory exists").count(),
            2,
            "no leftovers"
        );
    }
    let rows = summary(&sent)["receivers"].as_array().expect("rows").len();
    assert_eq!(rows, 3);
}

#[test]
fn standard_input_is_sent_as_a_file() {
    let net = Net::new(23_102);
    let receiver = net.recv("a", &[]);
    let send = ["send", "-", "--name", "words", "--to", "g", "--receivers", "1"];
    let mut sender = Running::start_piped(net.command(&send));
    sender.stdin().write_all(b"some words").expect("it reads");
    sender.end_with(0);
    receiver.ended_with(0);
    assert_eq!(net.read("a/words"), b"some words");
}

#[test]
fn repeated_transfer_costs_its_holders_nothing() {
    let net = Net::new(23_145);
    let data = noise(3_000_000, 12);
    fs::create_dir_all(net.path("d/empty")).expect("a directory");
    net.write("d/data", &data);
    let first = net.recv("a", &[]);
    let args = ["send", "d", "--to", "g", "--receivers"];
    net.start(&[&args[..], &["1"]].concat()).ended_with(0);
    first.ended_with(0);
    let receivers = ["a", "b"].map(|name| net.recv(name, &[]));
    net.start(&[&args[..], &["2"]].concat()).ended_with(0);
    for (name, receiver) in ["a", "b"].iter().zip(receivers) {
        receiver.ended_with(0);
        assert!(net.read(&format!("{name}/d/data")) == data, "{name} has other bytes");
        assert_eq!(
            fs::read_dir(net.path(name)).expect("the directory exists").count(),
            1,
            "no leftovers"
        );
    }
}

#[test]
fn transfer_uses_the_topology_file_and_names_unlisted_hosts() {
    let data = noise(3_000_000, 7);
    let net = Net::with_data(23_121, &data);
    let file = "[racks]\nleft = ['127.0.0.1:23131', '127.0.0.1:23132']\n\
                right = ['127.0.0.1:23133']\n";
    net.write("net.toml", file.as_bytes());
    let named = ["a", "b"].into_iter().zip(["23132", "23133"]);
    let mut receivers: Vec<Running> =
        named.map(|(name, port)| net.recv(name, &["--port", port, "--loss", "1%"])).collect();
    receivers.push(net.recv("c", &["--port", "23134"]));
    let args = ["--receivers", "3", "--port", "23131", "--topology", "net.toml"];
    let sent = net.send(&args).ended_with(0);
    for (name, receiver) in ["a", "b", "c"].iter().zip(receivers) {
        receiver.ended_with(0);
        assert!(net.read(&format!("{name}/data")) == data, "{name} has other bytes");
    }
    let told = sent.said.seen.join("\n");
    assert!(told.contains("a receiver at 127.0.0.1:23134 is not in net.toml"), "{told}");
    assert_eq!(told.matches("is not in net.toml").count(), 1, "{told}");
}

#[test]
fn only_the_expected_id_is_received() {
    let net = Net::with_data(23_155, b"some");
    let mut sender = net.send(&["--receivers", "1"]);
    let offering = sender.said.wait_for("offering ");
    let id = offering.rsplit(' ').next().expect("the id is the last word");
    let wrong: String = id.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    // On a busy machine, the offer may arrive late.
    let refused = ["3s", "20s", "50s"].iter().map(|timeout| {
        let args = ["recv", "--from", "g", "a", "--expect", &wrong, "--timeout", timeout];
        let refused = net.start(&args).ended_with(2);
        assert_says(&refused, &format!("{wrong} was not sent to group 'g'"));
        assert!(!net.path("a").exists(), "something was written");
        refused.said.seen.join("\n")
    });
    let passed_over = format!("skipped: data ({id}) is not {wrong}");
    assert!(refused.into_iter().any(|told| told.contains(&passed_over)), "it was not offered");
    net.recv("b", &["--expect", id]).ended_with(0);
    assert_eq!(net.read("b/data"), b"some");
    sender.ended_with(0);
}
