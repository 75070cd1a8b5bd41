use std::collections::BTreeMap;

use serde_json::Value;

use crate::MTU;
use crate::lab::{Cut, Host, RunCarom as _, build_lab, permitted};

#[test]
fn two_doctors_tell_which_way_multicast_does_not_go() {
    let Some(lab) = build_lab(2, MTU) else { return };
    let [asked, asking] = lab.hosts() else { panic!("there are two") };
    let mut listener = asked.start(&["doctor", "--listen"]);
    listener.said.wait_for("listening on UDP port 7499, for multicast on");
    let (size, unicast) = (("datagram size", "ok"), ("unicast", "ok"));
    let all = levels([size, unicast, ("multicast to", "ok"), ("multicast from", "ok")]);
    assert_eq!(examine(asking, asked, 0), all);
    listener.wrote.wait_until("both ways", |line| line.contains(": multicast received"));
    let Some(()) = permitted(lab.cut(&Cut::Multicast(1))) else { return };
    let one_way = levels([size, unicast, ("multicast to", "bad"), ("multicast from", "ok")]);
    assert_eq!(examine(asking, asked, 1), one_way);
    lab.cut(&Cut::Multicast(2)).expect("the host exists");
    let none = levels([size, unicast, ("multicast to", "bad"), ("multicast from", "bad")]);
    assert_eq!(examine(asking, asked, 1), none);
    listener.stop();
    assert!(listener.wrote.seen.iter().any(|line| line.contains(": unicast received")));
    // The listener has ended.
    assert_eq!(examine(asking, asked, 1), [("unicast".to_owned(), "bad".to_owned())].into());
}

fn examine(host: &Host, other: &Host, code: i32) -> BTreeMap<String, String> {
    let doctor = host.start(&["doctor", &other.address().to_string(), "--json"]).ended_with(code);
    let report = doctor.json();
    let findings = report["findings"].as_array().expect("it is a list");
    let text = |finding: &Value, field: &str| finding[field].as_str().map(str::to_owned);
    for finding in findings {
        let has_fix = text(finding, "fix").is_some_and(|fix| !fix.is_empty());
        assert_eq!(has_fix, finding["level"] != "ok", "{report}");
    }
    let level = |finding| text(finding, "check").zip(text(finding, "level"));
    findings.iter().map(|finding| level(finding).expect("it has both")).collect()
}

fn levels(levels: [(&str, &str); 4]) -> BTreeMap<String, String> {
    levels.into_iter().map(|(check, level)| (check.to_owned(), level.to_owned())).collect()
}
