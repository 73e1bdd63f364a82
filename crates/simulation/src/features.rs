//! What a scenario has beyond VMs, replica sets and migrations between nodes.

use crate::random::Random;

/// Drawn from a sequence of its own, so that another feature does not change the scenarios without it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Features {
    /// There is one node, and guests move to other pods of it.
    pub(crate) one_node: bool,
    /// Migration policies, which may allow post-copy.
    pub(crate) policies: bool,
    /// The launcher is updated, and guests follow by migrations.
    pub(crate) updates: bool,
    /// A pool of VMs.
    pub(crate) pool: bool,
    /// Running guests get more processors, by the same migrations as updates.
    pub(crate) live: bool,
}

/// Distinguishes the sequence from that of the rest of the scenario.
const OWN_SEQUENCE: u64 = 72 << 32;

impl Features {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ OWN_SEQUENCE);
        if random.chance(400) {
            return Self::default();
        }
        let features = Self {
            one_node: random.chance(300),
            policies: random.chance(500),
            updates: random.chance(500),
            pool: random.chance(500),
            live: random.chance(700),
        };
        Self {
            live: features.live && features.updates,
            ..features
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_scenarios_have_all_features_and_many_have_none() {
        let all: Vec<Features> = (0..1000).map(Features::of).collect();
        let count = |has: fn(&Features) -> bool| all.iter().filter(|one| has(one)).count();
        assert!((350..550).contains(&count(|one| *one == Features::default())));
        for has in [
            |one: &Features| one.one_node,
            |one: &Features| one.policies,
            |one: &Features| one.updates,
            |one: &Features| one.pool,
            |one: &Features| one.live,
        ] {
            assert!((120..400).contains(&count(has)));
        }
        // Found bugs before there were features.
        for seed in [323, 633, 1063, 2775] {
            assert_eq!(Features::of(seed), Features::default(), "{seed}");
        }
    }
}
