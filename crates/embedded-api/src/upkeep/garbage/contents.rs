//! Deletion of all objects of a namespace or kind.

use std::{collections::BTreeMap, sync::Arc};

use apimachinery::meta;

use super::{CHUNK, owners::drop_finalizer};
use crate::{
    api::Api,
    error::ApiError,
    registry::{Served, custom},
    store::{Collection, Scope},
    verbs::{
        Call,
        delete::{self, Options},
    },
};

/// The objects that could not be deleted immediately, and the finalizers that hold them.
#[derive(Debug, Default)]
pub(in crate::upkeep) struct Remaining {
    pub(in crate::upkeep) count: usize,
    /// Finalizers, each with the number of objects it holds.
    pub(in crate::upkeep) finalizers: BTreeMap<String, usize>,
}

/// Deletes all objects in the scope and returns those that are still terminating.
pub(in crate::upkeep) async fn empty(
    api: &Api,
    kind: &Arc<Served>,
    scope: &Scope,
) -> Result<Remaining, ApiError> {
    let mut after = None;
    let mut remaining = Remaining::default();
    loop {
        let page = api.store.list(scope, after, Some(CHUNK)).await?;
        for stored in page.items {
            let object = stored.parse()?;
            let name = meta::name(&object);
            let call = Call::internal(Arc::clone(kind), meta::namespace(&object), Some(name));
            let done = if meta::is_deleting(&object) {
                Ok(delete::Outcome::Terminating(object.clone()))
            } else {
                Box::pin(delete::delete_named(api, &call, name, &Options::default())).await
            };
            match done {
                Ok(delete::Outcome::Deleted(_)) => {}
                Ok(delete::Outcome::Terminating(object)) => {
                    remaining.count += 1;
                    for finalizer in meta::finalizers(&object) {
                        *remaining
                            .finalizers
                            .entry(finalizer.to_owned())
                            .or_default() += 1;
                    }
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        match page.more {
            Some(more) => after = Some(more.after),
            None => return Ok(remaining),
        }
    }
}

/// Deletes the objects of a kind that is being removed, then its definition.
pub(super) async fn definition(api: &Api, collection: &Collection) -> Result<(), ApiError> {
    let group = "apiextensions.k8s.io";
    let Some(definitions) = api.registry.find(group, "v1", "customresourcedefinitions") else {
        return Ok(());
    };
    let name = format!("{}.{}", collection.plural, collection.group);
    let call = Call::internal(definitions, "", Some(&name));
    let Some(stored) = api.store.get(&call.key(&name)).await? else {
        return Ok(());
    };
    if !meta::is_deleting(&stored.parse()?) {
        return Ok(());
    }
    let kind = api
        .registry
        .all()
        .into_iter()
        .find(|kind| kind.collection == *collection);
    if let Some(kind) = kind
        && empty(api, &kind, &Scope::all(collection.clone()))
            .await?
            .count
            > 0
    {
        return Ok(());
    }
    drop_finalizer(api, &call, custom::CLEANUP).await
}
