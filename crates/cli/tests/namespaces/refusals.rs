use crate::MTU;
use crate::lab::{NOBODY, RunCarom as _, build_lab};

#[test]
fn silent_seeds_and_missing_interfaces_are_refused() {
    let Some(lab) = build_lab(2, MTU) else { return };
    // One address belongs to no host. The host at the other address rejects the datagrams.
    let seeds = [NOBODY, lab.host(2).address()].map(|it| it.to_string());
    let verbs: [&[&str]; 3] = [&["sub", "x"], &["pub", "x"], &["members"]];
    let mut cases = Vec::new();
    for (verb, seed) in verbs.iter().flat_map(|verb| seeds.iter().map(move |seed| (verb, seed))) {
        // With the same port, the nodes would find each other by multicast and not need the seed.
        let port = (7500 + cases.len()).to_string();
        let args = [verb, &["--seed", seed, "--multicast-port", &port][..]].concat();
        cases.push((lab.host(1).start(&args), seed));
    }
    for verb in verbs {
        let running = lab.host(1).start(&[verb, &["--interface", "eth7"]].concat());
        running.assert_refused("eth7", "");
    }
    cases.into_iter().for_each(|(running, seed)| drop(running.assert_refused(seed, "")));
}
