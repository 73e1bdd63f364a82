//! When an ended container is restarted. Pure.

use std::time::Duration;

use backoff::Delays;

use crate::model::RestartPolicy;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Restart { delay_ms: i64, strikes: u32 },
}

const DELAYS: Delays = Delays::new(Duration::from_secs(10), Duration::from_mins(5));
/// After a run of this length earlier failures no longer count.
const RESET_AFTER_MS: i64 = 600_000;

pub(crate) fn after_end(policy: RestartPolicy, exit_code: i32, ran_ms: i64, strikes: u32) -> Next {
    let wanted = match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    };
    if !wanted {
        return Next::Stay;
    }
    let strikes = if ran_ms >= RESET_AFTER_MS { 0 } else { strikes };
    // The first restart is immediate, as with the kubelet.
    let delay_ms = i64::try_from(DELAYS.after(strikes).as_millis()).unwrap_or(i64::MAX);
    Next::Restart {
        delay_ms,
        strikes: (strikes + 1).min(16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RestartPolicy::{Always, Never, OnFailure};

    #[test]
    fn restart_follows_policy_exit_and_history() {
        let restart = |delay_ms, strikes| Next::Restart { delay_ms, strikes };
        for (policy, exit, ran, strikes, expected) in [
            (Never, 0, 1, 0, Next::Stay),
            (Never, 1, 1, 0, Next::Stay),
            (OnFailure, 0, 1, 0, Next::Stay),
            (OnFailure, 1, 1, 0, restart(0, 1)),
            (Always, 0, 1, 0, restart(0, 1)),
            (Always, 0, 1, 1, restart(10_000, 2)),
            (Always, 1, 1, 2, restart(20_000, 3)),
            (Always, 1, 1, 6, restart(300_000, 7)),
            (Always, 1, 1, 16, restart(300_000, 16)),
            (Always, 1, 600_000, 9, restart(0, 1)),
        ] {
            let got = after_end(policy, exit, ran, strikes);
            assert_eq!(got, expected, "{policy:?} {exit} {ran} {strikes}");
        }
    }
}
