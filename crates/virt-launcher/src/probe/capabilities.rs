//! Reading what libvirt wrote. Its XML is regular and comes from a program in our own image, so a
//! search for tags is enough.

/// With this flag libvirt reads every property of the processor by itself at each start, several
/// hundred questions to QEMU, only to report features that are missing.
const SLOW_FLAG: &str = "<flag name='cpu-unavailable-features'/>";

/// The cache without the flag that makes starts slow.
pub(super) fn slim(cache: &str) -> String {
    cache
        .lines()
        .filter(|line| line.trim() != SLOW_FLAG)
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// Every machine type, aliases too, sorted.
pub(super) fn machine_types(capabilities: &str) -> Vec<String> {
    let mut types: Vec<String> = elements(capabilities, "machine")
        .map(|(_, text)| text.to_owned())
        .collect();
    types.sort();
    types.dedup();
    types
}

/// Models of processors that a guest can have here.
pub(super) fn cpu_models(domain_capabilities: &str) -> Vec<String> {
    elements(mode(domain_capabilities, "custom"), "model")
        .filter(|(attributes, _)| attributes.contains("usable='yes'"))
        .map(|(_, text)| text.to_owned())
        .collect()
}

/// The model that is closest to the host.
pub(super) fn host_model(domain_capabilities: &str) -> Option<String> {
    elements(mode(domain_capabilities, "host-model"), "model")
        .next()
        .map(|(_, text)| text.to_owned())
}

/// The processor of mode `host-model`, as an element of its own.
pub(super) fn host_model_cpu(domain_capabilities: &str) -> Option<String> {
    let inside = mode(domain_capabilities, "host-model");
    (!inside.is_empty()).then(|| format!("<cpu>{inside}</cpu>"))
}

/// Features that a guest of mode `host-model` needs of its host.
pub(super) fn required_features(domain_capabilities: &str) -> Vec<String> {
    features(mode(domain_capabilities, "host-model"))
}

/// The names of all features in a processor's description that it has.
pub(super) fn features(cpu: &str) -> Vec<String> {
    let mut names: Vec<String> = tags(cpu, "feature")
        .filter(|tag| attribute(tag, "policy") == Some("require"))
        .filter_map(|tag| attribute(tag, "name"))
        .map(ToOwned::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Who made the host's processor.
pub(super) fn cpu_vendor(domain_capabilities: &str) -> Option<String> {
    elements(mode(domain_capabilities, "host-model"), "vendor")
        .next()
        .map(|(_, text)| text.to_owned())
}

/// Enlightenments for Windows guests, in the words of `KubeVirt`.
pub(super) fn hyperv(domain_capabilities: &str) -> Vec<String> {
    let inside = between(domain_capabilities, "<hyperv supported='yes'>", "</hyperv>");
    let features = between(inside, "<enum name='features'>", "</enum>");
    elements(features, "value")
        .map(|(_, name)| match name {
            "stimer" => "synictimer".to_owned(),
            "vendor_id" => "vendorid".to_owned(),
            name => name.to_owned(),
        })
        .collect()
}

/// The counter of the host's processor.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tsc {
    /// In Hz.
    pub(super) frequency: u64,
    /// Guests may be given another frequency.
    pub(super) scalable: bool,
}

pub(super) fn tsc(capabilities: &str) -> Option<Tsc> {
    let host = between(capabilities, "<host>", "</host>");
    let tag = tags(host, "counter").find(|tag| attribute(tag, "name") == Some("tsc"))?;
    Some(Tsc {
        frequency: attribute(tag, "frequency")?.parse().ok()?,
        scalable: attribute(tag, "scaling") == Some("yes"),
    })
}

fn between<'a>(xml: &'a str, start: &str, end: &str) -> &'a str {
    let inside = xml.split_once(start).map_or("", |(_, after)| after);
    inside.split_once(end).map_or("", |(inside, _)| inside)
}

/// What stands inside each tag of that name, whether it holds anything or not.
fn tags<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("<{name} ");
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&start)?;
        let (tag, after) = after.split_once('>')?;
        rest = after;
        Some(tag)
    })
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = tag.split_once(&format!("{name}='"))?;
    after.split_once('\'').map(|(value, _)| value)
}

