//! The CPUs and NUMA cells of this pod in the XML of a guest that comes from another pod. Pure.
//!
//! A guest with CPUs of its own is bound to those of its old pod. The plan of the new pod was made from the CPUs that
//! this pod has, so its threads are bound as the plan says. What the guest sees of its cells stays as it is.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::xml::{self, Step, Walk};

/// The elements that name CPUs and cells of the host.
const TUNING: [&str; 2] = ["cputune", "numatune"];
const CELL: &str = "/domain/cpu/numa/cell";
/// More CPUs than a guest has.
const MAX_CPUS: u32 = 4096;

#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnCpusError {
    #[error(
        "the guest sees the NUMA cells of its node (guestMappingPassthrough), and the CPUs of the new pod are spread \
         over cells in another way"
    )]
    OtherCells,
    #[error("read the domain")]
    Xml(#[from] xml::Error),
}

/// A cell as the guest sees it.
#[derive(Debug, PartialEq, Eq)]
struct Cell {
    cpus: BTreeSet<u32>,
    bytes: u64,
}

/// The guest's XML with the CPUs and cells of the plan, if the plan binds it to some.
pub(super) fn with_own_cpus(xml: String, plan: &str) -> Result<String, OwnCpusError> {
    let own = tuning(plan)?;
    if own.is_empty() {
        return Ok(xml);
    }
    let element = |range: &Range<usize>| plan.get(range.clone()).unwrap_or_default();
    // Cells without tuning are those of a guest whose memory may grow, not of the host.
    if own
        .iter()
        .any(|range| element(range).starts_with("<numatune"))
    {
        let planned = cells(plan)?;
        // A cell that cannot be read is like no other.
        if planned.iter().any(Option::is_none) || planned != cells(&xml)? {
            return Err(OwnCpusError::OtherCells);
        }
    }
    let former = tuning(&xml)?;
    let Some(end) = xml.rfind("</domain") else {
        return Ok(xml);
    };
    let mut kept = String::with_capacity(xml.len());
    let mut at = 0;
    for range in former {
        kept.push_str(xml.get(at..range.start).unwrap_or_default());
        at = range.end;
    }
    kept.push_str(xml.get(at..end).unwrap_or_default());
    for range in &own {
        kept.push_str(element(range));
    }
    kept.push_str(xml.get(end..).unwrap_or_default());
    Ok(kept)
}

/// Where the elements are, in order.
fn tuning(xml: &str) -> Result<Vec<Range<usize>>, xml::Error> {
    let mut found = Vec::new();
    let mut walk = Walk::new(xml);
    while let Some(step) = walk.next()? {
        let Step::Start(tag) = step else { continue };
        let name = walk.path().strip_prefix("/domain/").unwrap_or_default();
        if !TUNING.contains(&name) {
            continue;
        }
        // An empty element binds nothing.
        let inner = walk.inner_xml(&tag)?;
        found.extend(around(xml, inner, name).filter(|_| !inner.is_empty()));
    }
    Ok(found)
}

/// The element around its inner XML.
fn around(xml: &str, inner: &str, name: &str) -> Option<Range<usize>> {
    let at = inner.as_ptr().addr().checked_sub(xml.as_ptr().addr())?;
    let start = xml.get(..at)?.rfind(&format!("<{name}"))?;
    let after = at.checked_add(inner.len())?;
    let end = after + xml.get(after..)?.find('>')? + 1;
    Some(start..end)
}

/// The cells that the guest sees, in order.
fn cells(xml: &str) -> Result<Vec<Option<Cell>>, xml::Error> {
    let mut found = Vec::new();
    let mut walk = Walk::new(xml);
    while let Some(step) = walk.next()? {
        let Step::Start(tag) = step else { continue };
        if walk.path() != CELL {
            continue;
        }
        let (cpus, memory) = (tag.attribute("cpus")?, tag.attribute("memory")?);
        let unit = match tag.attribute("unit")?.as_deref() {
            Some("b" | "bytes") => Some(1),
            None | Some("KiB") => Some(1 << 10),
            Some(_) => None,
        };
        let memory = memory.and_then(|memory| memory.parse::<u64>().ok());
        let bytes = memory
            .zip(unit)
            .and_then(|(count, unit)| count.checked_mul(unit));
        let cpus = cpus.and_then(|cpus| list(&cpus));
        found.push(cpus.zip(bytes).map(|(cpus, bytes)| Cell { cpus, bytes }));
    }
    Ok(found)
}

