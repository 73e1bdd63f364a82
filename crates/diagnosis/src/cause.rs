//! Rules, their findings and the causes that result.

use reasons::Reason;
use serde::Serialize;

use crate::Observed;

/// One row of the table: a cause and how it is recognized.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Stable identifier for programs.
    pub id: &'static str,
    pub severity: Severity,
    /// One line for the list of causes.
    pub summary: &'static str,
    /// Reasons of conditions, containers and events that this rule explains.
    pub reasons: &'static [Reason],
    pub when: When,
    pub find: fn(&Observed) -> Vec<Finding>,
}

/// How serious a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Severity {
    /// A user or administrator has to act.
    Broken,
    /// It resolves by itself.
    Waiting,
    /// The VM is off, as requested.
    Off,
    /// The guest runs, and there is something to know about it.
    Notice,
}

/// When a rule is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// Only if no earlier rule found anything, because the rule is less precise than they are.
    NothingFound,
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub sentence: String,
    pub reason: Option<Reason>,
    pub evidence: Vec<Evidence>,
    pub next: String,
}

/// A field of an object that supports a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// As kubectl names it: `vmi/tiny`.
    pub object: String,
    /// A path in it; empty for the object as a whole.
    pub field: String,
    pub value: String,
}

/// A cause that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    pub id: &'static str,
    pub severity: Severity,
    pub sentence: String,
    /// The reason that a condition, a container or an event has for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// What helps, if the cause has a reason with a remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
    pub evidence: Vec<Evidence>,
    /// The command to run next.
    pub next: String,
}

impl Rule {
    pub(crate) const fn new(
        id: &'static str,
        severity: Severity,
        summary: &'static str,
        find: fn(&Observed) -> Vec<Finding>,
    ) -> Self {
        Self {
            id,
            severity,
            summary,
            reasons: &[],
            when: When::Always,
            find,
        }
    }

    pub(crate) const fn explains(self, reasons: &'static [Reason]) -> Self {
        Self { reasons, ..self }
    }

    pub(crate) const fn if_nothing_found(self) -> Self {
        Self {
            when: When::NothingFound,
            ..self
        }
    }

    pub(crate) fn causes(&self, observed: &Observed) -> impl Iterator<Item = Cause> + use<> {
        let (id, severity) = (self.id, self.severity);
        (self.find)(observed).into_iter().map(move |finding| Cause {
            id,
            severity,
            sentence: finding.sentence,
            reason: finding.reason.map(Reason::as_str),
            remedy: finding
                .reason
                .map(Reason::remedy)
                .filter(|remedy| !remedy.is_empty()),
            evidence: finding.evidence,
            next: finding.next,
        })
    }
}

impl Finding {
    /// A sentence with a capital letter. The full stop is added here, because the sentence may end
    /// with a quoted message.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        let sentence: String = sentence.into();
        let text = sentence.trim_end_matches(['.', ' ']);
        let stop = if text.ends_with('?') { "" } else { "." };
        let sentence = format!("{text}{stop}");
        Self {
            sentence,
            reason: None,
            evidence: Vec::new(),
            next: String::new(),
        }
    }

    pub(crate) fn evidence(
        mut self,
        object: impl Into<String>,
        field: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.evidence.push(Evidence {
            object: object.into(),
            field: field.into(),
            value: value.into(),
        });
        self
    }

    /// The reason as an object has it; one that is not in the table is not named.
    pub(crate) fn reason(self, name: &str) -> Self {
        Self {
            reason: name.parse().ok(),
            ..self
        }
    }

    pub(crate) fn because(self, reason: Reason) -> Self {
        Self {
            reason: Some(reason),
            ..self
        }
    }

    pub(crate) fn next(mut self, command: impl Into<String>) -> Self {
        self.next = command.into();
        self
    }
}
