use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use carom::sim::World;
use carom::unstable::lateral::{AskFirst, NakConfig, RepairScope, Solver, StreamStart};
use carom::unstable::rdcm::{Congestion, Slowest};
use carom::unstable::{lateral, rdcm, rmp};
use carom::{Event, Loss, Node, Profile, SeqNo};

use crate::{PATIENCE, config, simulation};

/// A value for a setting, as one field per type of setting.
#[derive(Clone, Copy, Debug)]
struct To {
    count: u64,
    span: Duration,
    share: f64,
    is_on: bool,
}

type Change<Config> = fn(&mut Config, To);

/// Returns values that include the bounds of settings and their neighbors.
fn values() -> impl Iterator<Item = To> {
    let counts = [0, 1, 2, 63, 64, 65, 575, 576, 699, 700, 1499, 1500].into_iter();
    let large = [1000, 1001, 1 << 20, (1 << 20) + 1, 1 << 24, (1 << 24) + 1, u64::MAX];
    let more = Duration::from_secs(24 * 3600 + 1);
    let spans = [0, 1, 1_000, 1_000_000].map(Duration::from_micros).into_iter();
    let spans = spans.chain([Duration::from_nanos(1), more, Duration::MAX]).cycle();
    let shares = [f64::NAN, -0.1, 0.0, 0.5, 1.0].into_iter().cycle();
    let values = counts.chain(large).zip(spans).zip(shares);
    values.flat_map(|((count, span), share)| {
        [true, false].map(|is_on| To { count, span, share, is_on })
    })
}

fn changed<C: Clone + Debug + Default>(all: &[Change<C>]) -> Vec<C> {
    let mut seen = BTreeSet::new();
    let configs = all.iter().flat_map(|change| {
        values().map(|to| {
            let mut config = C::default();
            change(&mut config, to);
            config
        })
    });
    configs.filter(|config| seen.insert(format!("{config:?}"))).collect()
}

impl To {
    fn u32(self) -> u32 {
        self.count.min(u32::MAX.into()) as u32
    }

    fn u16(self) -> u16 {
        self.count.min(u16::MAX.into()) as u16
    }

    fn u8(self) -> u8 {
        self.count.min(u8::MAX.into()) as u8
    }

    fn number(self) -> SeqNo {
        SeqNo((self.count as u32).wrapping_neg())
    }
}

const LATERAL: &[Change<lateral::Config>] = &[
    |it, to| it.path_mtu = to.u16(),
    |it, to| it.message_bytes = to.count as usize,
    |it, to| it.pace_bytes_per_second = to.count,
    |it, to| it.flight = to.u32(),
    |it, to| it.queue_bytes = to.count as usize,
    |it, to| it.assembly_bytes = to.count as usize,
    |it, to| it.scope = if to.is_on { RepairScope::Regions } else { RepairScope::PerGroup },
    |it, to| it.own_packets = to.is_on,
    |it, to| it.stagger = to.u8(),
    |it, to| it.flush_after = to.is_on.then_some(to.span),
    |it, to| it.partial_view = to.is_on.then_some(to.count as usize),
    |it, to| it.solver = if to.is_on { Solver::Peeling } else { Solver::Elimination },
    |it, to| it.pending_repairs = to.count as usize,
    |it, to| it.pending_age = to.span,
    |it, to| it.nak = to.is_on.then(NakConfig::default),
    |it, to| nak(it).after = to.span,
    |it, to| nak(it).jitter = to.span,
    |it, to| nak(it).first = if to.is_on { AskFirst::DataSender } else { AskFirst::AnyMember },
    |it, to| nak(it).retry = to.span,
    |it, to| nak(it).attempts = to.u8(),
    |it, to| nak(it).ids_per_second = to.u32(),
    |it, to| nak(it).answers_per_second = to.u32(),
    |it, to| it.heartbeat = to.is_on.then_some(to.span),
    |it, to| {
        it.stream_start = if to.is_on { StreamStart::FromFirst } else { StreamStart::AskSender };
    },
    |it, to| it.first_number = to.number(),
    |it, to| it.give_up_after = to.span,
    |it, to| it.buffer_bytes = to.count as usize,
    |it, to| it.buffer_age = to.span,
    |it, to| it.max_gap = to.u32(),
    |it, to| it.window = to.u32(),
    |it, to| it.patience = to.span,
    |it, to| it.streams_per_group = to.count as usize,
];

const ORDERED: &[Change<rmp::Config>] = &[
    |it, to| it.path_mtu = to.u16(),
    |it, to| it.message_bytes = to.count as usize,
    |it, to| it.queue_bytes = to.count as usize,
    |it, to| it.window_bytes = to.count as usize,
    |it, to| it.batch = to.count as usize,
    |it, to| it.batch_delay = to.span,
    |it, to| it.idle_after = to.span,
    |it, to| it.confirm_after = to.span,
    |it, to| it.nack_delay = to.span,
    |it, to| it.least_timeout = to.span,
    |it, to| it.largest_timeout = to.span,
    |it, to| it.tries = to.u32(),
    |it, to| it.join_retry = to.span,
    |it, to| it.join_tries = to.u32(),
    |it, to| it.patience = to.span,
    |it, to| it.recovery_retry = to.span,
    |it, to| it.recovery_tries = to.u32(),
    |it, to| it.back_off = to.span,
    |it, to| it.minority_retry = to.span,
    |it, to| it.announce = to.span,
    |it, to| it.leave_within = to.span,
    |it, to| it.call_patience = to.span,
    |it, to| it.call_retry = to.span,
    |it, to| it.call_forget = to.span,
    |it, to| it.reply_bytes = to.count as usize,
    |it, to| it.stable_every = to.span,
    |it, to| it.linger = to.span,
    |it, to| it.first_number = to.number(),
];

