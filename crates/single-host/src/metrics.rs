//! The metrics of the one process, served by the API server at `/metrics` to users with the right to
//! that path.

use metrics::Table;

/// The tables of all components.
pub fn tables() -> Vec<&'static Table> {
    vec![
        &metrics::PROCESS,
        &reconcile::METRICS,
        &embedded_api::METRICS,
        &embedded_node::METRICS,
        &image_store::METRICS,
        &virt_api::METRICS,
        &virt_controller::METRICS,
        &virt_handler::METRICS,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_well_formed() {
        assert_eq!(metrics::problems(&tables()), Vec::<String>::new());
    }
}
