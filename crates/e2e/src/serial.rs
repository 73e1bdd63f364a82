//! The console of a guest that counts and moves from pod to pod.

use std::{path::PathBuf, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, Interval};

use crate::{DEADLINE, Environment, TestNamespace};

/// All that a guest has written on its console, in its pods one after the other. The log of a pod goes with
/// it, so it has to be read all the time.
#[derive(Debug)]
pub struct Serial {
    tail: String,
    logs: Vec<(PathBuf, Vec<u8>)>,
    /// When the guest was seen to write for the last time.
    last: Option<Instant>,
    longest_silence: Duration,
}

impl Serial {
    pub fn of(vmi: &Value) -> Self {
        let uid = vmi["metadata"]["uid"].as_str().expect("a VMI has a UID");
        Self {
            tail: format!("volumes/kubernetes.io~empty-dir/private/{uid}/virt-serial0-log"),
            logs: Vec::new(),
            last: None,
            longest_silence: Duration::ZERO,
        }
    }

    pub fn read<H: Environment>(&mut self, test: &TestNamespace<H>) {
        let before = self.len();
        for pod in test.pod_files() {
            let Ok(bytes) = std::fs::read(pod.join(&self.tail)) else {
                continue;
            };
            match self.logs.iter_mut().find(|(known, _)| *known == pod) {
                Some((_, before)) if before.len() >= bytes.len() => {}
                Some((_, before)) => *before = bytes,
                // The guest writes in one pod at a time: a new log follows the others.
                None if bytes.is_empty() => {}
                None => self.logs.push((pod, bytes)),
            }
        }
        if self.len() > before {
            let now = Instant::now();
            let silence = self.last.map(|last| now.duration_since(last));
            self.longest_silence = self.longest_silence.max(silence.unwrap_or_default());
            self.last = Some(now);
        }
    }

    fn len(&self) -> usize {
        self.logs.iter().map(|(_, log)| log.len()).sum()
    }

    /// How long the guest wrote nothing at most since the last call, as far as it was read all the time.
    pub fn longest_silence(&mut self) -> Duration {
        std::mem::take(&mut self.longest_silence)
    }

    /// The numbers that the guest has counted so far, in their order.
    fn numbers(&self) -> Vec<u32> {
        let all: Vec<u8> = self.logs.iter().flat_map(|(_, log)| log).copied().collect();
        let text = String::from_utf8_lossy(&all);
        let number = |line: &str| line.trim().strip_prefix("count ")?.parse().ok();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(number).collect()
    }

    /// Waits until the guest has counted further. No number may be missing, and none may come twice.
    pub async fn goes_on<H: Environment>(&mut self, test: &TestNamespace<H>) {
        self.read(test);
        let from = self.numbers().last().copied().unwrap_or(0);
        let mut ticks = ticks();
        let until = Instant::now() + DEADLINE;
        while self.numbers().last().is_none_or(|last| *last < from + 5) {
            assert!(Instant::now() < until, "it does not count on from {from}");
            ticks.tick().await;
            self.read(test);
        }
        for pair in self.numbers().windows(2) {
            assert_eq!(pair[0] + 1, pair[1], "a count is lost, or came twice");
        }
    }
}

/// Reads the consoles until a future completes.
pub async fn reading<H: Environment, T>(
    test: &TestNamespace<H>,
    serials: &mut [Serial],
    future: impl Future<Output = T>,
) -> T {
    tokio::pin!(future);
    let mut ticks = ticks();
    loop {
        tokio::select! {
            output = &mut future => return output,
            _ = ticks.tick() => for serial in &mut *serials {
                serial.read(test);
            },
        }
    }
}

fn ticks() -> Interval {
    tokio::time::interval(Duration::from_millis(100))
}
