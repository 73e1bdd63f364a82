//! The device filter of a container on a host with cgroup version 2, which has no device controller.
//!
//! There the kernel runs an eBPF program of the container's cgroup whenever one of its processes opens
//! or makes a device node. [`program`] makes that program from [`rules`], and [`kernel`] loads and
//! attaches it. On hosts with cgroup version 1, `libcontainer` sets the device controller.
//!
//! **Invariant**: a confined container without a filter is never started.

mod kernel;
mod program;

use std::{io, path::Path};

use self::program::{Access, Kind, Rule};
use crate::{cgroup, model::Isolation, oci::Node};

#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("find the container's cgroup")]
    Find {
        #[source]
        source: io::Error,
    },
    #[error(
        "load the container's device filter: on hosts with cgroup version 2 this needs a kernel with \
         CONFIG_CGROUP_BPF, and root with CAP_BPF and CAP_NET_ADMIN or with CAP_SYS_ADMIN"
    )]
    Load {
        #[source]
        source: io::Error,
    },
    #[error(
        "attach the device filter to the container's cgroup: does another program's filter on a cgroup \
         above forbid further ones?"
    )]
    Attach {
        #[source]
        source: io::Error,
    },
}

/// Restricts the created container with this cgroup to its devices. Nothing of the container's image
/// may have run yet.
pub(crate) fn restrict(
    isolation: Isolation,
    cgroup: &str,
    nodes: &[Node<'_>],
) -> Result<(), FilterError> {
    if isolation == Isolation::Privileged {
        return Ok(());
    }
    match cgroup::unified_dir(cgroup) {
        Ok(None) => Ok(()),
        Ok(Some(dir)) => attach(&dir, nodes),
        Err(source) => Err(FilterError::Find { source }),
    }
}

fn attach(dir: &Path, nodes: &[Node<'_>]) -> Result<(), FilterError> {
    let program = kernel::load(&program::program(&rules(nodes)))
        .map_err(|source| FilterError::Load { source })?;
    kernel::attach(&program, dir).map_err(|source| FilterError::Attach { source })
}

/// The devices that every container has, and its own.
fn rules(nodes: &[Node<'_>]) -> Vec<Rule> {
    let every = |major, minor| Rule {
        kind: Kind::Character,
        major,
        minor,
        access: Access::ALL,
    };
    let mut rules = vec![
        every(1, Some(3)), // null
        every(1, Some(5)), // zero
        every(1, Some(7)), // full
        every(1, Some(8)), // random
        every(1, Some(9)), // urandom
        every(5, Some(0)), // tty
        every(5, Some(1)), // console
        every(5, Some(2)), // ptmx
        every(136, None),  // terminals in /dev/pts
    ];
    rules.extend(nodes.iter().map(|node| Rule {
        kind: match node.kind {
            "b" => Kind::Block,
            _ => Kind::Character,
        },
        major: node.major,
        minor: Some(node.minor),
        access: if node.is_read_only() {
            Access::READ.and(Access::MAKE)
        } else {
            Access::ALL
        },
    }));
    rules
}

#[cfg(test)]
mod tests;
