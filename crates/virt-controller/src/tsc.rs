//! Frequencies of time stamp counters: the one that a guest gets, and those that a node can offer.
//!
//! A guest that relies on a fixed frequency gets the lowest of all nodes, so that it can run on each of them.
//! Nodes carry a label for each frequency that they can offer; the pod of such a guest selects it.

use std::collections::{BTreeMap, BTreeSet};

use kubevirt_api::labels;
use serde_json::Value;

/// QEMU accepts a frequency that differs from the counter's by at most this many millionths.
const TOLERANCE: i64 = 250;

/// The time stamp counter of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tsc {
    /// In Hz.
    pub(crate) frequency: i64,
    /// The processor can present any lower frequency to a guest.
    pub(crate) is_scalable: bool,
}

impl Tsc {
    /// As virt-handler describes it in the labels of the node.
    pub(crate) fn of_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        let fact = |name: &str| labels.get(&format!("{}{name}", labels::CPU_TIMER_PREFIX));
        let frequency: i64 = fact("tsc-frequency")?.parse().ok()?;
        (frequency > 0).then(|| Self {
            frequency,
            is_scalable: fact("tsc-scalable").is_some_and(|value| value == "true"),
        })
    }

    /// Those of these frequencies that the counter can have, and its own.
    pub(crate) fn offered(self, wanted: &BTreeSet<i64>) -> BTreeSet<i64> {
        let own = self.frequency;
        let tolerance = own / 1_000_000 * TOLERANCE + own % 1_000_000 * TOLERANCE / 1_000_000;
        let is_offered = |frequency: i64| {
            (self.is_scalable && frequency <= own)
                || frequency.abs_diff(own) <= tolerance.unsigned_abs()
        };
        let all = wanted.iter().copied().chain([own]);
        all.filter(|frequency| is_offered(*frequency)).collect()
    }
}

/// The frequencies that a node offers according to its labels.
pub(crate) fn labelled(labels: &BTreeMap<String, String>) -> BTreeSet<i64> {
    let suffixes = labels
        .keys()
        .filter_map(|key| key.strip_prefix(labels::TSC_FREQUENCY_PREFIX));
    suffixes.filter_map(|suffix| suffix.parse().ok()).collect()
}

/// The merge patch of a node's labels from the old frequencies to the new ones.
pub(crate) fn label_changes(old: &BTreeSet<i64>, new: &BTreeSet<i64>) -> BTreeMap<String, Value> {
    let key = |frequency| format!("{}{frequency}", labels::TSC_FREQUENCY_PREFIX);
    let stale = old.difference(new).map(|one| (key(one), Value::Null));
    let added = new.difference(old).map(|one| (key(one), "true".into()));
    stale.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(labels: &[(&str, &str)]) -> Option<Tsc> {
        let all = labels.iter().map(|(name, value)| {
            let key = format!("cpu-timer.node.kubevirt.io/{name}");
            (key, (*value).to_owned())
        });
        Tsc::of_labels(&all.collect())
    }

    #[test]
    fn counter_is_read_from_labels() {
        let scalable = [("tsc-frequency", "2000"), ("tsc-scalable", "true")];
        let tsc = |is_scalable| {
            Some(Tsc {
                frequency: 2000,
                is_scalable,
            })
        };
        assert_eq!(read(&scalable), tsc(true));
        assert_eq!(read(&scalable[..1]), tsc(false));
        for wrong in ["0", "-1", "2 GHz", ""] {
            assert_eq!(read(&[("tsc-frequency", wrong)]), None, "{wrong}");
        }
        assert_eq!(read(&[("tsc-scalable", "true")]), None);
    }

    #[test]
    fn scalable_counter_offers_lower_frequencies_and_a_fixed_one_only_near_ones() {
        let wanted = BTreeSet::from([1_000_000, 1_999_500, 2_000_500, 2_000_501]);
        let tsc = |is_scalable| Tsc {
            frequency: 2_000_000,
            is_scalable,
        };
        for (is_scalable, offered) in [
            (true, &[1_000_000, 1_999_500, 2_000_000, 2_000_500][..]),
            (false, &[1_999_500, 2_000_000, 2_000_500]),
        ] {
            let found = tsc(is_scalable).offered(&wanted);
            assert_eq!(found, offered.iter().copied().collect(), "{is_scalable}");
        }
    }

    #[test]
    fn labels_follow_the_offered_frequencies() {
        let prefix = "scheduling.node.kubevirt.io/tsc-frequency-";
        let keys = ["5", "7", "x"].map(|suffix| format!("{prefix}{suffix}"));
        let labels = keys.map(|key| (key, "true".to_owned())).into();
        let old = labelled(&labels);
        assert_eq!(old, BTreeSet::from([5, 7]));
        let changes = label_changes(&old, &BTreeSet::from([7, 9]));
        let expected = [("5", Value::Null), ("9", "true".into())];
        let expected = expected.map(|(suffix, value)| (format!("{prefix}{suffix}"), value));
        assert_eq!(changes, expected.into());
    }
}
