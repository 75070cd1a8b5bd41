//! The command line of Carom.

fn main() {}
