//! The list of causes and their tests is complete.

use std::{collections::BTreeSet, fs, path::Path};

use e2e::{program, run};
use tokio::process::Command;

const LIST: &str = include_str!("../../causes.tsv");

#[tokio::test]
async fn every_cause_has_a_test_that_makes_it() {
    let listed = LIST.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<(&str, &str)> = listed.filter_map(|line| line.split_once('\t')).collect();
    let mut virtctl = Command::new(program("virtctl"));
    let known = run(virtctl.args(["why", "--causes"]), b"").await.success();
    let known: Vec<&str> = known
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let ids: Vec<&str> = rows.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, known);

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut unmade = BTreeSet::new();
    for (id, test) in rows {
        if let Some(reason) = test.strip_prefix("- ") {
            assert!(reason.len() > 20, "{id}: {reason:?} is not an explanation");
            unmade.insert(id);
            continue;
        }
        let text = fs::read_to_string(root.join(test));
        let text = text.unwrap_or_else(|error| panic!("{id}: {test}: {error}"));
        let is_checked = text.contains(&format!("\"{id}\"")) || text.contains(&format!("[{id}]"));
        assert!(is_checked, "{test} does not check {id}");
        // Those that only a clock makes are checked in process.
        let is_whole = text.contains("answer(") || test.starts_with("crates/virtctl/");
        assert!(is_whole, "{test} does not check the whole answer of {id}");
    }
    println!("causes: {}, not made: {unmade:?}", known.len());
}
