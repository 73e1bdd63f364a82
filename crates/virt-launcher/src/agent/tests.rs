//! The task against agents of various behaviour, on a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use launcher_channel::{AgentQuestion, FromLauncher, Reply};
use tokio::sync::mpsc;

use super::commands::{self, Transport};
use super::task::{AgentCall, AgentTask, Initial, MAX_WAITING};
use super::thaw::ThawTimer;

/// Returns something else for every command, and counts them.
struct Changing(Arc<AtomicU32>);

impl Transport for Changing {
    async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        if command.contains("guest-info") {
            return Ok(r#"{"return": {"version": "1"}}"#.to_owned());
        }
        Ok(format!(r#"{{"return": [{{"name": "e{count}"}}]}}"#))
    }
}

fn without_report(thaw: ThawTimer) -> Initial {
    Initial {
        report: None,
        thaw,
        credentials: Vec::new(),
    }
}

/// A timer, and the directory of its record.
fn thaw_timer() -> (tempfile::TempDir, ThawTimer) {
    let dir = tempfile::tempdir().unwrap();
    let thaw = ThawTimer::open(dir.path().join("thaw"));
    (dir, thaw)
}

/// Never responds.
struct Silent;

impl Transport for Silent {
    async fn send(&self, _: &str) -> Result<String, libvirt::Error> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn agent_is_polled_at_fixed_times_whatever_it_returns() {
    let count = Arc::new(AtomicU32::new(0));
    let (task, running) =
        AgentTask::over(Changing(Arc::clone(&count)), without_report(thaw_timer().1));
    let ten_minutes = tokio::time::timeout(Duration::from_mins(10), running);
    assert!(ten_minutes.await.is_err());
    let polls = 5 + (10 * 60 - 40) / 30;
    let commands = count.load(Ordering::Relaxed);
    assert!(
        commands <= 4 * polls,
        "{commands} commands in {polls} polls"
    );
    assert!(task.report.borrow().is_some());
}

#[tokio::test(start_paused = true)]
async fn silent_agent_bounds_the_waiting_calls() {
    let (task, running) = AgentTask::over(Silent, without_report(thaw_timer().1));
    let (reply_to, mut replies) = mpsc::channel(1);
    let call = |id| AgentCall {
        id,
        query: AgentQuestion::Users,
        reply_to: reply_to.clone(),
    };
    let stuck = tokio::time::timeout(Duration::from_mins(1), running);
    let sending = async {
        (0..20)
            .filter(|id| task.try_send(call(*id)).is_ok())
            .count()
    };
    let (accepted, _) = tokio::join!(sending, stuck);
    assert!(accepted <= MAX_WAITING + 1, "{accepted}");
    assert!(replies.try_recv().is_err());
}

#[tokio::test]
async fn reply_has_the_id_of_its_call() {
    let (task, running) = AgentTask::over(Changing(Arc::default()), without_report(thaw_timer().1));
    let (reply_to, mut replies) = mpsc::channel(1);
    assert!(
        task.try_send(AgentCall {
            id: 7,
            query: AgentQuestion::Users,
            reply_to,
        })
        .is_ok()
    );
    tokio::select! {
        () = running => panic!("the task ended"),
        reply = replies.recv() => {
            assert!(matches!(reply, Some(FromLauncher::Reply { id: 7, reply: Reply::Agent(_) })));
        }
    }
}

/// Freezes and thaws, and counts the thaw commands; the first one fails.
struct Freezer {
    frozen: std::cell::Cell<bool>,
    thaws: Arc<AtomicU32>,
}

impl Transport for Freezer {
    async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
        if command.contains(commands::FREEZE) {
            self.frozen.set(true);
        }
        if command.contains("fsfreeze-thaw") {
            if self.thaws.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(libvirt::Error::Closed);
            }
            self.frozen.set(false);
        }
        let state = if self.frozen.get() {
            "frozen"
        } else {
            "thawed"
        };
        Ok(format!(r#"{{"return": "{state}"}}"#))
    }
}

#[tokio::test(start_paused = true)]
async fn freeze_times_out_even_in_another_task() {
    let ((_dir, thaw), thaws) = (thaw_timer(), Arc::new(AtomicU32::new(0)));
    let freezer = || Freezer {
        frozen: std::cell::Cell::new(false),
        thaws: Arc::clone(&thaws),
    };
    let (task, running) = AgentTask::over(freezer(), without_report(thaw.clone()));
    let (reply_to, mut replies) = mpsc::channel(1);
    assert!(
        task.try_send(AgentCall {
            id: 7,
            query: AgentQuestion::Freeze {
                thaw_after_seconds: Some(60),
            },
            reply_to,
        })
        .is_ok()
    );
    let timeout = tokio::time::timeout(Duration::from_secs(50), running);
    assert!(timeout.await.is_err());
    assert!(matches!(
        replies.try_recv(),
        Ok(FromLauncher::Reply {
            reply: Reply::Agent(_),
            ..
        })
    ));
    let freeze = task.report.borrow().clone().and_then(|agent| agent.freeze);
    assert_eq!(freeze.as_deref(), Some("frozen"));
    assert_eq!(thaws.load(Ordering::Relaxed), 0);
    // libvirtd was restarted, and another task takes over.
    let (_task, running) = AgentTask::over(freezer(), without_report(thaw.clone()));
    let timeout = tokio::time::timeout(Duration::from_secs(12), running);
    assert!(timeout.await.is_err());
    // The failed thaw is repeated.
    assert_eq!(thaws.load(Ordering::Relaxed), 1);
    let (_task, running) = AgentTask::over(freezer(), without_report(thaw.clone()));
    let timeout = tokio::time::timeout(Duration::from_mins(1), running);
    assert!(timeout.await.is_err());
    assert_eq!(thaws.load(Ordering::Relaxed), 2);
    assert!(thaw.deadline().is_none());
}

/// As a backup does.
#[tokio::test(start_paused = true)]
async fn caller_freezes_and_thaws() {
    let ((_dir, thaw), thaws) = (thaw_timer(), Arc::new(AtomicU32::new(0)));
    let freezer = Freezer {
        frozen: std::cell::Cell::new(false),
        thaws,
    };
    let (task, running) = AgentTask::over(freezer, without_report(thaw.clone()));
    let caller = task.caller();
    let freeze = AgentQuestion::Freeze {
        thaw_after_seconds: Some(30),
    };
    let calls = async {
        assert_eq!(caller.ask(freeze).await, Ok(()));
        assert!(thaw.deadline().is_some());
        // The guest stays frozen, and its deadline holds.
        assert!(caller.ask(AgentQuestion::Thaw).await.is_err());
        assert!(thaw.deadline().is_some());
        assert_eq!(caller.ask(AgentQuestion::Thaw).await, Ok(()));
        assert_eq!(thaw.deadline(), None);
    };
    tokio::select! {
        () = running => panic!("the task has ended"),
        () = calls => {}
    }
    drop(task);
    let gone = caller.ask(AgentQuestion::Thaw).await;
    assert!(gone.is_err());
}

/// An agent that is gone.
struct Gone(Arc<AtomicU32>);

impl Transport for Gone {
    async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
        let is_thaw = command.contains("fsfreeze-thaw");
        self.0.fetch_add(u32::from(is_thaw), Ordering::Relaxed);
        Err(libvirt::Error::Closed)
    }
}

#[tokio::test(start_paused = true)]
async fn failed_thaw_is_repeated_at_a_bounded_rate() {
    let ((dir, thaw), thaws) = (thaw_timer(), Arc::new(AtomicU32::new(0)));
    let (task, running) = AgentTask::over(Gone(Arc::clone(&thaws)), without_report(thaw));
    let (reply_to, _replies) = mpsc::channel(1);
    assert!(
        task.try_send(AgentCall {
            id: 7,
            query: AgentQuestion::Freeze {
                thaw_after_seconds: None,
            },
            reply_to,
        })
        .is_ok()
    );
    let hour = tokio::time::timeout(Duration::from_hours(1), running);
    assert!(hour.await.is_err());
    let thaws = thaws.load(Ordering::Relaxed);
    assert!(thaws > 60 && thaws < 130, "{thaws} in an hour");
    // A later launcher continues.
    assert!(dir.path().join("thaw").exists());
}

/// Freezes and thaws a guest that outlives the agent's task.
struct Freezable(Arc<AtomicBool>);

impl Transport for Freezable {
    async fn send(&self, command: &str) -> Result<String, libvirt::Error> {
        if command.contains(commands::FREEZE) {
            self.0.store(true, Ordering::Relaxed);
        }
        if command.contains("fsfreeze-thaw") {
            self.0.store(false, Ordering::Relaxed);
        }
        let state = if self.0.load(Ordering::Relaxed) {
            "frozen"
        } else {
            "thawed"
        };
        Ok(format!(r#"{{"return": "{state}"}}"#))
    }
}

/// A panic stands for the launcher's death: none of its later instructions is executed.
#[tokio::test(start_paused = true)]
async fn guest_is_thawed_after_a_crash_at_every_failpoint() {
    let trap = failpoints::Trap::new();
    trap.enter();
    let names = failpoints::NAMES.lines();
    let names: Vec<&str> = names
        .filter(|name| name.starts_with("virt-launcher/agent/"))
        .collect();
    assert!(!names.is_empty());
    for name in names {
        let (dir, guest) = (tempfile::tempdir().unwrap(), Arc::<AtomicBool>::default());
        let record = dir.path().join("thaw");
        let agent = || Freezable(Arc::clone(&guest));
        trap.set(name, || std::panic::resume_unwind(Box::new("death")));
        let (task, running) =
            AgentTask::over(agent(), without_report(ThawTimer::open(record.clone())));
        let (reply_to, _replies) = mpsc::channel(1);
        assert!(
            task.try_send(AgentCall {
                id: 7,
                query: AgentQuestion::Freeze {
                    thaw_after_seconds: Some(60),
                },
                reply_to,
            })
            .is_ok()
        );
        let tasks = tokio_util::task::TaskTracker::new();
        let died = tokio::time::timeout(Duration::from_mins(2), tasks.spawn(running)).await;
        assert!(
            died.is_ok_and(|died| died.is_err()),
            "{name} was not reached"
        );

        let thaw = ThawTimer::open(record.clone());
        let (_task, running) = AgentTask::over(agent(), without_report(thaw.clone()));
        let timeout = tokio::time::timeout(Duration::from_mins(2), running);
        assert!(timeout.await.is_err());
        assert!(!guest.load(Ordering::Relaxed), "{name}: still frozen");
        assert!(thaw.deadline().is_none() && !record.exists(), "{name}");
    }
}
