//! Starts a container's program: resets signals and installs the system call filter.
//!
//! The kernel accepts a filter from a process that cannot gain privileges, or that has `CAP_SYS_ADMIN`. A
//! container whose programs may gain privileges is in neither case, so its process first keeps
//! [`BORROWED`] capabilities, and drops them when the filter is installed.
//!
//! `libcontainer` does not enter the user namespace of a container with a further program. So that is started as root
//! of the host, with the capabilities to become a user of the pod, which it does here.

use std::{
    io::{self, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use error_chain::error_chain;
use libcontainer::{
    oci_spec::runtime::Spec,
    workload::{Executor, ExecutorError, ExecutorValidationError, default::get_executor},
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
};

use crate::{
    capabilities,
    model::{Escalation, Seccomp, Security, User},
    seccomp, signals, users,
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

/// The capabilities of a process that is about to become a user of its pod.
pub(crate) const BECOMING: [&str; 4] = ["CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID"];

/// Runs the last steps inside the container, after its other capabilities are dropped.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) security: Security,
    pub(crate) report_to: ReportTo,
    /// The user to become, if that is left to do.
    pub(crate) become_user: Option<BecomeUser>,
}

/// A user of a pod with users of its own.
#[derive(Debug, Clone)]
pub(crate) struct BecomeUser {
    pub(crate) namespace: Arc<OwnedFd>,
    pub(crate) user: User,
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
            .and_then(|()| match &self.become_user {
                Some(wanted) => self.enter_as(wanted),
                None => self.filter(),
            })
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

    /// The user namespace gives all capabilities in it, of which only the container's are kept.
    fn enter_as(&self, wanted: &BecomeUser) -> io::Result<()> {
        users::enter_as(wanted.namespace.as_fd(), &wanted.user)?;
        match self.security.seccomp {
            Seccomp::Unconfined => {}
            Seccomp::RuntimeDefault => seccomp::install(&self.security.capabilities)?,
        }
        let kept = capabilities::set_of(&self.security.capabilities);
        for one in (CapabilitySet::all() - kept).iter() {
            match remove_capability_from_bounding_set(one) {
                // This kernel does not have it.
                Err(rustix::io::Errno::INVAL) => {}
                removed => removed?,
            }
        }
        let kept = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, kept)?;
        Ok(())
    }

    fn give_back(&self) -> io::Result<()> {
        let borrowed: CapabilitySet = borrowed(&self.security).map(|(_, one)| one).collect();
        if borrowed.is_empty() {
            return Ok(());
        }
        for one in borrowed.iter() {
            remove_capability_from_bounding_set(one)?;
        }
        let own = rustix::thread::capabilities(None)?;
        let left = CapabilitySets {
            effective: own.effective - borrowed,
            permitted: own.permitted - borrowed,
            inheritable: own.inheritable - borrowed,
        };
        set_capabilities(None, left)?;
        Ok(())
    }
}
