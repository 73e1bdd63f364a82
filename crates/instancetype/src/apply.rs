//! Applying a choice to a template: the instance type first, then the preference.

use validation::{Rule, Summary};

use crate::{
    prefer, presets, size,
    target::{Choice, Target},
};

/// Applies instance type and preference. Conflicts are reported by
/// [`conflicts::find`](crate::conflicts::find); here the instance type wins.
pub fn apply(target: &mut Target<'_>, choice: Choice<'_>) {
    if let Some(instancetype) = choice.instancetype {
        for rule in size::ALL {
            (rule.apply)(target, instancetype, choice.preference);
        }
    }
    if let Some(preference) = choice.preference {
        for rule in prefer::ALL {
            (rule.apply)(target, preference);
        }
    }
}

/// All rules of this crate.
pub fn summaries() -> impl Iterator<Item = Summary> {
    let presets = [presets::RULE.summary()].into_iter();
    presets
        .chain(size::ALL.iter().map(Rule::summary))
        .chain(prefer::ALL.iter().map(Rule::summary))
}
