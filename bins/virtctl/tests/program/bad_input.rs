//! What goes wrong is one line that says what to do; the terminal is restored, and no half of a file is left.

use std::{fs, process::Stdio};

use rustix::process::Signal;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::Child,
};

use crate::place::{LIMIT, Place, Terminal, accept, ended, send, until_printed};

async fn server() -> (TcpListener, Place) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = Place::new(&format!("http://{}", listener.local_addr().unwrap()));
    (listener, place)
}

/// The exit code and the messages of a program that ends.
async fn failure(child: &mut Child) -> (Option<i32>, String) {
    let mut messages = String::new();
    let mut from = child.stderr.take().unwrap();
    let reading = from.read_to_string(&mut messages);
    tokio::time::timeout(LIMIT, reading).await.unwrap().unwrap();
    (ended(child).await.code(), messages.trim().to_owned())
}

/// Answers every request in the same way.
async fn answer(listener: &TcpListener, code: &str, body: &str) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let mut client = BufReader::new(client);
        let (mut line, mut length) = (String::new(), 0);
        while client.read_line(&mut line).await.unwrap() > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        client.read_exact(&mut vec![0; length]).await.unwrap();
        let head = format!(
            "HTTP/1.1 {code}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(body.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
    }
}

fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind": "Status", "apiVersion": "v1", "metadata": {{}}, "status": "Failure",
            "reason": "{reason}", "code": {code}, "message": "{message}"}}"#
    )
}

#[tokio::test]
async fn cut_console_ends_with_one_line_and_restores_the_terminal() {
    let (listener, place) = server().await;
    let terminal = Terminal::open();
    let before = terminal.modes();
    let mut child = place.start(&terminal, &["console", "a"]);
    let stream = accept(&listener).await;
    until_printed(&mut child, "login:").await;
    assert!(terminal.is_raw());
    drop(stream);
    let (code, messages) = failure(&mut child).await;
    assert_eq!(code, Some(1));
    let last = messages.lines().last().unwrap_or_default();
    assert_eq!(
        last,
        "error: the console of a was closed: the guest was switched off, or the connection broke"
    );
    assert_eq!(terminal.modes(), before);
}

#[tokio::test]
async fn console_needs_no_terminal() {
    let (listener, place) = server().await;
    let mut child = place
        .command(&["console", "a"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let stream = accept(&listener).await;
    until_printed(&mut child, "login:").await;
    drop(stream);
    let (code, messages) = failure(&mut child).await;
    assert_eq!(code, Some(1));
    assert!(messages.ends_with("or the connection broke"), "{messages}");
}

#[tokio::test]
async fn cut_port_is_reported_and_the_others_stay() {
    let (listener, place) = server().await;
    let terminal = Terminal::open();
    let mut child = place.start(&terminal, &["port-forward", "vm/a", "0:22"]);
    let printed = until_printed(&mut child, " -> 22").await;
    let address = printed.trim_start_matches("Forwarding from ");
    let (address, _) = address.split_once(" -> ").unwrap();
    for _ in 0..2 {
        let mut local = TcpStream::connect(address).await.unwrap();
        let stream = accept(&listener).await;
        let mut greeting = [0; 6];
        local.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"login:");
        drop(stream);
        assert_eq!(local.read(&mut greeting).await.unwrap(), 0);
    }
    send(&child, Signal::INT);
    let (code, messages) = failure(&mut child).await;
    assert_eq!(code, Some(130));
    let lines: Vec<_> = messages.lines().collect();
    assert_eq!(lines.len(), 2, "{messages}");
    assert!(
        lines.iter().all(|line| line.starts_with("port 22: ")),
        "{messages}"
    );
}

#[tokio::test]
async fn port_in_use_is_one_line_with_a_remedy() {
    let place = Place::new("http://127.0.0.1:1");
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    for (words, at) in [
        (
            format!("port-forward vm/a {port}:22"),
            format!("127.0.0.1:{port} (tcp)"),
        ),
        (
            format!("ui --no-browser --port {port}"),
            format!("127.0.0.1:{port}"),
        ),
    ] {
        let terminal = Terminal::open();
        let words: Vec<&str> = words.split(' ').collect();
        let mut child = place.start(&terminal, &words);
        let (code, messages) = failure(&mut child).await;
        assert_eq!(code, Some(1), "{messages}");
        assert_eq!(
            messages,
            format!(
                "error: listen on {at}: another program has this port: choose another one, or 0 for any that is free"
            )
        );
    }
}

#[tokio::test]
async fn refused_credentials_and_missing_rights_are_one_line() {
    let expired = "error: the server does not accept your credentials (Unauthorized): if they have expired, get new \
                   ones, or name others with --token or --context";
    let forbidden = "virtualmachines.kubevirt.io is forbidden: User me cannot start it";
    for (code, body, expected) in [
        (
            "401 Unauthorized",
            status(401, "Unauthorized", "Unauthorized"),
            expired.to_owned(),
        ),
        (
            "403 Forbidden",
            status(403, "Forbidden", forbidden),
            format!("error: {forbidden}"),
        ),
    ] {
        for words in [
            &["start", "a"][..],
            &["console", "a"],
            &["vnc", "screenshot", "a", "--file", "copies/a.png"],
            &["memory-dump", "remove", "a"],
            &["port-forward", "--stdio", "vm/a", "22"],
        ] {
            let (listener, place) = server().await;
            let terminal = Terminal::open();
            let before = terminal.modes();
            let mut child = place.start(&terminal, words);
            let (exit, messages) = tokio::select! {
                failed = failure(&mut child) => failed,
                () = answer(&listener, code, &body) => panic!("the server ended"),
            };
            assert_eq!(
                (exit, messages.as_str()),
                (Some(1), &*expected),
                "{words:?}"
            );
            assert_eq!(terminal.modes(), before);
            assert!(place.copies().is_empty());
        }
    }
}

#[tokio::test]
async fn full_disk_is_an_error_wherever_output_goes() {
    let (listener, place) = server().await;
    let full = || {
        Stdio::from(
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        )
    };
    for words in [
        &["options"][..],
        &["version", "--client"],
        &["completion", "bash"],
        &["create", "vm", "--name", "a"],
    ] {
        let mut child = place
            .command(words)
            .stdin(Stdio::null())
            .stdout(full())
            .spawn()
            .unwrap();
        let (code, messages) = failure(&mut child).await;
        assert_eq!(code, Some(1), "{words:?}: {messages}");
        assert!(messages.contains("No space left"), "{words:?}: {messages}");
        assert_eq!(messages.lines().count(), 1, "{messages}");
    }
    let screenshot = ["vnc", "screenshot", "a", "--file", "/dev/full"];
    let terminal = Terminal::open();
    let mut child = place.start(&terminal, &screenshot);
    let (code, messages) = tokio::select! {
        failed = failure(&mut child) => failed,
        () = answer(&listener, "200 OK", "picture") => panic!("the server ended"),
    };
    assert_eq!(code, Some(1));
    assert!(
        messages.starts_with("error: write /dev/full: No space left"),
        "{messages}"
    );
}

/// A reader that has seen enough is no failure.
#[tokio::test]
async fn closed_pipe_is_no_error() {
    let place = Place::new("http://127.0.0.1:1");
    let mut child = place
        .command(&["options"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (code, messages) = failure(&mut child).await;
    assert_eq!((code, messages.as_str()), (Some(0), ""));
}
