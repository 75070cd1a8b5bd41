//! Runs two nodes in one group: one publishes prices, and the other prints them.
//!
//! `cargo run --example publish_subscribe`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

use std::error::Error;
use std::time::Duration;

use carom::{Event, Node, Profile, StartError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (publisher, subscriber) = (start()?, start()?);
    let profile = Profile::time_critical();
    let prices = publisher.join("prices.eu", profile).await?;
    let quotes = subscriber.join("prices.eu", profile).await?;

    // A message reaches only the nodes that are members when it is published.
    prices.wait_for_members(1).await?;
    for price in ["EURUSD 1.0841", "EURUSD 1.0842", "EURUSD 1.0840"] {
        prices.publish(price).await?;
    }

    let mut received = 0;
    while received < 3 {
        match quotes.recv_timeout(Duration::from_secs(10)).await? {
            Some(Event::Message(message)) => {
                let text = String::from_utf8_lossy(&message.payload);
                println!("{text} from {}, {:?}", message.sender, message.how);
                received += 1;
            }
            // These messages could not be recovered in time. No message is lost silently.
            Some(Event::Lost(lost)) => {
                println!("{} messages lost: {}", lost.count(), lost.cause);
                received += lost.count();
            }
            Some(event) => println!("{event:?}"),
            None => break,
        }
    }

    let confirmed = prices.confirm(Duration::from_secs(10)).await?;
    println!("confirmed by {} member", confirmed.members);
    Ok(())
}

/// Starts a node that communicates only within this machine. `Node::builder().start()` without
/// further settings uses the network.
fn start() -> Result<Node, StartError> {
    Node::builder().interface("127.0.0.1").port(0).multicast_port(7421).start()
}