/// `0-3,8`; the other launcher wrote it.
fn list(text: &str) -> Option<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last >= MAX_CPUS {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &str = "<domain type='kvm'>\n  <vcpu placement='static' current='2'>8</vcpu>\n  <cputune>\n    \
        <vcpupin vcpu='0' cpuset='2'/>\n    <vcpupin vcpu='1' cpuset='3'/>\n    <emulatorpin cpuset='4'/>\n  \
        </cputune>\n  <numatune>\n    <memory mode='strict' nodeset='0'/>\n  </numatune>\n  <cpu>\n    <numa>\n      \
        <cell id='0' cpus='0-1' memory='1024' unit='KiB'/>\n    </numa>\n  </cpu>\n  <devices/>\n</domain>\n";
    const TUNED: &str =
        "<cputune><vcpupin vcpu=\"0\" cpuset=\"6\"/><vcpupin vcpu=\"1\" cpuset=\"7\"/></cputune>";

    fn plan(rest: &str) -> String {
        format!("<domain>{TUNED}{rest}<devices/></domain>")
    }

    #[test]
    fn guest_is_bound_to_the_cpus_of_its_new_pod() {
        let found = with_own_cpus(OTHER.to_owned(), &plan("")).unwrap();
        assert!(found.contains(&format!("{TUNED}</domain>")), "{found}");
        for former in ["cpuset='2'", "emulatorpin", "numatune"] {
            assert!(!found.contains(former), "{former}: {found}");
        }
        for kept in ["current='2'", "cpus='0-1'", "<devices/>"] {
            assert!(found.contains(kept), "{kept}: {found}");
        }
        assert_eq!(tuning(&found).unwrap().len(), 1);
        // Where it had none.
        let found = with_own_cpus("<domain><cputune/></domain>".to_owned(), &plan("")).unwrap();
        assert_eq!(found, format!("<domain><cputune/>{TUNED}</domain>"));
        // A guest that shares its CPUs, or an emulated one, is not bound.
        let free = "<domain><devices/></domain>";
        assert_eq!(with_own_cpus(OTHER.to_owned(), free).unwrap(), OTHER);
    }

    #[test]
    fn cells_that_the_guest_sees_have_to_be_the_same() {
        let planned = |cells: &str| {
            let numa = "<numatune><memory mode=\"strict\" nodeset=\"1\"/></numatune>";
            plan(&format!("{numa}<cpu><numa>{cells}</numa></cpu>"))
        };
        let same = planned("<cell id=\"0\" cpus=\"0,1\" memory=\"1048576\" unit=\"b\"/>");
        let found = with_own_cpus(OTHER.to_owned(), &same).unwrap();
        assert!(found.contains("nodeset=\"1\""), "{found}");
        assert!(!found.contains("nodeset='0'"), "{found}");
        for other in [
            "<cell id=\"0\" cpus=\"0\" memory=\"1048576\" unit=\"b\"/>",
            "<cell id=\"0\" cpus=\"0,1\" memory=\"1048577\" unit=\"b\"/>",
            "<cell id=\"0\" cpus=\"0-4294967295\" memory=\"1048576\" unit=\"b\"/>",
            "<cell id=\"0\" cpus=\"0\" memory=\"524288\" unit=\"b\"/>\
             <cell id=\"1\" cpus=\"1\" memory=\"524288\" unit=\"b\"/>",
        ] {
            let found = with_own_cpus(OTHER.to_owned(), &planned(other));
            assert!(
                matches!(found, Err(OwnCpusError::OtherCells)),
                "{other}: {found:?}"
            );
        }
    }

    #[test]
    fn broken_xml_of_the_other_pod_is_an_error_or_as_it_is() {
        for broken in ["", "<domain>", "<domain><cputune>", "<domain><a></domain>"] {
            if let Ok(found) = with_own_cpus(broken.to_owned(), &plan("")) {
                assert_eq!(found, broken);
            }
        }
    }
}
