//! Gaps as lines and as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

/// One thing that we lack or have differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Gap {
    /// Group and version of a type, name of a definition.
    pub(super) place: String,
    /// `Type.field`, `Type`, or nothing for a definition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) field: String,
    /// Whose schema: of the definition or of the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) side: Option<&'static str>,
    pub(super) what: String,
}

impl Gap {
    pub(super) fn line(&self) -> String {
        let mut line = self.place.clone();
        if !self.field.is_empty() {
            line = format!("{line} {}", self.field);
        }
        if let Some(side) = self.side {
            line = format!("{line} ({side})");
        }
        format!("{line}: {}", self.what)
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Count {
    pub(super) good: usize,
    pub(super) all: usize,
}

/// The report of `xtask parity`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) gaps: Vec<Gap>,
    pub(super) fields: Count,
    pub(super) kinds: Count,
}

impl Report {
    pub(super) fn lines(&self) -> Vec<String> {
        self.gaps.iter().map(Gap::line).collect()
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.lines().join("\n");
        let Self { fields, kinds, .. } = self;
        let separator = if text.is_empty() { "" } else { "\n" };
        let closing = write!(
            text,
            "{separator}fields: {} of {}, kinds: {} of {}",
            fields.good, fields.all, kinds.good, kinds.all
        );
        debug_assert!(closing.is_ok(), "writing to text");
        text
    }

    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
