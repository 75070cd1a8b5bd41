use crate::{Net, Running, assert_says, noise};

#[test]
fn wrong_use_is_refused_at_once_with_a_fix() {
    let net = Net::with_data(23_147, b"1");
    let says = |args: &[&str], cause: &str, fix: &str| {
        let told = net.start(args).ended_with(2);
        assert_says(&told, cause);
        assert_says(&told, fix);
    };
    says(
        &["recv", "--from", "g", "data/sub"],
        "data is a file, not a directory",
        "use a directory",
    );
    says(&["recv", "--from", "g", "data"], "data is a file, not a directory", "use a directory");
    // A directory in which even root cannot write.
    let nowhere = ["recv", "--from", "g", "/proc/carom/a"];
    says(&nowhere, "cannot write to /proc: no such file or directory", "use a writable directory");
    std::os::unix::fs::symlink("none", net.path("link")).expect("a symlink");
    says(&["recv", "--from", "g", "link"], "cannot access link", "use a directory");
    let send = |more: &[&'static str]| [&["send", "data", "--to", "g"], more].concat();
    says(&send(&["--rate", "-5Mbit"]), "--rate <RATE>: ", "write a bandwidth");
    says(&send(&["--copies", "0"]), "is not in 1..=16", "use a whole number from 1 to 16");
    says(&send(&["--copies", "17"]), "is not in 1..=16", "use a whole number from 1 to 16");
    says(&send(&["--rate", "0"]), "is not between 80kbit and 8000Gbit", "write a bandwidth");
    says(&send(&["--name", "a/b"]), "standard input is not sent", "pass `-` as PATH");
    let mut sender = net.command(&["send", "-", "--to", "g"]);
    sender.env("TMPDIR", "/none");
    let nowhere = Running::start(sender).ended_with(2);
    assert_says(&nowhere, "temporary file in '/none");
    assert_says(&nowhere, "TMPDIR");
}

#[test]
fn missing_receivers_and_missing_sources_are_reported() {
    let net = Net::with_data(23_106, b"1");
    let alone = net.send(&["--start-after", "300ms"]).ended_with(2);
    assert_says(&alone, "no receiver was ready");
    let nothing = net.start(&["send", "absent", "--to", "g"]).ended_with(2);
    assert_says(&nothing, "absent");
    let waited = net.start(&["recv", "--from", "g", "x", "--timeout", "300ms"]).ended_with(2);
    assert_says(&waited, "nothing was sent to group 'g'");
    let wrong = net.send(&["--rate", "fast"]).ended_with(2);
    assert_says(&wrong, "write a bandwidth");
}

#[test]
fn second_sender_in_a_group_is_refused() {
    let net = Net::with_data(23_105, &noise(4_000_000, 4));
    let receiver = net.recv("a", &[]);
    let first = net.send(&["--receivers", "1", "--rate", "8Mbit"]);
    net.await_pieces("a");
    let second = net.send(&["--receivers", "1"]).ended_with(2);
    assert_says(&second, "another member is sending to this group");
    first.ended_with(0);
    receiver.ended_with(0);
}

#[test]
fn invalid_topology_is_refused_with_its_line_and_a_fix() {
    let net = Net::with_data(23_122, b"some");
    net.write(
        "net.toml",
        b"switches = ['core']\nlinks = [['left', 'spine']]\n[racks]\n\
                           left = ['127.0.0.1:23135']\n",
    );
    let sent = net.send(&["--topology", "net.toml"]).ended_with(2);
    assert_says(&sent, "net.toml:2: unknown switch, rack or host 'spine'");
    assert_says(&sent, "add it to switches, [racks] or [hosts], or correct the name");
    let sent = net.send(&["--topology", "none.toml"]).ended_with(2);
    assert_says(&sent, "none.toml: cannot read the file");
}
