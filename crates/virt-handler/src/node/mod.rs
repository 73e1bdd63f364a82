//! What this agent says about its node: alive, schedulable, where to be reached, and what guests
//! can have here.
//!
//! The heartbeat is applied under a manager of its own. Labels about guests are merged one by one
//! and only where they differ, so that a node whose administrator wants them left alone keeps what
//! it has, and labels that are no longer true go, whoever wrote them. What the administrator calls
//! obsolete is read again whenever it changes.

mod labels;
mod lacks;
mod obsolete;
mod report;

pub(crate) use obsolete::ObsoleteModels;
pub(crate) use report::{NodeReport, ReportParts};
