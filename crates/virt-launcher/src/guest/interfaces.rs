//! Interfaces that the guest gets and loses while it runs.
//!
//! **Invariant**: libvirt's live XML is the record of the attached interfaces. One that a request does not name is
//! neither changed nor removed.

use std::collections::BTreeMap;

use error_chain::error_chain;
use launcher_channel::{HotInterface, InterfacePlan};
use libvirt::{Connection, Domain};

use super::domain_xml::{LiveDomain, LiveInterface};
use super::links;
use super::refusal::Refusal;
use super::task::Guest;

/// The prefix of the alias of a device that the user named.
const ALIAS: &str = "ua-";

/// One change of the running domain.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Attach(&'a HotInterface),
    /// The name of the interface.
    Remove(&'a str),
}

impl Guest {
    /// Attaches the named interfaces that are missing, and requests the removal of others. An interface that cannot
    /// be changed is a failure in the state, and does not hold up the rest.
    pub(super) async fn set_interfaces(&mut self, plan: InterfacePlan) -> Result<(), Refusal> {
        self.ensure_known().await?;
        let (Some(connection), Some(domain)) = (self.connection(), self.domain()) else {
            return Err(libvirt::Error::Closed.into());
        };
        if !self.is_alive() {
            return Err(Refusal::NotRunning);
        }
        if self.store.is_moving() {
            return Err(Refusal::Migrating);
        }
        // libvirt would keep this task waiting.
        if self.dumps.is_running() {
            return Err(Refusal::Dumping);
        }
        let live = read(&connection, &domain).await?;
        let mut failures = BTreeMap::new();
        // A launcher that is killed starts the servers of its record.
        self.store.set_servers(&plan.dhcp, &plan.ipv6)?;
        failpoints::after("virt-launcher/interfaces/record");
        self.dhcp.start(&plan.dhcp, &plan.ipv6);
        for step in steps(&live, &plan) {
            let (name, done) = match step {
                Step::Attach(interface) => {
                    let done = connection.attach_device(&domain, &interface.xml).await;
                    failpoints::after("virt-launcher/interfaces/attach");
                    (interface.name.as_str(), done)
                }
                Step::Remove(name) => {
                    let alias = format!("{ALIAS}{name}");
                    let done = connection.request_removal(&domain, &alias).await;
                    failpoints::after("virt-launcher/interfaces/remove");
                    // The guest has time to release it.
                    if done
                        .as_ref()
                        .is_err_and(libvirt::Error::is_repeated_removal)
                    {
                        continue;
                    }
                    (name, done)
                }
            };
            match done {
                Ok(()) => tracing::info!(name, "interfaces of the running guest changed"),
                Err(error @ libvirt::Error::Remote(_)) => {
                    let error = error_chain(&error);
                    tracing::info!(name, error, "libvirt refused to change an interface");
                    failures.insert(name.to_owned(), error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.interface_failures = failures;
        self.refresh_interfaces().await
    }

    /// Reads the interfaces again: one has come or gone.
    pub(super) async fn refresh_interfaces(&mut self) -> Result<(), Refusal> {
        if let (Some(connection), Some(domain)) = (self.connection(), self.domain()) {
            self.links = links::by_name(&read(&connection, &domain).await?);
            self.publish();
        }
        Ok(())
    }
}

async fn read(connection: &Connection, domain: &Domain) -> Result<Vec<LiveInterface>, Refusal> {
    let xml = connection.xml(domain).await?;
    let live = LiveDomain::parse(&xml).map_err(std::io::Error::other)?;
    Ok(live.interfaces)
}

/// The changes from the live interfaces to the wanted ones: removals first, as they free places.
fn steps<'a>(live: &[LiveInterface], plan: &'a InterfacePlan) -> Vec<Step<'a>> {
    let is_live = |name: &str| {
        let mut all = live.iter();
        all.any(|interface| interface.alias.strip_prefix(ALIAS) == Some(name))
    };
    let removals = plan.remove.iter().filter(|name| is_live(name));
    let removals = removals.map(|name| Step::Remove(name));
    let additions = plan.attach.iter().filter(|one| !is_live(&one.name));
    removals.chain(additions.map(Step::Attach)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_from_the_live_interfaces_to_the_wanted_ones() {
        let live = |names: &[&str]| {
            let all = names.iter().map(|name| {
                format!("<interface type='ethernet'><alias name='{name}'/></interface>")
            });
            let devices: String = all.collect();
            let xml = format!("<domain><devices>{devices}</devices></domain>");
            LiveDomain::parse(&xml).unwrap().interfaces
        };
        let hot = |name: &&str| HotInterface {
            name: (*name).to_owned(),
            xml: String::new(),
        };
        let check = |present: &[&str], attach: &[&str], remove: &[&str], expected: &[&str]| {
            let plan = InterfacePlan {
                attach: attach.iter().map(hot).collect(),
                remove: remove.iter().map(ToString::to_string).collect(),
                ..InterfacePlan::default()
            };
            let live = live(present);
            let found = steps(&live, &plan).into_iter().map(|step| match step {
                Step::Attach(one) => format!("attach {}", one.name),
                Step::Remove(name) => format!("remove {name}"),
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{present:?} {plan:?}");
        };
        check(&["ua-default"], &["lan"], &[], &["attach lan"]);
        check(&["ua-default", "ua-lan"], &["lan"], &[], &[]);
        check(&["ua-default", "ua-lan"], &[], &["lan"], &["remove lan"]);
        check(&["ua-default"], &[], &["lan"], &[]);
        check(&["ua-a"], &["b"], &["a"], &["remove a", "attach b"]);
        // Not the alias of a device of the VMI.
        check(&["lan"], &["lan"], &[], &["attach lan"]);
    }
}
