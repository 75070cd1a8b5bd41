//! The settings of all engines of one scenario, drawn to cover rare paths.

use core::fmt;
use core::time::Duration;

use carom_proto::ring::Quorum;
use carom_proto::rmp::Config;
use carom_proto::{NodeId, Rng, SeqNo};

use crate::draw::one_of;
use crate::harness::IDS_APART;
use crate::participants::Participants;
use crate::step::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Minimum quorum to continue, or the electorate.
    pub(crate) quorum: Quorum,
    hosts: u32,
    /// Number of hosts, which come last, that join as clients of the electorate.
    clients: u32,
    pub(crate) config: Config,
}

impl Settings {
    pub(crate) fn of_seed(seed: u64, hosts: u32) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e77_1465);
        let partitions = [
            Quorum::AtLeast(1),
            Quorum::AtLeast(1),
            Quorum::AtLeast(2),
            Quorum::Majority,
            Quorum::Majority,
            Quorum::Majority,
            Quorum::All,
        ];
        let quorum = one_of(&mut rng, &partitions);
        let config = Config { first_number: draw_first_number(seed), ..draw_config(&mut rng) };
        if !rng.chance(0.3) {
            return Self { quorum, hosts, clients: 0, config };
        }
        let clients = rng.below(hosts as usize / 2 + 1) as u32;
        let quorum = Quorum::QuorumOf((hosts - clients) as u16);
        Self { quorum, hosts, clients, config }
    }

    /// Returns `true` if the process with this id is a voter. A restarted host is another process.
    pub(crate) fn is_voter(&self, node: NodeId) -> bool {
        (node.0 - 1) % IDS_APART < u64::from(self.hosts - self.clients)
    }

    /// Returns the maximum time of recovery after the network works again: all tries of one
    /// operation, then those of a reformation, then the search of a minority for the other members.
    /// The sum is multiplied, because one operation may lead to another.
    pub(crate) fn patience(&self, participants: &Participants) -> Duration {
        let hosts = participants.hosts;
        let Config { tries, recovery_tries, .. } = self.config;
        let far = TRIPS_PER_TIMEOUT * participants.distance;
        let waiting = (self.config.largest_timeout + far) * (tries + hosts + 2);
        let reforming =
            (self.config.recovery_retry + far) * (2 * recovery_tries + 4) + self.config.back_off;
        let joining = self.config.join_retry * (2 * self.config.join_tries + 2);
        let looking = self.config.minority_retry + self.config.announce + self.config.linger;
        let once = waiting + reforming + joining + looking + self.config.idle_after * (2 * hosts);
        ROUNDS * once + 2 * self.config.patience
    }

    /// Returns the maximum number of bytes of messages that an engine may hold in all its groups,
    /// with `lives` members so far.
    ///
    /// Each of them may have a window in flight. In addition, the engine holds messages that are
    /// ordered but not stable: those that all may order until the token has visited each.
    pub(crate) fn limit_bytes(&self, participants: &Participants, lives: u32) -> usize {
        let Config { queue_bytes, window_bytes, batch, path_mtu, message_bytes, .. } = self.config;
        // Windows and ACKs grow with the round trip, which disturbances prolong.
        let may_be_far = !participants.distance.is_zero()
            || [Kind::Disturb, Kind::Slow].iter().any(|kind| participants.kinds.contains(kind));
        let (windows, batches) = if may_be_far { (10, 32) } else { (1, 1) };
        let in_flight = lives as usize * (windows * window_bytes + message_bytes);
        let placed = 2 * lives as usize * batches * batch * usize::from(path_mtu);
        participants.groups as usize * (queue_bytes + in_flight + placed)
    }
}

fn draw_config(rng: &mut Rng) -> Config {
    let ms = Duration::from_millis;
    let path_mtu = one_of(rng, &[1500, 1500, 576, 9000]);
    let is_slow = rng.chance(0.1);
    let join_retry = one_of(rng, &[40_u64, 10]);
    Config {
        path_mtu,
        message_bytes: 64 << 10,
        queue_bytes: one_of(rng, &[1 << 20, 1 << 20, 70_000]),
        window_bytes: one_of(rng, &[256 << 10, 20_000, 10_000]).max(path_mtu.into()),
        batch: one_of(rng, &[64, 64, 8, 2, 1]),
        batch_delay: one_of(rng, &[Duration::from_micros(500), Duration::ZERO, ms(5)]),
        idle_after: one_of(rng, &[ms(50), ms(5), ms(if is_slow { 1000 } else { 100 })]),
        confirm_after: one_of(rng, &[ms(2), Duration::ZERO, ms(20)]),
        nack_delay: one_of(rng, &[ms(1), Duration::ZERO, ms(10)]),
        least_timeout: one_of(rng, &[ms(20), ms(5)]),
        largest_timeout: ms(if is_slow { 2000 } else { 100 }),
        tries: one_of(rng, &[5, 5, 2, 10]),
        // A member that waits less time than a ring takes to answer founds rings of its own.
        join_retry: ms(join_retry),
        join_tries: one_of(rng, &[200_u32, 200, 120]).div_ceil(join_retry as u32),
        recovery_retry: one_of(rng, &[ms(20), ms(5)]),
        recovery_tries: one_of(rng, &[5, 5, 2]),
        back_off: one_of(rng, &[ms(60), ms(10)]),
        minority_retry: one_of(rng, &[ms(500), ms(50)]),
        announce: one_of(rng, &[ms(500), ms(50)]),
        linger: one_of(rng, &[ms(500), ms(500), Duration::ZERO]),
        call_patience: one_of(rng, &[ms(10_000), ms(1000)]),
        call_retry: one_of(rng, &[ms(500), ms(20)]),
        leave_within: one_of(rng, &[ms(2000), ms(100)]),
        patience: one_of(rng, &[ms(10_000), ms(3000)]),
        ..Config::default()
    }
}

/// Draws a first number just below a wrap. The draw is independent of all others.
fn draw_first_number(seed: u64) -> SeqNo {
    let near_wrap = [SeqNo(u32::MAX - 20), SeqNo((1 << 31) - 20)];
    let mut rng = Rng::new(seed ^ 0x6669_7273);
    if rng.chance(0.4) { one_of(&mut rng, &near_wrap) } else { SeqNo::FIRST }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} clients, {:?}", self.quorum, self.clients, self.config)
    }
}

/// Number of one-way delays in the longest timeout: six times a round trip with its first
/// deviation, which is two delays.
const TRIPS_PER_TIMEOUT: u32 = 12;
/// Maximum number of times that one fault leads to another before recovery.
const ROUNDS: u32 = 6;
