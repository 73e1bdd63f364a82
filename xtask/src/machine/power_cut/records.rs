//! The acknowledged writes, as a writer notes them on the disk: one sector for each.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

pub(super) const SECTOR: usize = 512;
const MAGIC: &str = "acknowledged";

/// A write of an object that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) revision: u64,
    /// Which write of this object it was.
    pub(super) number: u64,
}

impl Record {
    /// Padded with zeros to a sector.
    pub(super) fn sector(&self) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        let line = format!("{MAGIC} {}", self.line());
        for (to, from) in sector.iter_mut().zip(line.bytes()) {
            *to = from;
        }
        sector
    }

    /// `None` for anything else that is on a disk.
    pub(super) fn parse(sector: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(sector).ok()?.trim_end_matches('\0');
        Self::parse_line(text.strip_prefix(MAGIC)?.trim_start())
    }

    fn parse_line(line: &str) -> Option<Self> {
        let [name, revision, number] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self {
            name: name.to_owned(),
            revision: revision.parse().ok()?,
            number: number.parse().ok()?,
        })
    }

    fn line(&self) -> String {
        format!("{} {} {}", self.name, self.revision, self.number)
    }
}

/// As lines of a file.
pub(super) fn lines(records: impl Iterator<Item = Record>) -> String {
    records.fold(String::new(), |text, record| text + &record.line() + "\n")
}

/// From lines of a file.
pub(super) fn read(text: &str) -> Result<Vec<Record>> {
    text.lines()
        .map(|line| Record::parse_line(line).with_context(|| format!("{line:?} is no record")))
        .collect()
}

/// The last record of each object.
pub(super) fn last_of_each(records: &[Record]) -> BTreeMap<&str, &Record> {
    let mut last: BTreeMap<&str, &Record> = BTreeMap::new();
    for record in records {
        let known = last.entry(&record.name).or_insert(record);
        if known.revision < record.revision {
            *known = record;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, revision: u64, number: u64) -> Record {
        Record {
            name: name.to_owned(),
            revision,
            number,
        }
    }

    #[test]
    fn records_survive_a_sector_and_a_file() {
        let all = [record("a-1", 7, 1), record("b", u64::MAX, 0)];
        for one in &all {
            assert_eq!(Record::parse(&one.sector()).as_ref(), Some(one));
        }
        assert_eq!(read(&lines(all.clone().into_iter())).unwrap(), all);
        assert_eq!(Record::parse(&[0; SECTOR]), None);
        assert_eq!(Record::parse(&[0xff; SECTOR]), None);
        read("a 1\n").unwrap_err();
    }

    #[test]
    fn last_record_has_the_highest_revision() {
        let all = [record("a", 9, 2), record("b", 3, 1), record("a", 5, 1)];
        let last = last_of_each(&all);
        assert_eq!(last["a"], &all[0]);
        assert_eq!(last["b"], &all[1]);
    }
}
