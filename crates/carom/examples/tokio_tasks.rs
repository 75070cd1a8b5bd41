//! Runs a subscriber and a publisher as Tokio tasks. Any other async runtime works as well.
//!
//! `cargo run --example tokio_tasks`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

use std::error::Error;
use std::time::Duration;

use carom::{Event, Group, Node, Profile, StartError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (sender, receiver) = (start()?, start()?);
    let profile = Profile::time_critical();
    let publisher = sender.join("ticks", profile).await?;
    let subscriber = receiver.join("ticks", profile).await?;

    let subscribing = tokio::spawn(count(subscriber.clone()));
    let publishing = tokio::spawn(publish(publisher.clone()));
    publishing.await?.map_err(|error| error.to_string())?;
    // Waits until the subscriber has all messages. Until then, `subscriber` keeps the node in the
    // group, even if the task has ended.
    publisher.confirm(Duration::from_secs(10)).await?;
    println!("received {} of {TICKS} ticks", subscribing.await?);
    Ok(())
}

async fn publish(group: Group) -> Result<(), Box<dyn Error + Send + Sync>> {
    group.wait_for_members(1).await?;
    for tick in 0..TICKS {
        group.publish(tick.to_be_bytes().to_vec()).await?;
    }
    Ok(())
}

/// Counts received messages until every message has been received or reported as lost.
async fn count(group: Group) -> u32 {
    let (mut received, mut lost) = (0, 0);
    while received + lost < TICKS {
        match group.recv().await {
            Some(Event::Message(_)) => received += 1,
            Some(Event::Lost(gap)) => lost += gap.count(),
            Some(_) => {}
            None => break,
        }
    }
    received
}

/// Starts a node that communicates only within this machine.
fn start() -> Result<Node, StartError> {
    Node::builder().interface("127.0.0.1").port(0).multicast_port(7422).start()
}

const TICKS: u32 = 1000;