fn mode<'a>(xml: &'a str, name: &str) -> &'a str {
    let start = format!("<mode name='{name}' supported='yes'>");
    between(xml, &start, "</mode>")
}

/// Attributes and text of each element of that name.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let (start, end) = (format!("<{name}"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once(&start)?;
            rest = after;
            let (attributes, after) = after.split_once('>')?;
            let other = !attributes.is_empty() && !attributes.starts_with(' ');
            if other || attributes.ends_with('/') {
                continue;
            }
            let (text, after) = after.split_once(&end)?;
            rest = after;
            return Some((attributes, text));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN_CAPABILITIES: &str = "<domainCapabilities><cpu>
        <mode name='host-passthrough' supported='yes'><enum name='x'/></mode>
        <mode name='host-model' supported='yes'>
          <model fallback='forbid'>EPYC-Milan</model><vendor>AMD</vendor>
          <feature policy='require' name='x2apic'/><feature policy='disable' name='svm'/>
          <feature policy='require' name='invtsc'/></mode>
        <mode name='custom' supported='yes'>
          <model usable='yes' vendor='unknown'>qemu64</model>
          <model usable='no' vendor='Intel'>Haswell</model>
          <model usable='yes' vendor='AMD'>EPYC</model></mode>
        </cpu><features><sev supported='no'/><hyperv supported='yes'>
          <enum name='features'><value>relaxed</value><value>stimer</value></enum>
          <enum name='other'><value>x</value></enum></hyperv></features>
        </domainCapabilities>";

    #[test]
    fn models_and_machines_are_found() {
        assert_eq!(cpu_models(DOMAIN_CAPABILITIES), ["qemu64", "EPYC"]);
        assert_eq!(
            host_model(DOMAIN_CAPABILITIES).as_deref(),
            Some("EPYC-Milan")
        );
        let xml = "<machines/><machine maxCpus='1'>q35</machine><machine>pc</machine><machine>pc</machine>";
        assert_eq!(machine_types(xml), ["pc", "q35"]);
        assert_eq!(cpu_models("<mode name='custom' supported='no'/>"), [""; 0]);
    }

    #[test]
    fn what_a_host_model_needs_and_has_is_found() {
        let caps = DOMAIN_CAPABILITIES;
        assert_eq!(required_features(caps), ["invtsc", "x2apic"]);
        assert_eq!(cpu_vendor(caps).as_deref(), Some("AMD"));
        assert_eq!(hyperv(caps), ["relaxed", "synictimer"]);
        let cpu = host_model_cpu(caps).unwrap();
        assert!(
            cpu.starts_with("<cpu>") && cpu.contains("<vendor>AMD</vendor>"),
            "{cpu}"
        );
        assert_eq!(
            host_model_cpu("<mode name='host-model' supported='no'/>"),
            None
        );
        assert_eq!(hyperv("<hyperv supported='no'/>"), [""; 0]);
    }

    #[test]
    fn the_counter_is_the_hosts_own() {
        let check = |xml: &str, expected: Option<(u64, bool)>| {
            let found = tsc(xml).map(|tsc| (tsc.frequency, tsc.scalable));
            assert_eq!(found, expected, "{xml}");
        };
        let host = |counter: &str| format!("<capabilities><host><cpu>{counter}</cpu></host>");
        check(
            &host("<counter name='tsc' frequency='2096061000' scaling='no'/>"),
            Some((2_096_061_000, false)),
        );
        check(
            &host("<counter name='tsc' frequency='1' scaling='yes'/>"),
            Some((1, true)),
        );
        check(&host("<counter name='hpet' frequency='1'/>"), None);
        check("<guest><counter name='tsc' frequency='1'/></guest>", None);
    }

    #[test]
    fn only_the_slow_flag_is_taken_out() {
        let cache = "<a>\n  <flag name='cpu-unavailable-features'/>\n  <flag name='x'/>\n</a>\n";
        assert_eq!(slim(cache), "<a>\n  <flag name='x'/>\n</a>\n");
    }
}
