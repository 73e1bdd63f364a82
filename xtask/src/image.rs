//! Builds the launcher image (Debian's QEMU and libvirt with our `virt-launcher` and `disk-import`) and the
//! control-plane image (one program, static in a release).
//!
//! The launcher image has two layers. The lower one holds the files that
//! `deploy/images/launcher/keep.txt` selects from the packages in `packages.txt`, and the libraries
//! they need; it takes half a minute and is rebuilt only when those lists change. The upper one holds
//! our programs and takes a second.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use image_store::{
    Compression, Content, Entry, ImageConfig, Layer, LayoutWriter, Owner, write_layer,
};

use crate::cache::{Cache, EPOCH, Inputs};
use crate::debian::{PackageList, Variant, list};
use crate::printer::Printer;
use crate::sbom;
use crate::workspace::{cargo, metadata, root, run};

const REFERENCE: &str = "ferrovirt/virt-launcher:devel";
/// Change it when the code below makes another tree of the same lists.
const RECIPE: &str = "launcher base 4";
/// The user of QEMU; users' disks carry the same id.
const QEMU: Owner = Owner { uid: 107, gid: 107 };
/// Slow to compress, but done rarely and read often.
const COMPRESSION: Compression = Compression::Zstd(12);

/// Builds the changed layers of the launcher image.
pub(crate) fn launcher(
    printer: &Printer,
    binary: Option<PathBuf>,
    importer: Option<PathBuf>,
) -> Result<()> {
    let lists = root().join("deploy/images/launcher");
    let inputs = Inputs::default().text(RECIPE).path(&lists)?;
    let given = |program: Option<PathBuf>, name: &str| program.map_or_else(|| build(name), Ok);
    let built = given(binary, "virt-launcher")?;
    let importer = given(importer, "disk-import")?;
    let cache = Cache::open()?;
    let base = cache.thing("launcher-base", &inputs, |draft| {
        printer.line("making the launcher image's Debian layer (half a minute or more)");
        make_base(&lists, draft)
    })?;
    let layer: Layer = serde_json::from_slice(&fs::read(base.join("layer.json"))?)?;
    let place = cache.images().join("virt-launcher.oci");
    let mut layout = LayoutWriter::create(&place, EPOCH)?;
    layout.add_layer(&base.join("layer"), layer.clone())?;
    let copier = build_copier()?;
    let ours = layout.add_entries(programs(&built, &importer, &copier)?, COMPRESSION)?;
    let config = ImageConfig {
        entrypoint: vec!["/usr/bin/virt-launcher-monitor".to_owned()],
        env: vec!["PATH=/usr/sbin:/usr/bin".to_owned(), "LANG=C".to_owned()],
        user: format!("{}:{}", QEMU.uid, QEMU.gid),
        working_dir: "/".to_owned(),
        ..ImageConfig::default()
    };
    let digest = layout.finish(REFERENCE, &config)?;
    let mut parts: Vec<sbom::Part> =
        serde_json::from_slice(&fs::read(base.join("packages.json"))?)?;
    parts.extend(sbom::crates("virt-launcher-bin", None)?);
    parts.extend(sbom::crates("disk-import-bin", None)?);
    parts.extend(sbom::crates("container-disk-bin", Some(STATIC_TARGET))?);
    let sbom = place.with_extension("cdx.json");
    sbom::write(&sbom, REFERENCE, &digest.to_string(), &parts)?;
    printer.line(format_args!(
        "{REFERENCE}: {} ({} packed: Debian {}, ours {})",
        place.display(),
        megabytes(layer.size + ours.size),
        megabytes(layer.size),
        megabytes(ours.size),
    ));
    printer.line(format_args!("digest {digest}, parts in {}", sbom.display()));
    Ok(())
}

/// The path of the only file in the control-plane image.
const CONTROL_PLANE_PROGRAM: &str = "ferrovirt";
const CONTROL_PLANE_REFERENCE: &str = "ferrovirt/ferrovirt:devel";
/// Programs for this target need no libraries, so the image needs no system.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";
/// Not root; the manifest of virt-handler overrides it.
const UNPRIVILEGED: &str = "1001:1001";

/// Which program goes into the control-plane image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControlPlaneProgram {
    /// A release build, which takes minutes.
    Release,
    /// The unoptimised build that the tests use, with the libraries that it needs.
    Quick,
    /// A program built before.
    File(PathBuf),
}

