//! Pure: leaves out the nodes that the caller does not want.

use apimachinery::selector::LabelSelector;
use kubevirt_api::object_graph::{ObjectGraphNode, ObjectGraphOptions};

use crate::refusal::Refusal;

/// Removes nodes with all that hangs on them; the root always stays.
pub(super) fn apply(
    mut root: ObjectGraphNode,
    options: &ObjectGraphOptions,
) -> Result<ObjectGraphNode, Refusal> {
    let invalid = |error: String| Refusal::bad_request(format!("labelSelector: {error}"));
    let selector = serde_json::to_value(&options.label_selector);
    let selector = selector.map_err(|error| invalid(error.to_string()))?;
    let selector = LabelSelector::from_object(&selector);
    let wanted = Wanted {
        optional: options.include_optional_nodes != Some(false),
        selector: selector.map_err(|error| invalid(error.to_string()))?,
    };
    wanted.filter(&mut root.children);
    Ok(root)
}

struct Wanted {
    optional: bool,
    selector: Option<LabelSelector>,
}

impl Wanted {
    fn filter(&self, nodes: &mut Vec<ObjectGraphNode>) {
        nodes.retain(|node| self.includes(node));
        for node in nodes {
            self.filter(&mut node.children);
        }
    }

    fn includes(&self, node: &ObjectGraphNode) -> bool {
        let label = |key: &str| node.labels.get(key).map(String::as_str);
        let is_selected = |selector: &LabelSelector| selector.matches_with(label);
        (self.optional || node.optional != Some(true))
            && self.selector.as_ref().is_none_or(is_selected)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn graph() -> ObjectGraphNode {
        let child = |name: &str, dependency: &str, optional: bool| {
            json!({
                "objectReference": {"kind": "K", "name": name},
                "labels": {"kubevirt.io/dependency-type": dependency},
                "optional": optional,
                "children": [{
                    "objectReference": {"kind": "K", "name": format!("{name}-child")},
                    "labels": {"kubevirt.io/dependency-type": "storage"},
                }],
            })
        };
        serde_json::from_value(json!({
            "objectReference": {"kind": "K", "name": "root"},
            "children": [child("disk", "storage", false), child("size", "config", true)],
        }))
        .unwrap()
    }

    fn filtered(options: Value) -> Result<Vec<String>, Refusal> {
        let options = serde_json::from_value(options).unwrap();
        let root = apply(graph(), &options)?;
        let names = root.children.iter().flat_map(|node| {
            let name = |node: &ObjectGraphNode| node.object_reference.name.clone();
            [name(node)]
                .into_iter()
                .chain(node.children.iter().map(name))
        });
        Ok(names.collect())
    }

    #[test]
    fn options_choose_the_nodes() {
        let all = ["disk", "disk-child", "size", "size-child"];
        assert_eq!(filtered(json!({})).unwrap(), all);
        assert_eq!(
            filtered(json!({"includeOptionalNodes": true})).unwrap(),
            all
        );
        assert_eq!(
            filtered(json!({"includeOptionalNodes": false})).unwrap(),
            all[..2]
        );
        let storage = json!({"labelSelector": {
            "matchLabels": {"kubevirt.io/dependency-type": "storage"},
        }});
        assert_eq!(filtered(storage).unwrap(), all[..2]);
    }

    #[test]
    fn invalid_selector_is_refused() {
        let selector = json!({"labelSelector": {
            "matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}],
        }});
        let refusal = filtered(selector).unwrap_err();
        assert!(
            refusal.message.starts_with("labelSelector: "),
            "{refusal:?}"
        );
        assert_eq!(refusal.code, 400);
    }
}
