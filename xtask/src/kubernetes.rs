//! Builds Kubernetes programs from pinned Go modules into the cache directory.
//!
//! The programs are data: `tools/*/go.mod` names each program as a tool, `go.sum` its sources. A
//! program is built once per content of its module's directory and of the flags below; it gets its name in
//! the cache only when it is complete, so a killed build starts again (and Go's own cache
//! makes that quick).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    cache::{Cache, Inputs},
    printer::Printer,
    workspace::{root, run},
};

/// A program of a Go module under `tools/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubelet,
    Proxy,
    Containerd,
    ContainerdShim,
    ContainerdClient,
    Runc,
    CniBridge,
    CniLoopback,
    CniHostLocal,
    CniPortmap,
    Multus,
    CoreDns,
}

/// The programs of a control plane, ready to run.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) etcd: PathBuf,
    pub(crate) api_server: PathBuf,
}

/// Where a program comes from.
struct Source {
    name: &'static str,
    /// The directory under `tools/`.
    module: &'static str,
    package: &'static str,
    /// Go packages with the version that the program reports.
    version_packages: &'static [&'static str],
    /// The module whose version that is.
    version_of: &'static str,
    /// Build tags; a program that has some is linked with C libraries.
    tags: &'static str,
}

/// Shown while the user waits for a build.
const PATIENCE: &str = "the first time this takes some minutes";

const CONTAINERD: &str = "github.com/containerd/containerd/v2";
const CNI: &str = "github.com/containernetworking/plugins";

/// A program of Kubernetes itself.
const fn of_kubernetes(name: &'static str, package: &'static str) -> Source {
    Source {
        name,
        module: "kubernetes",
        package,
        version_packages: &[
            "k8s.io/component-base/version",
            "k8s.io/client-go/pkg/version",
        ],
        version_of: "k8s.io/kubernetes",
        tags: "",
    }
}

/// A program that a node needs beside them.
const fn of_node(name: &'static str, package: &'static str, version_of: &'static str) -> Source {
    Source {
        name,
        module: "node",
        package,
        version_packages: &[],
        version_of,
        tags: "",
    }
}

impl Program {
    /// What its file is called.
    pub(crate) fn name(self) -> &'static str {
        self.source().name
    }

    fn source(self) -> Source {
        match self {
            Self::Etcd => Source {
                name: "etcd",
                module: "etcd",
                package: "go.etcd.io/etcd/server/v3",
                version_packages: &[],
                version_of: "go.etcd.io/etcd/server/v3",
                tags: "",
            },
            Self::ApiServer => {
                of_kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver")
            }
            Self::ControllerManager => of_kubernetes(
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
            ),
            Self::Scheduler => {
                of_kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler")
            }
            Self::Kubelet => of_kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            Self::Proxy => of_kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            Self::Containerd => of_node(
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd",
                CONTAINERD,
            ),
            Self::ContainerdShim => of_node(
                "containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                CONTAINERD,
            ),
            Self::ContainerdClient => of_node(
                "ctr",
                "github.com/containerd/containerd/v2/cmd/ctr",
                CONTAINERD,
            ),
            Self::Runc => Source {
                tags: "seccomp",
                ..of_node(
                    "runc",
                    "github.com/opencontainers/runc",
                    "github.com/opencontainers/runc",
                )
            },
            Self::CniBridge => of_node(
                "bridge",
                "github.com/containernetworking/plugins/plugins/main/bridge",
                CNI,
            ),
            Self::CniLoopback => of_node(
                "loopback",
                "github.com/containernetworking/plugins/plugins/main/loopback",
                CNI,
            ),
            Self::CniHostLocal => of_node(
                "host-local",
                "github.com/containernetworking/plugins/plugins/ipam/host-local",
                CNI,
            ),
            Self::CniPortmap => of_node(
                "portmap",
                "github.com/containernetworking/plugins/plugins/meta/portmap",
                CNI,
            ),
            Self::Multus => Source {
                name: "multus",
                module: "multus",
                package: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus",
                version_packages: &[],
                version_of: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4",
                tags: "",
            },
            Self::CoreDns => Source {
                name: "coredns",
                module: "coredns",
                package: "ferrovirt/tools/coredns",
                version_packages: &[],
                version_of: "github.com/coredns/coredns",
                tags: "",
            },
        }
    }

    /// The path of the program, built if it is not in the cache.
    pub(crate) fn ready(self, printer: &Printer) -> Result<PathBuf> {
        let source = self.source();
        let module = root().join("tools").join(source.module);
        let version = required_version(&module, source.version_of)?;
        let flags = link_flags(&source, &version);
        let inputs = Inputs::default()
            .text("2")
            .text(&flags)
            .text(source.tags)
            .path(&module)?;
        let place = Cache::open()?.thing(source.name, &inputs, |draft| {
            printer.line(format_args!(
                "building {} {version} ({PATIENCE})",
                source.name
            ));
            build(&source, &module, &flags, &draft.join(source.name))
        })?;
        Ok(place.join(source.name))
    }
}

