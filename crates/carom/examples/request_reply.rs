//! Runs two servers and a client. The first server replies, and the second takes over when the
//! first is gone.
//!
//! `cargo run --example request_reply`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

use std::error::Error;

use carom::{Group, Handler, Node, Profile, Reply, ReplyError, StartError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let handler = Handler::new(0).ok_or("the handlers are 0 to 5")?;
    let (first, second, client) = (start()?, start()?, start()?);
    let primary = tokio::spawn(serve(first.join("balance", Profile::ordered()).await?, handler));
    let standby = second.join("balance", Profile::ordered()).await?;

    // The client need not be a member of the group.
    print(client.request("balance", "how much does alice have?", handler).await?);

    tokio::spawn(serve(standby, handler));
    primary.abort();
    let _ = primary.await;
    first.close().await;
    print(client.request("balance", "how much does bob have?", handler).await?);
    Ok(())
}

fn print(answer: Reply) {
    match answer {
        Reply::Handled { by, payload } => println!("{by}: {}", String::from_utf8_lossy(&payload)),
        other => println!("{other:?}"),
    }
}

/// Replies to the requests that this member must answer, once it holds the handler's lock.
async fn serve(group: Group, handler: Handler) {
    // A standby receives requests while it waits for the lock, so that the request queue does not
    // fill up. It needs no other events.
    let mut requests = group.requests().await;
    group.discard_events();
    let locking = async {
        match group.lock(handler).await {
            Ok(lock) => lock.lost().await,
            Err(error) => println!("no lock: {error}"),
        }
    };
    let serving = async {
        while let Some(request) = requests.recv().await {
            if !request.is_ours {
                continue;
            }
            let question = String::from_utf8_lossy(&request.payload).into_owned();
            match group.reply(request.id, format!("100 ({question})")).await {
                // `NotOpen` means that another member has replied in the meantime.
                Ok(()) | Err(ReplyError::NotOpen) => {}
                Err(error) => println!("no reply: {error}"),
            }
        }
    };
    tokio::select! {
        () = locking => {}
        () = serving => {}
    }
}

/// Starts a node that communicates only within this machine.
fn start() -> Result<Node, StartError> {
    Node::builder().interface("127.0.0.1").port(0).multicast_port(7425).start()
}
