//! The node's requests.

use std::{fs, io, os::unix::fs::PermissionsExt};

use error_chain::error_chain;

use super::Supervisor;
use crate::{
    container::Container,
    layout,
    model::ContainerSpec,
    protocol::{Reply, Request},
};

impl Supervisor {
    pub(super) fn reply_to(&mut self, request: &Request) -> Reply {
        match request {
            Request::Status | Request::Subscribe => Reply::Status(self.status()),
            Request::Shutdown { grace_ms, held } => {
                self.stop(i64::try_from(*grace_ms).unwrap_or(i64::MAX), held);
                Reply::Done
            }
            Request::CloseStdin { container } => {
                let all = &mut self.containers;
                if let Some(one) = all.iter_mut().find(|one| one.status.name == *container) {
                    one.close_stdin();
                }
                Reply::Done
            }
            Request::Signal { container, signal } => {
                let found = self
                    .containers
                    .iter()
                    .find(|one| one.status.name == *container);
                match found.map(|one| one.signal(*signal)) {
                    Some(Ok(())) => Reply::Done,
                    Some(Err(error)) => Reply::Refused {
                        message: error_chain(&error),
                    },
                    None => Reply::Refused {
                        message: format!("no container {container:?}"),
                    },
                }
            }
            Request::Start { container } => match self.start(container) {
                Ok(()) => Reply::Done,
                Err(error) => Reply::Refused {
                    message: error_chain(&error),
                },
            },
        }
    }

    fn start(&mut self, spec: &ContainerSpec) -> io::Result<()> {
        if self.stopping.is_some() {
            return Err(io::Error::other("the pod is stopping"));
        }
        if self
            .containers
            .iter()
            .any(|one| one.status.name == spec.name)
        {
            return Ok(());
        }
        if spec.name.is_empty() || spec.name.starts_with('.') || spec.name.contains('/') {
            return Err(io::Error::other(
                "a container's name must be a single path component",
            ));
        }
        fs::create_dir_all(layout::container_dir(&spec.name))?;
        let file = layout::spec_file(&spec.name);
        fs::write(&file, serde_json::to_vec(spec)?)?;
        // It may contain values of secrets.
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
        failpoints::after("pod-supervisor/write-spec");
        let mut container = Container::new(spec);
        container.begin(&self.sandbox);
        self.containers.push(container);
        self.changed = true;
        Ok(())
    }
}
