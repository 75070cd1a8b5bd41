//! A connection to a member of etcd that can hang, like a member whose host has stopped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub(crate) struct Relay {
    address: SocketAddr,
    hangs: Arc<AtomicBool>,
}

impl Relay {
    pub(crate) fn start(url: &str) -> Self {
        let to = url.strip_prefix("http://").expect("an http URL").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let hangs = Arc::new(AtomicBool::new(false));
        let is_hanging = Arc::clone(&hangs);
        // The thread ends with the test process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(member) = TcpStream::connect(&to) else { return };
                for (from, to) in [(&client, &member), (&member, &client)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (from, to) = (from.expect("a handle"), to.expect("a handle"));
                    let is_hanging = Arc::clone(&is_hanging);
                    thread::spawn(move || pass_on(from, to, &is_hanging));
                }
            }
        });
        Self { address, hangs }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_hanging: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !is_hanging.load(Ordering::SeqCst) && to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}
