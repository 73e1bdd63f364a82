//! A guest that asks for the authorities, over a pair of sockets in place of the vsock.

use grpc::{Client, Code, Status};
use jiff::{SignedDuration, Timestamp};
use serving::{Authority, Leaf, Validity, believes_client};
use tokio::{
    io::{AsyncWriteExt as _, copy, sink},
    net::UnixStream,
    sync::watch,
};
use tokio_util::task::TaskTracker;

use super::{
    bundle::{Bundle, Empty, METHOD, System},
    credentials::{GuestCredentials, VSOCK_CLIENT},
    server::{MOST, connection},
};

async fn ask(credentials: Option<GuestCredentials>, method: &str) -> Result<Bundle, Status> {
    let credentials = watch::Sender::new(credentials).subscribe();
    let (near, far) = UnixStream::pair().unwrap();
    TaskTracker::new().spawn(connection(near, System { credentials }));
    let client = Client::over(far).await.unwrap();
    client.call(method, &Empty {}).await
}

#[tokio::test]
async fn guest_gets_the_authorities_of_the_certificate_that_it_is_shown() {
    let now = Timestamp::now();
    let validity = Validity::starting(now, SignedDuration::from_hours(1));
    let authority = Authority::create("kubevirt-ca", validity).unwrap();
    let leaf = Leaf::user(VSOCK_CLIENT, &[], validity);
    let credentials = GuestCredentials {
        identity: authority.issue(&leaf).unwrap(),
        authorities: authority.trust(),
    };
    let answer = ask(Some(credentials.clone()), METHOD).await.unwrap();
    let pem = String::from_utf8(answer.raw).unwrap();
    assert_eq!(pem, authority.trust().pem());
    let trust = serving::Trust::from_pem(pem);
    let known = |name: &str| believes_client(&trust, &credentials.identity, name, now).unwrap();
    assert!(known(VSOCK_CLIENT));
    assert!(!known("virt-api"));
}

#[tokio::test]
async fn other_calls_and_early_ones_are_refused() {
    let code = async |method: &str| ask(None, method).await.unwrap_err().code;
    assert_eq!(code(METHOD).await, Code::Unavailable);
    assert_eq!(
        code("/kubevirt.vsock.system.v1.System/Other").await,
        Code::Unimplemented
    );
}

#[tokio::test]
async fn guest_that_sends_without_end_is_cut_off() {
    let credentials = watch::Sender::new(None).subscribe();
    let (near, far) = UnixStream::pair().unwrap();
    TaskTracker::new().spawn(connection(near, System { credentials }));
    let (mut from, mut to) = far.into_split();
    let mut nowhere = sink();
    let answers = copy(&mut from, &mut nowhere);
    // The preface and empty settings of HTTP/2, and then pings, which are answered.
    let sending = async {
        to.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .unwrap();
        let pings = b"\0\0\x08\x06\0\0\0\0\0........".repeat(1000);
        let mut sent = 0;
        while to.write_all(&pings).await.is_ok() {
            sent += pings.len();
        }
        u64::try_from(sent).unwrap()
    };
    let (_answers, sent) = tokio::join!(Box::pin(answers), Box::pin(sending));
    // The rest was in the buffers of the sockets.
    assert!(sent < 64 * MOST, "{sent}");
}
