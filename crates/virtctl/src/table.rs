//! Tables of texts.

/// A line for each row, without the columns before `first`; each column is as wide as its widest cell.
pub(crate) fn lines<const COLUMNS: usize>(rows: &[[String; COLUMNS]], first: usize) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().enumerate().skip(first);
        let cells: Vec<String> = cells
            .map(|(column, cell)| format!("{cell:<0$}", width(column)))
            .collect();
        cells.join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let rows = [
            ["n", "NAME", "CPU"],
            ["n", "ä", ""],
            ["n", "website", "1 %"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(lines(&rows, 1), ["NAME      CPU", "ä", "website   1 %"]);
        assert_eq!(lines::<1>(&[], 0), Vec::<String>::new());
    }
}
