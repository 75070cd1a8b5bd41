use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use carom_proto::NodeId;
use carom_proto::membership::service::Refusal;
use carom_proto::membership::service::frame::{Frame, VERSION};

use crate::raw::RawNode;
use crate::service::{Service, assert_refused};

const OTHER: u16 = VERSION + 6;

#[test]
fn a_program_of_another_version_is_refused_with_both_versions() {
    let service = Service::start(&[]);
    let mut stranger = RawNode::connect(&service.address, NodeId(1)).expect("the service listens");
    // Kind 1, the magic number, and the version. The rest depends on that version.
    let mut hello = vec![0, 0, 0, 12, 1, 0xCA, 0x70, 0x6D, 0x73];
    hello.extend(OTHER.to_be_bytes());
    hello.extend([0xEE; 5]);
    stranger.send_bytes(&hello);
    let refused = Frame::Refused(Refusal::Version { ours: VERSION, theirs: OTHER });
    assert_eq!(stranger.next(), Some(refused));
    assert_eq!(stranger.next(), None, "the link is closed");
}

fn fake_service(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for mut link in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            thread::spawn(move || {
                let _ = link.read(&mut [0; 512]);
                let _ = link.write_all(&answer);
                // Waits until the other end closes the connection.
                let _ = link.read(&mut [0; 512]);
            });
        }
    });
    address
}

#[test]
fn version_mismatch_with_the_service_names_both_versions() {
    let theirs = OTHER.to_be_bytes();
    let welcome = [&[0, 0, 0, 6, 2][..], &theirs, &[0xEE; 3]].concat();
    let mut refusal = Vec::new();
    Frame::Refused(Refusal::Version { ours: OTHER, theirs: VERSION }).encode(&mut refusal);
    let both = format!("uses protocol version {VERSION}, but the registry uses version {OTHER}");
    for answer in [welcome, refusal] {
        let address = fake_service(answer);
        let flags = ["--interface", "127.0.0.1", "--registry", &address];
        assert_refused(&[&["sub", "numbers"], &flags[..]].concat(), &both);
        assert_refused(&["registry", "detector", "--rack", "r", "--registry", &address], &both);
    }
}
