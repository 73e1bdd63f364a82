//! Maps a frame of the guest to the frame that answers it. Pure.

use super::{
    advertisement, dhcp,
    frame::{self, Ends, Request},
    settings::Settings,
};

/// The answer to a frame, if it gets one.
pub(super) fn answer(frame: &[u8], settings: &Settings) -> Option<Vec<u8>> {
    match frame::parse(frame, settings.client)? {
        Request::RouterSolicitation => Some(advertise(settings)),
        Request::Dhcp { client, message } => {
            let reply = dhcp::reply_to(message, settings)?;
            Some(frame::dhcp(ends(settings), client, &reply))
        }
    }
}

/// The frame of a router advertisement.
pub(super) fn advertise(settings: &Settings) -> Vec<u8> {
    frame::advertisement(ends(settings), advertisement::message(settings))
}

fn ends(settings: &Settings) -> Ends {
    Ends {
        server: settings.mac,
        client: settings.client,
        source: settings.source(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::frame::tests::{CLIENT, LINK, request, solicitation};
    use super::super::settings::Router;
    use super::*;

    /// Those of a masqueraded guest.
    pub(crate) fn settings() -> Settings {
        Settings {
            client: CLIENT,
            mac: [0x92, 0, 0, 0, 0, 1],
            router: Some(Router {
                address: "fe80::1".parse().unwrap(),
                mac: Some([2, 0, 0, 0, 0, 0]),
            }),
            address: "fd10:0:2::2".parse().unwrap(),
            prefix_length: 120,
            dns: vec!["fd00::a".parse().unwrap()],
            search: vec!["default.svc.local".to_owned()],
            mtu: 1450,
        }
    }

    #[test]
    fn answers_go_to_the_guest_alone() {
        let solicit = [1, 0, 0, 7, 0, 1, 0, 4, 0, 3, 0, 1];
        for (frame, to, protocol) in [
            (solicitation(), "ff02::1".parse().unwrap(), 58),
            (request(&solicit), LINK, 17),
        ] {
            let answer = answer(&frame, &settings()).unwrap();
            assert_eq!(answer[..6], CLIENT);
            assert_eq!(answer[6..12], settings().mac);
            assert_eq!((answer[20], answer[21]), (protocol, 255));
            assert_eq!(answer[22..38], settings().source().octets());
            assert_eq!(answer[38..54], to.octets());
        }
        let mut other = settings();
        other.client[5] = 0;
        assert_eq!(answer(&solicitation(), &other), None);
        assert_eq!(answer(&request(&[]), &settings()), None);
    }
}
