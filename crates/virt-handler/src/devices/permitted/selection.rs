//! Which devices the administrator permits, from `permittedHostDevices`. Pure.

use kubevirt_api::cluster_config::{KubeVirtConfiguration, UsbHostDevice};

/// The most resources, as many as the embedded node takes from plugins.
const MAX_RESOURCES: usize = 56;
/// The longest name of a resource: a DNS name, a slash and a name.
const MAX_NAME: usize = 253 + 1 + 63;
/// The most devices of a USB unit.
const MAX_SELECTORS: usize = 16;

/// A resource and the devices that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Permitted {
    pub(super) resource: String,
    pub(super) devices: Selection,
}

/// All selectors of a resource, of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selection {
    Pci(Vec<VendorAndProduct>),
    /// Names of types, with `_` for blanks.
    Mediated(Vec<String>),
    /// Each is a unit of all its devices.
    Usb(Vec<Vec<VendorAndProduct>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VendorAndProduct {
    pub(super) vendor: u16,
    pub(super) product: u16,
}

/// The permitted resources, and why others of the configuration are not offered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) permitted: Vec<Permitted>,
    pub(super) problems: Vec<String>,
}

pub(super) fn of(configuration: &KubeVirtConfiguration) -> Selected {
    let mut selected = Selected::default();
    let Some(permitted) = &configuration.permitted_host_devices else {
        return selected;
    };
    for (index, one) in permitted.pci_host_devices.iter().enumerate() {
        let place = format!("pciHostDevices[{index}]");
        let (vendor, product) = one
            .pci_vendor_selector
            .split_once(':')
            .unwrap_or(("", &one.pci_vendor_selector));
        let devices = VendorAndProduct::parse(vendor, product)
            .map(|device| Selection::Pci(vec![device]))
            .ok_or_else(|| format!("{place}.pciVendorSelector: use the form 10de:1eb8"));
        selected.add(
            &place,
            &one.resource_name,
            one.external_resource_provider,
            devices,
        );
    }
    for (index, one) in permitted.mediated_devices.iter().enumerate() {
        let place = format!("mediatedDevices[{index}]");
        let name = with_underscores(&one.mdev_name_selector);
        let devices = if name.is_empty() {
            Err(format!("{place}.mdevNameSelector: name a type"))
        } else {
            Ok(Selection::Mediated(vec![name]))
        };
        selected.add(
            &place,
            &one.resource_name,
            one.external_resource_provider,
            devices,
        );
    }
    for (index, one) in permitted.usb.iter().enumerate() {
        let place = format!("usb[{index}]");
        let devices = match usb(one) {
            None => Err(format!(
                "{place}.selectors: give vendor and product of 1 to {MAX_SELECTORS} devices, such as 46f4 and 0001"
            )),
            // A device would change its resource when another one is plugged in, while a guest has it.
            Some(unit) if selected.has_usb(&unit) => Err(format!(
                "{place}.selectors: a device of this kind is in another resource already; name each kind once"
            )),
            Some(unit) => Ok(Selection::Usb(vec![unit])),
        };
        selected.add(
            &place,
            &one.resource_name,
            one.external_resource_provider,
            devices,
        );
    }
    selected
}

fn usb(one: &UsbHostDevice) -> Option<Vec<VendorAndProduct>> {
    let is_usual = (1..=MAX_SELECTORS).contains(&one.selectors.len());
    let selectors = one.selectors.iter();
    let unit = selectors.map(|one| VendorAndProduct::parse(&one.vendor, &one.product));
    unit.collect::<Option<Vec<_>>>().filter(|_| is_usual)
}

impl Selected {
    /// Whether an entry has one of these USB devices.
    fn has_usb(&self, kinds: &[VendorAndProduct]) -> bool {
        let entries = self.permitted.iter().flat_map(|one| match &one.devices {
            Selection::Usb(units) => &**units,
            _ => &[],
        });
        entries.flatten().any(|kind| kinds.contains(kind))
    }

    fn add(
        &mut self,
        place: &str,
        resource: &str,
        is_external: Option<bool>,
        devices: Result<Selection, String>,
    ) {
        if is_external == Some(true) {
            return;
        }
        let devices = match devices {
            Ok(devices) if is_resource(resource) => devices,
            Ok(_) => {
                let problem = "use the form example.com/name, outside of devices.kubevirt.io and kubernetes.io";
                self.problems
                    .push(format!("{place}.resourceName: {problem}"));
                return;
            }
            Err(problem) => return self.problems.push(problem),
        };
        let variable = variable(resource);
        let is_full = self.permitted.len() >= MAX_RESOURCES;
        let mut all = self.permitted.iter_mut();
        let same = all.find(|one| variable == self::variable(&one.resource));
        match same {
            Some(same) => {
                if same.resource != resource || !same.devices.extend(&devices) {
                    let other = &same.resource;
                    self.problems.push(format!(
                        "{place}.resourceName: choose another name: {other:?} has the same variable in \
                         pods, and devices of another kind, units of another size, or other punctuation"
                    ));
                }
            }
            None if is_full => {
                let problem = format!("{place}: only {MAX_RESOURCES} resources are offered");
                self.problems.push(problem);
            }
            None => self.permitted.push(Permitted {
                resource: resource.to_owned(),
                devices,
            }),
        }
    }
}

impl Selection {
    /// Adds selectors of the same kind.
    fn extend(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pci(own), Self::Pci(more)) => own.extend(more),
            (Self::Mediated(own), Self::Mediated(more)) => own.extend(more.iter().cloned()),
            // A pod's variable lists the devices of all its units, which are divided by their number.
            (Self::Usb(own), Self::Usb(more)) if has_one_size(own, more) => {
                own.extend(more.iter().cloned());
            }
            _ => return false,
        }
        true
    }
}

fn has_one_size(own: &[Vec<VendorAndProduct>], more: &[Vec<VendorAndProduct>]) -> bool {
    let mut sizes = own.iter().chain(more).map(Vec::len);
    let first = sizes.next();
    sizes.all(|size| Some(size) == first)
}

impl VendorAndProduct {
    /// Reads hexadecimal digits, of either case.
    pub(super) fn parse(vendor: &str, product: &str) -> Option<Self> {
        Some(Self {
            vendor: number(vendor)?,
            product: number(product)?,
        })
    }
}

fn number(text: &str) -> Option<u16> {
    let is_number = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u16::from_str_radix(text, 16).ok())?
}

/// Drivers put blanks into the names of types; administrators write either.
pub(in super::super) fn with_underscores(name: &str) -> String {
    name.trim().replace(' ', "_")
}

/// How the resource is written in the variables of a pod.
fn variable(resource: &str) -> String {
    resource.to_uppercase().replace(['/', '.'], "_")
}

/// Whether a plugin may offer a resource of that name. Those of Kubernetes and our own mean something else.
fn is_resource(name: &str) -> bool {
    let Some((domain, last)) = name.split_once('/') else {
        return false;
    };
    let is_part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let ends = [part.bytes().next(), part.bytes().last()];
        part.bytes().all(plain)
            && ends
                .into_iter()
                .all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
    };
    let is_reserved = domain == "devices.kubevirt.io"
        || domain == "kubernetes.io"
        || domain.ends_with(".kubernetes.io");
    name.len() <= MAX_NAME && is_part(domain) && is_part(last) && !is_reserved
}