/// Builds the image of virt-api, virt-controller and virt-handler.
pub(crate) fn control_plane(printer: &Printer, program: ControlPlaneProgram) -> Result<()> {
    let built = match program {
        ControlPlaneProgram::File(file) => file,
        ControlPlaneProgram::Release => build_control_plane()?,
        ControlPlaneProgram::Quick => strip_debug_build()?,
    };
    ensure!(built.is_file(), "{} does not exist", built.display());
    let mut entries = vec![executable(CONTROL_PLANE_PROGRAM, built.clone())];
    // None for a release build.
    for library in needed_libraries(&built)? {
        let path = library.strip_prefix("/").unwrap_or(&library);
        let path = path.to_str().context("a library with an odd name")?;
        entries.push(executable(path, library.clone()));
    }
    let cache = Cache::open()?;
    let place = cache.images().join("ferrovirt.oci");
    let mut layout = LayoutWriter::create(&place, EPOCH)?;
    let layer = layout.add_entries(entries, COMPRESSION)?;
    let config = ImageConfig {
        entrypoint: vec![format!("/{CONTROL_PLANE_PROGRAM}")],
        user: UNPRIVILEGED.to_owned(),
        working_dir: "/".to_owned(),
        ..ImageConfig::default()
    };
    let digest = layout.finish(CONTROL_PLANE_REFERENCE, &config)?;
    let parts = sbom::crates("ferrovirt-bin", Some(STATIC_TARGET))?;
    let sbom = place.with_extension("cdx.json");
    sbom::write(&sbom, CONTROL_PLANE_REFERENCE, &digest.to_string(), &parts)?;
    printer.line(format_args!(
        "{CONTROL_PLANE_REFERENCE}: {} ({} packed, {} unpacked)",
        place.display(),
        megabytes(layer.size),
        megabytes(fs::metadata(&built)?.len()),
    ));
    printer.line(format_args!("digest {digest}, parts in {}", sbom.display()));
    Ok(())
}

fn executable(path: &str, from: PathBuf) -> Entry {
    Entry {
        path: path.to_owned(),
        mode: 0o755,
        owner: Owner::ROOT,
        content: Content::File(from),
    }
}

/// The libraries that the dynamic linker loads for a program; none for a static one.
fn needed_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.lines().filter_map(|line| {
        let words = line.split_whitespace();
        words.into_iter().find(|word| word.starts_with('/'))
    });
    Ok(paths.map(PathBuf::from).collect())
}

fn build_control_plane() -> Result<PathBuf> {
    run(Command::new(cargo())
        .args(["build", "--release", "--locked"])
        .args(["-p", "ferrovirt-bin", "--target", STATIC_TARGET])
        .env("CC_x86_64_unknown_linux_musl", "musl-gcc")
        .current_dir(root()))?;
    let built = format!("{STATIC_TARGET}/release/ferrovirt");
    Ok(metadata()?.target_directory.join(built))
}

/// With the same selection of packages as the tests, which have compiled it already.
fn strip_debug_build() -> Result<PathBuf> {
    run(Command::new(cargo())
        .args(["build", "--locked", "--workspace", "--bin", "ferrovirt"])
        .current_dir(root()))?;
    let debug = metadata()?.target_directory.join("debug");
    let stripped = debug.join("ferrovirt.stripped");
    run(Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(debug.join("ferrovirt")))?;
    Ok(stripped)
}

/// Builds a program of the launcher image.
fn build(program: &str) -> Result<PathBuf> {
    let package = format!("{program}-bin");
    run(Command::new(cargo())
        .args(["build", "--release", "-p", &package, "--locked"])
        .current_dir(root()))?;
    let release = metadata()?.target_directory.join("release");
    Ok(release.join(program))
}

/// Builds the program that runs in users' images, which may have no libraries.
fn build_copier() -> Result<PathBuf> {
    run(Command::new(cargo())
        .args(["build", "--release", "--locked", "-p", "container-disk-bin"])
        .args(["--target", STATIC_TARGET])
        .current_dir(root()))?;
    let built = metadata()?.target_directory;
    let built = built.join(STATIC_TARGET).join("release/container-disk");
    ensure!(
        needed_libraries(&built)?.is_empty(),
        "{} is not statically linked",
        built.display()
    );
    Ok(built)
}

