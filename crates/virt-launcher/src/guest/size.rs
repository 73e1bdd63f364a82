//! Processors and memory that the guest gets while it runs.
//!
//! **Invariant**: libvirt's live XML is the record of what the guest has. Processors are only ever added.

use launcher_channel::{GuestSize, ResizePlan};

use super::domain_xml::LiveDomain;
use super::refusal::Refusal;
use super::task::Guest;

/// What the domain has.
pub(super) fn size(live: &LiveDomain) -> Option<GuestSize> {
    let memory = live.memory.as_ref();
    Some(GuestSize {
        vcpus: live.vcpus?,
        requested_memory: memory.map_or(0, |memory| memory.requested),
        plugged_memory: memory.map_or(0, |memory| memory.plugged),
    })
}

/// A change of the running domain.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Processors(u32),
    AttachMemory(String),
    ResizeMemory(String),
}

fn changes(live: &LiveDomain, plan: &ResizePlan) -> Vec<Change> {
    let is_more = live.vcpus.is_some_and(|vcpus| vcpus < plan.vcpus);
    let processors = is_more.then_some(Change::Processors(plan.vcpus));
    let memory = plan.memory.as_ref().and_then(|memory| match &live.memory {
        None => (memory.requested > 0).then(|| Change::AttachMemory(memory.device.clone())),
        Some(device) if device.requested != memory.requested => device
            .with_request(memory.requested)
            .map(Change::ResizeMemory),
        Some(_) => None,
    });
    processors.into_iter().chain(memory).collect()
}

impl Guest {
    /// Makes the changes that are missing.
    pub(super) async fn resize(&mut self, plan: &ResizePlan) -> Result<(), Refusal> {
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
        if self.store.is_given_up() || self.store.is_receiving() {
            return Err(Refusal::HandedOver);
        }
        // libvirt would keep this task waiting.
        if self.dumps.is_running() {
            return Err(Refusal::Dumping);
        }
        let (connection, domain) = (&connection, &domain);
        let read = || async move {
            let xml = connection.xml(domain).await?;
            let live = LiveDomain::parse(&xml).map_err(std::io::Error::other)?;
            Ok::<_, Refusal>(live)
        };
        let make = |change: Change| async move {
            match change {
                Change::Processors(count) => connection.set_vcpus(domain, count).await,
                Change::AttachMemory(xml) => connection.attach_device(domain, &xml).await,
                Change::ResizeMemory(xml) => connection.update_device(domain, &xml).await,
            }
        };
        let (live, made) = make_changes(plan, read, make).await;
        if let Some(live) = live {
            self.size = size(&live);
        }
        made
    }
}