const BULK: &[Change<rdcm::Config>] = &[
    |it, to| it.path_mtu = to.u16(),
    |it, to| it.message_bytes = to.count as usize,
    |it, to| it.send_bytes = to.count as usize,
    |it, to| it.window_packets = to.u32(),
    |it, to| {
        it.congestion =
            if to.is_on { Congestion::Room } else { Congestion::Bic { initial: to.u32() } };
    },
    |it, to| it.tolerated_loss = to.share,
    |it, to| it.rate = to.is_on.then_some(to.count),
    |it, to| it.burst_packets = to.u32(),
    |it, to| it.relay_children = to.count as usize,
    |it, to| it.repairs_share_path = to.is_on,
    |it, to| it.detect_after = to.span,
    |it, to| it.resend_after = to.span,
    |it, to| it.ack_every = to.u32(),
    |it, to| it.ack_delay = to.span,
    |it, to| it.repairs_in_flight = to.u32(),
    |it, to| it.ask_after = to.span,
    |it, to| it.report_every = to.span,
    |it, to| it.announce_every = to.span,
    |it, to| it.cut_after = to.span,
    |it, to| it.retry_link_after = to.span,
    |it, to| it.gone_after = to.span,
    |it, to| it.slow_after = to.is_on.then_some(to.span),
    |it, to| it.slowest = if to.is_on { Slowest::Share(to.share) } else { Slowest::Wait },
    |it, to| it.readmit_after = to.span,
    |it, to| it.linger = to.span,
    |it, to| it.first_epoch = to.is_on.then_some(to.u32()),
    |it, to| it.first_stream = to.is_on.then_some(to.u32()),
    |it, to| it.first_number = SeqNo(to.u32()),
];

fn nak(config: &mut lateral::Config) -> &mut NakConfig {
    config.nak.get_or_insert_default()
}

#[derive(Clone, Debug, Default)]
struct Engines {
    lateral: lateral::Config,
    ordered: rmp::Config,
    bulk: rdcm::Config,
}

fn assert_refused_or_works(engines: &Engines, profile: Profile, name: &str) {
    let mut world = World::new(config(2, 80));
    let start = |host| {
        let builder = Node::builder().lateral(engines.lateral.clone());
        let builder = builder.ordered(engines.ordered.clone()).bulk(engines.bulk.clone());
        builder.loss(Loss::Uniform(0.02)).start_on(&world.host(host))
    };
    let nodes = match [start(0), start(1)] {
        [Ok(here), Ok(there)] => [here, there],
        [Err(error), Err(_)] => {
            let is_named = error.to_string().starts_with(name);
            return assert!(is_named && !error.fix().is_empty(), "{error}");
        }
        [here, there] => panic!("{:?} here, {:?} there", here.err(), there.err()),
    };
    let sent = async {
        let groups = simulation::join_all(&nodes, "prices", profile).await;
        let [group, twin] = &groups[..] else { panic!("two groups") };
        for _ in 0..MESSAGES {
            // An engine may be configured to accept only empty messages.
            let payload = vec![7; group.payload_limit().min(1)];
            drop(group.publish(payload).await.expect("it fits"));
        }
        let mut told = 0;
        while told < MESSAGES {
            match twin.recv().await.expect("the group is open") {
                Event::Message(_) => told += 1,
                Event::Lost(lost) => told += lost.count(),
                _ => {}
            }
        }
    };
    assert!(world.block_on(PATIENCE, sent).is_some(), "neither delivered nor lost");
}

#[test]
fn ordered_groups_work_with_timeouts_that_shrink() {
    let [least_timeout, largest_timeout] = [1000, 1].map(Duration::from_millis);
    let ordered = rmp::Config { least_timeout, largest_timeout, ..rmp::Config::default() };
    let engines = Engines { ordered, ..Engines::default() };
    assert_refused_or_works(&engines, Profile::ordered(), INVALID_ORDERED);
}

fn check(engines: &Engines, profile: Profile, name: &str) {
    let checked =
        catch_unwind(AssertUnwindSafe(|| assert_refused_or_works(engines, profile, name)));
    assert!(checked.is_ok(), "{engines:?}");
}

#[test]
fn lateral_settings_are_refused_or_messages_arrive() {
    for lateral in changed(LATERAL) {
        let engines = Engines { lateral, ..Engines::default() };
        check(
            &engines,
            Profile::time_critical(),
            "the settings of the lateral engine are invalid: ",
        );
    }
}

#[test]
fn ordered_settings_are_refused_or_messages_arrive() {
    for ordered in changed(ORDERED) {
        let engines = Engines { ordered, ..Engines::default() };
        check(&engines, Profile::ordered(), INVALID_ORDERED);
    }
}

#[test]
fn bulk_settings_are_refused_or_messages_arrive() {
    for bulk in changed(BULK) {
        let engines = Engines { bulk, ..Engines::default() };
        check(&engines, Profile::bulk(), "the settings for bulk groups are invalid: ");
    }
}

const MESSAGES: u32 = 20;
const INVALID_ORDERED: &str = "the settings for ordered groups are invalid: ";
