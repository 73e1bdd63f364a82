//! The promises of SPECIFICATION.md, as data.

use std::fs;

use anyhow::{Context as _, Result, bail};

use super::figures::Figure;
use crate::{debian::lines, workspace::root};

/// One line of `deploy/promises.tsv`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Promise {
    pub(super) figure: String,
    pub(super) comparison: Comparison,
    pub(super) goal: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    AtMost,
    AtLeast,
}

impl Promise {
    pub(super) fn is_kept_by(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::AtMost => value <= self.goal,
            Comparison::AtLeast => value >= self.goal,
        }
    }

    pub(super) fn shown(&self) -> String {
        let comparison = match self.comparison {
            Comparison::AtMost => "at most",
            Comparison::AtLeast => "at least",
        };
        format!("{comparison} {}", self.goal)
    }
}

/// Which bench keeps a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Vm,
    Admission,
    Api,
    Controller,
    Cluster,
    Streams,
    Guest,
    Migration,
    Storage,
}

impl Part {
    /// By the beginning of the figure's name.
    fn of(figure: &str) -> Self {
        if figure.starts_with("admission.") {
            Self::Admission
        } else if figure.starts_with("apiserver.") {
            Self::Api
        } else if figure.starts_with("controller.") {
            Self::Controller
        } else if figure.starts_with("cluster.") {
            Self::Cluster
        } else if figure.starts_with("streams.") {
            Self::Streams
        } else if figure.starts_with("guest.") {
            Self::Guest
        } else if figure.starts_with("migration.") {
            Self::Migration
        } else if figure.starts_with("storage.") {
            Self::Storage
        } else {
            Self::Vm
        }
    }
}

/// The promises that this part measures.
pub(super) fn read(part: Part) -> Result<Vec<Promise>> {
    let path = root().join("deploy/promises.tsv");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut promises = parse(&text).with_context(|| format!("understand {}", path.display()))?;
    promises.retain(|promise| Part::of(&promise.figure) == part);
    Ok(promises)
}

/// Promises that the figures break; one that was not measured is broken too.
pub(super) fn broken(promises: &[Promise], figures: &[Figure]) -> Vec<String> {
    let is_kept = |promise: &&Promise| {
        let figure = figures.iter().find(|figure| figure.name == promise.figure);
        figure.is_some_and(|figure| promise.is_kept_by(figure.value))
    };
    let broken = promises.iter().filter(|promise| !is_kept(promise));
    broken.map(|promise| promise.figure.clone()).collect()
}

fn parse(text: &str) -> Result<Vec<Promise>> {
    let mut promises = Vec::new();
    for line in lines(text) {
        let [figure, comparison, goal] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{line:?} is not: figure, tab, comparison, tab, goal");
        };
        promises.push(Promise {
            figure: figure.to_owned(),
            comparison: match comparison {
                "at-most" => Comparison::AtMost,
                "at-least" => Comparison::AtLeast,
                other => bail!("comparison {other:?} is neither at-most nor at-least"),
            },
            goal: goal
                .parse()
                .with_context(|| format!("goal {goal:?} is not a number"))?,
        });
    }
    Ok(promises)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_of_the_tree_can_be_read() {
        let parts = [
            Part::Vm,
            Part::Admission,
            Part::Api,
            Part::Controller,
            Part::Cluster,
            Part::Streams,
            Part::Guest,
            Part::Migration,
            Part::Storage,
        ];
        for part in parts {
            assert!(!read(part).unwrap().is_empty(), "{part:?}");
        }
    }

    #[test]
    fn a_promise_is_broken_by_a_worse_figure_and_by_none() {
        let promises = parse("a\tat-most\t1.5\nb\tat-least\t2\nc\tat-most\t0\n").unwrap();
        let figures = [Figure::new("a", 1.5, "x"), Figure::new("b", 1.9, "x")];
        assert_eq!(broken(&promises, &figures), ["b", "c"]);
    }

    #[test]
    fn lines_that_say_something_else_are_refused() {
        for text in ["a\tat-most", "a\tbelow\t1", "a\tat-most\tmany"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
