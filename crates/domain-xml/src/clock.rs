//! The guest's clock and timers.

use kubevirt_api::clock::{Clock, Timer};

use crate::element::Element;

pub(crate) fn render(clock: Option<&Clock>) -> Option<Element> {
    let clock = clock?;
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
    Some(base.children(clock.timer.as_ref().map(timers).unwrap_or_default()))
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
