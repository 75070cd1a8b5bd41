use super::super::config::{Config, Congestion};
use super::super::sack_set::SackSet;
use super::bic::Bic;
use super::loss_tolerance::LossTolerance;

#[derive(Debug)]
pub(super) struct RateControl {
    bic: Option<Bic>,
    tolerance: LossTolerance,
    /// Number after the highest packet that arrived when it was multicast for the first time.
    pub(super) next: u64,
}

impl RateControl {
    pub(super) fn new(config: &Config, first: u64) -> Self {
        let tolerance = LossTolerance::new(config.tolerated_loss);
        Self { bic: new_bic(config), tolerance, next: first }
    }

    pub(super) fn restart(&mut self, config: &Config, first: u64) {
        self.bic = new_bic(config);
        self.tolerance.reset();
        self.next = self.next.max(first);
    }

    /// Updates the window. Returns `true` if a gap in the packets of the tree precedes this one.
    pub(super) fn on_packet(&mut self, number: u64, in_flight: u32) -> bool {
        let Some(gap) = number.checked_sub(self.next) else { return false };
        if let Some(bic) = &mut self.bic {
            if self.tolerance.on_arrival(gap) && bic.on_loss(self.next, number, in_flight) {
                self.tolerance.reset();
            }
            bic.on_arrival(in_flight);
        }
        self.next = number + 1;
        gap > 0
    }

    /// Returns the end of the expected packets. The receiver has room up to `room`, has the packets
    /// `own`, and knows of packets up to `known_to`.
    pub(super) fn limit(&self, config: &Config, own: &SackSet, known_to: u64, room: u64) -> u64 {
        let Some(bic) = &self.bic else { return room };
        let mut limit = bic.highest_expected(known_to);
        if config.repairs_share_path {
            limit = limit.saturating_sub(missing_below(own, known_to)).max(own.next() + 2);
        }
        limit.min(room)
    }
}

fn missing_below(own: &SackSet, end: u64) -> u64 {
    let inside: u64 = own.missing().map(|range| range.end - range.start).sum();
    inside + end.saturating_sub(own.end())
}

fn new_bic(config: &Config) -> Option<Bic> {
    match config.congestion {
        Congestion::Bic { initial } => Some(Bic::new(initial, config.window_packets)),
        Congestion::Room => None,
    }
}
