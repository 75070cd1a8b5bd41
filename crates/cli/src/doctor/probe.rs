use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

pub(crate) fn multicast_to_oneself(interface: Ipv4Addr, group: Ipv4Addr) -> io::Result<bool> {
    let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    receiver.join_multicast_v4(&group, &interface)?;
    let sender = udp()?;
    sender.set_multicast_if_v4(&interface)?;
    sender.set_multicast_ttl_v4(1)?;
    sender.set_multicast_loop_v4(true)?;
    sender.bind(&SocketAddr::from((interface, 0)).into())?;
    comes_back(&sender.into(), &receiver, SocketAddr::from((group, receiver.local_addr()?.port())))
}

pub(crate) fn unicast_to_oneself(interface: Ipv4Addr) -> io::Result<bool> {
    let receiver = UdpSocket::bind((interface, 0))?;
    let sender = UdpSocket::bind((interface, 0))?;
    comes_back(&sender, &receiver, receiver.local_addr()?)
}

fn comes_back(sender: &UdpSocket, receiver: &UdpSocket, to: SocketAddr) -> io::Result<bool> {
    receiver.set_read_timeout(Some(WAIT))?;
    let token = format!("carom doctor {} {to}", std::process::id());
    let mut buffer = [0; 128];
    for _ in 0..TRIES {
        sender.send_to(token.as_bytes(), to)?;
        let give_up = Instant::now() + WAIT;
        while Instant::now() < give_up {
            match receiver.recv_from(&mut buffer) {
                Ok((length, _)) if buffer[..length] == *token.as_bytes() => return Ok(true),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(false)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    Receive,
    Send,
}

/// Requests a socket buffer of `bytes`, like a node does. Returns the granted size, in bytes.
pub(crate) fn granted(buffer: Buffer, bytes: usize) -> io::Result<usize> {
    let socket = udp()?;
    // Linux doubles the requested size, and reports the doubled size.
    let doubled = match buffer {
        Buffer::Receive => {
            if setsockopt(&socket, sockopt::RcvBufForce, &bytes).is_err() {
                socket.set_recv_buffer_size(bytes)?;
            }
            socket.recv_buffer_size()?
        }
        Buffer::Send => {
            if setsockopt(&socket, sockopt::SndBufForce, &bytes).is_err() {
                socket.set_send_buffer_size(bytes)?;
            }
            socket.send_buffer_size()?
        }
    };
    Ok(doubled / 2)
}

/// Returns the median and the maximum overshoot of 41 sleeps of 1 ms.
pub(crate) fn timer_overshoot() -> (Duration, Duration) {
    let mut overshoots: Vec<Duration> = (0..TIMER_TRIES)
        .map(|_| {
            let begun = Instant::now();
            std::thread::sleep(TIMER_STEP);
            begun.elapsed().saturating_sub(TIMER_STEP)
        })
        .collect();
    overshoots.sort_unstable();
    (overshoots[TIMER_TRIES / 2], overshoots[TIMER_TRIES - 1])
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn udp() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))
}

const TRIES: usize = 3;
const WAIT: Duration = Duration::from_millis(200);
const TIMER_STEP: Duration = Duration::from_millis(1);
const TIMER_TRIES: usize = 41;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unicast_comes_back_on_loopback() {
        assert!(unicast_to_oneself(Ipv4Addr::LOCALHOST).expect("loopback is up"));
    }

    #[test]
    fn a_small_buffer_is_granted() {
        for buffer in [Buffer::Receive, Buffer::Send] {
            assert_eq!(granted(buffer, 16 << 10).expect("a socket is available"), 16 << 10);
        }
    }
}