/// Everything a control plane takes.
pub(crate) fn control_plane(printer: &Printer) -> Result<ControlPlane> {
    Ok(ControlPlane {
        etcd: Program::Etcd.ready(printer)?,
        api_server: Program::ApiServer.ready(printer)?,
    })
}

fn build(source: &Source, module: &Path, flags: &str, output: &Path) -> Result<()> {
    ensure!(
        Command::new("go").arg("version").output().is_ok(),
        "there is no Go to build {} with: install Go 1.21 or newer (Debian 13 and Debian 12's \
         backports have it as golang-go) and try again",
        source.name
    );
    run(Command::new("go")
        .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly"])
        .args(["-ldflags", flags, "-tags", source.tags, "-o"])
        .arg(output)
        .arg(source.package)
        .env(
            "CGO_ENABLED",
            if source.tags.is_empty() { "0" } else { "1" },
        )
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        // A toolchain that is too old fetches the one that the module asks for.
        .env("GOTOOLCHAIN", "auto")
        .current_dir(module))
}

/// Without these the programs do not know their version, and clients that ask for it fail.
fn link_flags(source: &Source, version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next(), numbers.next());
    let facts = [
        ("gitVersion", version),
        ("gitMajor", major.unwrap_or_default()),
        ("gitMinor", minor.unwrap_or_default()),
        ("gitCommit", "unknown"),
        ("gitTreeState", "clean"),
        ("buildDate", "1970-01-01T00:00:00Z"),
    ];
    let mut out = vec!["-s".to_owned(), "-w".to_owned()];
    for package in source.version_packages {
        out.extend(facts.map(|(name, value)| format!("-X {package}.{name}={value}")));
    }
    out.join(" ")
}

/// The version of `module` that the `go.mod` in `directory` asks for.
fn required_version(directory: &Path, module: &str) -> Result<String> {
    let path = directory.join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    match version_in(&text, module) {
        Some(version) => Ok(version),
        None => bail!("{} does not require {module}", path.display()),
    }
}

fn version_in(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let parts: Vec<&str> = line
            .trim()
            .trim_start_matches("require ")
            .split_whitespace()
            .collect();
        match parts.as_slice() {
            [name, version, ..] if *name == module && version.starts_with('v') => {
                Some((*version).to_owned())
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_wherever_it_stands() {
        let single = "module x\n\nrequire a.io/b v1.2.3\n\nreplace a.io/b => a.io/c v9.9.9\n";
        let block = "require (\n\ta.io/c v0.1.0 // indirect\n\ta.io/b v1.2.3\n)\n";
        for text in [single, block] {
            assert_eq!(version_in(text, "a.io/b").as_deref(), Some("v1.2.3"));
        }
        assert_eq!(version_in(block, "a.io/d"), None);
    }

    #[test]
    fn the_pinned_versions_are_told_to_the_linker() {
        let source = Program::ApiServer.source();
        let flags = link_flags(&source, "v1.36.3");
        assert!(flags.contains(" -X k8s.io/client-go/pkg/version.gitMinor=36"));
        for program in [
            Program::Etcd,
            Program::ApiServer,
            Program::Runc,
            Program::CniBridge,
            Program::Multus,
            Program::CoreDns,
        ] {
            let source = program.source();
            let module = root().join("tools").join(source.module);
            assert!(required_version(&module, source.version_of).is_ok());
        }
    }
}
