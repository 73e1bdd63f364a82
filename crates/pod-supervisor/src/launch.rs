//! Starts a container's program: resets signals and installs the system call filter.

use std::io::{self, Write as _};

use error_chain::error_chain;
use libcontainer::{
    oci_spec::runtime::Spec,
    workload::{Executor, ExecutorError, ExecutorValidationError, default::get_executor},
};

use crate::{model::Seccomp, signals};

/// Runs the last steps inside the container, after its capabilities are dropped.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) seccomp: Seccomp,
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
            .and_then(|()| match self.seccomp {
                // The capability to install a filter is already dropped; without it the kernel
                // requires no-new-privileges.
                Seccomp::RuntimeDefault => rustix::thread::set_no_new_privs(true)
                    .map_err(io::Error::from)
                    .and_then(|()| crate::seccomp::install()),
                Seccomp::Unconfined => Ok(()),
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
