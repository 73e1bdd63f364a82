//! The guest's NUMA cells, if they are those of its CPUs on the host.

use kubevirt_api::quantity::Amount;
use model::Guest;

use crate::element::Element;
use crate::pinning::{self, Pinning};
use crate::{Facts, RenderError};

/// One cell of the guest, on one cell of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    host: u32,
    cpus: Vec<u32>,
    memory: u64,
    /// To each cell of the guest, in order.
    distances: Vec<u32>,
}

/// All cells of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    page: u64,
}

/// `None` if the guest does not see the host's cells.
pub(crate) fn of(
    guest: &Guest<'_>,
    facts: &Facts,
    pinning: Option<&Pinning>,
    memory: u64,
) -> Result<Option<Cells>, RenderError> {
    let Some(pinning) = pinning.filter(|_| pinning::sees_cells(guest)) else {
        return Ok(None);
    };
    let field = "spec.domain.memory.hugepages.pageSize";
    let size = guest
        .page_size()
        .ok_or_else(|| RenderError::missing(field))?;
    let amount = Amount::parse_text(size).map_err(|error| RenderError::invalid(field, &error))?;
    let page = amount.units().max(1);
    let used = pinning.cells();
    let count = u64::try_from(used.len()).unwrap_or(u64::MAX).max(1);
    let pages = memory / page;
    let rest = pages % count;
    let distance = |from: u32, to: u32| {
        let row = facts.cells.iter().find(|cell| cell.id == from);
        let known = row.and_then(|cell| cell.distances.get(&to));
        known.copied().unwrap_or(if from == to { 10 } else { 20 })
    };
    let cells = used
        .iter()
        .zip(0..)
        .map(|((host, cpus), at): (_, u64)| Cell {
            host: *host,
            cpus: cpus.clone(),
            memory: (pages / count + u64::from(at < rest)) * page,
            distances: used.keys().map(|to| distance(*host, *to)).collect(),
        });
    Ok(Some(Cells {
        cells: cells.collect(),
        page,
    }))
}

impl Cells {
    /// Takes the CPUs that no cell has, which may be plugged in later, into the first one.
    pub(crate) fn complete(&mut self, total: u32) {
        let known: usize = self.cells.iter().map(|cell| cell.cpus.len()).sum();
        let known = u32::try_from(known).unwrap_or(u32::MAX);
        if let Some(first) = self.cells.first_mut() {
            first.cpus.extend(known..total);
        }
    }

    /// The memory of each cell comes from the host's cell.
    pub(crate) fn render_tuning(&self) -> Element {
        let hosts: Vec<u32> = self.cells.iter().map(|cell| cell.host).collect();
        let strict =
            |element: Element, nodes: String| element.attr("mode", "strict").attr("nodeset", nodes);
        let nodes = self.cells.iter().enumerate().map(|(id, cell)| {
            let node = Element::new("memnode").attr("cellid", id);
            strict(node, cell.host.to_string())
        });
        Element::new("numatune")
            .child(strict(Element::new("memory"), pinning::list(&hosts)))
            .children(nodes)
    }

    /// The pages of all cells, which the guest takes at its start.
    pub(crate) fn render_pages(&self) -> Element {
        let ids: Vec<u32> = (0..).take(self.cells.len()).collect();
        let page = Element::new("page")
            .attr("size", self.page)
            .attr("unit", "b")
            .attr("nodeset", pinning::list(&ids));
        Element::new("hugepages").child(page)
    }

    pub(crate) fn render(&self) -> Element {
        let cells = self.cells.iter().enumerate().map(|(id, cell)| {
            let siblings = cell
                .distances
                .iter()
                .enumerate()
                .map(|(id, value)| Element::new("sibling").attr("id", id).attr("value", value));
            Element::new("cell")
                .attr("id", id)
                .attr("cpus", pinning::list(&cell.cpus))
                .attr("memory", cell.memory)
                .attr("unit", "b")
                .child(Element::new("distances").children(siblings))
        });
        Element::new("numa").children(cells)
    }
}
