//! Precise timer for the driver's wake-ups.
//!
//! The timeout of `epoll_wait` has a resolution of milliseconds, so a timer descriptor is used on
//! Linux.

use std::io;
use std::time::Duration;

use carom_proto::Time;

#[cfg(target_os = "linux")]
pub(crate) use linux::{PollTimer, sharpen};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{PollTimer, sharpen};

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsFd, AsRawFd};

    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

    use super::{Duration, Time, io};

    pub(crate) struct PollTimer {
        fd: TimerFd,
        armed: Option<Time>,
    }

    impl PollTimer {
        pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            let raw = fd.as_fd().as_raw_fd();
            registry.register(&mut SourceFd(&raw), token, Interest::READABLE)?;
            Ok(Self { fd, armed: None })
        }

        /// Arms the timer, and returns the timeout for the poll itself. An armed timer is not
        /// postponed, because an unnecessary wake-up costs less than a system call for each packet.
        pub(crate) fn arm(&mut self, now: Time, due: Option<Time>) -> io::Result<Option<Duration>> {
            let Some(due) = due else { return Ok(None) };
            if due <= now {
                return Ok(Some(Duration::ZERO));
            }
            if self.armed.is_none_or(|armed| armed <= now || armed > due) {
                let delay = TimeSpec::from_duration(due.since(now));
                self.fd.set(Expiration::OneShot(delay), TimerSetTimeFlags::empty())?;
                self.armed = Some(due);
            }
            Ok(None)
        }
    }

    /// Minimizes the timer slack of this thread, so that the kernel does not batch its wake-ups.
    pub(crate) fn sharpen() {
        if let Err(error) = nix::sys::prctl::set_timerslack(1) {
            tracing::debug!("cannot reduce the timer slack: {error}");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use mio::{Registry, Token};

    use super::{Duration, Time, io};

    pub(crate) struct PollTimer;

    impl PollTimer {
        pub(crate) fn new(_: &Registry, _: Token) -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn arm(&mut self, now: Time, due: Option<Time>) -> io::Result<Option<Duration>> {
            Ok(due.map(|due| due.since(now)))
        }
    }

    pub(crate) fn sharpen() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock::Clock;
    use mio::{Events, Poll, Token};

    #[test]
    fn the_poll_wakes_at_the_deadline_and_not_before() {
        let mut poll = Poll::new().expect("a poll");
        let mut timer = PollTimer::new(poll.registry(), Token(7)).expect("a timer");
        let clock = Clock::new();
        let mut events = Events::with_capacity(4);
        for delay_us in [700, 300] {
            let due = clock.now() + Duration::from_micros(delay_us);
            while clock.now() < due {
                let wait = timer.arm(clock.now(), Some(due)).expect("an armed timer");
                poll.poll(&mut events, wait).expect("a poll that waits");
            }
        }
        assert_eq!(timer.arm(clock.now(), Some(Time(5))).ok(), Some(Some(Duration::ZERO)));
        assert_eq!(timer.arm(clock.now(), None).ok(), Some(None));
    }
}
