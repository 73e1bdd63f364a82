//! Filesystems that the guest shares with the pod, by virtiofs.

use model::paths;

use crate::element::Element;
use crate::layout::Address;
use crate::{Input, RenderError, VolumeMode, sources};

/// Requests that may be in flight.
const QUEUE: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Filesystem<'a>(model::Filesystem<'a>);

pub(crate) fn of<'a>(input: &Input<'a>) -> Result<Vec<Filesystem<'a>>, RenderError> {
    let all = input.guest.filesystems.iter();
    all.map(|one| resolve(input, *one)).collect()
}

fn resolve<'a>(
    input: &Input<'a>,
    filesystem: model::Filesystem<'a>,
) -> Result<Filesystem<'a>, RenderError> {
    let invalid = |problem: &str| RenderError::invalid(filesystem.field(), &problem);
    let name = filesystem.name;
    sources::check_name(name).map_err(|problem| invalid(&problem))?;
    let Some(volume) = input.guest.volume(name) else {
        return Err(invalid(&format!("there is no volume named {name:?}")));
    };
    if volume.shared_directory().is_none() {
        let member = volume.source.member();
        return Err(invalid(&format!(
            "{member} has no directory to share; use a disk"
        )));
    }
    if input.guest.disks.iter().any(|disk| disk.name() == name) {
        return Err(invalid("its volume is a disk already; use one of the two"));
    }
    let facts = input.facts.volumes.get(name);
    if facts.is_some_and(|facts| facts.mode == VolumeMode::Block) {
        return Err(invalid(
            "a claim of volume mode Block has no directory to share; use a disk",
        ));
    }
    Ok(Filesystem(filesystem))
}

pub(crate) fn render(all: &[Filesystem<'_>], addresses: &[Option<Address>]) -> Vec<Element> {
    let all = all.iter().zip(addresses);
    all.map(|(one, address)| one.render(*address)).collect()
}

impl Filesystem<'_> {
    /// Without an alias: an interface may have the same name.
    fn render(&self, address: Option<Address>) -> Element {
        let driver = Element::new("driver")
            .attr("type", "virtiofs")
            .attr("queue", QUEUE);
        let socket = paths::filesystem_socket(self.0.name);
        Element::new("filesystem")
            .attr("type", "mount")
            .attr("accessmode", "passthrough")
            .child(driver)
            .child(Element::new("source").attr("socket", socket))
            .child(Element::new("target").attr("dir", self.0.name))
            .children(address.map(Address::render))
    }
}
