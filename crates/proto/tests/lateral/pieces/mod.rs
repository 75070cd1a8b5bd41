//! Messages larger than a packet, between several lateral engines, under loss.

mod delivery;
mod losses;
mod members;
mod nonsense;
mod pace;
mod room;

use carom_proto::lateral::Config;
use carom_proto::{LossCause, Lost, NodeId};

use crate::rig::{RATE, World, payload_of};

const SEQNO: usize = carom_proto::wire::HEADER_BYTES;

/// Returns the size, in bytes, of every fragment but the last, with the default settings.
fn piece_bytes() -> usize {
    Config::default().packet_limit(RATE) - 8
}

fn message_of(number: u32, packets: usize) -> Vec<u8> {
    payload_of(number, packets * piece_bytes() - 1)
}

fn seqno_of(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram[SEQNO..SEQNO + 4].try_into().expect("four bytes"))
}

fn told_lost(world: &World, host: usize) -> Vec<(u32, u32, LossCause)> {
    world.hosts[host].lost.iter().map(|lost| (lost.first.0, lost.last.0, lost.cause)).collect()
}

fn accounts(world: &World, host: usize, sent: &[u32]) -> Vec<usize> {
    let host = &world.hosts[host];
    let got = host.got(NodeId(1));
    let account = |number: &u32| {
        let is_in = |lost: &&Lost| (lost.first.0..=lost.last.0).contains(number);
        let delivered = got.iter().filter(|it| *it == number).count();
        delivered + host.lost.iter().filter(is_in).count()
    };
    sent.iter().map(account).collect()
}
