//! Links that go down and up when the guest has come from another pod, so that it asks for its addresses again.
//!
//! **Invariant**: the record forgets this only after libvirt has taken the links down. This launcher sets them up
//! again; if it dies before, the handler does, which compares links with the VMI.

use std::collections::BTreeMap;
use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{DomainState, InterfaceLink};

use super::Event;
use crate::guest::refusal::Refusal;
use crate::guest::status::Status;
use crate::guest::task::Guest;

/// A guest whose link came back at once could miss that it was down.
const PAUSE: Duration = Duration::from_secs(1);

impl Guest {
    /// Takes links down whose binding wants that, once the guest runs here: one that is paused would see nothing.
    pub(in crate::guest) async fn refresh_links(&mut self) {
        let is_running = self.status == Some(Status::Alive(DomainState::Running));
        // libvirt would wait for the end of a further move, and that pod refreshes them as well.
        if !is_running || self.store.is_moving() || !self.store.refreshes_links() {
            return;
        }
        let Some(record) = self.store.record() else {
            return;
        };
        let mut names = record.plan.refreshed_links.clone();
        // One that is down was set down by its user, or by an earlier launcher: the handler decides.
        names.retain(|name| self.links.get(name) == Some(&InterfaceLink::Up));
        // The guest runs all the same; its addresses may be those of the other pod until their leases end.
        if let Err(refusal) = self.set_to(&names, InterfaceLink::Down).await {
            let error = error_chain(&refusal);
            tracing::warn!(error, "failed to take links down after a migration");
            return;
        }
        if let Err(error) = self.store.set_links_refreshed() {
            tracing::warn!(%error, "the next launcher takes the links down once more");
        }
        self.migrations.raising.clone_from(&names);
        self.publish();
        let events = self.migrations.sender.clone();
        self.tasks.spawn(async move {
            tokio::time::sleep(PAUSE).await;
            // The guest's task may have ended.
            events.send(Event::RaiseLinks(names)).await.ok();
        });
    }

    pub(super) async fn raise_links(&mut self, names: &[String]) {
        self.migrations.raising.clear();
        if self.store.is_moving() || self.store.is_given_up() {
            return;
        }
        if let Err(refusal) = self.set_to(names, InterfaceLink::Up).await {
            let error = error_chain(&refusal);
            tracing::warn!(error, "failed to set links up after a migration");
        }
    }

    /// The links for the handler, which would raise too early what is down for a moment.
    pub(in crate::guest) fn reported_links(&self) -> BTreeMap<String, InterfaceLink> {
        let raising = self.migrations.raising.iter();
        let raising = raising.map(|name| (name.clone(), InterfaceLink::Up));
        self.links.clone().into_iter().chain(raising).collect()
    }

    async fn set_to(&mut self, names: &[String], link: InterfaceLink) -> Result<(), Refusal> {
        let wanted: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), link)).collect();
        self.set_links(&wanted).await
    }
}

#[cfg(test)]
mod tests {
    use launcher_channel::GuestPlan;
    use tokio::sync::watch;

    use super::*;
    use crate::guest::record::{MigrationRecord, MigrationStep, RecordStore};
    use crate::guest::status::Phase;
    use crate::guest::task::tests::{guest, plan};
    use crate::settings::Paths;

    /// Issue: links that libvirt did not take down, or not while the guest was paused, were forgotten.
    #[tokio::test(start_paused = true)]
    async fn links_stay_to_be_refreshed_until_libvirt_has_taken_them_down() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let mut store = RecordStore::open(&paths.record()).unwrap();
        let refreshed = GuestPlan {
            refreshed_links: vec!["lan".to_owned()],
            ..plan()
        };
        store.set_plan(refreshed).unwrap();
        let record = MigrationRecord {
            id: "m".to_owned(),
            step: MigrationStep::Incoming,
            stays_paused: true,
        };
        store.set_migration(Some(record)).unwrap();
        store.advance(Phase::Started).unwrap();
        store.arrive().unwrap();
        let (sender, _states) = watch::channel(None);
        // Its libvirtd answers nothing.
        let (mut guest, _libvirtd) = guest(&paths, sender);
        let began = tokio::time::Instant::now();
        guest.status = Some(Status::Alive(DomainState::PausedByUser));
        guest.refresh_links().await;
        assert!(began.elapsed().is_zero(), "libvirt was asked");
        guest.status = Some(Status::Alive(DomainState::Running));
        guest.links = BTreeMap::from([("lan".to_owned(), InterfaceLink::Up)]);
        guest.refresh_links().await;
        assert!(!began.elapsed().is_zero(), "libvirt was not asked");
        assert!(guest.store.refreshes_links());
    }

    /// Issue: the handler raised links at once, and a link that its user had set down went up.
    #[tokio::test(start_paused = true)]
    async fn links_that_will_go_up_are_reported_as_up() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(dir.path());
        let (sender, _states) = watch::channel(None);
        let (mut guest, _libvirtd) = guest(&paths, sender);
        let down = |name: &str| (name.to_owned(), InterfaceLink::Down);
        guest.links = BTreeMap::from([down("lan"), down("wan")]);
        guest.migrations.raising = vec!["lan".to_owned()];
        let expected = BTreeMap::from([("lan".to_owned(), InterfaceLink::Up), down("wan")]);
        assert_eq!(guest.reported_links(), expected);
    }
}
