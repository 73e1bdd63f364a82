//! The requests that are measured, the same to any API server.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::try_join_all,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams},
};

use super::{super::figures::milliseconds, rate};

/// For the objects that are listed, and those that are watched.
const LISTED: &str = "bench-listed";
const WATCHED: &str = "bench-watched";
const WRITERS: usize = 16;
/// Watches that are opened at once.
const OPENED: usize = 16;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Of one writer.
    pub(super) writes: usize,
    /// Written by 16 writers, then listed.
    pub(super) objects: usize,
    pub(super) lists: usize,
    pub(super) watchers: usize,
    /// Each is seen by all watchers.
    pub(super) changes: usize,
}

type Watch = BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>>;

/// Makes the namespaces, and a first write in each.
pub(super) async fn prepare(client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in [LISTED, WATCHED] {
        let namespace = Namespace {
            metadata: named(name.to_owned()),
            ..Namespace::default()
        };
        let created = namespaces.create(&PostParams::default(), &namespace).await;
        created.with_context(|| format!("make the namespace {name}"))?;
        create(&config_maps(client, name), "first".to_owned()).await?;
    }
    Ok(())
}

/// The time of each write, one after another, in milliseconds.
pub(super) async fn one_writer(client: &Client, writes: usize) -> Result<Vec<f64>> {
    let api = config_maps(client, WATCHED);
    let mut times = Vec::new();
    for number in 0..writes {
        let sent = Instant::now();
        create(&api, format!("one-{number}")).await?;
        times.push(milliseconds(sent.elapsed()));
    }
    Ok(times)
}

/// Makes the listed objects; returns the writes per second of all writers together.
pub(super) async fn writers(client: &Client, objects: usize) -> Result<f64> {
    let began = Instant::now();
    let writers = (0..WRITERS).map(|writer| async move {
        let api = config_maps(client, LISTED);
        for number in (writer..objects).step_by(WRITERS) {
            create(&api, format!("many-{number}")).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(writers).await?;
    Ok(rate(objects, began.elapsed().as_secs_f64()))
}

/// The time of each list, with its content read but not decoded, in milliseconds.
pub(super) async fn lists(client: &Client, counts: &Counts) -> Result<Vec<f64>> {
    let path = format!("/api/v1/namespaces/{LISTED}/configmaps");
    let mut times = Vec::new();
    for _ in 0..counts.lists {
        let request = http::Request::get(&path).body(Vec::new())?;
        let sent = Instant::now();
        let text = client.request_text(request).await.context("list")?;
        times.push(milliseconds(sent.elapsed()));
        let found = text.matches("\"name\":\"many-").count();
        ensure!(
            found == counts.objects,
            "the list has {found} objects instead of {}",
            counts.objects
        );
    }
    Ok(times)
}

/// For each change, the time until each watcher had it, in milliseconds. The watchers are those of all clients.
pub(super) async fn fan_out(clients: &[Client], counts: &Counts) -> Result<Vec<Vec<f64>>> {
    let apis: Vec<Api<ConfigMap>> = clients
        .iter()
        .map(|client| config_maps(client, WATCHED))
        .collect();
    let api = apis.first().context("no client watches")?;
    let one = ListParams::default().limit(1);
    let list = api.list_metadata(&one).await;
    let list = list.context("list before a watch")?;
    let since = list.metadata.resource_version.unwrap_or_default();
    let watchers = apis.iter().cycle().take(counts.watchers);
    let opened = stream::iter(watchers).map(|api| open(api, &since));
    let mut watches: Vec<Watch> = opened.buffer_unordered(OPENED).try_collect().await?;
    let mut seen = Vec::new();
    for number in 0..counts.changes {
        let name = format!("change-{number}");
        let sent = Instant::now();
        let arrivals = watches.iter_mut().map(|watch| arrival(watch, &name, sent));
        let created = create(api, name.clone());
        let (arrivals, ()) = tokio::try_join!(try_join_all(arrivals), created)?;
        seen.push(arrivals);
    }
    Ok(seen)
}

/// A watch of later changes; it is open when the server has answered.
async fn open(api: &Api<ConfigMap>, since: &str) -> Result<Watch> {
    let changes = WatchParams::default().disable_bookmarks();
    let watch = api.watch(&changes, since).await;
    Ok(watch.context("watch")?.boxed())
}

/// The time until a watch brings this object.
async fn arrival(watch: &mut Watch, name: &str, sent: Instant) -> Result<f64> {
    match watch.try_next().await? {
        Some(WatchEvent::Added(map)) if map.metadata.name.as_deref() == Some(name) => {
            Ok(milliseconds(sent.elapsed()))
        }
        other => anyhow::bail!("a watcher of {name} got {other:?}"),
    }
}

async fn create(api: &Api<ConfigMap>, name: String) -> Result<()> {
    let map = ConfigMap {
        metadata: named(name),
        data: Some([("key".to_owned(), "value".to_owned())].into()),
        ..ConfigMap::default()
    };
    let created = api.create(&PostParams::default(), &map).await;
    created.map(drop).context("create a config map")
}

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

fn named(name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        ..ObjectMeta::default()
    }
}
