//! DHCP options that the user gave for an interface.

use std::net::Ipv4Addr;

use kubevirt_api::network::DhcpOptions;
use launcher_channel::{DhcpBoot, PrivateOption};

/// Codes for private use.
const PRIVATE: std::ops::RangeInclusive<u8> = 224..=254;

/// The options, without those that admission refuses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) boot: DhcpBoot,
    pub(crate) ntp: Vec<Ipv4Addr>,
    pub(crate) private: Vec<PrivateOption>,
}

pub(crate) fn of(options: Option<&DhcpOptions>) -> Given {
    let Some(options) = options else {
        return Given::default();
    };
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let ntp = options.ntp_servers.iter();
    let private = options.private_options.iter().filter_map(|option| {
        let code = u8::try_from(option.option).ok();
        Some(PrivateOption {
            code: code.filter(|code| PRIVATE.contains(code))?,
            value: option.value.clone(),
        })
    });
    Given {
        boot: DhcpBoot {
            server: text(&options.tftp_server_name),
            file: text(&options.boot_file_name),
        },
        ntp: ntp.filter_map(|server| server.parse().ok()).collect(),
        private: private.collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_those_that_admission_permits() {
        let options: DhcpOptions = serde_json::from_value(json!({
            "bootFileName": "pxelinux.0",
            "tftpServerName": "",
            "ntpServers": ["10.0.0.1", "clock.example"],
            "privateOptions": [
                {"option": 224, "value": "a"},
                {"option": 3, "value": "b"},
                {"option": 1000, "value": "c"},
            ],
        }))
        .expect("options");
        let given = of(Some(&options));
        assert_eq!(given.boot.file.as_deref(), Some("pxelinux.0"));
        assert_eq!(given.boot.server, None);
        assert_eq!(given.ntp, [Ipv4Addr::new(10, 0, 0, 1)]);
        let codes: Vec<u8> = given.private.iter().map(|option| option.code).collect();
        assert_eq!(codes, [224]);
        assert_eq!(of(None), Given::default());
    }
}
