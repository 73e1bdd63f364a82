//! What the settings of the cluster say about the hardware of every guest.

use domain_xml::SmbiosFacts;
use kubevirt_api::cluster_config::KubeVirtConfiguration;

/// Interval at which the balloon reports the guest's memory, unless the cluster sets another one.
const BALLOON_STATS_SECONDS: u32 = 10;

/// What the guest reads as its manufacturer and product; members that the cluster does not set keep their
/// default.
pub(super) fn smbios(settings: &KubeVirtConfiguration) -> SmbiosFacts {
    let mut facts = SmbiosFacts::defaults();
    let Some(written) = settings.smbios.clone() else {
        return facts;
    };
    for (fact, value) in [
        (&mut facts.manufacturer, written.manufacturer),
        (&mut facts.product, written.product),
        (&mut facts.version, written.version),
        (&mut facts.sku, written.sku),
        (&mut facts.family, written.family),
    ] {
        if let Some(value) = value {
            *fact = value;
        }
    }
    facts
}

/// 0 for no statistics.
pub(super) fn balloon_stats_seconds(settings: &KubeVirtConfiguration) -> u32 {
    settings
        .mem_balloon_stats_period
        .unwrap_or(BALLOON_STATS_SECONDS)
}

/// Whether guests give back memory that they do not use.
pub(super) fn reports_free_pages(settings: &KubeVirtConfiguration) -> bool {
    let options = settings.virtual_machine_options.as_ref();
    options.is_none_or(|options| options.disable_free_page_reporting.is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(value: Value) -> KubeVirtConfiguration {
        serde_json::from_value(value).expect("settings")
    }

    #[test]
    fn guests_read_the_manufacturer_that_the_cluster_sets() {
        assert_eq!(smbios(&settings(json!({}))), SmbiosFacts::defaults());
        let set = settings(json!({"smbios": {
            "manufacturer": "Example", "version": "1.2", "sku": "s"}}));
        let expected = SmbiosFacts {
            manufacturer: "Example".to_owned(),
            version: "1.2".to_owned(),
            sku: "s".to_owned(),
            ..SmbiosFacts::defaults()
        };
        assert_eq!(smbios(&set), expected);
    }

    #[test]
    fn memory_of_guests_is_reported_as_the_cluster_sets() {
        for (value, seconds, reports) in [
            (json!({}), 10, true),
            (json!({"memBalloonStatsPeriod": 12}), 12, true),
            (json!({"memBalloonStatsPeriod": 0}), 0, true),
            (json!({"virtualMachineOptions": {}}), 10, true),
            (
                json!({"virtualMachineOptions": {"disableFreePageReporting": {}}}),
                10,
                false,
            ),
        ] {
            let set = settings(value);
            assert_eq!(balloon_stats_seconds(&set), seconds, "{set:?}");
            assert_eq!(reports_free_pages(&set), reports, "{set:?}");
        }
    }
}
