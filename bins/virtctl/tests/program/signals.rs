//! Signals end the program as they end others, the terminal is as it was before, and no half of a file is left.

use std::fs;

use rustix::process::Signal;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::mpsc,
};

use crate::place::{LIMIT, Place, Terminal, accept, ended, send, until_printed};

const SIGNALS: [(Signal, i32); 3] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];

/// Serves a console until the user goes.
async fn console(listener: &TcpListener) {
    let _stream = accept(listener).await;
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn console_leaves_the_terminal_as_it_was() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = Place::new(&format!("http://{}", listener.local_addr().unwrap()));
    for (signal, code) in SIGNALS {
        let terminal = Terminal::open();
        let before = terminal.modes();
        let mut child = place.start(&terminal, &["console", "a"]);
        let session = async {
            // What the guest sends is printed in raw mode only.
            until_printed(&mut child, "login:").await;
            assert!(terminal.is_raw());
            send(&child, signal);
            ended(&mut child).await
        };
        let status = tokio::select! {
            status = session => status,
            () = console(&listener) => panic!("the console ended"),
        };
        assert_eq!(status.code(), Some(code), "{status}");
        assert_eq!(terminal.modes(), before);
    }
}

/// Serves an export that never gets ready; the test gets the method and the last part of the path of each request.
async fn exports(listener: TcpListener, requests: mpsc::Sender<String>) {
    let mut is_made = false;
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let mut client = BufReader::new(client);
        let (mut line, mut length) = (String::new(), 0);
        client.read_line(&mut line).await.unwrap();
        loop {
            let mut header = String::new();
            client.read_line(&mut header).await.unwrap();
            let header = header.trim().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if header.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        client.read_exact(&mut body).await.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let request = format!("{} {}", words[0], words[1].rsplit('/').next().unwrap());
        is_made |= request == "POST virtualmachineexports";
        requests.send(request).await.unwrap();
        let (code, answer) = if is_made || words[0] != "GET" {
            let export = r#"{"apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
                "metadata": {"name": "copy", "namespace": "default", "uid": "u"}, "spec": {}}"#;
            ("200 OK", export)
        } else {
            let status = r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "NotFound", "code": 404, "message": "not found"}"#;
            ("404 Not Found", status)
        };
        let head = "content-type: application/json\r\nconnection: close";
        let length = answer.len();
        let answer =
            format!("HTTP/1.1 {code}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{answer}");
        client.write_all(answer.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn export_of_an_interrupted_download_is_deleted() {
    for (keep, deletes) in [(&[][..], true), (&["--keep-vme"][..], false)] {
        for (signal, code) in SIGNALS {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let place = Place::new(&format!("http://{}", listener.local_addr().unwrap()));
            // More requests than a test waits for.
            let (sender, mut requests) = mpsc::channel(64);
            let terminal = Terminal::open();
            let words = [
                "vmexport",
                "download",
                "copy",
                "--vm",
                "a",
                "--output",
                "copies/root.gz",
            ];
            let mut child = place.start(&terminal, &[&words, keep].concat());
            let session = async {
                let made = [
                    "GET copy",
                    "POST virtualmachineexports",
                    "POST secrets",
                    "GET copy",
                ];
                for expected in made {
                    let request = tokio::time::timeout(LIMIT, requests.recv()).await.unwrap();
                    assert_eq!(request.as_deref(), Some(expected));
                }
                send(&child, signal);
                ended(&mut child).await
            };
            let status = tokio::select! {
                status = session => status,
                () = exports(listener, sender) => panic!("the server ended"),
            };
            assert_eq!(status.code(), Some(code), "{status}");
            let mut last = String::new();
            while let Ok(request) = requests.try_recv() {
                last = request;
            }
            assert_eq!(last == "DELETE copy", deletes, "{last}");
            assert!(place.copies().is_empty());
        }
    }
}

#[tokio::test]
async fn forwarding_ends_with_the_code_of_the_signal() {
    let place = Place::new("http://127.0.0.1:1");
    for (signal, code) in SIGNALS {
        let terminal = Terminal::open();
        let mut child = place.start(&terminal, &["port-forward", "vm/a", "0:22"]);
        until_printed(&mut child, "Forwarding from").await;
        send(&child, signal);
        assert_eq!(ended(&mut child).await.code(), Some(code));
    }
}

#[tokio::test]
async fn terminal_is_restored_for_a_client_that_does_not() {
    let place = Place::new("http://127.0.0.1:1");
    place.program("ssh", "stty raw -echo; echo ready; exec sleep 600");
    for (signal, code) in SIGNALS {
        let terminal = Terminal::open();
        let before = terminal.modes();
        let mut child = place.start(&terminal, &["ssh", "vm/a"]);
        until_printed(&mut child, "ready").await;
        assert!(terminal.is_raw());
        send(&child, signal);
        assert_eq!(ended(&mut child).await.code(), Some(code));
        assert_eq!(terminal.modes(), before);
    }
    // The client itself is killed.
    place.program("ssh", "stty raw -echo; kill -KILL $$");
    let terminal = Terminal::open();
    let before = terminal.modes();
    let mut child = place.start(&terminal, &["ssh", "vm/a"]);
    assert_eq!(ended(&mut child).await.code(), Some(137));
    assert_eq!(terminal.modes(), before);
}

#[tokio::test]
async fn copied_file_is_whole_or_not_there() {
    let place = Place::new("http://127.0.0.1:1");
    let write = "for last; do :; done; echo data > \"$last\"";
    let terminal = Terminal::open();
    let copy = ["scp", "vm/a:/etc/motd", "copies/motd"];

    place.program("scp", &format!("{write}; exit 1"));
    let mut child = place.start(&terminal, &copy);
    assert_eq!(ended(&mut child).await.code(), Some(1));
    assert!(place.copies().is_empty());

    place.program("scp", &format!("{write}; echo ready; exec sleep 600"));
    let mut child = place.start(&terminal, &copy);
    until_printed(&mut child, "ready").await;
    assert_eq!(place.copies().len(), 1);
    send(&child, Signal::TERM);
    assert_eq!(ended(&mut child).await.code(), Some(143));
    assert!(place.copies().is_empty());

    let tree = "for last; do :; done; mkdir \"$last\"; echo data > \"$last/file\"";
    place.program("scp", &format!("{tree}; echo ready; exec sleep 600"));
    let mut child = place.start(&terminal, &["scp", "-r", "vm/a:/etc", "copies/etc"]);
    until_printed(&mut child, "ready").await;
    send(&child, Signal::TERM);
    assert_eq!(ended(&mut child).await.code(), Some(143));
    assert!(place.copies().is_empty());

    place.program("scp", tree);
    let mut child = place.start(&terminal, &["scp", "-r", "vm/a:/etc", "copies"]);
    assert_eq!(ended(&mut child).await.code(), Some(0));
    assert_eq!(place.copies(), ["etc"]);
    let copied = fs::read(place.path().join("copies/etc/file")).unwrap();
    assert_eq!(copied, b"data\n");
    fs::remove_dir_all(place.path().join("copies/etc")).unwrap();

    place.program("scp", write);
    for destination in ["copies/motd", "copies"] {
        let mut child = place.start(&terminal, &["scp", "vm/a:/etc/motd", destination]);
        assert_eq!(ended(&mut child).await.code(), Some(0));
        assert_eq!(place.copies(), ["motd"]);
        let copied = fs::read(place.path().join("copies/motd")).unwrap();
        assert_eq!(copied, b"data\n");
    }
}
