//! Networks: a guest of each binding beside one whose tap is on a bridge. The other end is on this machine.

use std::{net::Ipv4Addr, process::Command};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    super::{
        by_hand::{ByHand, Machine},
        figures::Figure,
        load::Load,
        objects::{Guest, Objects, VM},
        shell::Shell,
    },
    GuestOptions, MIB, Pair,
};
use crate::{printer::Printer, workspace::run_quietly};

const BINDINGS: [(&str, &str); 3] = [
    ("masquerade", "masquerade"),
    ("bridge", "bridge"),
    ("passt", "passtBinding"),
];
const BRIDGE: &str = "fvbench-br";
const TAP: &str = "fvbench-tap";
const ROUND_TRIPS: u32 = 2000;

pub(super) async fn measure(
    printer: &Printer,
    options: &GuestOptions,
    (load, objects): (&Load, &Objects),
) -> Result<Vec<Figure>> {
    let bridge = Bridge::up(options.bridge)?;
    let (_server, port) = load.serve().await?;
    let address = format!("{}:{port}", options.bridge);
    let mut by_hand = None;
    let mut figures = Vec::new();
    for (label, binding) in BINDINGS {
        printer.line(format_args!("a guest with binding {label}"));
        let name = format!("net-{label}");
        let guest = Guest {
            name: &name,
            mib: MIB,
            volumes: Vec::new(),
            binding,
        };
        let mut ours = objects.start(&guest).await?;
        if by_hand.is_none() {
            let machine = Machine::like(&ours.qemu, MIB, load)?;
            by_hand = Some(connected(&machine, &bridge, ours.qemu.has_vhost()).await?);
        }
        let Some((_, hand)) = by_hand.as_mut() else {
            continue;
        };
        let (mut sends, mut receives) = (Pair::default(), Pair::default());
        let mut echoes = Pair::default();
        let commands = [
            (&mut sends, format!("send {address} {}", options.seconds)),
            (
                &mut receives,
                format!("receive {address} {}", options.seconds),
            ),
            (&mut echoes, format!("echo {address} {ROUND_TRIPS}")),
        ];
        for (pair, command) in commands {
            for _ in 0..options.rounds {
                pair.ours.push(ours.shell.load(&command).await?);
                pair.hand.push(hand.load(&command).await?);
            }
        }
        figures.extend(compared(label, [&sends, &receives], &echoes));
        objects.delete(VM, &name).await?;
    }
    Ok(figures)
}

fn compared(label: &str, rates: [&Pair; 2], echoes: &Pair) -> Vec<Figure> {
    let name = |what: &str| format!("guest.net.{label}.{what}");
    let mut figures = Vec::new();
    let mut worst = f64::INFINITY;
    for (what, pair) in ["send", "receive"].into_iter().zip(rates) {
        let (ours, hand) = pair.middle();
        figures.push(Figure::new(
            name(&format!("{what}.ours")),
            ours / 1e6,
            "MB/s",
        ));
        figures.push(Figure::new(
            name(&format!("{what}.hand")),
            hand / 1e6,
            "MB/s",
        ));
        worst = worst.min(ours / hand);
    }
    let (ours, hand) = echoes.middle();
    figures.extend([
        Figure::new(name("round-trip.ours"), ours / 1e3, "µs"),
        Figure::new(name("round-trip.hand"), hand / 1e3, "µs"),
        Figure::new(name("throughput.ratio"), worst, "x"),
        // The speed, so that more is better here as well.
        Figure::new(name("latency.ratio"), hand / ours, "x"),
    ]);
    figures
}

/// A bridge with a tap, which go on drop.
struct Bridge(Ipv4Addr);

impl Bridge {
    fn up(address: Ipv4Addr) -> Result<Self> {
        ensure!(
            address.octets()[3] < 254,
            "{address} leaves no address for a guest"
        );
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        let bridge = Self(address);
        let with_prefix = format!("{address}/24");
        ip(&["addr", "add", &with_prefix, "dev", BRIDGE])?;
        ip(&["tuntap", "add", "dev", TAP, "mode", "tap", "vnet_hdr"])?;
        ip(&["link", "set", TAP, "master", BRIDGE, "up"])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        Ok(bridge)
    }

    /// The guest's own address.
    fn guest(&self) -> Ipv4Addr {
        let [a, b, c, d] = self.0.octets();
        Ipv4Addr::new(a, b, c, d.saturating_add(1))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        for link in [TAP, BRIDGE] {
            if let Err(err) = ip(&["link", "del", link]) {
                Printer::new().line(format_args!("{err:#}"));
            }
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run_quietly(Command::new("ip").args(arguments)).map(drop)
}

/// A guest on the bridge. Its card comes once it runs: with one at boot it would wait for DHCP.
async fn connected(machine: &Machine, bridge: &Bridge, vhost: bool) -> Result<(ByHand, Shell)> {
    let vhost = if vhost { "on" } else { "off" };
    let netdev = format!("tap,id=net,ifname={TAP},script=no,downscript=no,vhost={vhost}");
    let more = [
        "-device",
        "pcie-root-port,id=port,chassis=9",
        "-netdev",
        &netdev,
    ];
    let by_hand = ByHand::start(machine, &more.map(str::to_owned))?;
    let mut shell = Shell::of(&by_hand.console()).await?;
    shell.install("/dev/vdb").await?;
    let card = json!({"driver": "virtio-net-pci", "id": "card", "netdev": "net", "bus": "port"});
    by_hand.monitor().await?.run("device_add", card).await?;
    let guest = bridge.guest();
    let shown = shell
        .run(&format!(
            "i=0; while [ ! -d /sys/class/net/eth0 ] && [ $i -lt 300 ]; do usleep 100000; i=$((i+1)); done; \
             ip addr add {guest}/24 dev eth0 && ip link set eth0 up && echo con''nected"
        ))
        .await?;
    ensure!(shown.contains("connected"), "connect the guest: {shown}");
    Ok((by_hand, shell))
}
