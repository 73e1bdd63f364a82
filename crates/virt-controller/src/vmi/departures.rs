//! Since when the pods are gone or have ended that guests were about to leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

/// By the UID of the VMI. The time is that of the first look, so a controller that was restarted waits
/// anew.
#[derive(Debug, Clone, Default)]
pub(super) struct Departures(Arc<Mutex<BTreeMap<String, Timestamp>>>);

impl Departures {
    /// Since when the pod of this VMI is gone or has ended; `None` before.
    pub(super) fn note(&self, vmi: &str, is_gone: bool, now: Timestamp) -> Option<Timestamp> {
        let mut all = self.0.lock();
        if is_gone {
            return Some(*all.entry(vmi.to_owned()).or_insert(now));
        }
        all.remove(vmi);
        None
    }
}
