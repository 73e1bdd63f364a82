//! Images and registries.

use e2e::{Registry, VmManifest, answer, tiny_vm};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::Situations;

/// A registry that answers every request with an error of its own.
async fn broken_registry(listener: TcpListener) {
    let answer =
        b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            return;
        };
        let mut head = [0; 4096];
        // A client that has gone needs no answer.
        let _read = stream.read(&mut head).await.is_ok();
        let _written = stream.write_all(answer).await.is_ok();
    }
}

/// A registry that takes connections and never answers.
async fn slow_registry(listener: TcpListener) {
    let mut open = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        open.push(stream);
    }
}

/// A VM that boots a kernel from an image.
fn with_kernel(name: &str, image: &str) -> VmManifest {
    let container =
        json!({"image": image, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"});
    tiny_vm(name).domain("firmware", json!({"kernelBoot": {"container": container}}))
}

pub(super) async fn cannot_be_pulled(test: &Situations<'_>) {
    let (mut open, mut closed) = (Registry::new(), Registry::new());
    open.up().await;
    closed.up_for_users().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("listen");
    let address = listener.local_addr().expect("it has an address");
    let broken = format!("{address}/guest:1");
    let slow = TcpListener::bind(("127.0.0.1", 0)).await.expect("listen");
    let address = slow.local_addr().expect("it has an address");
    let pulls = format!("{address}/guest:1");
    let (missing, forbidden) = (open.name("no/such-guest:1"), closed.name("guest:1"));
    let away = "127.0.0.1:1/guest:1";
    let secret = [
        "create",
        "secret",
        "docker-registry",
        "login",
        "--docker-username=ann",
        "--docker-password=wrong",
    ];
    let server = format!("--docker-server={}", closed.address());
    test.kubectl(&[&secret[..], &[server.as_str()]].concat())
        .await
        .success();
    let login = json!({"image": forbidden, "imagePullSecret": "login"});
    let disk = |name: &str, image: &str| tiny_vm(name).image(image);
    let more = json!({"containerDisk": {"image": away}});
    let vms = [
        disk("bad-name", "GUEST:::"),
        disk("missing", &missing),
        disk("forbidden", &forbidden).set("/spec/template/spec/volumes/0/containerDisk", login),
        disk("away", away),
        disk("broken", &broken),
        disk("pulls", &pulls),
        // Not the first volume, and the kernel.
        tiny_vm("second").disk(&more),
        with_kernel("kernel", away),
    ];
    let check = async {
        test.apply_all(vms).await;
        let starting = answer("starting", "vmi/pulls", "get vmi pulls --watch");
        test.check("pulls", starting).await;
        let edit = |name: &str| format!("edit vm {name}");
        let pod = |name: &str| format!("describe pod virt-launcher-{name}-");
        let root = |image: &str| format!("{image:?} of volume \"root\"");
        let field = "spec.domain.firmware.kernelBoot.container.image";
        for (name, cause, object, next) in [
            (
                "bad-name",
                "image-name-invalid",
                root("GUEST:::"),
                edit("bad-name"),
            ),
            ("missing", "image-missing", root(&missing), edit("missing")),
            (
                "forbidden",
                "image-forbidden",
                root(&forbidden),
                edit("forbidden"),
            ),
            ("away", "registry-unreachable", root(away), pod("away")),
            ("broken", "image-pull", root(&broken), pod("broken")),
            (
                "second",
                "registry-unreachable",
                format!("{away:?} of volume \"more\""),
                pod("second"),
            ),
            (
                "kernel",
                "registry-unreachable",
                field.to_owned(),
                pod("kernel"),
            ),
        ] {
            test.check(name, answer(cause, &object, &next)).await;
        }
    };
    tokio::select! {
        () = broken_registry(listener) => {}
        () = slow_registry(slow) => {}
        () = check => {}
    }
    let names = [
        "bad-name",
        "missing",
        "forbidden",
        "away",
        "broken",
        "pulls",
        "second",
        "kernel",
    ];
    test.delete_vms(&names).await;
}