/// Makes the changes that are missing. Returns the domain as it is afterwards, also if a change was refused, and the
/// first error.
async fn make_changes<R, M>(
    plan: &ResizePlan,
    read: impl Fn() -> R,
    make: impl Fn(Change) -> M,
) -> (Option<LiveDomain>, Result<(), Refusal>)
where
    R: Future<Output = Result<LiveDomain, Refusal>>,
    M: Future<Output = Result<(), libvirt::Error>>,
{
    let missing = match read().await {
        Ok(live) => changes(&live, plan),
        Err(error) => return (None, Err(error)),
    };
    let mut made = Ok(());
    for change in missing {
        let name = format!("{change:?}");
        match make(change).await {
            Ok(()) => tracing::info!(change = name, "the running guest was resized"),
            // The other changes do not depend on it.
            Err(error @ libvirt::Error::Remote(_)) => made = made.and(Err(Refusal::Resize(error))),
            Err(error) => {
                made = made.and(Err(error.into()));
                break;
            }
        }
    }
    match read().await {
        Ok(live) => (Some(live), made),
        Err(error) => (None, made.and(Err(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use error_chain::error_chain;
    use launcher_channel::MemoryPlan;

    use super::*;

    fn live(device: &str) -> LiveDomain {
        let xml = format!("<domain><vcpu current='2'>8</vcpu><devices>{device}</devices></domain>");
        LiveDomain::parse(&xml).unwrap()
    }

    const DEVICE: &str = "<memory model='virtio-mem'><target>\
        <requested unit='KiB'>2048</requested><current unit='KiB'>1024</current>\
        </target></memory>";

    fn plan(vcpus: u32, requested: Option<u64>) -> ResizePlan {
        ResizePlan {
            vcpus,
            memory: requested.map(|requested| MemoryPlan {
                requested,
                device: "<memory/>".to_owned(),
            }),
        }
    }

    #[test]
    fn only_what_is_missing_changes() {
        let attach = || Change::AttachMemory("<memory/>".to_owned());
        for (device, plan, expected) in [
            ("", plan(2, None), vec![]),
            ("", plan(2, Some(0)), vec![]),
            ("", plan(4, None), vec![Change::Processors(4)]),
            // Never fewer.
            ("", plan(1, None), vec![]),
            ("", plan(2, Some(1 << 21)), vec![attach()]),
            (
                "",
                plan(3, Some(1 << 21)),
                vec![Change::Processors(3), attach()],
            ),
            (DEVICE, plan(2, Some(1 << 21)), vec![]),
            (DEVICE, plan(2, None), vec![]),
        ] {
            assert_eq!(changes(&live(device), &plan), expected, "{device} {plan:?}");
        }
        let less = changes(&live(DEVICE), &plan(2, Some(0)));
        let [Change::ResizeMemory(xml)] = &less[..] else {
            panic!("{less:?}");
        };
        assert!(xml.contains("<requested unit=\"b\">0</requested>"), "{xml}");
    }

    #[test]
    fn size_is_that_of_the_live_domain() {
        let found = |vcpus, requested_memory, plugged_memory| {
            Some(GuestSize {
                vcpus,
                requested_memory,
                plugged_memory,
            })
        };
        assert_eq!(size(&live("")), found(2, 0, 0));
        assert_eq!(size(&live(DEVICE)), found(2, 2 << 20, 1 << 20));
        assert_eq!(size(&LiveDomain::parse("<domain/>").unwrap()), None);
    }

    /// Has a domain with two processors make the changes of a plan, all but those that are refused.
    async fn made(plan: &ResizePlan, refused: &[&str]) -> (Option<GuestSize>, String) {
        let processors = Cell::new(2);
        let device = Cell::new("");
        let read = || {
            let (count, device) = (processors.get(), device.get());
            let xml = format!(
                "<domain><vcpu current='{count}'>8</vcpu><devices>{device}</devices></domain>"
            );
            ready(Ok(LiveDomain::parse(&xml).unwrap()))
        };
        let make = |change: Change| {
            let name = match &change {
                Change::Processors(_) => "processors",
                Change::AttachMemory(_) | Change::ResizeMemory(_) => "memory",
            };
            if refused.contains(&name) {
                return ready(Err(refusal(&format!("no {name}"))));
            }
            match change {
                Change::Processors(count) => processors.set(count),
                Change::AttachMemory(_) | Change::ResizeMemory(_) => device.set(DEVICE),
            }
            ready(Ok(()))
        };
        let (live, made) = make_changes(plan, read, make).await;
        let error = made.err().map(|error| error_chain(&error));
        (live.as_ref().and_then(size), error.unwrap_or_default())
    }

    fn refusal(message: &str) -> libvirt::Error {
        libvirt::Error::Remote(Box::new(libvirt::RemoteError {
            code: libvirt::ErrorCode(1),
            origin: 0,
            message: Some(message.to_owned()),
            level: 2,
            parts: [None, None, None],
            numbers: [0, 0],
        }))
    }

    #[tokio::test]
    async fn size_is_known_though_a_change_was_refused() {
        let plan = plan(4, Some(2 << 20));
        for (refused, vcpus, memory, named) in [
            (&[][..], 4, 2 << 20, ""),
            (&["processors"], 2, 2 << 20, "no processors"),
            (&["memory"], 4, 0, "no memory"),
            (&["processors", "memory"], 2, 0, "no processors"),
        ] {
            let (size, error) = made(&plan, refused).await;
            let size = size.unwrap();
            assert_eq!(
                (size.vcpus, size.requested_memory),
                (vcpus, memory),
                "{refused:?}"
            );
            assert_eq!(error.is_empty(), named.is_empty(), "{error}");
            assert!(error.ends_with(named), "{error}");
        }
    }
}
