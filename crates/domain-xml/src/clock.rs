//! The guest's clock and timers.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::clock::{Clock, Timer};

use crate::element::Element;

pub(crate) fn render(vmi: &VirtualMachineInstance) -> Option<Element> {
    let tsc = tsc_frequency(vmi).map(|frequency| {
        Element::new("timer")
            .attr("name", "tsc")
            .attr("frequency", frequency)
    });
    match (&vmi.spec.domain.clock, tsc) {
        (None, None) => None,
        (None, tsc) => Some(render_clock(&Clock::default()).children(tsc)),
        (Some(clock), tsc) => Some(render_clock(clock).children(tsc)),
    }
}

/// The frequency that all nodes which may run the guest can give it, if the guest depends on it.
fn tsc_frequency(vmi: &VirtualMachineInstance) -> Option<i64> {
    let hints = vmi.status.as_ref()?.topology_hints.as_ref()?;
    hints
        .tsc_frequency
        .filter(|frequency| *frequency > 0 && model::needs_fixed_tsc(vmi))
}

fn render_clock(clock: &Clock) -> Element {
    let base = match (&clock.timezone, &clock.utc) {
        (Some(zone), _) => Element::new("clock")
            .attr("offset", "timezone")
            .attr("timezone", zone),
        (None, Some(utc)) => {
            let adjustment = utc.offset_seconds.map(|seconds| seconds.to_string());
            Element::new("clock")
                .attr("offset", "utc")
                .attr("adjustment", adjustment.as_deref().unwrap_or("reset"))
        }
        (None, None) => Element::new("clock").attr("offset", "utc"),
    };
    base.children(clock.timer.as_ref().map(timers).unwrap_or_default())
}

fn timers(timer: &Timer) -> Vec<Element> {
    let base = |name, present: Option<bool>| {
        let present = if present == Some(false) { "no" } else { "yes" };
        Element::new("timer")
            .attr("name", name)
            .attr("present", present)
    };
    let rtc = timer.rtc.as_ref().map(|rtc| {
        base("rtc", rtc.present)
            .attr_if("tickpolicy", rtc.tick_policy.as_ref())
            .attr_if("track", rtc.track.as_ref())
    });
    let pit = timer
        .pit
        .as_ref()
        .map(|pit| base("pit", pit.present).attr_if("tickpolicy", pit.tick_policy.as_ref()));
    let kvm = timer.kvm.as_ref().map(|kvm| base("kvmclock", kvm.present));
    let hpet = timer
        .hpet
        .as_ref()
        .map(|hpet| base("hpet", hpet.present).attr_if("tickpolicy", hpet.tick_policy.as_ref()));
    let hyperv = timer
        .hyperv
        .as_ref()
        .map(|hyperv| base("hypervclock", hyperv.present));
    [rtc, pit, kvm, hpet, hyperv]
        .into_iter()
        .flatten()
        .collect()
}
