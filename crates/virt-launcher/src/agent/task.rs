//! The task that asks.

use std::time::Duration;

use launcher_channel::{Agent, AgentQuestion, FromLauncher, Reply};
use libvirt::{Connection, Domain};
use reasons::Reason;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::ask::{self, Speaker};
use super::thaw::Thaw;

/// For one answer. A guest under load is slow; one that does not answer is not waited for.
const ANSWER_SECONDS: u16 = 5;
/// For all that the guest has to write.
const FREEZE_SECONDS: u16 = 20;
/// Until a thaw that failed is tried again; twice as long each time, up to [`LOOK_EVERY`].
const THAW_AGAIN: Duration = Duration::from_secs(5);
/// Looks after the agent came: soon and often at first, as a guest that boots gets its addresses.
const FIRST_LOOKS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(5),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Characters of a refusal.
const LONGEST_REFUSAL: usize = 300;
/// Questions that wait; the handler has few in flight.
const QUESTIONS: usize = 4;

/// A question from outside, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: u64,
    pub(crate) asked: AgentQuestion,
    pub(crate) answer: mpsc::Sender<FromLauncher>,
}

/// A handle to the task, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AgentTask {
    pub(crate) seen: watch::Receiver<Option<Agent>>,
    questions: mpsc::Sender<Question>,
}

struct LibvirtSpeaker {
    connection: Connection,
    domain: Domain,
}

impl Speaker for LibvirtSpeaker {
    async fn say(&self, command: &str) -> Result<String, libvirt::Error> {
        let seconds = if command.contains(ask::FREEZE) {
            FREEZE_SECONDS
        } else {
            ANSWER_SECONDS
        };
        self.connection.agent(&self.domain, command, seconds).await
    }
}

impl AgentTask {
    /// For an agent that has just been seen; what it said before stands until it answers.
    pub(crate) fn new(
        connection: Connection,
        domain: Domain,
        before: (Option<Agent>, Thaw),
    ) -> (Self, impl Future<Output = ()> + Send) {
        Self::of(LibvirtSpeaker { connection, domain }, before)
    }

    fn of<S: Speaker>(
        speaker: S,
        (before, thaw): (Option<Agent>, Thaw),
    ) -> (Self, impl Future<Output = ()> + use<S>) {
        let (sender, seen) = watch::channel(before);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        (Self { seen, questions }, run(speaker, sender, asked, thaw))
    }

    /// `false` when too many wait already.
    pub(crate) fn ask(&self, question: Question) -> bool {
        self.questions.try_send(question).is_ok()
    }
}

async fn run(
    speaker: impl Speaker,
    seen: watch::Sender<Option<Agent>>,
    mut asked: mpsc::Receiver<Question>,
    thaw: Thaw,
) {
    let mut looks = FIRST_LOOKS.into_iter();
    let mut due = Instant::now() + looks.next().unwrap_or(LOOK_EVERY);
    let mut thaw_again = THAW_AGAIN;
    loop {
        tokio::select! {
            question = asked.recv() => match question {
                Some(question) => {
                    if answer(&speaker, question, &thaw).await {
                        due = Instant::now();
                    }
                }
                None => return,
            },
            () = tokio::time::sleep_until(thaw.due().unwrap_or(due)), if thaw.due().is_some() => {
                match ask::report(&speaker, AgentQuestion::Thaw).await {
                    Ok(_) => {
                        tracing::info!("file systems of the guest were held long enough");
                        thaw.forget();
                        thaw_again = THAW_AGAIN;
                    }
                    Err(err) => {
                        // A guest without an agent stays so, and can hardly be held still.
                        if thaw_again < LOOK_EVERY {
                            tracing::warn!(err = crate::file::chain(&err), "the guest cannot be thawed");
                        }
                        thaw.put_off(thaw_again);
                        thaw_again = (thaw_again * 2).min(LOOK_EVERY);
                    }
                }
                due = Instant::now();
            }
            () = tokio::time::sleep_until(due) => {
                let before = seen.borrow().clone();
                match ask::look(&speaker, before).await {
                    Ok(agent) => {
                        seen.send_if_modified(|seen| {
                            let news = seen.as_ref() != Some(&agent);
                            *seen = Some(agent);
                            news
                        });
                    }
                    Err(err) => tracing::debug!(err = crate::file::chain(&err), "the agent is silent"),
                }
                due = Instant::now() + looks.next().unwrap_or(LOOK_EVERY);
            }
        }
    }
}

/// libvirt's words quote the guest's.
fn why(err: &dyn std::error::Error) -> String {
    let text = crate::file::chain(err);
    let plain = text.chars().filter(|char| !char.is_control());
    plain.take(LONGEST_REFUSAL).collect()
}

/// What cannot be noted happens all the same, unless this launcher dies before.
fn thaw_after(thaw: &Thaw, time: Duration) {
    if let Err(err) = thaw.set(time) {
        tracing::warn!(%err, "when the guest is to be thawed cannot be noted");
    }
}

