use carom_proto::Time;

/// A clock that can be set forward or back. The time that it shows never decreases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    offset_ns: i64,
    shown: Time,
}

impl Clock {
    pub(crate) fn show(&mut self, now: Time) -> Time {
        self.shown = self.shown.max(Time(now.0.saturating_add_signed(self.offset_ns)));
        self.shown
    }

    /// Returns the world time at which the clock will show `local`, or [`Time::ZERO`] if it has.
    pub(crate) fn when(&self, local: Time) -> Time {
        if local <= self.shown {
            return Time::ZERO;
        }
        if local == Time::MAX {
            return local;
        }
        Time(local.0.saturating_add_signed(self.offset_ns.saturating_neg()))
    }

    pub(crate) fn step(&mut self, by_ns: i64) {
        self.offset_ns = self.offset_ns.saturating_add(by_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_set_back_stands_still_until_the_world_catches_up() {
        let mut clock = Clock::default();
        assert_eq!(clock.show(Time(100)), Time(100));
        clock.step(-30);
        assert_eq!(clock.show(Time(110)), Time(100));
        assert_eq!(clock.when(Time(101)), Time(131));
        assert_eq!(
            clock.when(Time(95)),
            Time::ZERO,
            "that time is past, although the clock was set back"
        );
        assert_eq!(clock.show(Time(131)), Time(101));
        clock.step(50);
        assert_eq!(clock.show(Time(132)), Time(152));
    }
}
