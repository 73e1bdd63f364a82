//! Pure planning: which guests get the current launcher next, and how.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reconcile::Key;

/// The administrator's wish.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Strategy {
    /// Guests that can move do so while they run.
    pub(super) moves: bool,
    /// The pods of the others are evicted.
    pub(super) evicts: bool,
    /// Pods that are evicted at a time.
    pub(super) batch_size: usize,
    pub(super) batch_interval: Duration,
}

/// Why a running guest is to move, the most urgent reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// A change of its VM takes effect in another pod.
    Change,
    /// Its pod has an outdated launcher.
    Launcher,
}

/// A running guest that is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outdated {
    pub(super) guest: Key,
    pub(super) need: Need,
    pub(super) can_move: bool,
    /// It is moving or ending already, or its last move failed a short while ago.
    pub(super) is_held_back: bool,
    /// When its pod was to be evicted, or a move of it was refused, for the last time.
    pub(super) tried: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) strategy: &'a Strategy,
    pub(super) outdated: Vec<Outdated>,
    /// How many migrations may begin now.
    pub(super) free_moves: usize,
    /// When pods were evicted for the last time.
    pub(super) last_batch: Option<Timestamp>,
    pub(super) now: Timestamp,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) moves: Vec<Key>,
    pub(super) evictions: Vec<Key>,
}

pub(super) fn plan(observed: &Observed<'_>) -> Plan {
    let strategy = observed.strategy;
    let ready = observed.outdated.iter().filter(|one| !one.is_held_back);
    let (mut to_move, rest): (Vec<_>, Vec<_>) =
        ready.partition(|one| strategy.moves && one.can_move);
    let mut to_evict = rest;
    // A restart by the user applies a change as well.
    to_evict.retain(|one| strategy.evicts && one.need == Need::Launcher && is_batch_due(observed));
    // Guests that can be neither moved nor evicted do not keep back the others.
    // Changes come before updates of launchers: a user waits for them.
    to_move.sort_by_key(|one| (one.tried, one.need));
    to_evict.sort_by_key(|one| one.tried);
    let keys = |all: Vec<&Outdated>, count: usize| {
        let all = all.into_iter().take(count);
        all.map(|one| one.guest.clone()).collect()
    };
    Plan {
        moves: keys(to_move, observed.free_moves),
        evictions: keys(to_evict, strategy.batch_size),
    }
}

fn is_batch_due(observed: &Observed<'_>) -> bool {
    let Some(last) = observed.last_batch else {
        return true;
    };
    // A clock that was set back delays it by one interval at most.
    let passed = observed.now.duration_since(last);
    let interval = observed.strategy.batch_interval;
    passed < SignedDuration::ZERO || passed.unsigned_abs() >= interval
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: (bool, bool) = (true, true);

    fn guest(name: &str, can_move: bool) -> Outdated {
        Outdated {
            guest: Key::new("n", name),
            need: Need::Launcher,
            can_move,
            is_held_back: false,
            tried: None,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn planned(
        (moves, evicts): (bool, bool),
        outdated: Vec<Outdated>,
        free_moves: usize,
        last_batch: Option<i64>,
    ) -> (String, String) {
        let plan = plan(&Observed {
            strategy: &Strategy {
                moves,
                evicts,
                batch_size: 2,
                batch_interval: Duration::from_mins(1),
            },
            outdated,
            free_moves,
            last_batch: last_batch.map(at),
            now: at(1000),
        });
        let names = |all: Vec<Key>| {
            let all: Vec<_> = all.into_iter().map(|key| key.name).collect();
            all.join(" ")
        };
        (names(plan.moves), names(plan.evictions))
    }

    #[test]
    fn methods_decide_how_guests_are_updated() {
        let check = |methods: (bool, bool), moves: &str, evictions: &str| {
            let found = planned(methods, vec![guest("a", true), guest("b", false)], 5, None);
            let expected = (moves.to_owned(), evictions.to_owned());
            assert_eq!(found, expected, "{methods:?}");
        };
        check((false, false), "", "");
        check((true, false), "a", "");
        check((false, true), "", "a b");
        check(BOTH, "a", "b");
    }

    #[test]
    fn guest_is_not_ended_for_a_change() {
        let changed = |name: &str, can_move: bool| Outdated {
            need: Need::Change,
            ..guest(name, can_move)
        };
        for (methods, moves) in [((true, false), "a"), ((false, true), ""), (BOTH, "a")] {
            let all = vec![changed("a", true), changed("b", false)];
            let expected = (moves.to_owned(), String::new());
            assert_eq!(planned(methods, all, 5, None), expected, "{methods:?}");
        }
    }

    #[test]
    fn changes_of_users_go_before_updates_unless_they_were_refused() {
        let changed = |name: &str, tried: Option<i64>| Outdated {
            need: Need::Change,
            tried: tried.map(at),
            ..guest(name, true)
        };
        for (tried, expected) in [(None, "z a"), (Some(900), "a b")] {
            let all = vec![guest("a", true), guest("b", true), changed("z", tried)];
            assert_eq!(planned(BOTH, all, 2, None).0, expected, "{tried:?}");
        }
    }

    #[test]
    fn guests_that_are_held_back_are_left_alone() {
        let held = |name: &str, can_move: bool| Outdated {
            is_held_back: true,
            ..guest(name, can_move)
        };
        let all = vec![held("a", true), held("b", false), guest("c", true)];
        assert_eq!(planned(BOTH, all, 5, None), ("c".to_owned(), String::new()));
    }

    #[test]
    fn no_more_guests_move_than_may() {
        let all = || vec![guest("a", true), guest("b", true)];
        let check = |free: usize, expected: &str| {
            let found = planned(BOTH, all(), free, None);
            assert_eq!(found, (expected.to_owned(), String::new()), "{free}");
        };
        check(0, "");
        check(1, "a");
        check(3, "a b");
    }

    #[test]
    fn pods_are_evicted_in_batches() {
        let check = |last: Option<i64>, expected: &str| {
            let all = ["a", "b", "c"].map(|name| guest(name, false)).to_vec();
            let found = planned(BOTH, all, 5, last);
            assert_eq!(found, (String::new(), expected.to_owned()), "{last:?}");
        };
        check(None, "a b");
        check(Some(940), "a b");
        check(Some(941), "");
        // The clock was set back.
        check(Some(5000), "a b");
    }

    #[test]
    fn refused_guests_are_tried_again_after_the_others() {
        let refused = |can_move: bool| Outdated {
            tried: Some(at(900)),
            ..guest("a", can_move)
        };
        let all = vec![refused(true), guest("b", true)];
        assert_eq!(planned(BOTH, all, 1, None).0, "b");
        let all = vec![refused(false), guest("b", false), guest("c", false)];
        assert_eq!(planned(BOTH, all, 5, Some(900)).1, "b c");
    }
}
