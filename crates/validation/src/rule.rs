//! A rule: one check or one default, as a row of a list.

use crate::{subject::Subject, violation::Violation};

/// A named check or default and the function that implements it. `C` is the type of that function:
/// each list of rules has its own.
#[derive(Clone, Copy, Debug)]
pub struct Rule<C> {
    /// Unique among all rules, such as `disks.bus`.
    pub id: &'static str,
    pub subject: Subject,
    /// One line: what a check refuses, or what a default fills in.
    pub description: &'static str,
    pub apply: C,
}

/// A rule without its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub id: &'static str,
    pub subject: Subject,
    pub description: &'static str,
}

impl<C> Rule<C> {
    pub const fn new(
        id: &'static str,
        subject: Subject,
        description: &'static str,
        apply: C,
    ) -> Self {
        Self {
            id,
            subject,
            description,
            apply,
        }
    }

    pub const fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            subject: self.subject,
            description: self.description,
        }
    }

    /// Marks violations as reported by this rule.
    pub fn attribute(
        &self,
        violations: Vec<Violation>,
    ) -> impl Iterator<Item = Violation> + use<C> {
        let id = self.id;
        violations
            .into_iter()
            .map(move |violation| violation.reported_by(id))
    }
}
