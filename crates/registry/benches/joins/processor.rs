//! Processor time of a process, as reported by Linux.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::iter::Sum;

/// Processor time in seconds, by thread name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processor(BTreeMap<String, f64>);

impl Processor {
    /// Reads the processor time of the threads of a process that are still running.
    pub(crate) fn of(process: u32) -> Self {
        let mut threads = BTreeMap::new();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            // The first field is the time on the processor in nanoseconds.
            let nanos = read("schedstat").split(' ').next().and_then(|it| it.parse::<f64>().ok());
            *threads.entry(read("comm").trim_end().to_owned()).or_default() +=
                nanos.unwrap_or(0.0) / 1e9;
        }
        Self(threads)
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let of_before = |name: &str| before.0.get(name).copied().unwrap_or(0.0);
        let left = self.0.iter().map(|(name, time)| (name.clone(), time - of_before(name)));
        Self(left.collect())
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.values().sum()
    }
}

impl Sum for Processor {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let mut sum = Self::default();
        for (name, time) in all.flat_map(|one| one.0) {
            *sum.0.entry(name).or_default() += time;
        }
        sum
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.0.iter().map(|(name, time)| format!("{name} {time:.1}")).collect();
        write!(f, "{:.1} ({})", self.total(), parts.join(", "))
    }
}
