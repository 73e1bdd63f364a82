//! The guest's memory: its size, and the pages behind it.

use kubevirt_api::annotations;
use model::{Architecture, Guest, ResourceList};

use crate::RenderError;
use crate::element::Element;
use crate::numa::Cells;

/// The guest's memory at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) bytes: u64,
    /// Memory hotplug may grow it to this.
    max: Option<u64>,
    has_huge_pages: bool,
    file: MemoryFile,
    has_no_merging: bool,
}

/// Whether the memory is a file without name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryFile {
    None,
    Private,
    /// Other processes can map it.
    Shared,
}

pub(crate) fn of(guest: &Guest<'_>) -> Result<Memory, RenderError> {
    let bytes = size(guest)?;
    let has_huge_pages = guest.page_size().is_some();
    let annotated = guest.vmi.metadata.annotations.as_ref();
    let memfd = annotated.and_then(|all| all.get(annotations::MEMFD));
    let is_huge_file = has_huge_pages
        && memfd.is_none_or(|value| value != "false")
        && guest.architecture != Architecture::S390x;
    let file = match (guest.shares_memory(), is_huge_file) {
        (true, _) => MemoryFile::Shared,
        (false, true) => MemoryFile::Private,
        (false, false) => MemoryFile::None,
    };
    Ok(Memory {
        bytes,
        max: guest.max_memory()?.filter(|max| *max != bytes),
        has_huge_pages,
        file,
        has_no_merging: guest.is_realtime(),
    })
}

/// The VMI's own field, else the request, else the limit.
fn size(guest: &Guest<'_>) -> Result<u64, RenderError> {
    let field = "spec.domain.memory.guest".to_owned();
    let mut found = guest.memory()?.map(|bytes| (field.clone(), bytes));
    for list in [ResourceList::Requests, ResourceList::Limits] {
        if found.is_none() {
            let amount = guest.resource(list, "memory")?;
            found = amount.map(|amount| (list.field("memory"), amount.units()));
        }
    }
    match found {
        None => Err(RenderError::missing(field)),
        Some((field, 0)) => Err(RenderError::invalid(field, "must be more than zero")),
        Some((_, bytes)) => Ok(bytes),
    }
}

/// The device with memory that a running guest gets, `requested` bytes of it now. `at_start` is the memory
/// that the guest was started with.
pub fn hot_memory(guest: &Guest<'_>, at_start: u64, requested: u64) -> Result<String, RenderError> {
    let field = "spec.domain.memory.maxGuest";
    let max = guest.max_memory()?;
    let max = max.ok_or_else(|| RenderError::missing(field))?;
    let size = max.saturating_sub(at_start);
    if requested > size {
        let problem = "must not be less than spec.domain.memory.guest";
        return Err(RenderError::invalid(field, problem));
    }
    let block = if guest.page_size() == Some("1Gi") {
        1 << 30
    } else {
        2 << 20
    };
    let bytes = |name, value: u64| Element::new(name).attr("unit", "b").text(value);
    let target = Element::new("target")
        .child(bytes("size", size))
        .child(Element::new("node").text(0))
        .child(bytes("block", block))
        .child(bytes("requested", requested));
    let device = Element::new("memory").attr("model", "virtio-mem");
    Ok(device.child(target).to_xml())
}

impl Memory {
    /// libvirt requires a NUMA cell for memory that may grow and for memory in a file.
    pub(crate) fn needs_cell(&self) -> bool {
        self.max.is_some() || self.is_file()
    }

    pub(crate) fn render(&self, cells: Option<&Cells>) -> Vec<Element> {
        let bytes = |name, value: u64| Element::new(name).attr("unit", "b").text(value);
        let max = self.max.map(|max| bytes("maxMemory", max).attr("slots", 0));
        let backing = self.backing(cells);
        max.into_iter()
            .chain([bytes("memory", self.bytes)])
            .chain((!backing.is_empty()).then_some(backing))
            .collect()
    }

    fn is_file(&self) -> bool {
        self.file != MemoryFile::None
    }

    fn backing(&self, cells: Option<&Cells>) -> Element {
        let when = |applies: bool, name| applies.then(|| Element::new(name));
        let source = when(self.is_file(), "source").map(|source| source.attr("type", "memfd"));
        let is_shared = self.file == MemoryFile::Shared;
        let access = when(is_shared, "access").map(|access| access.attr("mode", "shared"));
        let pages = cells.map(Cells::render_pages);
        let at_start = cells.map(|_| Element::new("allocation").attr("mode", "immediate"));
        Element::new("memoryBacking")
            .children(pages.or_else(|| when(self.has_huge_pages, "hugepages")))
            .children(when(self.has_no_merging, "nosharepages"))
            .children(source)
            .children(access)
            .children(at_start)
    }
}

#[cfg(test)]
mod tests {
    use kubevirt_api::VirtualMachineInstance;
    use serde_json::json;

    use super::*;

    fn guest(memory: &serde_json::Value) -> VirtualMachineInstance {
        let spec = json!({"domain": {"memory": memory, "devices": {}}});
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("is a VMI")
    }

    #[test]
    fn plugged_memory_is_what_the_guest_may_grow_by() {
        let device = |memory: serde_json::Value, requested| {
            let vmi = guest(&memory);
            hot_memory(&Guest::of(&vmi), 1 << 30, requested)
        };
        let xml = device(json!({"guest": "2Gi", "maxGuest": "4Gi"}), 1 << 30).unwrap();
        for part in [
            "model=\"virtio-mem\"",
            "<size unit=\"b\">3221225472</size>",
            "<node>0</node>",
            "<block unit=\"b\">2097152</block>",
            "<requested unit=\"b\">1073741824</requested>",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
        let huge = json!({
            "guest": "2Gi", "maxGuest": "4Gi", "hugepages": {"pageSize": "1Gi"},
        });
        let xml = device(huge, 1 << 30).unwrap();
        assert!(
            xml.contains("<block unit=\"b\">1073741824</block>"),
            "{xml}"
        );
        let too_much = device(json!({"guest": "5Gi", "maxGuest": "4Gi"}), 4 << 30);
        let error = too_much.unwrap_err().to_string();
        assert!(error.contains("spec.domain.memory.maxGuest"), "{error}");
        device(json!({"guest": "2Gi"}), 1 << 30).unwrap_err();
    }
}
