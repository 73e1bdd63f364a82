//! Names that users write where names of objects belong. They become parts of paths, and are told apart by `/`.

/// The longest name of an object.
const LONGEST: usize = 253;

/// Whether an API server accepts it as the name of most objects. The names of namespaces are among these.
pub(crate) fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-';
        !label.is_empty()
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= LONGEST && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_no_path() {
        for good in ["a", "a-1", "a.b", &"a".repeat(LONGEST)] {
            assert!(is_name(good), "{good}");
        }
        let long = "a".repeat(LONGEST + 1);
        for wrong in [
            "", ".", "..", "a/b", "a?b", "a#b", "a%2fb", "A", "-a", "a-", "a..b", "ä", &long,
        ] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
