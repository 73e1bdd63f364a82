//! Finds circles of dependencies between the files of a crate.
//!
//! A file depends on the files that define the items it names. A re-export is not a dependency, so a
//! `lib.rs` or `mod.rs` may be a table of contents: a path through a re-export leads to the file of the
//! item. Tests do not count.
//!
//! It reads tokens, not Rust: names that macros generate, and methods, are not found.

use std::collections::{BTreeMap, BTreeSet};

/// A circle that stays.
struct Known {
    owner: &'static str,
    /// Files or folders that contain all files of the circle.
    paths: &'static [&'static str],
    #[expect(dead_code, reason = "for readers")]
    reason: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        owner: "apimachinery",
        paths: &["schema/"],
        reason: "a schema is one type with methods for defaults, pruning and validation, each in \
                 its own file",
    },
    Known {
        owner: "apimachinery",
        paths: &["table/"],
        reason: "the layout of a kind finds the columns of the built-in kinds, which are layouts",
    },
    Known {
        owner: "diagnosis",
        paths: &["table.rs", "vmi.rs"],
        reason: "the last resort for a condition applies if no rule of the table explains it",
    },
    Known {
        owner: "kubevirt-api",
        paths: &["vm.rs", "vm_status.rs"],
        reason: "the types refer to each other as those of KubeVirt do",
    },
];

/// The path of a module below the root of its crate.
type Module = Vec<String>;

/// What a file names.
#[derive(Debug, Default)]
struct Names {
    /// Imported and re-exported names, with the paths behind them.
    imports: BTreeMap<String, Vec<String>>,
    /// The paths of imports and in the code, without re-exports.
    paths: Vec<Vec<String>>,
}

/// One message for each unknown circle among the files of a crate, given by their paths below `src`.
pub(crate) fn faults(name: &str, sources: &[(&str, &str)]) -> Vec<String> {
    let mut found = circles(sources);
    let mut faults = Vec::new();
    for known in KNOWN.iter().filter(|known| known.owner == name) {
        let is_within = |file: &String| known.paths.iter().any(|path| file.starts_with(path));
        let is_known = |circle: &Vec<String>| circle.iter().all(is_within);
        let before = found.len();
        found.retain(|circle| !is_known(circle));
        if found.len() == before {
            faults.push(format!(
                "crate {name}: there is no circle in {}; remove it from the known ones",
                known.paths.join(", ")
            ));
        }
    }
    faults.extend(found.iter().map(|circle| {
        let files = circle.join(", ");
        format!("crate {name}: these files depend on each other in a circle: {files}")
    }));
    faults
}

/// Groups of files that depend on each other, each in order.
fn circles(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
    let mut files = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (path, text) in sources {
        let module = module_of(path);
        if module.last().is_some_and(|name| name == "tests") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next();
        all.insert(module.clone(), names(&tokens(code.unwrap_or_default())));
        files.insert(module, (*path).to_owned());
    }
    let edges: BTreeMap<&Module, BTreeSet<Module>> = all
        .iter()
        .map(|(module, names)| {
            let targets = names.paths.iter();
            let targets = targets.filter_map(|path| resolve(&all, module, path));
            let others = targets.filter(|target| target != module && all.contains_key(target));
            (module, others.collect())
        })
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = edges
        .keys()
        .map(|module| (*module, reachable(&edges, module)))
        .collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reach {
        if others.contains(module) {
            let circle = others.iter().filter(|other| reach[*other].contains(module));
            let mut circle: Vec<_> = circle.map(|other| files[*other].clone()).collect();
            circle.sort_unstable();
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// `["status", "code"]` of `status/code.rs`, nothing of `lib.rs`.
fn module_of(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Module = path.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("lib" | "mod")) {
        module.pop();
    }
    module
}

/// The modules that depend on others lead there, in any number of steps.
fn reachable<'a>(
    edges: &'a BTreeMap<&Module, BTreeSet<Module>>,
    from: &Module,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = edges[from].iter().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(&edges[module]);
        }
    }
    reached
}

/// The module that defines the item of a path, if the path leads into the crate.
fn resolve(all: &BTreeMap<Module, Names>, module: &Module, path: &[String]) -> Option<Module> {
    let (mut at, mut rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (module.clone(), &path[1..]),
        "super" => (module.clone(), path),
        name if all.contains_key(&child(module, name)) => (module.clone(), path),
        _ => return None,
    };
    while let Some((name, after)) = rest.split_first() {
        let below = child(&at, name);
        if name == "super" {
            at.pop();
        } else if all.contains_key(&below) {
            at = below;
        } else if let Some(target) = all.get(&at).and_then(|names| names.imports.get(name)) {
            let target = [target, after].concat();
            return (target.first() != Some(name))
                .then(|| resolve(all, &at, &target))
                .flatten()
                .or(Some(at));
        } else {
            break;
        }
        rest = after;
    }
    Some(at)
}

fn child(module: &Module, name: &str) -> Module {
    let mut child = module.clone();
    child.push(name.to_owned());
    child
}

/// The names in a file.
fn names(tokens: &[String]) -> Names {
    let mut names = Names::default();
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        let mut is_public = false;
        if token == "pub" {
            is_public = true;
            if rest.first().is_some_and(|next| next == "(") {
                let end = rest.iter().position(|next| next == ")");
                rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
            }
        }
        let is_use = token == "use" || is_public && rest.first().is_some_and(|next| next == "use");
        if is_use {
            rest = if is_public { &rest[1..] } else { rest };
            let mut found = Vec::new();
            rest = import(rest, &[], &mut found);
            for (name, path) in found {
                if !is_public || name == "*" {
                    names.paths.push(path.clone());
                }
                names.imports.insert(name, path);
            }
        } else if !is_public && is_name(token) {
            let mut path = vec![token.clone()];
            while let [colons, name, ..] = rest
                && colons == "::"
                && is_name(name)
            {
                path.push(name.clone());
                rest = &rest[2..];
            }
            if path.len() > 1 {
                names.paths.push(path);
            }
        }
    }
    names
}

