use serde_json::{Value, json};

use super::table::TABLE;
use super::wire::Writer;
use super::{DecodeError, EncodeError, decode, encode, encode_event};

fn round(object: &Value) -> Value {
    decode(&encode(object).expect("it is encoded")).expect("it is decoded")
}

/// A body as a client writes it.
fn body(api_version: &str, kind: &str, raw: &Writer) -> Vec<u8> {
    let mut type_meta = Writer::default();
    type_meta.bytes(1, api_version.as_bytes());
    type_meta.bytes(2, kind.as_bytes());
    let mut out = Writer::default();
    out.message(1, &type_meta);
    out.message(2, raw);
    [b"k8s\0".as_slice(), &out.into_bytes()].concat()
}

#[test]
fn every_message_that_a_field_refers_to_is_listed() {
    let (all, referred) = TABLE.names();
    assert!(all.len() > 400, "{}", all.len());
    let lost: Vec<&str> = referred
        .into_iter()
        .filter(|name| !all.contains(name))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn special_types_round_trip() {
    for object in [
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:a": {}}}}]},
            "spec": {
                "terminationGracePeriodSeconds": 0, "enableServiceLinks": false,
                "volumes": [{"name": "v", "configMap": {"name": "c", "optional": false}}],
                "containers": [{"name": "c",
                    "env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                    "resources": {"limits": {"cpu": "100m"}},
                    "livenessProbe": {"httpGet": {"path": "/", "port": "web"}},
                    "readinessProbe": {"tcpSocket": {"port": 80}, "failureThreshold": 3}}]},
            "status": {}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"a": "Ynl0ZXM="}}),
        json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {},
               "eventTime": "2026-01-02T03:04:05.678900Z"}),
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {},
               "data": {"any": [1, {"x": null}]}, "revision": -1}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {}, "spec": {"versions": [{"schema": {"openAPIV3Schema": {
                "type": "object", "minimum": -1.5, "default": {"a": 1}, "enum": ["x", 2],
                "additionalProperties": {"type": "string"}, "x-kubernetes-int-or-string": true,
                "items": {"type": "string"},
                "properties": {"p": {"additionalProperties": false, "maximum": 0.0}}}}}]}}),
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
               "metadata": {}, "spec": {"extra": {"scopes": ["a", "b"]}}, "status": {}}),
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
               "deleteOptions": {"gracePeriodSeconds": 0}}),
        json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "code": 404,
               "details": {"causes": [{"field": "a"}]}}),
    ] {
        assert_contains(&round(&object), &object, "");
    }
}

/// What was sent is there; a Go client sends some empty fields besides.
fn assert_contains(found: &Value, expected: &Value, path: &str) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, value) in expected {
                assert_contains(
                    found.get(key).unwrap_or(&Value::Null),
                    value,
                    &format!("{path}.{key}"),
                );
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{path}");
            for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert_contains(found, expected, &format!("{path}[{at}]"));
            }
        }
        _ => assert_eq!(found, expected, "{path}"),
    }
}

#[test]
fn decoded_json_is_that_of_a_go_client() {
    // Empty texts, the number of a pointer, an empty time: all on the wire.
    let mut metadata = Writer::default();
    metadata.bytes(1, b"n");
    metadata.bytes(3, b"");
    metadata.number(7, 0);
    metadata.bytes(8, b"");
    let mut spec = Writer::default();
    spec.bytes(3, b"Always");
    spec.number(4, 0);
    let mut pod = Writer::default();
    pod.message(1, &metadata);
    pod.message(2, &spec);
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"},
        "spec": {"restartPolicy": "Always", "terminationGracePeriodSeconds": 0,
                 "containers": null},
        "status": {},
    });
    assert_eq!(decode(&body("v1", "Pod", &pod)), Ok(expected));
}

#[test]
fn unknown_fields_are_skipped() {
    let mut map = Writer::default();
    map.number(99, 7);
    map.double(98, 0.5);
    map.bytes(97, b"x");
    assert_eq!(
        decode(&body("v1", "ConfigMap", &map)),
        Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}))
    );
}

#[test]
fn malformed_bodies_are_errors() {
    assert_eq!(decode(b"{}"), Err(DecodeError::NoPrefix));
    let unknown = body("example.com/v1", "Widget", &Writer::default());
    assert!(matches!(
        decode(&unknown),
        Err(DecodeError::UnknownKind { .. })
    ));
    let whole = encode(&json!({"apiVersion": "v1", "kind": "ConfigMap",
                               "metadata": {"name": "name"}, "data": {"a": "b"}}))
    .expect("it is encoded");
    for end in 0..whole.len() {
        // Truncated anywhere: an error, or no name; never half a name.
        let cut = decode(&whole[..end]);
        let name = cut.map(|object| object["metadata"]["name"].clone());
        assert!(
            name.as_ref()
                .map_or(true, |name| name.is_null() || name == "name"),
            "{end}: {name:?}"
        );
    }
}

#[test]
fn deep_and_wide_bodies_are_refused() {
    let mut schema = Writer::default();
    for _ in 0..200 {
        let mut outer = Writer::default();
        outer.message(28, &schema);
        schema = outer;
    }
    let mut version = Writer::default();
    let mut validation = Writer::default();
    validation.message(1, &schema);
    version.message(4, &validation);
    let mut spec = Writer::default();
    spec.message(7, &version);
    let mut definition = Writer::default();
    definition.message(2, &spec);
    let deep = body(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &definition,
    );
    assert_eq!(decode(&deep), Err(DecodeError::TooDeep));

    let mut list = Writer::default();
    for _ in 0..200_000 {
        list.bytes(2, b"");
    }
    assert_eq!(
        decode(&body("v1", "PodList", &list)),
        Err(DecodeError::TooLarge)
    );
}

#[test]
fn objects_that_do_not_fit_are_named() {
    let custom = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
    assert!(matches!(
        encode(&custom),
        Err(EncodeError::UnknownKind { .. })
    ));
    let wrong = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"priority": "high"}});
    assert_eq!(
        encode(&wrong),
        Err(EncodeError::Mistyped {
            field: "spec.priority".to_owned()
        })
    );
}

#[test]
fn events_have_their_length_in_front() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let event = encode_event("ADDED", &object).expect("it is encoded");
    let (length, rest) = event.split_first_chunk::<4>().expect("a length");
    assert_eq!(
        usize::try_from(u32::from_be_bytes(*length)).ok(),
        Some(rest.len())
    );
    assert!(rest.starts_with(b"\x0a\x05ADDED\x12"));
}
