//! Whether every dependency's licence is one of those in `deploy/licences.txt`.

use anyhow::{Result, ensure};

use crate::debian::list;
use crate::printer::Printer;
use crate::workspace::{metadata, root};

/// Checks all packages that the lock file names.
pub(crate) fn run(printer: &Printer) -> Result<()> {
    let allowed = list(&root().join("deploy/licences.txt"))?;
    let mut refused = Vec::new();
    let packages = metadata()?.packages;
    for package in &packages {
        let found = allowed
            .iter()
            .find_map(|line| line.strip_prefix(&package.name)?.strip_prefix(": "));
        let licence = package.license.as_deref().or(found).unwrap_or("none");
        if !satisfied(licence, &allowed) {
            refused.push(format!(
                "{} {} is under {licence}",
                package.name, package.version
            ));
        }
    }
    ensure!(
        refused.is_empty(),
        "not in deploy/licences.txt: {}",
        refused.join("; ")
    );
    printer.line(format_args!(
        "{} packages, all under licences we take",
        packages.len()
    ));
    Ok(())
}

/// Whether an SPDX expression can be met by allowed licences alone. `AND` binds tighter than `OR`;
/// the old spelling of `OR` is a slash.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let good = any_of(&words, &mut at, allowed);
    good && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut good = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= all_of(words, at, allowed);
    }
    good
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut good = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(words, at, allowed);
    }
    good
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    if words.get(*at) == Some(&"(") {
        *at += 1;
        let good = any_of(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return good && closed;
    }
    let mut name = words.get(*at).copied().unwrap_or_default().to_owned();
    *at += 1;
    if words.get(*at) == Some(&"WITH") {
        name = format!(
            "{name} WITH {}",
            words.get(*at + 1).copied().unwrap_or_default()
        );
        *at += 2;
    }
    allowed.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::satisfied;

    #[test]
    fn expressions_are_met_by_allowed_licences() {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Zlib",
        ];
        let allowed = allowed.map(str::to_owned);
        let cases = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT/GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Zlib", true),
            ("GPL-3.0 OR MIT AND Zlib", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("GPL-2.0 WITH LLVM-exception", false),
            ("(MIT", false),
            ("", false),
        ];
        for (expression, expected) in cases {
            assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
        }
    }
}
