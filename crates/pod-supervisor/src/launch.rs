//! Starts a container's program: resets signals and installs the system call filter.
//!
//! The kernel accepts a filter from a process that cannot gain privileges, or that has `CAP_SYS_ADMIN`. A
//! container whose programs may gain privileges is in neither case, so its process first keeps
//! [`BORROWED`] capabilities, and drops them when the filter is installed.

use std::io::{self, Write as _};

use error_chain::error_chain;
use libcontainer::{
    oci_spec::runtime::Spec,
    workload::{Executor, ExecutorError, ExecutorValidationError, default::get_executor},
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};

use crate::{
    model::{Escalation, Seccomp, Security},
    seccomp, signals,
};

/// The second one is needed to drop both from the bounding set.
const BORROWED: [(&str, CapabilitySet); 2] = [
    ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    ("CAP_SETPCAP", CapabilitySet::SETPCAP),
];

/// The capabilities that the container's process needs until its filter is installed, and then loses.
pub(crate) fn borrowed(security: &Security) -> impl Iterator<Item = (&'static str, CapabilitySet)> {
    let needed =
        security.seccomp == Seccomp::RuntimeDefault && security.escalation == Escalation::Allowed;
    let mut missing = BORROWED
        .into_iter()
        .filter(move |_| needed)
        .filter(|(name, _)| !security.capabilities.iter().any(|one| one == name));
    std::iter::from_fn(move || missing.next())
}

/// Runs the last steps inside the container, after its other capabilities are dropped.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) security: Security,
    pub(crate) report_to: ReportTo,
}

/// Where a failed start of the program is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportTo {
    /// The container's own log: the helper has exited by then.
    ContainerLog,
    Caller,
}

impl Executor for Launch {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let result = signals::reset()
            .and_then(|()| self.filter())
            .map_err(|error| ExecutorError::Execution(Box::new(error)))
            .and_then(|()| get_executor().exec(spec));
        if let Err(error) = &result
            && self.report_to == ReportTo::ContainerLog
        {
            drop(writeln!(
                io::stderr(),
                "failed to start the program: {}",
                error_chain(error)
            ));
        }
        result
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        get_executor().validate(spec)
    }
}

impl Launch {
    fn filter(&self) -> io::Result<()> {
        match self.security.seccomp {
            Seccomp::Unconfined => Ok(()),
            Seccomp::RuntimeDefault => {
                seccomp::install(&self.security.capabilities)?;
                self.give_back()
            }
        }
    }

    fn give_back(&self) -> io::Result<()> {
        let borrowed: CapabilitySet = borrowed(&self.security).map(|(_, one)| one).collect();
        if borrowed.is_empty() {
            return Ok(());
        }
        for one in borrowed.iter() {
            remove_capability_from_bounding_set(one)?;
        }
        let own = capabilities(None)?;
        let left = CapabilitySets {
            effective: own.effective - borrowed,
            permitted: own.permitted - borrowed,
            inheritable: own.inheritable - borrowed,
        };
        set_capabilities(None, left)?;
        Ok(())
    }
}
