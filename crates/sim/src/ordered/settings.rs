//! The settings of all engines of one scenario, drawn so that rare paths come up.

use core::fmt;
use core::time::Duration;

use carom_proto::rmp::{Config, Partition};
use carom_proto::{NodeId, Rng, SeqNo};

use super::Scenario;
use crate::fuzz::Kind;

/// What all members of a scenario have alike.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The smallest partition that goes on, or the electorate.
    pub partition: Partition,
    /// So many of the hosts, the last of them, join as clients of the electorate.
    pub clients: u32,
    /// The engines' settings.
    pub config: Config,
}

impl Settings {
    /// Those of the scenario of this seed, with so many hosts.
    pub fn of_seed(seed: u64, hosts: u32) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e77_1465);
        let partitions = [
            Partition::AtLeast(1),
            Partition::AtLeast(1),
            Partition::AtLeast(2),
            Partition::Majority,
            Partition::Majority,
            Partition::Majority,
            Partition::All,
        ];
        let partition = one_of(&mut rng, &partitions);
        let config = Config { first_number: draw_first_number(seed), ..draw_config(&mut rng) };
        if !rng.chance(0.3) {
            return Self { partition, clients: 0, config };
        }
        let clients = rng.below(hosts as usize / 2 + 1) as u32;
        let partition = Partition::QuorumOf((hosts - clients) as u16);
        Self { partition, clients, config }
    }

    /// Whether the process of this id is a voter. A host that is started again is another process.
    pub fn is_voter(&self, node: NodeId, hosts: u32) -> bool {
        (node.0 - 1) % 1000 < u64::from(hosts - self.clients)
    }

    /// Longest time that anything may take, once the network works again: all tries of one thing,
    /// then those of a reformation, then the search of a minority for the others; several times
    /// over, because one may end in the other.
    pub fn patience(&self, scenario: &Scenario) -> Duration {
        let hosts = scenario.hosts;
        let Config { tries, recovery_tries, .. } = self.config;
        let far = TRIPS_PER_TIMEOUT * scenario.distance();
        let waiting = (self.config.largest_timeout + far) * (tries + hosts + 2);
        let reforming =
            (self.config.recovery_retry + far) * (2 * recovery_tries + 4) + self.config.back_off;
        let joining = self.config.join_retry * (2 * self.config.join_tries + 2);
        let looking = self.config.minority_retry + self.config.announce + self.config.linger;
        let once = waiting + reforming + joining + looking + self.config.idle_after * (2 * hosts);
        ROUNDS * once + 2 * self.config.patience
    }

    /// Bytes of messages that an engine may keep in `groups` groups in which there have been so
    /// many members, each of which may have a window under way; and what has its place but is not
    /// with all members: what they may order until the token has been with everybody.
    pub fn limit_bytes(&self, scenario: &Scenario, lives: u32) -> usize {
        let Config { queue_bytes, window_bytes, batch, path_mtu, message_bytes, .. } = self.config;
        // Windows and ACKs grow with the round trip, and disturbances make it longer.
        let may_be_far = !scenario.distance().is_zero()
            || [Kind::Disturb, Kind::Slow].iter().any(|kind| scenario.kinds.contains(kind));
        let (windows, batches) = if may_be_far { (10, 32) } else { (1, 1) };
        let under_way = lives as usize * (windows * window_bytes + message_bytes);
        let placed = 2 * lives as usize * batches * batch * usize::from(path_mtu);
        scenario.groups as usize * (queue_bytes + under_way + placed)
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
        // Who asks for less time than a ring may take to answer begins one of its own, and again.
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

/// In two of five scenarios numbers begin just below the wrap, or below half of all numbers. The
/// draw is separate from all others.
fn draw_first_number(seed: u64) -> SeqNo {
    let near_wrap = [SeqNo(u32::MAX - 20), SeqNo((1 << 31) - 20)];
    let mut rng = Rng::new(seed ^ 0x6669_7273);
    if rng.chance(0.4) { one_of(&mut rng, &near_wrap) } else { SeqNo::FIRST }
}

fn one_of<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len())].clone()
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} clients, {:?}", self.partition, self.clients, self.config)
    }
}

/// One ways in the longest timeout: two of a round trip with its first deviation, six each.
const TRIPS_PER_TIMEOUT: u32 = 12;
/// So often one thing that goes wrong may lead to the next until all is well.
const ROUNDS: u32 = 6;