fn programs(built: &Path, importer: &Path, copier: &Path) -> Result<Vec<Entry>> {
    for program in [built, importer] {
        ensure!(program.is_file(), "{} does not exist", program.display());
    }
    let entry = |path: &str, content| Entry {
        path: path.to_owned(),
        mode: 0o755,
        owner: Owner::ROOT,
        content,
    };
    Ok(vec![
        entry("usr/bin/virt-launcher", Content::File(built.to_owned())),
        entry(
            "usr/bin/virt-launcher-monitor",
            Content::HardLink("usr/bin/virt-launcher".to_owned()),
        ),
        entry(
            "usr/bin/virt-probe",
            Content::HardLink("usr/bin/virt-launcher".to_owned()),
        ),
        executable("usr/bin/disk-import", importer.to_owned()),
        entry(
            "usr/bin/disk-export",
            Content::HardLink("usr/bin/disk-import".to_owned()),
        ),
        executable("usr/bin/container-disk", copier.to_owned()),
    ])
}

fn make_base(lists: &Path, draft: &Path) -> Result<()> {
    let tree = draft.join("tree");
    PackageList::read(&lists.join("packages.txt"))?.install(Variant::MinBase, &tree)?;
    let kept = select(&tree, &list(&lists.join("keep.txt"))?)?;
    let mut entries = Entry::from_directory(&tree)?;
    entries.retain(|entry| kept.contains(&entry.path));
    complete(&tree, &mut entries)?;
    let layer = write_layer(&draft.join("layer"), entries, COMPRESSION, EPOCH)?;
    fs::write(draft.join("layer.json"), serde_json::to_vec_pretty(&layer)?)?;
    let packages = serde_json::to_vec_pretty(&sbom::packages(&tree, &kept)?)?;
    fs::write(draft.join("packages.json"), packages)?;
    fs::remove_dir_all(&tree).context("remove the unpacked packages")
}

/// The paths that the patterns name, with what lies below them, the directories they lie in and the
/// libraries they need. A pattern that names nothing is an error: it hides a renamed file.
fn select(tree: &Path, patterns: &[String]) -> Result<BTreeSet<String>> {
    let mut kept = BTreeSet::new();
    let mut unknown = Vec::new();
    for pattern in patterns {
        let found = expand(tree, pattern)?;
        if found.is_empty() {
            unknown.push(pattern.as_str());
        }
        for path in found {
            keep_below(tree, &path, &mut kept)?;
        }
    }
    ensure!(
        unknown.is_empty(),
        "keep.txt names missing files: {}",
        unknown.join(", ")
    );
    for library in libraries(tree, &kept)? {
        kept.insert(library);
    }
    // Symbolic links stay useful only with what they point to.
    for path in kept.clone() {
        let mut path = path;
        while let Some(target) = link_target(tree, &path) {
            if !kept.insert(target.clone()) {
                break;
            }
            path = target;
        }
    }
    for path in kept.clone() {
        for parent in Path::new(&path).ancestors().skip(1) {
            kept.insert(parent.to_string_lossy().into_owned());
        }
    }
    Ok(kept)
}

/// The files a pattern names; a star matches within one component.
fn expand(tree: &Path, pattern: &str) -> Result<Vec<String>> {
    let mut found = vec![String::new()];
    for component in pattern.split('/') {
        let mut next = Vec::new();
        for path in found {
            let join = |name: &str| match path.as_str() {
                "" => name.to_owned(),
                path => format!("{path}/{name}"),
            };
            if component.contains('*') {
                for entry in fs::read_dir(tree.join(&path))? {
                    let name = entry?.file_name().to_string_lossy().into_owned();
                    if matches(component, &name) {
                        next.push(join(&name));
                    }
                }
            } else if tree.join(join(component)).symlink_metadata().is_ok() {
                next.push(join(component));
            }
        }
        found = next;
    }
    Ok(found)
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|name| {
            name.char_indices()
                .map(|(index, _)| index)
                .chain([name.len()])
                .any(|index| name.get(index..).is_some_and(|tail| matches(rest, tail)))
        }),
    }
}

