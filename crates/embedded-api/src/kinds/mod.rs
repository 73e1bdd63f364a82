//! Defaults and validation of built-in kinds, limited to what clients and our node rely on: one
//! [`Strategy`] per kind, named by its row in the registry.
//!
//! Invariant: pure functions of the objects at hand. Defaults from other objects are added by
//! `plugins`.

mod fields;
mod strategy;

pub(crate) mod access;
pub(crate) mod accounts;
pub(crate) mod amounts;
pub(crate) mod budgets;
pub(crate) mod data;
pub(crate) mod definitions;
pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod namespaces;
pub(crate) mod pods;
pub(crate) mod policies;
pub(crate) mod priorities;
pub(crate) mod quotas;
pub(crate) mod services;
pub(crate) mod storage;
pub(crate) mod webhooks;

pub(crate) use strategy::{DeletionResponse, InitialStatus, Nulls, StatusMetadata, Strategy};
