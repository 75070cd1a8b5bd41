/// Known ends of a stream. Each one is the number after the last packet.
#[derive(Debug)]
pub(super) struct StreamEnd {
    pub(super) known_to: u64,
    /// Like `known_to`, but based only on the sender's own packets.
    pub(super) by_sender: u64,
    pub(super) announced: u64,
}

impl StreamEnd {
    pub(super) fn new(first: u64) -> Self {
        Self { known_to: first, by_sender: first, announced: first }
    }

    pub(super) fn on_packet(&mut self, number: u64, is_from_sender: bool) -> bool {
        let is_news = number >= self.known_to;
        self.known_to = self.known_to.max(number + 1);
        if is_from_sender {
            self.by_sender = self.by_sender.max(number + 1);
        }
        is_news
    }

    pub(super) fn on_end(&mut self, end: u64) {
        self.by_sender = self.by_sender.max(end);
        self.known_to = self.known_to.max(end);
    }

    pub(super) fn on_announce(&mut self, end: u64) {
        self.on_end(end);
        self.announced = self.known_to;
    }
}
