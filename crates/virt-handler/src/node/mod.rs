//! The report about this node: virt-handler's heartbeat and address, whether the node is
//! schedulable, and the capabilities that guests can use.
//!
//! The heartbeat is applied under its own field manager. Capability labels are merged individually
//! and only where they differ: a node with the annotation that disables them keeps its labels, and
//! outdated labels are removed, also those of other writers. Changes of the obsolete CPU models in the
//! cluster's configuration take effect at once.

mod heartbeat;
mod labels;
mod obsolete;
mod report;
mod requirements;
#[cfg(test)]
mod tests;
mod warnings;

pub(crate) use obsolete::ObsoleteModels;
pub(crate) use report::{NodeReport, ReportParts};
