//! CRD schemas and objects: an array of a schema and an object. Pruning and defaulting are idempotent.

use apimachinery::schema::Schema;
use serde_json::Value;

pub fn run(bytes: &[u8]) {
    let Ok((raw, mut object)) = serde_json::from_slice::<(Value, Value)>(bytes) else {
        return;
    };
    let Ok(schema) = Schema::parse(&raw, "schema") else {
        return;
    };
    schema.prune(&mut object);
    schema.fill_defaults(&mut object);
    assert!(schema.prune(&mut object.clone()).is_empty());
    let found = schema.validate(&object);
    drop(schema.validate_rules(&object, None, &found));
}