/// Reads one import, which may be a tree, and returns the tokens behind it.
fn import<'a>(
    mut rest: &'a [String],
    prefix: &[String],
    out: &mut Vec<(String, Vec<String>)>,
) -> &'a [String] {
    let mut path = prefix.to_vec();
    while let Some((token, after)) = rest.split_first() {
        match token.as_str() {
            "::" => {}
            "{" => {
                rest = after;
                while let Some(next) = rest.first() {
                    match next.as_str() {
                        "}" => return &rest[1..],
                        "," => rest = &rest[1..],
                        _ => rest = import(rest, &path, out),
                    }
                }
                return rest;
            }
            "*" => {
                out.push(("*".to_owned(), path));
                return after;
            }
            "as" => {
                let name = after.first().cloned().unwrap_or_default();
                out.push((name, path));
                return after.get(1..).unwrap_or_default();
            }
            "self" if !path.is_empty() => {}
            name if is_name(name) => path.push(name.to_owned()),
            _ => break,
        }
        rest = after;
    }
    if let Some(name) = path.last() {
        out.push((name.clone(), path));
    }
    rest
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The tokens of a source, without comments and literals.
fn tokens(source: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = literal(rest) {
            length
        } else {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            let length = match end.unwrap_or(rest.len()) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                length => length,
            };
            if !first.is_whitespace() {
                out.push(rest[..length].to_owned());
            }
            length
        };
        rest = &rest[length..];
    }
    out
}

/// The length of the string or character at the beginning.
fn literal(rest: &str) -> Option<usize> {
    let raw = rest.trim_start_matches('b');
    let hashes = raw.strip_prefix('r').map(|raw| {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        (hashes, &raw[hashes..])
    });
    if let Some((hashes, text)) = hashes
        && let Some(text) = text.strip_prefix('"')
    {
        let end = format!("\"{}", "#".repeat(hashes));
        let length = text.find(&end).map_or(text.len(), |at| at + end.len());
        return Some(rest.len() - text.len() + length);
    }
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = rest.char_indices().skip(1);
    if quote == '\'' {
        let mut ahead = chars.clone().map(|(_, c)| c);
        // A lifetime otherwise.
        if ahead.next()? != '\\' && ahead.next()? != '\'' {
            return Some(1);
        }
    }
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    Some(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sources: &[(&str, &str)], expected: &[&[&str]]) {
        assert_eq!(circles(sources), expected, "{sources:?}");
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let a = ("a.rs", "use crate::b::B;\npub struct A(B);");
        let b = ("b.rs", "pub struct B;\nfn f(_: &super::a::A) {}");
        check(&[a, b], &[&["a.rs", "b.rs"]]);
        check(&[a, ("b.rs", "pub struct B;")], &[]);
        let c = ("c.rs", "use crate::a::A;");
        let b = ("b.rs", "use crate::{x, c::{self, C}};");
        check(&[a, b, c], &[&["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn re_export_is_no_dependency() {
        let a = ("a.rs", "use crate::B;");
        let b = ("b.rs", "pub struct B;");
        let lib = "mod a;\nmod b;\npub(crate) use b::B;\npub use a::{A, inner as other};\n";
        check(&[("lib.rs", lib), a, b], &[]);
        let lib = format!("{lib}fn f() {{ a::g() }}");
        check(&[("lib.rs", &lib), a, b], &[]);
        let a = ("a.rs", "use super::f;");
        check(&[("lib.rs", &lib), a, b], &[&["a.rs", "lib.rs"]]);
        let b = ("b.rs", "use crate::other;");
        let a = ("a.rs", "fn g() { super::B::new() }");
        check(&[("lib.rs", &lib), a, b], &[&["a.rs", "b.rs"]]);
    }

    #[test]
    fn comments_literals_and_tests_do_not_count() {
        let a = ("a.rs", "use crate::b::B;");
        for text in [
            "// use crate::a::A;",
            "const X: &str = \"crate::a::A\";",
            "const X: &str = r#\"\"crate::a::A\"#;",
            "const X: char = '\"'; const Y: &str = \"crate::a::A\";",
            "const X: char = '\\''; const Y: &'static str = \"crate::a::A\";",
            "pub(in crate::a) struct B;",
            "pub struct B;\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        ] {
            check(&[a, ("b.rs", text)], &[]);
            check(&[a, ("b.rs", &format!("{text}\nuse crate::a::A;"))], {
                if text.contains("mod tests") {
                    &[]
                } else {
                    &[&["a.rs", "b.rs"]]
                }
            });
        }
        check(
            &[a, ("b/tests.rs", "use crate::a::A;"), ("b/mod.rs", "")],
            &[],
        );
    }

    #[test]
    fn folders_are_modules() {
        let root = ("a/mod.rs", "mod b;\npub struct A;\nfn f() { b::g() }");
        let below = ("a/b.rs", "pub fn g(_: super::A) {}");
        check(&[root, below], &[&["a/b.rs", "a/mod.rs"]]);
        check(&[root, ("a/b.rs", "use std::fmt;\nuse k8s::a::A;")], &[]);
    }
}
