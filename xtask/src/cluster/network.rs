//! The wires: a network namespace for the control plane and one for each node, joined by a bridge in
//! the control plane's. A second wire joins bridges of the nodes, which pods share by way of Multus.
//!
//! **Invariant**: creating what exists does nothing, and anything incomplete is completed. The
//! host gets one interface; it goes with the control plane's namespace.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use rustix::{
    io::Errno,
    mount::{UnmountFlags, unmount},
};

use super::place::{CONTROL_PLANE, HOST, MARK, NodeNumber, Place};
use crate::workspace::run_quietly;

const BRIDGE: &str = "nodes";
/// The bridge of every node for secondary networks, and the one in the control plane's namespace that joins them.
const SECOND_BRIDGE: &str = "lan0";
/// Where addresses of nodes end.
const PREFIX: u8 = 24;

/// The control plane's namespace, its bridge and the host's way to it.
pub(super) fn control_plane(place: &Place) -> Result<()> {
    let net = place.network("control");
    if !namespace(&net)? {
        return Ok(());
    }
    let wire = format!("{MARK}0");
    inside(
        &net,
        &[
            &format!("ip link add {BRIDGE} type bridge"),
            &format!("ip address add {CONTROL_PLANE}/{PREFIX} dev {BRIDGE}"),
            "ip link set lo up",
            &format!("ip link set {BRIDGE} up"),
            &format!("ip link add {SECOND_BRIDGE} type bridge"),
            &format!("ip link set {SECOND_BRIDGE} up"),
        ],
    )?;
    forward(&net)?;
    join_host(&net, &wire)?;
    ip(&format!("address add {HOST}/{PREFIX} dev {wire}"))?;
    ip(&format!("link set {wire} up"))?;
    ready(&net)
}

/// A node's namespace, its wire to the bridge, and routes to the pods of all others.
pub(super) fn node(place: &Place, node: NodeNumber, all: &[NodeNumber]) -> Result<()> {
    let control = place.network("control");
    let net = place.network(&node.name());
    if namespace(&net)? {
        join_node(&control, BRIDGE, &net, "eth0", &node.name())?;
        join_node(
            &control,
            SECOND_BRIDGE,
            &net,
            "eth1",
            &format!("{}l", node.name()),
        )?;
        inside(
            &net,
            &[
                "ip link set lo up",
                &format!("ip address add {}/{PREFIX} dev eth0", node.address()),
                "ip link set eth0 up",
                &format!("ip route add default via {CONTROL_PLANE}"),
                &format!("ip link add {SECOND_BRIDGE} type bridge"),
                &format!("ip link set eth1 master {SECOND_BRIDGE}"),
                &format!("ip link set {SECOND_BRIDGE} up"),
                "ip link set eth1 up",
            ],
        )?;
        forward(&net)?;
        inside(&control, &[&route_to(node)])?;
        ready(&net)?;
    }
    let others = all.iter().filter(|other| **other != node);
    let routes: Vec<String> = others.map(|other| route_to(*other)).collect();
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    inside(&net, &routes)
}

/// Removes the name of a namespace; the kernel deletes it with its last process.
pub(super) fn remove(net: &Path) -> Result<()> {
    match unmount(net, UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(error).with_context(|| format!("unmount {}", net.display())),
    }
    for path in [net.to_owned(), net.with_extension("ready")] {
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn route_to(node: NodeNumber) -> String {
    format!("ip route replace {} via {}", node.pods(), node.address())
}

/// Recreates the namespace unless it is complete. True if it has to be set up.
fn namespace(net: &Path) -> Result<bool> {
    // After a restart of the machine the file is there and no namespace behind it.
    let is_mounted = fs::metadata(net).is_ok_and(|it| it.len() == 0)
        && fs::read_to_string("/proc/self/mountinfo")
            .context("read the mounts")?
            .contains(&format!(" {} ", net.display()));
    if is_mounted && net.with_extension("ready").exists() {
        return Ok(false);
    }
    remove(net)?;
    fs::write(net, "").with_context(|| format!("make {}", net.display()))?;
    let mut option = std::ffi::OsString::from("--net=");
    option.push(net);
    run_quietly(Command::new("unshare").arg(option).arg("true"))?;
    Ok(true)
}

fn ready(net: &Path) -> Result<()> {
    fs::write(net.with_extension("ready"), "").context("note that a namespace is whole")
}

/// A pair of interfaces: one on the bridge, the other the host's.
fn join_host(control: &Path, name: &str) -> Result<()> {
    pair(control, BRIDGE, name, &format!("{MARK}1"))
}

/// A pair of interfaces: one on a bridge of the control plane's namespace, the other in the node's under this name.
fn join_node(control: &Path, bridge: &str, node: &Path, interface: &str, wire: &str) -> Result<()> {
    let near = format!("{MARK}-{wire}");
    pair(control, bridge, &near, &format!("{near}b"))?;
    give(&near, node)?;
    inside(node, &[&format!("ip link set {near} name {interface}")])
}

/// Makes both ends, and puts the far one on the bridge.
fn pair(control: &Path, bridge: &str, near: &str, far: &str) -> Result<()> {
    // A half of it that an earlier attempt left would be in the way.
    let leftover = Path::new("/sys/class/net").join(near);
    if leftover.exists() {
        ip(&format!("link delete {near}"))?;
    }
    ip(&format!("link add {near} type veth peer name {far}"))?;
    give(far, control)?;
    inside(
        control,
        &[
            &format!("ip link set {far} master {bridge}"),
            &format!("ip link set {far} up"),
        ],
    )
}

fn give(interface: &str, net: &Path) -> Result<()> {
    run_quietly(
        Command::new("ip")
            .args(["link", "set", interface, "netns"])
            .arg(net),
    )?;
    Ok(())
}

fn ip(arguments: &str) -> Result<()> {
    run_quietly(Command::new("ip").args(arguments.split(' ')))?;
    Ok(())
}

/// Whole networks are behind these interfaces, so packets from elsewhere are not forged.
fn forward(net: &Path) -> Result<()> {
    inside(
        net,
        &[
            "echo 1 >/proc/sys/net/ipv4/ip_forward",
            "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter",
            "echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter",
        ],
    )
}

/// Runs lines of shell in a namespace; the first that fails ends them.
fn inside(net: &Path, lines: &[&str]) -> Result<()> {
    let mut option = std::ffi::OsString::from("--net=");
    option.push(net);
    run_quietly(
        Command::new("nsenter")
            .arg(option)
            .args(["sh", "-ec", &lines.join("\n")]),
    )?;
    Ok(())
}
