//! What a cause is.

use serde::Serialize;

use crate::Observed;

/// One row of the table: a cause and how it is recognized.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Stable word for programs.
    pub id: &'static str,
    pub severity: Severity,
    /// One line for the list of causes.
    pub says: &'static str,
    pub turn: Turn,
    pub find: fn(&Observed) -> Vec<Finding>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Severity {
    /// Somebody must do something.
    Broken,
    /// It goes on by itself.
    Waiting,
    /// It is off, as asked.
    Off,
    /// It runs, but there is something to know.
    Notice,
}

/// When a rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Always,
    /// Only if no rule before found anything: a general word for what the others are precise about.
    Otherwise,
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub sentence: String,
    pub evidence: Vec<Evidence>,
    pub next: String,
}

/// Where something stands that speaks for the cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// As kubectl takes it: `vmi/tiny`.
    pub object: String,
    /// A path in it; empty for the object as a whole.
    pub field: String,
    pub says: String,
}

/// A cause that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    pub id: &'static str,
    pub severity: Severity,
    pub sentence: String,
    pub evidence: Vec<Evidence>,
    /// The command to run next.
    pub next: String,
}

impl Rule {
    pub(crate) const fn new(
        id: &'static str,
        severity: Severity,
        says: &'static str,
        find: fn(&Observed) -> Vec<Finding>,
    ) -> Self {
        Self {
            id,
            severity,
            says,
            turn: Turn::Always,
            find,
        }
    }

    pub(crate) const fn otherwise(self) -> Self {
        Self {
            turn: Turn::Otherwise,
            ..self
        }
    }

    pub(crate) fn causes(&self, seen: &Observed) -> impl Iterator<Item = Cause> + use<> {
        let (id, severity) = (self.id, self.severity);
        (self.find)(seen).into_iter().map(move |finding| Cause {
            id,
            severity,
            sentence: finding.sentence,
            evidence: finding.evidence,
            next: finding.next,
        })
    }
}

impl Finding {
    /// A sentence with a capital letter; it gets its full stop here, for it may end in the words of
    /// somebody else.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        let sentence: String = sentence.into();
        let text = sentence.trim_end_matches(['.', ' ']);
        let stop = if text.ends_with('?') { "" } else { "." };
        let sentence = format!("{text}{stop}");
        Self {
            sentence,
            evidence: Vec::new(),
            next: String::new(),
        }
    }

    pub(crate) fn seen(
        mut self,
        object: impl Into<String>,
        field: impl Into<String>,
        says: impl Into<String>,
    ) -> Self {
        self.evidence.push(Evidence {
            object: object.into(),
            field: field.into(),
            says: says.into(),
        });
        self
    }

    pub(crate) fn next(mut self, command: impl Into<String>) -> Self {
        self.next = command.into();
        self
    }
}
