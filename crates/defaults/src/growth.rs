//! Memory hot-plug: whether a guest's memory can grow while it runs.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{domain::DomainSpec, quantity::Amount};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Why a guest of this size cannot grow to `max`, if so.
pub fn problem(
    domain: &DomainSpec,
    architecture: &str,
    guest: Option<&Quantity>,
    max: &Quantity,
) -> Option<&'static str> {
    let is_realtime = domain
        .cpu
        .as_ref()
        .is_some_and(|cpu| cpu.realtime.is_some());
    let maps_numa = domain.cpu.as_ref().is_some_and(|cpu| {
        let numa = cpu.numa.as_ref();
        numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
    });
    let (guest, max) = match (guest.map(Amount::parse), Amount::parse(max)) {
        (Some(Ok(guest)), Ok(max)) => (guest, max),
        // Another rule reports malformed quantities.
        (Some(Err(_)), _) | (_, Err(_)) => return None,
        (None, _) => return Some("memory without a size cannot grow; set memory.guest"),
    };
    let step = if has_big_pages(domain) { GIB } else { 2 * MIB };
    let fits = guest.is_multiple_of(step) && max.is_multiple_of(step);
    match () {
        () if is_realtime => Some("memory of realtime guests cannot grow; leave it out"),
        () if maps_numa => Some("memory of mapped NUMA nodes cannot grow; leave it out"),
        () if domain.launch_security.is_some() => {
            Some("memory of guests with launch security cannot grow; leave it out")
        }
        () if architecture != "amd64" => Some("memory grows on amd64 only; leave it out"),
        () if guest > max => Some("below memory.guest; raise it"),
        () if !fits && step == GIB => {
            Some("memory grows in huge pages; use multiples of 1Gi here and in memory.guest")
        }
        () if !fits => {
            Some("memory grows in blocks; use multiples of 2Mi here and in memory.guest")
        }
        () if guest < Amount::of(GIB) => {
            Some("memory below 1Gi cannot grow; leave it out, or raise memory.guest")
        }
        () => None,
    }
}

fn has_big_pages(domain: &DomainSpec) -> bool {
    let pages = domain
        .memory
        .as_ref()
        .and_then(|memory| memory.hugepages.as_ref());
    let size = pages.and_then(|pages| pages.page_size.clone());
    size.is_some_and(|size| Amount::parse(&Quantity(size)) == Ok(Amount::of(GIB)))
}
