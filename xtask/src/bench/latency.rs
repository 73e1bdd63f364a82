//! How long the API takes for the plainest requests, one after another over one connection.

use std::time::Instant;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use super::figures::{Figure, milliseconds, percentile};

const REQUESTS: usize = 300;

pub(super) async fn measure(client: &Client) -> Result<Vec<Figure>> {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let (mut creates, mut gets) = (Vec::new(), Vec::new());
    for number in 0..REQUESTS {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("bench-{number}")),
                ..ObjectMeta::default()
            },
            data: Some([("key".to_owned(), "value".to_owned())].into()),
            ..ConfigMap::default()
        };
        let sent = Instant::now();
        api.create(&PostParams::default(), &map)
            .await
            .context("create a config map")?;
        creates.push(milliseconds(sent.elapsed()));
    }
    for number in 0..REQUESTS {
        let name = format!("bench-{number}");
        let sent = Instant::now();
        api.get(&name).await.context("get a config map")?;
        gets.push(milliseconds(sent.elapsed()));
    }
    let mut figures = Vec::new();
    for (verb, times) in [("get", gets), ("create", creates)] {
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let value = percentile(&times, share).context("no request was made")?;
            figures.push(Figure::new(format!("api.{verb}.{name}"), value, "ms"));
        }
    }
    Ok(figures)
}
