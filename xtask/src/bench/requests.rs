//! Requests to the API server by verb, from its own metrics.
//!
//! All clients count, including kubelet and scheduler, but not the background traffic: leases,
//! the nodes' own objects, and watches, which are counted when they end.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;

use super::figures::{Figure, as_f64};

const METRIC: &str = "apiserver_request_total{";
const ALL_THE_TIME: [&str; 4] = ["", "leases", "nodes", "endpointslices"];

/// How many of each verb.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// Since the server has started.
    pub(super) async fn so_far(client: &Client) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await;
        Ok(Self::read(&text.context("read the API server's metrics")?))
    }

    fn read(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let Some((labels, count)) = line
                .strip_prefix(METRIC)
                .and_then(|rest| rest.split_once("} "))
            else {
                continue;
            };
            let label = |name: &str| {
                let (_, rest) = labels.split_once(&format!("{name}=\""))?;
                Some(rest.split_once('"')?.0)
            };
            let (Some(verb), Some(resource)) = (label("verb"), label("resource")) else {
                continue;
            };
            if verb != "WATCH" && !ALL_THE_TIME.contains(&resource) {
                *counts.entry(verb.to_lowercase()).or_default() += count.parse().unwrap_or(0);
            }
        }
        Self(counts)
    }

    pub(super) fn add_since(&mut self, before: &Self, after: &Self) {
        for (verb, count) in &after.0 {
            let earlier = before.0.get(verb).copied().unwrap_or_default();
            *self.0.entry(verb.clone()).or_default() += count.saturating_sub(earlier);
        }
    }

    /// The mean over so many starts, for each verb there was and in sum.
    pub(super) fn figures(&self, label: &str, starts: u32) -> Vec<Figure> {
        let all = self.0.values().sum();
        let verbs = self.0.iter().map(|(verb, count)| (verb.as_str(), *count));
        verbs
            .chain([("all", all)])
            .filter(|(_, count)| *count > 0)
            .map(|(verb, count)| {
                let mean = as_f64(count) / f64::from(starts);
                Figure::new(format!("{label}.{verb}"), mean, "")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# TYPE apiserver_request_total counter
apiserver_request_total{code=\"201\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\",verb=\"POST\",version=\"v1\"} 3
apiserver_request_total{code=\"200\",group=\"coordination.k8s.io\",resource=\"leases\",verb=\"PUT\"} 900
apiserver_request_total{code=\"200\",group=\"\",resource=\"pods\",verb=\"WATCH\"} 7
apiserver_request_duration_seconds_count{resource=\"pods\",verb=\"POST\"} 3
";
    const AFTER: &str = "\
apiserver_request_total{code=\"201\",group=\"\",resource=\"pods\",verb=\"POST\"} 5
apiserver_request_total{code=\"409\",group=\"\",resource=\"pods\",verb=\"POST\"} 1
apiserver_request_total{code=\"200\",group=\"kubevirt.io\",resource=\"virtualmachineinstances\",verb=\"PATCH\"} 4
apiserver_request_total{code=\"200\",group=\"coordination.k8s.io\",resource=\"leases\",verb=\"PUT\"} 990
";

    #[test]
    fn requests_are_counted_by_verb_without_those_that_never_end() {
        let mut counted = Requests::default();
        counted.add_since(&Requests::read(BEFORE), &Requests::read(AFTER));
        let figures = counted.figures("vm", 2);
        let shown: Vec<_> = figures
            .iter()
            .map(|figure| (figure.name.as_str(), figure.value))
            .collect();
        assert_eq!(
            shown,
            [("vm.patch", 2.0), ("vm.post", 1.5), ("vm.all", 3.5)]
        );
    }
}
