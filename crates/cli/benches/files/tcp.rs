//! Baseline of the transfers: the same bytes over TCP, with one connection to each receiver.

use std::env;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use super::lab::{Lab, Running};
use super::transfer::{Outcome, Stragglers, noise};

pub(crate) enum Role {
    Receiver,
    Sender { bytes: u64, to: Vec<String> },
}

const ROLE: &str = "CAROM_BENCH_TCP";
const PORT: u16 = 7799;
const CHUNK: usize = 1 << 20;

impl Role {
    pub(crate) fn of_this_process() -> Option<Self> {
        let role = env::var(ROLE).ok()?;
        let mut words = role.split_whitespace();
        match words.next() {
            Some("receive") => Some(Self::Receiver),
            Some("send") => {
                let bytes = words.next()?.parse().ok()?;
                Some(Self::Sender { bytes, to: words.map(str::to_owned).collect() })
            }
            _ => None,
        }
    }

    pub(crate) fn play(self) -> ExitCode {
        match self {
            Self::Receiver => receive(),
            Self::Sender { bytes, to } => send(bytes, &to),
        }
        ExitCode::SUCCESS
    }
}

fn receive() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("a port");
    println!("ready");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut chunk = vec![0; CHUNK];
    while stream.read(&mut chunk).expect("the stream continues") > 0 {}
    stream.write_all(b"x").expect("the sender waits for the byte");
}

fn send(bytes: u64, to: &[String]) {
    let chunk = noise(CHUNK as u64);
    let streams = to.iter().map(|host| TcpStream::connect((host.as_str(), PORT)));
    let streams: Vec<TcpStream> = streams.map(|stream| stream.expect("it listens")).collect();
    let began = Instant::now();
    let took: Vec<Duration> = thread::scope(|scope| {
        let sending = streams.into_iter().map(|mut stream| {
            let chunk = &chunk;
            scope.spawn(move || {
                for _ in 0..bytes.div_ceil(CHUNK as u64) {
                    stream.write_all(chunk).expect("the receiver reads everything");
                }
                stream.shutdown(std::net::Shutdown::Write).expect("it is open");
                stream.read_exact(&mut [0]).expect("the receiver acknowledges the bytes");
                began.elapsed()
            })
        });
        let sending: Vec<_> = sending.collect();
        sending.into_iter().map(|it| it.join().expect("it sends")).collect()
    });
    took.iter().for_each(|it| println!("took {}", it.as_secs_f64()));
}

pub(crate) fn run(lab: &Lab, bytes: u64) -> Outcome {
    let this = env::current_exe().expect("this program has a name");
    let this = this.to_str().expect("of letters");
    let receivers = &lab.hosts()[1..];
    let mut receiving: Vec<Running> = receivers
        .iter()
        .map(|host| {
            let mut command = host.command(this, &[]);
            command.env(ROLE, "receive");
            Running::start(command)
        })
        .collect();
    receiving.iter_mut().for_each(|it| drop(it.wrote.wait_for("ready")));
    let addresses: Vec<String> = receivers.iter().map(|host| host.address().to_string()).collect();
    let mut command = lab.host(1).command(this, &[]);
    command.env(ROLE, format!("send {bytes} {}", addresses.join(" ")));
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let took = text.lines().filter_map(|line| line.strip_prefix("took ")?.parse::<f64>().ok());
    let rates: Vec<f64> = took.map(|took| bytes as f64 / took).collect();
    assert_eq!(rates.len(), receivers.len(), "{output:?}");
    receiving.iter_mut().for_each(|it| it.end_with(0));
    Outcome { rates, most_memory: None, stragglers: Stragglers::default() }
}
