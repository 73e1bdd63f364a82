//! `docs/guide/manifests.md`: its manifests behave as the text describes.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::{
    admitted::{config, submit},
    catalogue::directory,
};

/// Code blocks, which are indented by four spaces.
fn blocks() -> Vec<String> {
    let guide = directory().join("../docs/guide/manifests.md");
    let text = fs::read_to_string(guide).expect("a guide");
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some(code), Some(block)) => {
                block.push_str(code);
                block.push('\n');
            }
            _ => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

fn refusals(block: &str) -> BTreeSet<String> {
    let object: Value = serde_saphyr::from_str(block).expect("YAML");
    let response = submit(&object, &config(&[]), "a-user");
    response.refusals.into_iter().collect()
}

#[test]
fn smallest_vm_is_admitted() {
    let blocks = blocks();
    let least = blocks.iter().find(|block| block.contains("name: least"));
    assert_eq!(refusals(least.expect("a block")), BTreeSet::new());
}

#[test]
fn broken_vm_is_refused_as_the_guide_quotes() {
    let blocks = blocks();
    let broken = blocks.iter().find(|block| block.contains("name: broken"));
    let answer = blocks.iter().find(|block| block.starts_with("* "));
    let quoted: BTreeSet<String> = answer
        .expect("a block")
        .replace("\n  ", " ")
        .lines()
        .filter_map(|line| line.strip_prefix("* "))
        .map(str::to_owned)
        .collect();
    assert_eq!(quoted, refusals(broken.expect("a block")));
}
