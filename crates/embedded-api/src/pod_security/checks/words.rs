//! Lists in findings: `containers "a", "b"`.

/// `"a", "b"`.
pub(super) fn quoted<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<String> = items
        .into_iter()
        .map(|item| format!("\"{item}\""))
        .collect();
    items.join(", ")
}

/// `volume` for one, `volumes` for several.
pub(super) fn plural(word: &str, count: usize) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

/// `uses` for one, `use` for several.
pub(super) fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

/// `container "a"`, `containers "a", "b"`.
pub(super) fn named(word: &str, names: &[&str]) -> String {
    let list = quoted(names.iter().copied());
    format!("{} {list}", plural(word, names.len()))
}

/// Who sets a forbidden value: `pod and containers "a", "b"`. `None` if there is none.
pub(super) fn setters(is_pod: bool, containers: &[&str]) -> Option<String> {
    let mut out = Vec::new();
    if is_pod {
        out.push("pod".to_owned());
    }
    if !containers.is_empty() {
        out.push(named("container", containers));
    }
    (!out.is_empty()).then(|| out.join(" and "))
}