/// Whether the guest is another afterwards.
async fn answer(speaker: &impl Speaker, question: Question, thaw: &Thaw) -> bool {
    let asked = question.asked;
    if let AgentQuestion::Freeze {
        thaw_after_seconds: Some(seconds),
    } = asked
    {
        // First of all: whoever dies from now on, the guest is let go.
        thaw_after(thaw, Duration::from_secs(seconds));
    }
    let outcome = ask::report(speaker, asked).await;
    match (asked, &outcome) {
        (AgentQuestion::Freeze { thaw_after_seconds }, Ok(_)) => match thaw_after_seconds {
            Some(seconds) => thaw_after(thaw, Duration::from_secs(seconds)),
            None => thaw.forget(),
        },
        // It may be held still after all, once it finds the time.
        (AgentQuestion::Freeze { .. }, Err(_)) => thaw_after(thaw, THAW_AGAIN),
        (AgentQuestion::Thaw, Ok(_)) => thaw.forget(),
        _ => {}
    }
    let is_about_freezing = matches!(asked, AgentQuestion::Freeze { .. } | AgentQuestion::Thaw);
    let is_changed = is_about_freezing && outcome.is_ok();
    let reply = match outcome {
        Ok(report) => Reply::Agent(Box::new(report)),
        Err(err) => Reply::Refused {
            reason: Reason::AgentUnavailable.into(),
            message: format!("Could not ask the guest agent: {}.", why(&err)),
            retry: true,
        },
    };
    let id = question.id;
    if let Err(err) = question.answer.try_send(FromLauncher::Reply { id, reply }) {
        tracing::info!(%err, "nobody takes the answer");
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    /// Changes its mind at every question, and counts them.
    struct Fickle(Arc<AtomicU32>);

    impl Speaker for Fickle {
        async fn say(&self, command: &str) -> Result<String, libvirt::Error> {
            let count = self.0.fetch_add(1, Ordering::Relaxed);
            if command.contains("guest-info") {
                return Ok(r#"{"return": {"version": "1"}}"#.to_owned());
            }
            Ok(format!(r#"{{"return": [{{"name": "e{count}"}}]}}"#))
        }
    }

    fn nothing() -> (Option<Agent>, Thaw) {
        (None, thaw().1)
    }

    /// With the directory of its note.
    fn thaw() -> (tempfile::TempDir, Thaw) {
        let dir = tempfile::tempdir().unwrap();
        let thaw = Thaw::open(dir.path().join("thaw"));
        (dir, thaw)
    }

    /// Never answers.
    struct Mute;

    impl Speaker for Mute {
        async fn say(&self, _: &str) -> Result<String, libvirt::Error> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_is_asked_at_fixed_times_whatever_it_says() {
        let count = Arc::new(AtomicU32::new(0));
        let (task, running) = AgentTask::of(Fickle(Arc::clone(&count)), nothing());
        let ten_minutes = tokio::time::timeout(Duration::from_mins(10), running);
        assert!(ten_minutes.await.is_err());
        let looks = 5 + (10 * 60 - 40) / 30;
        let asked = count.load(Ordering::Relaxed);
        assert!(asked <= 4 * looks, "{asked} questions in {looks} looks");
        assert!(task.seen.borrow().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_mute_guest_lets_few_questions_wait() {
        let (task, running) = AgentTask::of(Mute, nothing());
        let (answer, mut answers) = mpsc::channel(1);
        let question = |id| Question {
            id,
            asked: AgentQuestion::Users,
            answer: answer.clone(),
        };
        let stuck = tokio::time::timeout(Duration::from_mins(1), running);
        let asking = async { (0..20).filter(|id| task.ask(question(*id))).count() };
        let (taken, _) = tokio::join!(asking, stuck);
        assert!(taken <= QUESTIONS + 1, "{taken}");
        assert!(answers.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_question_is_answered_by_its_number() {
        let (task, running) = AgentTask::of(Fickle(Arc::default()), nothing());
        let (answer, mut answers) = mpsc::channel(1);
        assert!(task.ask(Question {
            id: 7,
            asked: AgentQuestion::Users,
            answer,
        }));
        tokio::select! {
            () = running => panic!("the task ended"),
            answer = answers.recv() => {
                assert!(matches!(answer, Some(FromLauncher::Reply { id: 7, reply: Reply::Agent(_) })));
            }
        }
    }

    /// Freezes and thaws, and counts the thaws that it was asked for; the first fails.
    struct Freezer {
        frozen: std::cell::Cell<bool>,
        thaws: Arc<AtomicU32>,
    }

    impl Speaker for Freezer {
        async fn say(&self, command: &str) -> Result<String, libvirt::Error> {
            if command.contains(ask::FREEZE) {
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
    async fn a_guest_is_let_go_when_its_time_is_over_whoever_asked() {
        let ((_dir, thaw), thaws) = (thaw(), Arc::new(AtomicU32::new(0)));
        let freezer = || Freezer {
            frozen: std::cell::Cell::new(false),
            thaws: Arc::clone(&thaws),
        };
        let (task, running) = AgentTask::of(freezer(), (None, thaw.clone()));
        let (answer, mut answers) = mpsc::channel(1);
        assert!(task.ask(Question {
            id: 7,
            asked: AgentQuestion::Freeze {
                thaw_after_seconds: Some(60),
            },
            answer,
        }));
        let a_while = tokio::time::timeout(Duration::from_secs(50), running);
        assert!(a_while.await.is_err());
        assert!(matches!(
            answers.try_recv(),
            Ok(FromLauncher::Reply {
                reply: Reply::Agent(_),
                ..
            })
        ));
        let freeze = task.seen.borrow().clone().and_then(|agent| agent.freeze);
        assert_eq!(freeze.as_deref(), Some("frozen"));
        assert_eq!(thaws.load(Ordering::Relaxed), 0);
        // libvirtd was started anew, and another task asks from now on.
        let (_task, running) = AgentTask::of(freezer(), (None, thaw.clone()));
        let a_while = tokio::time::timeout(Duration::from_secs(12), running);
        assert!(a_while.await.is_err());
        // What failed was tried again.
        assert_eq!(thaws.load(Ordering::Relaxed), 1);
        let (_task, running) = AgentTask::of(freezer(), (None, thaw.clone()));
        let a_while = tokio::time::timeout(Duration::from_mins(1), running);
        assert!(a_while.await.is_err());
        assert_eq!(thaws.load(Ordering::Relaxed), 2);
        assert!(thaw.due().is_none());
    }

    /// No agent is there, and never will be.
    struct Silent(Arc<AtomicU32>);

    impl Speaker for Silent {
        async fn say(&self, command: &str) -> Result<String, libvirt::Error> {
            let is_thaw = command.contains("fsfreeze-thaw");
            self.0.fetch_add(u32::from(is_thaw), Ordering::Relaxed);
            Err(libvirt::Error::Closed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_without_agent_is_not_asked_again_and_again_to_let_go() {
        let ((dir, thaw), thaws) = (thaw(), Arc::new(AtomicU32::new(0)));
        let (task, running) = AgentTask::of(Silent(Arc::clone(&thaws)), (None, thaw));
        let (answer, _answers) = mpsc::channel(1);
        assert!(task.ask(Question {
            id: 7,
            asked: AgentQuestion::Freeze {
                thaw_after_seconds: None,
            },
            answer,
        }));
        let hour = tokio::time::timeout(Duration::from_hours(1), running);
        assert!(hour.await.is_err());
        let thaws = thaws.load(Ordering::Relaxed);
        assert!(thaws > 60 && thaws < 130, "{thaws} in an hour");
        // A launcher after this one goes on with it.
        assert!(dir.path().join("thaw").exists());
    }

    /// Holds still and lets go for real, whoever asks.
    struct Held(Arc<AtomicBool>);

    impl Speaker for Held {
        async fn say(&self, command: &str) -> Result<String, libvirt::Error> {
            if command.contains(ask::FREEZE) {
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

    /// Death is what unwinds here: no other instruction of that life is carried out.
    #[tokio::test(start_paused = true)]
    async fn a_guest_is_let_go_whatever_the_launcher_dies_after() {
        let trap = failpoints::Trap::new();
        trap.enter();
        let names = failpoints::NAMES.lines();
        let names: Vec<&str> = names
            .filter(|name| name.starts_with("virt-launcher/agent/"))
            .collect();
        assert!(!names.is_empty());
        for name in names {
            let (dir, guest) = (tempfile::tempdir().unwrap(), Arc::<AtomicBool>::default());
            let note = dir.path().join("thaw");
            let held = || Held(Arc::clone(&guest));
            trap.set(name, || std::panic::resume_unwind(Box::new("death")));
            let (task, running) = AgentTask::of(held(), (None, Thaw::open(note.clone())));
            let (answer, _answers) = mpsc::channel(1);
            assert!(task.ask(Question {
                id: 7,
                asked: AgentQuestion::Freeze {
                    thaw_after_seconds: Some(60),
                },
                answer,
            }));
            let life = tokio_util::task::TaskTracker::new();
            let died = tokio::time::timeout(Duration::from_mins(2), life.spawn(running)).await;
            assert!(
                died.is_ok_and(|died| died.is_err()),
                "nobody came to {name}"
            );

            let thaw = Thaw::open(note.clone());
            let (_task, running) = AgentTask::of(held(), (None, thaw.clone()));
            let a_while = tokio::time::timeout(Duration::from_mins(2), running);
            assert!(a_while.await.is_err());
            assert!(!guest.load(Ordering::Relaxed), "{name}: it is held still");
            assert!(thaw.due().is_none() && !note.exists(), "{name}");
        }
    }
}
