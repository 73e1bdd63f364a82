//! The addresses of an export server, as `KubeVirt`'s has them.

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// Whether the server is ready; the only one that needs no token.
    Ready,
    Raw(&'a str),
    Gzip(&'a str),
    Archive(&'a str),
    /// A directory without the slash at its end, by which relative links would not work.
    DirectoryName,
    /// A file or a directory below the volume: its names.
    Entry(&'a str, Vec<Vec<u8>>),
    Manifest(Audience),
    HeaderSecret,
    /// The bytes of a disk of a backup.
    BackupData(&'a str),
    /// Which parts of it are data and which are zeros.
    BackupMap(&'a str),
}

/// For whom addresses in a manifest are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Internal,
    External,
}

impl Audience {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::External => "external",
        }
    }
}

/// Names of directories that lead to a file at most.
const DEEPEST: usize = 64;

/// The names of volumes need no decoding: those of claims have no special characters.
pub(crate) fn route(path: &str) -> Option<Route<'_>> {
    match path {
        "/exportready" => return Some(Route::Ready),
        "/internal/manifests/all" => return Some(Route::Manifest(Audience::Internal)),
        "/external/manifests/all" => return Some(Route::Manifest(Audience::External)),
        "/internal/manifests/secret" | "/external/manifests/secret" => {
            return Some(Route::HeaderSecret);
        }
        _ => {}
    }
    if let Some(disk) = path.strip_prefix("/exports/") {
        return match disk.split_once('/')? {
            (name, "data") => Some(Route::BackupData(name)),
            (name, "map") => Some(Route::BackupMap(name)),
            _ => None,
        };
    }
    let (volume, rest) = path.strip_prefix("/volumes/")?.split_once('/')?;
    match rest {
        "disk.img" => Some(Route::Raw(volume)),
        "disk.img.gz" => Some(Route::Gzip(volume)),
        "disk.tar.gz" => Some(Route::Archive(volume)),
        "dir" => Some(Route::DirectoryName),
        _ => {
            let names = names(rest.strip_prefix("dir/")?)?;
            Some(Route::Entry(volume, names))
        }
    }
}

/// The names of a path without those that lead anywhere else.
fn names(path: &str) -> Option<Vec<Vec<u8>>> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let names: Vec<Vec<u8>> = parts.map(decode).collect::<Option<_>>()?;
    let is_name = |name: &Vec<u8>| {
        !matches!(name.as_slice(), b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
    };
    (names.len() <= DEEPEST && names.iter().all(is_name)).then_some(names)
}

/// Replaces `%XX` by its byte.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let (code, others) = rest.split_at_checked(2)?;
        let code = std::str::from_utf8(code).ok()?;
        if !code.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        decoded.push(u8::from_str_radix(code, 16).ok()?);
        rest = others;
    }
    Some(decoded)
}

/// The form of a name in an address.
pub(crate) fn encode(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            _ => text.extend(format!("%{byte:02X}").chars()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_name_what_is_served() {
        let check = |path: &str, expected: Option<Route<'_>>| {
            assert_eq!(route(path), expected, "{path}");
        };
        let entry = |names: &[&str]| {
            let names = names.iter().map(|name| name.as_bytes().to_vec());
            Some(Route::Entry("a", names.collect()))
        };
        check("/exportready", Some(Route::Ready));
        check("/volumes/a/disk.img", Some(Route::Raw("a")));
        check("/volumes/a/disk.img.gz", Some(Route::Gzip("a")));
        check("/volumes/a/disk.tar.gz", Some(Route::Archive("a")));
        check("/volumes/a/dir", Some(Route::DirectoryName));
        check("/volumes/a/dir/", entry(&[]));
        check("/volumes/a/dir/b/c%20d", entry(&["b", "c d"]));
        check("/volumes/a/dir//b", entry(&["b"]));
        check("/volumes/a/dir/..", None);
        check("/volumes/a/dir/%2e%2e/b", None);
        check("/volumes/a/dir/b%2Fc", None);
        check("/volumes/a/dir/b%00", None);
        check("/volumes/a/dir/b%2", None);
        check("/volumes/a/dir/%+1", None);
        check("/volumes/a/other", None);
        check("/volumes/a", None);
        check("/", None);
        check(
            "/internal/manifests/all",
            Some(Route::Manifest(Audience::Internal)),
        );
        check(
            "/external/manifests/all",
            Some(Route::Manifest(Audience::External)),
        );
        check("/external/manifests/secret", Some(Route::HeaderSecret));
        check("/manifests/all", None);
        check("/exports/a/data", Some(Route::BackupData("a")));
        check("/exports/a/map", Some(Route::BackupMap("a")));
        check("/exports/a/b/map", None);
        check("/exports/a", None);
        let deep = format!("/volumes/a/dir/{}", "b/".repeat(DEEPEST + 1));
        check(&deep, None);
    }

    proptest! {
        #[test]
        fn encoded_names_are_decoded(name in prop::collection::vec(any::<u8>(), 0..20)) {
            prop_assert_eq!(decode(&encode(&name)), Some(name));
        }

        #[test]
        fn no_path_leads_out_of_the_volume(path in "/volumes/a/dir/[a-f0-9%./]{0,30}") {
            if let Some(Route::Entry(_, names)) = route(&path) {
                for name in names {
                    prop_assert!(name != b".." && name != b"." && !name.contains(&b'/'));
                }
            }
        }
    }
}
