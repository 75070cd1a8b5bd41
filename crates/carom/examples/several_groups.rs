//! Receives from several groups with `select!` in one task. Each group has its own guarantee.
//!
//! `cargo run --example several_groups`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

use std::error::Error;
use std::time::Duration;

use carom::{Event, Node, Profile, StartError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (desk, feed) = (start()?, start()?);

    // Prices must arrive soon, in any order. Orders must arrive in the same order at all members.
    let prices = desk.join("prices", Profile::time_critical()).await?;
    let orders = desk.join("orders", Profile::ordered()).await?;
    let price_feed = feed.join("prices", Profile::time_critical()).await?;
    let order_entry = feed.join("orders", Profile::ordered()).await?;
    price_feed.wait_for_members(1).await?;
    order_entry.wait_for_members(1).await?;
    for number in 1..=3 {
        price_feed.publish(format!("price {number}")).await?;
        order_entry.publish(format!("order {number}")).await?;
    }

    let mut left = 6;
    while left > 0 {
        let event = tokio::select! {
            event = prices.recv() => event,
            event = orders.recv() => event,
            () = tokio::time::sleep(Duration::from_secs(10)) => return Err("timeout".into()),
        };
        match event {
            Some(Event::Message(message)) => {
                println!("{}", String::from_utf8_lossy(&message.payload));
                left -= 1;
            }
            Some(Event::Lost(gap)) => left -= gap.count().min(left),
            Some(_) => {}
            None => break,
        }
    }
    Ok(())
}

/// Starts a node that communicates only within this machine.
fn start() -> Result<Node, StartError> {
    Node::builder().interface("127.0.0.1").port(0).multicast_port(7423).start()
}
