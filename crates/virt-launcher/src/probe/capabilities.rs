//! Parses libvirt's capabilities.

use crate::xml::{Error, Step, Tag, Walk};

/// With this flag libvirt queries QEMU for every CPU property at each start, several hundred calls,
/// only to report unavailable features.
const SLOW_FLAG: &str = "<flag name='cpu-unavailable-features'/>";

/// libvirt's cache of QEMU's capabilities without the flag that makes starts slow.
pub(super) fn without_slow_flag(cache: &str) -> String {
    cache
        .lines()
        .filter(|line| line.trim() != SLOW_FLAG)
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// The host's capabilities.
#[derive(Debug, Default)]
pub(super) struct HostCapabilities {
    /// Every machine type, including aliases, sorted.
    pub(super) machine_types: Vec<String>,
    pub(super) tsc: Option<Tsc>,
}

/// The time stamp counter of the host's CPU.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tsc {
    /// In Hz.
    pub(super) frequency: u64,
    /// Whether guests can have another frequency.
    pub(super) scalable: bool,
}

impl HostCapabilities {
    pub(super) fn parse(xml: &str) -> Result<Self, Error> {
        let mut found = Self::default();
        let mut walk = Walk::new(xml);
        while let Some(step) = walk.next()? {
            match (walk.path(), step) {
                ("/capabilities/host/cpu/counter", Step::Start(tag))
                    if tag.has("name", "tsc")? =>
                {
                    let frequency = tag.attribute("frequency")?;
                    let scalable = tag.has("scaling", "yes")?;
                    found.tsc = frequency
                        .and_then(|text| text.parse().ok())
                        .map(|frequency| Tsc {
                            frequency,
                            scalable,
                        });
                }
                (path, Step::Text(text)) if path.ends_with("/machine") => {
                    found.machine_types.push(text);
                }
                _ => {}
            }
        }
        sort(&mut found.machine_types);
        Ok(found)
    }
}

/// The capabilities of domains.
#[derive(Debug, Default)]
pub(super) struct DomainCapabilities {
    /// CPU models that guests can use on this host.
    pub(super) cpu_models: Vec<String>,
    pub(super) host_model: Option<HostModel>,
    /// Enlightenments for Windows guests, by their names in `KubeVirt`.
    pub(super) hyperv: Vec<String>,
}

/// The CPU of mode `host-model`.
#[derive(Debug, Default)]
pub(super) struct HostModel {
    /// The model that is closest to the host.
    pub(super) name: Option<String>,
    pub(super) vendor: Option<String>,
    /// Features that a guest of this mode needs on its host.
    pub(super) required_features: Vec<String>,
    /// Its description as a `cpu` element.
    pub(super) xml: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Custom,
    HostModel,
    /// Of no interest, or unsupported.
    Other,
}

impl Mode {
    fn of(tag: &Tag<'_>) -> Result<Self, Error> {
        if !tag.has("supported", "yes")? {
            return Ok(Self::Other);
        }
        Ok(match tag.attribute("name")?.as_deref() {
            Some("custom") => Self::Custom,
            Some("host-model") => Self::HostModel,
            _ => Self::Other,
        })
    }
}

impl DomainCapabilities {
    pub(super) fn parse(xml: &str) -> Result<Self, Error> {
        const MODE: &str = "/domainCapabilities/cpu/mode";
        const HYPERV: &str = "/domainCapabilities/features/hyperv/enum";
        let mut found = Self::default();
        let mut mode = Mode::Other;
        let (mut is_usable, mut is_feature_list) = (false, false);
        let mut walk = Walk::new(xml);
        while let Some(step) = walk.next()? {
            if let Some(inside) = walk.path().strip_prefix(MODE) {
                match (inside, step) {
                    ("", Step::Start(tag)) => {
                        mode = Mode::of(&tag)?;
                        if mode == Mode::HostModel {
                            found.host_model = Some(HostModel {
                                xml: format!("<cpu>{}</cpu>", walk.inner_xml(&tag)?),
                                ..HostModel::default()
                            });
                        }
                    }
                    ("/model", Step::Start(tag)) => is_usable = tag.has("usable", "yes")?,
                    ("/model", Step::Text(name)) if mode == Mode::Custom && is_usable => {
                        found.cpu_models.push(name);
                    }
                    (inside, step) if mode == Mode::HostModel => {
                        if let Some(model) = &mut found.host_model {
                            model.read(inside, step)?;
                        }
                    }
                    _ => {}
                }
            } else if let Some(inside) = walk.path().strip_prefix(HYPERV) {
                match (inside, step) {
                    ("", Step::Start(tag)) => is_feature_list = tag.has("name", "features")?,
                    ("/value", Step::Text(name)) if is_feature_list => {
                        found.hyperv.push(kubevirt_name(name));
                    }
                    _ => {}
                }
            }
        }
        if let Some(model) = &mut found.host_model {
            sort(&mut model.required_features);
        }
        Ok(found)
    }
}

