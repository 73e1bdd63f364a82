//! Findings that the pod's log explains.

use crate::{Finding, Observed, observed::name_of};

/// Replaces the next command by one that shows the pod's log, if there is a pod.
pub(crate) fn next_is_log(observed: &Observed, mut found: Vec<Finding>) -> Vec<Finding> {
    if let Some(pod) = observed.pod() {
        for finding in &mut found {
            finding.next = observed.kubectl(&format!("logs {}", name_of(&pod.metadata)));
        }
    }
    found
}
