//! Filters of a clone: which labels and annotations of its source it gets.

use regex_lite::{Regex, RegexBuilder};

/// Prefix of filters that exclude keys.
const NOT: char = '!';
/// Selects every key.
const ALL: &str = "*";
/// Compiling each filter takes time and memory.
const MAX_FILTERS: usize = 128;
const MAX_COMPILED_BYTES: usize = 64 * 1024;

/// A parsed list of filters. Each is a regular expression that may match anywhere in a key, as in `KubeVirt`;
/// exclusions win, whatever the order. No filter at all selects every key.
#[derive(Debug, Clone)]
pub struct KeyFilters {
    is_empty: bool,
    included: Vec<Regex>,
    excluded: Vec<Regex>,
}

/// A list of filters that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFilter {
    /// With the index of the filter.
    #[error("{filter:?} is no regular expression ({cause})")]
    NotAPattern {
        index: usize,
        filter: String,
        cause: String,
    },
    #[error("{count} filters are too many, use at most {MAX_FILTERS}")]
    TooMany { count: usize },
}

impl KeyFilters {
    pub fn parse(filters: &[String]) -> Result<Self, InvalidFilter> {
        let count = filters.len();
        if count > MAX_FILTERS {
            return Err(InvalidFilter::TooMany { count });
        }
        let mut parsed = Self {
            is_empty: filters.is_empty(),
            included: Vec::new(),
            excluded: Vec::new(),
        };
        for (index, filter) in filters.iter().enumerate() {
            let (list, pattern) = match filter.strip_prefix(NOT) {
                Some(pattern) => (&mut parsed.excluded, pattern),
                None => (&mut parsed.included, filter.as_str()),
            };
            let pattern = if pattern == ALL { "" } else { pattern };
            let compiled = RegexBuilder::new(pattern)
                .size_limit(MAX_COMPILED_BYTES)
                .build();
            list.push(compiled.map_err(|error| InvalidFilter::NotAPattern {
                index,
                filter: filter.clone(),
                cause: error.to_string(),
            })?);
        }
        Ok(parsed)
    }

    /// Whether the key is copied.
    pub fn selects(&self, key: &str) -> bool {
        let has_match = |list: &[Regex]| list.iter().any(|pattern| pattern.is_match(key));
        self.is_empty || (has_match(&self.included) && !has_match(&self.excluded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(filters: &[&str]) -> Result<KeyFilters, InvalidFilter> {
        let filters: Vec<String> = filters.iter().map(|&one| one.to_owned()).collect();
        KeyFilters::parse(&filters)
    }

    #[test]
    fn filters_select_keys() {
        let keys = ["app", "example.com/owner", "example.com/team"];
        for (filters, expected) in [
            (&[][..], &keys[..]),
            (&["*"], &keys),
            (&["app"], &["app"]),
            (
                &["example.com/*"],
                &["example.com/owner", "example.com/team"],
            ),
            (&["*", "!owner"], &["app", "example.com/team"]),
            (&["!owner", "*"], &["app", "example.com/team"]),
            (&["^app$", "team"], &["app", "example.com/team"]),
            // An exclusion alone selects nothing.
            (&["!owner"], &[]),
            (&["*", "!*"], &[]),
        ] {
            let parsed = parse(filters).unwrap();
            let selected: Vec<&str> = keys.into_iter().filter(|key| parsed.selects(key)).collect();
            assert_eq!(selected, expected, "{filters:?}");
        }
    }

    #[test]
    fn filters_that_are_no_patterns_are_refused() {
        for filter in ["a(", "!a[", "a{100}{100}{100}"] {
            let error = parse(&["*", filter]).unwrap_err();
            assert!(
                matches!(&error, InvalidFilter::NotAPattern { index: 1, .. }),
                "{error:?}"
            );
        }
        let many = vec!["a"; MAX_FILTERS + 1];
        assert_eq!(
            parse(&many).unwrap_err(),
            InvalidFilter::TooMany { count: 129 }
        );
    }
}
