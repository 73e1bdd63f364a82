//! The API server alone, as a process that `cargo xtask bench api` measures.
//!
//! `server DIRECTORY`: the directory has the server's certificate (`server.crt`, `server.key`) and the
//! authority of its clients (`ca.crt`); the database is made there. Prints the port on loopback, and
//! serves until it is killed.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program of a bench, which serves or fails"
)]

use std::{env, net::Ipv4Addr, path::PathBuf};

use embedded_api::{Clock, Database, EmbeddedApi, ServiceSettings, Settings};
use serving::{ClientCertificates, Identity, Server, TlsSource, Trust};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// With as many threads as `ferrovirt up`.
#[tokio::main(worker_threads = 2)]
async fn main() {
    let directory = PathBuf::from(env::args_os().nth(1).unwrap());
    let api = EmbeddedApi::open(Settings {
        database: Database::File(directory.join("api.db")),
        clock: Clock::Wall,
        front_proxy: None,
        kubelet: None,
        services: ServiceSettings::usual(),
    })
    .await
    .unwrap();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    api.run(&tasks, stop.clone());
    let file = |name: &str| directory.join(name);
    let identity = Identity::load(&file("server.crt"), &file("server.key")).unwrap();
    let users = Trust::load(&file("ca.crt")).unwrap();
    let tls = TlsSource::fixed(&identity, &ClientCertificates::Optional(users)).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    Server::new(listener, tls, api.router()).run(stop).await;
}
