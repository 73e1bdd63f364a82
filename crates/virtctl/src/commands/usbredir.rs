//! `usbredir`: a USB device of this computer in a guest.

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::{net::TcpListener, process::Command};

use super::port_forward::copy;
use crate::{
    connect::Cluster,
    failure::Usage,
    printer::Printer,
    subresource::{self, NotOpened, path},
};

const PROGRAM: &str = "usbredirect";

#[derive(Debug, Clone, Args)]
pub struct UsbRedir {
    /// The device, as VENDOR:PRODUCT or BUS-DEVICE, and the name of the VMI
    #[arg(required = true, num_args = 1..=2, value_names = ["DEVICE", "VMI"])]
    pub device_and_vmi: Vec<String>,
    /// Do not start usbredirect; only VMI is needed then
    #[arg(long)]
    pub no_launch: bool,
}

pub(crate) async fn usbredir(cluster: &Cluster, printer: Printer, flags: &UsbRedir) -> Result<()> {
    let (device, vmi) = arguments(flags)?;
    let path = path(cluster, "virtualmachineinstances", vmi, "usbredir");
    let opened = subresource::open(&cluster.client, &path).await;
    let stream = opened.map_err(|error| match error {
        NotOpened::Missing(message) | NotOpened::NotRunning(message) => anyhow::anyhow!(message),
        NotOpened::Failed(error) => error,
    })?;
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .context("listen on a local port")?;
    let address = listener.local_addr().context("read the local port")?;
    let accepted = async {
        let (local, _) = listener.accept().await.context("accept usbredirect")?;
        copy::with_connection(stream, local).await
    };
    let Some(device) = device else {
        printer.line(&format!(
            "Run now: {PROGRAM} --device DEVICE --to {address}"
        ));
        return accepted.await;
    };
    let mut child = Command::new(PROGRAM)
        .args(["--device", device, "--to", &address.to_string()])
        .kill_on_drop(true)
        .spawn()
        .with_context(|| {
            format!("start {PROGRAM}: install it, or use --no-launch and start it elsewhere")
        })?;
    tokio::select! {
        copied = accepted => copied,
        ended = child.wait() => {
            let status = ended.context("wait for usbredirect")?;
            if status.success() { Ok(()) } else { bail!("{PROGRAM} ended with {status}") }
        }
    }
}

/// The device, unless its client is started elsewhere, and the VMI.
fn arguments(flags: &UsbRedir) -> Result<(Option<&str>, &str), Usage> {
    match (flags.device_and_vmi.as_slice(), flags.no_launch) {
        ([vmi], true) => Ok((None, vmi)),
        ([_, _], true) => Err(Usage::new("--no-launch takes no device: name only the VMI")),
        ([_], false) => Err(Usage::new(
            "name the device and the VMI, such as 0951:1666 myvmi, or use --no-launch",
        )),
        ([device, vmi], false) if is_device(device) => Ok((Some(device), vmi)),
        ([device, _], false) => Err(Usage::new(format!(
            "device {device:?}: write VENDOR:PRODUCT such as 0951:1666, or BUS-DEVICE such as 2-3"
        ))),
        _ => Err(Usage::new("name the device and the VMI")),
    }
}

fn is_device(text: &str) -> bool {
    let hexadecimal = |part: &str| part.len() == 4 && part.chars().all(|c| c.is_ascii_hexdigit());
    let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let by_id = text.split_once(':');
    let by_place = text.split_once('-');
    by_id.is_some_and(|(vendor, product)| hexadecimal(vendor) && hexadecimal(product))
        || by_place.is_some_and(|(bus, device)| number(bus) && number(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_and_vmi_are_checked() {
        let parse = |words: &[&str], no_launch| {
            let flags = UsbRedir {
                device_and_vmi: words.iter().map(|word| (*word).to_owned()).collect(),
                no_launch,
            };
            let parsed = arguments(&flags);
            parsed.map(|(device, vmi)| (device.map(ToOwned::to_owned), vmi.to_owned()))
        };
        let with = |device: &str| Ok((Some(device.to_owned()), "a".to_owned()));
        for device in ["0951:1666", "02-03"] {
            assert_eq!(parse(&[device, "a"], false).map_err(|_| ()), with(device));
        }
        assert_eq!(parse(&["a"], true).unwrap(), (None, "a".to_owned()));
        for (words, no_launch) in [
            (&["a"][..], false),
            (&["951:1666", "a"], false),
            (&["0951:1666", "a"], true),
        ] {
            parse(words, no_launch).unwrap_err();
        }
    }
}
