//! Shares identical parts of schemas: versions of a kind mostly agree, kinds embed each other, and
//! the same pattern occurs hundreds of times.
//!
//! Invariant: two parts are shared only if they are identical in everything. Unused parts are
//! dropped.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash as _, Hasher, RandomState},
    sync::{Arc, Weak},
};

use regex_lite::Regex;

use super::{Bound, Checks, Range, Schema};

/// Dead entries are swept once the table has grown by this factor since the last sweep.
const GROWTH: usize = 2;

/// Holds weak references to parts in use.
#[derive(Debug, Default)]
pub struct Interner {
    seeds: [RandomState; 2],
    nodes: HashMap<u128, Weak<Schema>>,
    patterns: HashMap<Box<str>, Weak<Pattern>>,
    /// Number of live nodes at the last sweep.
    alive: usize,
}

/// A compiled regular expression and its source text.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: Box<str>,
    pub(super) regex: Regex,
}

impl Interner {
    /// The shared copy of a node whose children are already shared.
    pub(super) fn node(&mut self, schema: Schema) -> Arc<Schema> {
        let key = self.key(&schema);
        if let Some(known) = self.nodes.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        self.remove_dead_entries();
        let node = Arc::new(schema);
        self.nodes.insert(key, Arc::downgrade(&node));
        node
    }

    pub(super) fn pattern(&mut self, text: &str) -> Result<Arc<Pattern>, regex_lite::Error> {
        if let Some(known) = self.patterns.get(text).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let pattern = Arc::new(Pattern {
            text: text.into(),
            regex: Regex::new(text)?,
        });
        self.patterns.insert(text.into(), Arc::downgrade(&pattern));
        Ok(pattern)
    }

    /// Two hashes with secret seeds: an attacker cannot construct two nodes with one key.
    fn key(&self, schema: &Schema) -> u128 {
        let sum = |seed: &RandomState| {
            let mut hasher = seed.build_hasher();
            feed(schema, &mut hasher);
            u128::from(hasher.finish())
        };
        let [first, second] = &self.seeds;
        (sum(first) << 64) | sum(second)
    }

    fn remove_dead_entries(&mut self) {
        if self.nodes.len() < 1024 || self.nodes.len() / GROWTH < self.alive {
            return;
        }
        self.nodes.retain(|_, node| node.strong_count() > 0);
        self.patterns
            .retain(|_, pattern| pattern.strong_count() > 0);
        self.alive = self.nodes.len();
    }
}

/// Hashes all fields of a node; its children by address, since those are unique.
fn feed(schema: &Schema, hasher: &mut impl Hasher) {
    schema.kind.hash(hasher);
    schema.marks.0.hash(hasher);
    schema.list.hash(hasher);
    schema.properties.len().hash(hasher);
    for (name, child) in &schema.properties {
        name.hash(hasher);
        Arc::as_ptr(child).hash(hasher);
    }
    for child in [&schema.additional, &schema.items] {
        child.as_ref().map(Arc::as_ptr).hash(hasher);
    }
    schema
        .default
        .as_ref()
        .map(ToString::to_string)
        .hash(hasher);
    schema.rules.len().hash(hasher);
    for rule in &schema.rules {
        rule.texts().hash(hasher);
    }
    schema.checks.is_some().hash(hasher);
    if let Some(checks) = &schema.checks {
        feed_checks(checks, hasher);
    }
}

fn feed_checks(checks: &Checks, hasher: &mut impl Hasher) {
    checks.required.hash(hasher);
    let texts: Vec<String> = checks
        .one_of_values
        .iter()
        .map(ToString::to_string)
        .collect();
    texts.hash(hasher);
    let pattern = checks.pattern.as_ref().map(|pattern| &pattern.text);
    pattern.hash(hasher);
    checks.format.hash(hasher);
    for bound in [&checks.minimum, &checks.maximum] {
        let parts = bound
            .as_ref()
            .map(|Bound { value, exclusive }| (value.to_string(), *exclusive));
        parts.hash(hasher);
    }
    checks
        .multiple_of
        .as_ref()
        .map(ToString::to_string)
        .hash(hasher);
    for Range { min, max } in [checks.length, checks.items, checks.properties] {
        (min, max).hash(hasher);
    }
    checks.unique.hash(hasher);
    for list in [&checks.all_of, &checks.any_of, &checks.one_of] {
        list.len().hash(hasher);
        for branch in list {
            Arc::as_ptr(branch).hash(hasher);
        }
    }
    checks.not.as_ref().map(Arc::as_ptr).hash(hasher);
}
