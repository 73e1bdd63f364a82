//! A VM's template as the spec of its VMI: default devices, instance type and preference.

use cluster_config::ClusterConfig;
use instancetype::{Choice, Target, apply, prefer};
use validation::Violation;

use crate::controller;

/// Completes the copy of a template: adds the default devices that the choice may configure, then
/// applies the choice. `path` is the path of the spec in violations.
pub fn complete(
    target: &mut Target<'_>,
    choice: Choice<'_>,
    config: &ClusterConfig,
    path: &str,
) -> Result<(), Vec<Violation>> {
    if let Some(preference) = choice.preference {
        // Decides whether default devices are added at all, so it precedes them.
        prefer::autoattach(target, preference);
    }
    controller::set_devices(target.spec, config, path)?;
    apply(target, choice);
    Ok(())
}
