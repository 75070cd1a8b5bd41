//! Sockets on hosts that send and count numbered datagrams.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use carom_netns::Host;
use nix::sys::socket::{setsockopt, sockopt};

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 7, 7, 7);
const PORT: u16 = 9000;
/// Longer than a datagram takes, also on a busy machine.
const SILENCE: Duration = Duration::from_millis(300);

/// Opens a socket on the host that is a member of [`GROUP`].
pub(crate) fn open(host: &Host) -> UdpSocket {
    let address = host.address();
    let opened = host.enter(move || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        socket.join_multicast_v4(&GROUP, &address)?;
        socket.set_multicast_loop_v4(false)?;
        socket.set_read_timeout(Some(SILENCE))?;
        // The tests send first and receive afterwards.
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20))?;
        Ok::<UdpSocket, std::io::Error>(socket)
    });
    opened.expect("the lab exists").expect("the port is free")
}

/// Sends datagrams 0 to `count` to an address, a few at a time so that no buffer overflows.
pub(crate) fn send(socket: &UdpSocket, to: Ipv4Addr, count: u32) {
    for number in 0..count {
        let to = SocketAddrV4::new(to, PORT);
        socket.send_to(&number.to_le_bytes(), to).expect("the network is reachable");
        if number % 50 == 49 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Receives until nothing arrives any more. Returns the numbers.
pub(crate) fn receive(socket: &UdpSocket) -> Vec<u32> {
    receive_all(socket).into_iter().map(|(number, _)| number).collect()
}

/// Receives until nothing arrives any more. Returns the number of datagrams.
pub(crate) fn receive_count(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 4];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

/// Receives until nothing arrives any more. Returns the senders.
pub(crate) fn senders(socket: &UdpSocket) -> BTreeSet<Ipv4Addr> {
    receive_all(socket).into_iter().map(|(_, sender)| sender).collect()
}

fn receive_all(socket: &UdpSocket) -> Vec<(u32, Ipv4Addr)> {
    let mut received = Vec::new();
    let mut buffer = [0; 4];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((_, SocketAddr::V4(sender))) => {
                received.push((u32::from_le_bytes(buffer), *sender.ip()));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return received,
            other => panic!("{other:?}"),
        }
    }
}
