//! Checks what `virtctl why` answers: the cause, the object, the next command, and the remedy of the
//! condition.

use std::{slice, time::Duration};

use kube::api::DynamicObject;
use serde_json::Value;
use tokio::{process::Command, time::Instant};

use crate::{DEADLINE, Environment, TestNamespace, run, waiting::INTERVAL};

/// Where a cause is among all causes of an answer.
#[derive(Clone, Copy, Debug)]
enum Place {
    First,
    AfterOthers,
}

/// The expected answer about a VM or VMI.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    place: Place,
    /// The id of the cause.
    pub cause: &'a str,
    /// Part of the sentence or of the evidence, such as the object at fault.
    pub object: &'a str,
    /// Part of the next command.
    pub next: &'a str,
}

/// Shorthand for an [`Answer`] whose cause is the first.
pub fn answer<'a>(cause: &'a str, object: &'a str, next: &'a str) -> Answer<'a> {
    Answer {
        place: Place::First,
        cause,
        object,
        next,
    }
}

/// Shorthand for an [`Answer`] whose cause is after a deeper one.
pub fn later_answer<'a>(cause: &'a str, object: &'a str, next: &'a str) -> Answer<'a> {
    Answer {
        place: Place::AfterOthers,
        cause,
        object,
        next,
    }
}

impl<H: Environment> TestNamespace<H> {
    /// Waits until `virtctl why` gives this answer, as JSON and as text.
    #[track_caller]
    pub fn why_answers<'a>(
        &'a self,
        name: &'a str,
        expected: Answer<'a>,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            if let Err(difference) = self.why_answers_within(DEADLINE, name, expected).await {
                panic!("{caller}: {difference}")
            }
        }
    }

    /// Like [`Self::why_answers`], with another deadline and the difference as an error.
    pub async fn why_answers_within(
        &self,
        patience: Duration,
        name: &str,
        expected: Answer<'_>,
    ) -> Result<(), String> {
        let until = Instant::now() + patience;
        let mut ticks = tokio::time::interval(INTERVAL * 4);
        loop {
            ticks.tick().await;
            match self.answer_differs(name, expected).await {
                Err(difference) if Instant::now() > until => {
                    return Err(format!("{name} is not {expected:?}: {difference}"));
                }
                Err(_not_yet) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn answer_differs(&self, name: &str, expected: Answer<'_>) -> Result<(), String> {
        let json = self.virtctl(&["why", name, "--output=json"]).await;
        let found: Value = serde_json::from_str(&json.stdout)
            .map_err(|error| format!("{error}: {}{}", json.stdout, json.stderr))?;
        let fail = |what: &str| Err(format!("{what}: {found:#}"));
        let causes = found["causes"].as_array();
        let causes = causes.map(Vec::as_slice).unwrap_or_default();
        // The causes that decide about the exit code, and those among which the expected one is.
        let (deciding, candidates) = match (expected.place, causes) {
            (_, []) => return fail("no cause"),
            (Place::First, [first, ..]) => (slice::from_ref(first), slice::from_ref(first)),
            (Place::AfterOthers, [_, others @ ..]) => (causes, others),
        };
        let mut candidates = candidates.iter();
        let Some(cause) = candidates.find(|one| one["id"] == expected.cause) else {
            return fail("another cause");
        };
        let is_problem = deciding
            .iter()
            .any(|one| one["severity"] == "Broken" || one["severity"] == "Waiting");
        if json.is_success == is_problem || found["healthy"] == is_problem {
            return fail("the exit code and the severity differ");
        }
        let named = format!("{} {}", text(&cause["sentence"]), cause["evidence"]);
        if !named.replace("\\\"", "\"").contains(expected.object) {
            return fail("the object is not named");
        }
        let next = text(&cause["next"]);
        if !next.contains(expected.next) {
            return fail("another next command");
        }
        self.text_agrees(name, cause, expected.place).await?;
        self.condition_agrees(name, cause).await?;
        self.runs_next(next).await
    }

    /// The text has the same parts as the JSON: all of the first cause, the sentence of the others.
    async fn text_agrees(&self, name: &str, cause: &Value, place: Place) -> Result<(), String> {
        let shown = self.virtctl(&["why", name]).await.stdout;
        let sentence = format!("{} [{}]", text(&cause["sentence"]), text(&cause["id"]));
        let mut parts = vec![sentence];
        if let Place::First = place {
            let evidence = cause["evidence"].as_array().into_iter().flatten();
            parts.extend(evidence.map(|one| text(&one["value"]).to_owned()));
            parts.push(format!("Next:      {}", text(&cause["next"])));
            if let Some(remedy) = cause["remedy"].as_str() {
                parts.push(format!("Remedy:    {remedy}"));
            }
        }
        let missing = parts.iter().find(|part| !shown.contains(part.trim_end()));
        missing.map_or(Ok(()), |part| {
            Err(format!("{part:?} is not in the text {shown}"))
        })
    }

    /// A condition with the reason of the cause has its remedy, too.
    async fn condition_agrees(&self, name: &str, cause: &Value) -> Result<(), String> {
        let (Some(reason), Some(remedy)) = (cause["reason"].as_str(), cause["remedy"].as_str())
        else {
            return Ok(());
        };
        for api in [self.vms(), self.vmis()] {
            let object = api.get_opt(name).await.map_err(|error| error.to_string())?;
            for condition in object.iter().flat_map(problems) {
                let message = text(&condition["message"]);
                if condition["reason"] == reason && !message.contains(remedy) {
                    return Err(format!("{message:?} does not have the remedy {remedy:?}"));
                }
            }
        }
        Ok(())
    }

    /// A next command that only reads must succeed.
    async fn runs_next(&self, next: &str) -> Result<(), String> {
        let is_command = ["kubectl ", "virtctl "]
            .iter()
            .any(|program| next.starts_with(program));
        if !is_command {
            return Err(format!("{next:?} is not a command"));
        }
        let reads = [" get ", " describe "]
            .iter()
            .any(|verb| next.contains(verb));
        if !reads || next.contains("--watch") {
            return Ok(());
        }
        let mut shell = Command::new("sh");
        shell
            .env("KUBECONFIG", self.environment.kubeconfig())
            .args(["-c", next]);
        let ran = run(&mut shell, b"").await;
        if ran.is_success {
            Ok(())
        } else {
            Err(format!("{next:?} fails: {}", ran.stderr))
        }
    }
}

/// The conditions of a VM or VMI that report a problem with its remedy.
fn problems(object: &DynamicObject) -> Vec<Value> {
    let all = object.data["status"]["conditions"].as_array();
    let all = all.into_iter().flatten();
    let wanted = all.filter(|one| one["type"] == "Synchronized" || one["type"] == "Failure");
    wanted.cloned().collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