fn keep_below(tree: &Path, path: &str, kept: &mut BTreeSet<String>) -> Result<()> {
    kept.insert(path.to_owned());
    let full = tree.join(path);
    if full.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(full)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            keep_below(tree, &format!("{path}/{name}"), kept)?;
        }
    }
    Ok(())
}

/// The libraries of the kept programs and modules, the dynamic linker included.
fn libraries(tree: &Path, kept: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let is_code = |path: &&String| {
        let full = tree.join(path);
        full.symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file())
            && fs::read(full).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
    };
    let mut needed = BTreeSet::new();
    for path in kept.iter().filter(is_code) {
        let output = Command::new("chroot")
            .arg(tree)
            .args(["/usr/bin/ldd", &format!("/{path}")])
            .output()
            .context("run ldd in the tree")?;
        // ldd fails for programs without libraries, which then need none.
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            !text.contains("not found"),
            "{path} lacks a library:\n{text}"
        );
        let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
        for library in paths.filter(|word| !word.ends_with(':')) {
            let library = library.trim_start_matches('/');
            // `/lib` is a link to `/usr/lib`.
            let library = match library.strip_prefix("usr/") {
                Some(_) => library.to_owned(),
                None => format!("usr/{library}"),
            };
            ensure!(
                tree.join(&library).exists(),
                "{path} needs {library}, which is missing"
            );
            needed.insert(library);
        }
    }
    Ok(needed)
}

/// Where a symbolic link of the tree leads, as a path within the tree.
fn link_target(tree: &Path, path: &str) -> Option<String> {
    let target = fs::read_link(tree.join(path)).ok()?;
    let base = match target.strip_prefix("/") {
        Ok(absolute) => absolute.to_owned(),
        Err(_) => Path::new(path).parent()?.join(&target),
    };
    let mut clean = PathBuf::new();
    for component in base.components() {
        match component {
            std::path::Component::ParentDir => {
                clean.pop();
            }
            std::path::Component::Normal(name) => clean.push(name),
            _ => {}
        }
    }
    let clean = clean.to_str()?.to_owned();
    let metadata = tree.join(&clean).symlink_metadata().ok()?;
    // A link to a directory must not bring all of the directory along.
    (!metadata.is_dir()).then_some(clean)
}

/// Adds what a running container needs and no package brings.
fn complete(tree: &Path, entries: &mut Vec<Entry>) -> Result<()> {
    let directory = |path: &str, mode, owner| Entry {
        path: path.to_owned(),
        mode,
        owner,
        content: Content::Directory,
    };
    for path in [
        "dev", "etc", "proc", "root", "run", "sys", "usr", "var", "var/lib",
    ] {
        entries.push(directory(path, 0o755, Owner::ROOT));
    }
    for path in ["tmp", "var/tmp"] {
        entries.push(directory(path, 0o1777, Owner::ROOT));
    }
    entries.push(directory("var/lib/swtpm-localca", 0o750, QEMU));
    for (path, line) in [
        (
            "etc/passwd",
            "qemu:x:107:107:qemu:/var/run:/usr/sbin/nologin\n",
        ),
        ("etc/group", "qemu:x:107:\n"),
    ] {
        let text = without_id_107(&fs::read_to_string(tree.join(path))?) + line;
        entries.retain(|entry| entry.path != path);
        entries.push(Entry {
            path: path.to_owned(),
            mode: 0o644,
            owner: Owner::ROOT,
            content: Content::Bytes(text.into_bytes()),
        });
    }
    // The last line for a path wins.
    let mut seen = BTreeSet::new();
    entries.reverse();
    entries.retain(|entry| seen.insert(entry.path.clone()));
    Ok(())
}

/// Packages take the next free number, which may be ours.
fn without_id_107(table: &str) -> String {
    table
        .lines()
        .filter(|line| line.split(':').nth(2) != Some("107"))
        .flat_map(|line| [line, "\n"])
        .collect()
}

pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_within_a_name() {
        let cases = [
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("*.so", "x.so", true),
            ("*.so", "x.so.1", false),
            ("linuxboot*.bin", "linuxboot_dma.bin", true),
            ("exact", "exactly", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_number_of_the_qemu_user_is_made_free() {
        let table = "root:x:0:0\nmessagebus:x:107:107\nx:x:1070:1\n";
        assert_eq!(without_id_107(table), "root:x:0:0\nx:x:1070:1\n");
    }
}
