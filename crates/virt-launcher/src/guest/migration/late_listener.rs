//! The next launcher of a new pod in post-copy serves the launcher of the old one, which asks whether the guest has ended.

use std::path::Path;

use launcher_channel::MigrationSocket;
use tokio::task::AbortHandle;

use super::incoming::accept;
use crate::guest::task::Guest;
use crate::serve;

impl Guest {
    /// In the new pod: serves the other launcher, if an earlier launcher of this pod did before.
    pub(super) fn listen_again(&mut self) {
        let is_running = |task: &Option<AbortHandle>| {
            let task = task.as_ref();
            task.is_some_and(|task| !task.is_finished())
        };
        if is_running(&self.migrations.task) || is_running(&self.migrations.listener) {
            return;
        }
        match serve::listen(Path::new(&MigrationSocket::Control.target_path())) {
            Ok(listener) => {
                let events = self.migrations.sender.clone();
                let task = self.tasks.spawn(accept(listener, events));
                self.migrations.listener = Some(task.abort_handle());
            }
            Err(error) => tracing::warn!(
                %error,
                "the launcher of the old pod cannot ask how the guest has ended"
            ),
        }
    }

    /// All of the memory is here: nothing is asked any more.
    pub(super) fn stop_listening(&mut self) {
        if let Some(listener) = self.migrations.listener.take() {
            listener.abort();
        }
    }
}
