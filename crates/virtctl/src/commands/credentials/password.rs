//! `credentials set-password`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use k8s_openapi::ByteString;
use secrecy::ExposeSecret;

use super::{access, cli::SetPassword, secrets};
use crate::{connect::Cluster, objects, printer::Printer};

pub(super) async fn set(cluster: &Cluster, printer: Printer, flags: &SetPassword) -> Result<()> {
    let place = &flags.place;
    let vm = objects::get(cluster, &objects::VM.named(&cluster.namespace, &flags.vm)).await?;
    let names = access::password_secrets(&vm);
    let Some(name) = access::choose(&names, place.secret.as_deref())? else {
        bail!(
            "VM {} has no access credential for passwords: add one to \
             spec.template.spec.accessCredentials, or make the VM with --access-cred type:password",
            flags.vm
        );
    };
    let secret = secrets::read(cluster, &vm, name, place.force).await?;
    let password = ByteString(flags.password.expose_secret().as_bytes().to_vec());
    let entries = BTreeMap::from([(place.user.clone(), Some(password))]);
    let changed = secret.change(cluster, entries).await?;
    let message = format!("The password of {} is in Secret {name}", place.user);
    secrets::print(printer, place.changed, &[changed], &message)
}