impl HostModel {
    fn read(&mut self, inside: &str, step: Step<'_>) -> Result<(), Error> {
        match (inside, step) {
            ("/model", Step::Text(name)) => self.name = Some(name),
            ("/vendor", Step::Text(name)) => self.vendor = Some(name),
            ("/feature", Step::Start(tag)) if tag.has("policy", "require")? => {
                self.required_features.extend(tag.attribute("name")?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// The names of all features that a `cpu` element requires.
pub(super) fn cpu_features(cpu: &str) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    let mut walk = Walk::new(cpu);
    while let Some(step) = walk.next()? {
        if let ("/cpu/feature", Step::Start(tag)) = (walk.path(), step)
            && tag.has("policy", "require")?
        {
            names.extend(tag.attribute("name")?);
        }
    }
    sort(&mut names);
    Ok(names)
}

fn sort(names: &mut Vec<String>) {
    names.sort();
    names.dedup();
}

fn kubevirt_name(libvirt_name: String) -> String {
    match libvirt_name.as_str() {
        "stimer" => "synictimer".to_owned(),
        "vendor_id" => "vendorid".to_owned(),
        _ => libvirt_name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN_CAPABILITIES: &str = "<domainCapabilities><cpu>
        <mode name='host-passthrough' supported='yes'><enum name='x'/></mode>
        <mode name='host-model' supported='yes'>
          <model fallback='forbid'>EPYC-Milan</model><vendor>AMD</vendor>
          <maxphysaddr mode='passthrough' limit='48'/>
          <feature policy='require' name='x2apic'/><feature policy='disable' name='svm'/>
          <feature policy='require' name='invtsc'/></mode>
        <mode name='custom' supported='yes'>
          <model usable='yes' vendor='unknown'>qemu64</model>
          <model usable='no' vendor='Intel'>Haswell</model>
          <blockers model='Haswell'><feature name='hle'/></blockers>
          <model usable='yes' vendor='AMD'>EPYC</model></mode>
        </cpu><features><sev supported='no'/><hyperv supported='yes'>
          <enum name='features'><value>relaxed</value><value>stimer</value></enum>
          <enum name='other'><value>x</value></enum>
          <defaults><spinlocks>4095</spinlocks><vendor_id>Linux KVM Hv</vendor_id></defaults>
          </hyperv></features>
        </domainCapabilities>";

    fn within(cpu: &str) -> DomainCapabilities {
        let xml = format!("<domainCapabilities><cpu>{cpu}</cpu></domainCapabilities>");
        DomainCapabilities::parse(&xml).unwrap()
    }

    #[test]
    fn models_and_machine_types_are_read() {
        let found = DomainCapabilities::parse(DOMAIN_CAPABILITIES).unwrap();
        assert_eq!(found.cpu_models, ["qemu64", "EPYC"]);
        let model = found.host_model.unwrap();
        assert_eq!(model.name.as_deref(), Some("EPYC-Milan"));
        let xml = "<capabilities><guest><arch><machines/><machine maxCpus='1'>q35</machine>
            <machine>pc</machine><domain><machine>pc</machine></domain></arch></guest></capabilities>";
        let host = HostCapabilities::parse(xml).unwrap();
        assert_eq!(host.machine_types, ["pc", "q35"]);
        let unsupported = within("<mode name='custom' supported='no'/>");
        assert_eq!(unsupported.cpu_models, [""; 0]);
    }

    #[test]
    fn host_model_and_enlightenments_are_read() {
        let found = DomainCapabilities::parse(DOMAIN_CAPABILITIES).unwrap();
        assert_eq!(found.hyperv, ["relaxed", "synictimer"]);
        let model = found.host_model.unwrap();
        assert_eq!(model.required_features, ["invtsc", "x2apic"]);
        assert_eq!(model.vendor.as_deref(), Some("AMD"));
        let cpu = model.xml;
        assert!(cpu.contains("<vendor>AMD</vendor>"), "{cpu}");
        assert_eq!(cpu_features(&cpu).unwrap(), ["invtsc", "x2apic"]);
        assert!(
            within("<mode name='host-model' supported='no'/>")
                .host_model
                .is_none()
        );
        let xml = "<domainCapabilities><features><hyperv supported='no'/></features></domainCapabilities>";
        let found = DomainCapabilities::parse(xml).unwrap();
        assert_eq!(found.hyperv, [""; 0]);
    }

    #[test]
    fn time_stamp_counter_of_the_host_is_read() {
        let check = |xml: &str, expected: Option<(u64, bool)>| {
            let found = HostCapabilities::parse(xml).unwrap().tsc;
            let found = found.map(|tsc| (tsc.frequency, tsc.scalable));
            assert_eq!(found, expected, "{xml}");
        };
        let host = |counter: &str| {
            format!("<capabilities><host><cpu>{counter}</cpu></host></capabilities>")
        };
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
    fn only_the_slow_flag_is_removed() {
        let cache = "<a>\n  <flag name='cpu-unavailable-features'/>\n  <flag name='x'/>\n</a>\n";
        assert_eq!(without_slow_flag(cache), "<a>\n  <flag name='x'/>\n</a>\n");
    }
}
