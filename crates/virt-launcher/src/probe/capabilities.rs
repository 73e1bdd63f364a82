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

fn mode<'a>(xml: &'a str, name: &str) -> &'a str {
    let start = format!("<mode name='{name}' supported='yes'>");
    let inside = xml.split_once(&start).map_or("", |(_, after)| after);
    inside
        .split_once("</mode>")
        .map_or("", |(inside, _)| inside)
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
          <model fallback='forbid'>EPYC-Milan</model><vendor>AMD</vendor></mode>
        <mode name='custom' supported='yes'>
          <model usable='yes' vendor='unknown'>qemu64</model>
          <model usable='no' vendor='Intel'>Haswell</model>
          <model usable='yes' vendor='AMD'>EPYC</model></mode>
        </cpu></domainCapabilities>";

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
    fn only_the_slow_flag_is_taken_out() {
        let cache = "<a>\n  <flag name='cpu-unavailable-features'/>\n  <flag name='x'/>\n</a>\n";
        assert_eq!(slim(cache), "<a>\n  <flag name='x'/>\n</a>\n");
    }
}
