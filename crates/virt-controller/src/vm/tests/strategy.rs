//! The decision of each run strategy for every state of a guest.

use serde_json::json;

use crate::vm::strategy::{self, Decision, History, Requested, Strategy, decide};

/// Events in the life of a VM, and the decision of each strategy.
struct Event {
    name: &'static str,
    guest: &'static [strategy::Guest],
    requested: &'static [Requested],
    history: &'static [History],
    moves: [Decision; 7],
}

const STRATEGIES: [Strategy; 7] = [
    Strategy::Always,
    Strategy::RerunOnFailure,
    Strategy::Manual,
    Strategy::Halted,
    Strategy::Once,
    Strategy::WaitAsReceiver,
    Strategy::Unknown,
];

fn events() -> Vec<Event> {
    use Decision::{RequestStart as Ask, Start as Run, Stay, Stop, SwitchToAlways as Switch};
    use History as H;
    use Requested as A;
    use strategy::Guest as G;
    const ANY: &[History] = &[H::New, H::Known];
    let event = |name, guest, requested, history, moves| Event {
        name,
        guest,
        requested,
        history,
        moves,
    };
    vec![
        // A stop request without a guest is dropped before; it would have no effect.
        event(
            "the VM is new and has no VMI",
            &[G::Absent],
            &[A::Nothing, A::Stop],
            &[H::New],
            [Run, Run, Stay, Stay, Run, Run, Stay],
        ),
        event(
            "the VMI was deleted",
            &[G::Absent],
            &[A::Nothing, A::Stop],
            &[H::Known],
            [Run, Stay, Stay, Stay, Run, Run, Stay],
        ),
        event(
            "a start is requested",
            &[G::Absent],
            &[A::Start],
            ANY,
            [Run, Run, Run, Switch, Run, Run, Stay],
        ),
        // A start request for a running guest is dropped before.
        event(
            "the guest runs",
            &[G::Live],
            &[A::Nothing, A::Start],
            ANY,
            [Stay, Stay, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "a stop of this guest is requested",
            &[G::Live, G::Succeeded, G::Failed],
            &[A::Stop],
            ANY,
            [Stop, Stop, Stop, Stop, Stay, Stay, Stay],
        ),
        event(
            "the guest shut down",
            &[G::Succeeded],
            &[A::Nothing, A::Start],
            ANY,
            [Stop, Stop, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "the guest crashed",
            &[G::Failed],
            &[A::Nothing],
            ANY,
            [Stop, Ask, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "the guest crashed and the next start is recorded",
            &[G::Failed],
            &[A::Start],
            ANY,
            [Stop, Stop, Stay, Stop, Stay, Stay, Stay],
        ),
        event(
            "the VMI is being deleted",
            &[G::Ending],
            &[A::Nothing, A::Stop, A::Start],
            ANY,
            [Stay; 7],
        ),
    ]
}

#[test]
fn decisions_match_the_table() {
    use strategy::Guest as G;
    let events = events();
    let mut cells = 0;
    for history in [History::New, History::Known] {
        for guest in [G::Absent, G::Live, G::Succeeded, G::Failed, G::Ending] {
            for requested in [Requested::Nothing, Requested::Stop, Requested::Start] {
                let names = |event: &&Event| {
                    event.guest.contains(&guest)
                        && event.requested.contains(&requested)
                        && event.history.contains(&history)
                };
                let named: Vec<&Event> = events.iter().filter(names).collect();
                let [event] = named[..] else {
                    panic!(
                        "{} events name {guest:?} {requested:?} {history:?}",
                        named.len()
                    );
                };
                for (strategy, expected) in STRATEGIES.into_iter().zip(event.moves) {
                    let found = decide(strategy, guest, requested, history);
                    let cell = format!("{}: {strategy:?} {guest:?} {requested:?}", event.name);
                    assert_eq!(found, expected, "{cell} {history:?}");
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, 2 * 5 * 3 * 7);
}

#[test]
fn running_means_always_or_halted() {
    let cases = [
        (json!({"running": true}), Strategy::Always),
        (json!({"running": false}), Strategy::Halted),
        (
            json!({"running": false, "runStrategy": ""}),
            Strategy::Halted,
        ),
        (json!({"runStrategy": "Once"}), Strategy::Once),
        (json!({}), Strategy::Unknown),
        (
            json!({"running": true, "runStrategy": "Always"}),
            Strategy::Unknown,
        ),
        (
            json!({"runStrategy": "WaitAsReceiver"}),
            Strategy::WaitAsReceiver,
        ),
        (json!({"runStrategy": "Sometimes"}), Strategy::Unknown),
    ];
    for (spec, strategy) in cases {
        let spec = serde_json::from_value(spec).unwrap();
        assert_eq!(Strategy::of(&spec), strategy);
    }
}
