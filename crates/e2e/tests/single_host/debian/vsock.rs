//! Connections to servers in the guest over its vsock, by the API, and the service by which it gets our authorities.

use std::{fs, path::Path, process::Command};

use e2e::{Console, Environment as _};

use super::Desk;

/// The guest's side.
const PROGRAM: &str = include_str!("vsock.py");
const DEVICE: &str = "/dev/vhost-vsock";
const PLAIN: u32 = 1024;
const TLS: u32 = 1025;

/// Whether the host's kernel has a vsock, whose module nothing loads by itself.
pub(super) fn is_on_host() -> bool {
    let has_it = || Path::new(DEVICE).exists();
    let load = || Command::new("modprobe").arg("vhost_vsock").output();
    let is_there = has_it() || (load().is_ok() && has_it());
    if !is_there {
        println!("NOT TESTED: the vsock of a guest, since this host has no {DEVICE}");
    }
    is_there
}

pub(super) async fn checks_vsock(desk: &Desk) {
    let file = desk.path("vsock.py");
    fs::write(&file, PROGRAM).expect("write the program");
    desk.copy(&file.to_string_lossy(), "debian@vm/debian:/tmp/vsock.py")
        .await;

    serve(desk, PLAIN, &format!("echo {PLAIN}")).await;
    let mut plain = open(desk, PLAIN, false).await;
    plain.send("hello plain\n").await;
    plain.expect("hello plain").await;

    // The node may still wait for the certificate that the authorities are of.
    let ask = "until python3 /tmp/vsock.py authorities >/tmp/authorities.pem; do sleep 1; done";
    let told = desk
        .shell(&format!(
            "timeout 240 sh -c '{ask}' 2>/tmp/asked; tail -n 1 /tmp/asked; cat /tmp/authorities.pem"
        ))
        .await;
    assert!(told.contains("-----BEGIN CERTIFICATE-----"), "{told}");

    desk.shell(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=guest \
         -keyout /tmp/vsock.key -out /tmp/vsock.crt 2>&1",
    )
    .await;
    let files = "/tmp/authorities.pem /tmp/vsock.crt /tmp/vsock.key";
    serve(desk, TLS, &format!("tls {TLS} {files}")).await;
    let mut secure = open(desk, TLS, true).await;
    secure
        .expect("client kubevirt.io:system:client:vsock\n")
        .await;
    secure.send("hello tls\n").await;
    secure.expect("hello tls").await;
}

/// Runs a server in the guest and waits until it listens.
async fn serve(desk: &Desk, port: u32, arguments: &str) {
    desk.shell(&format!(
        "sudo systemd-run --quiet --unit=vsock-{port} python3 /tmp/vsock.py {arguments} && \
         timeout 240 sh -c 'until [ -e /tmp/listens-{port} ]; do sleep 1; done'"
    ))
    .await;
}

async fn open(desk: &Desk, port: u32, tls: bool) -> Console {
    let path = desk
        .test
        .subresource("virtualmachineinstances", "debian", "vsock");
    let path = format!("{path}?port={port}&tls={tls}");
    let client = desk.test.environment.client().await;
    let opened = Console::open(&client, &path).await;
    opened.unwrap_or_else(|refusal| panic!("{path}: {refusal}"))
}
