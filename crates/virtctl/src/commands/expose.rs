//! `expose`: a `Service` for the ports of a VM, a VMI or the VMIs of a replica set.

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::{
    cli::Made,
    connect::Cluster,
    failure::Usage,
    objects::{self, Kind, text},
    printer::Printer,
};

#[derive(Debug, Clone, Args)]
pub struct Expose {
    /// The kind of NAME
    #[arg(value_enum, ignore_case = true, value_name = "TYPE")]
    pub kind: ExposedKind,
    /// Name of the object to expose
    #[arg(value_name = "NAME")]
    pub object: String,
    /// Name of the service
    #[arg(long = "name", value_name = "SERVICE")]
    pub service: String,
    /// Port of the service; without it, the ports that the interface on the pod network lists
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Port of the guest: a number or a name [default: the same as --port]
    #[arg(long, value_name = "PORT", requires = "port")]
    pub target_port: Option<String>,
    /// Name of the port
    #[arg(long, value_name = "NAME", requires = "port")]
    pub port_name: Option<String>,
    /// Protocol of the port
    #[arg(long, default_value = "TCP", value_parser = ["TCP", "UDP", "SCTP"])]
    pub protocol: String,
    /// Type of the service
    #[arg(long = "type", default_value = "ClusterIP", value_name = "TYPE",
          value_parser = ["ClusterIP", "NodePort", "LoadBalancer"])]
    pub service_type: String,
    /// Cluster IP to use; None makes a headless service
    #[arg(long = "cluster-ip", value_name = "ADDRESS")]
    pub cluster_ip: Option<String>,
    /// Further address of the service
    #[arg(long = "external-ip", value_name = "ADDRESS")]
    pub external_ip: Option<String>,
    /// Address families: IPv4, IPv6, or both with a comma
    #[arg(long, value_name = "FAMILIES",
          value_parser = ["IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4"])]
    pub ip_family: Option<String>,
    /// Whether the service has one address family or both
    #[arg(long, value_name = "POLICY",
          value_parser = ["SingleStack", "PreferDualStack", "RequireDualStack"])]
    pub ip_family_policy: Option<String>,
    #[command(flatten)]
    pub made: Made,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExposedKind {
    #[value(alias = "vms", alias = "virtualmachine", alias = "virtualmachines")]
    Vm,
    #[value(
        alias = "vmis",
        alias = "virtualmachineinstance",
        alias = "virtualmachineinstances"
    )]
    Vmi,
    #[value(
        alias = "vmirss",
        alias = "virtualmachineinstancereplicaset",
        alias = "virtualmachineinstancereplicasets"
    )]
    Vmirs,
}

impl ExposedKind {
    fn kind(self) -> Kind {
        match self {
            Self::Vm => objects::VM,
            Self::Vmi => objects::VMI,
            Self::Vmirs => objects::REPLICA_SET,
        }
    }
}

pub(crate) async fn expose(cluster: &Cluster, printer: Printer, flags: &Expose) -> Result<()> {
    let namespace = &cluster.namespace;
    let path = flags.kind.kind().named(namespace, &flags.object);
    let exposed = objects::get(cluster, &path).await?;
    let service = service(flags, &exposed)?;
    let made = objects::create(cluster, &objects::SERVICE.all(namespace), &service).await?;
    if let Some(output) = flags.made.output {
        return printer.object(output, &made);
    }
    let (name, object) = (&flags.service, &flags.object);
    printer.line(&format!("Service {name} now exposes {object}"));
    Ok(())
}

fn service(flags: &Expose, exposed: &Value) -> Result<Value> {
    let mut spec = json!({
        "type": flags.service_type,
        "selector": selector(flags, exposed)?,
        "ports": ports(flags, exposed)?,
    });
    let families = flags.ip_family.as_deref();
    let families = families.map(|text| text.split(',').collect::<Vec<_>>());
    let optional = [
        ("clusterIP", flags.cluster_ip.as_deref().map(Value::from)),
        (
            "externalIPs",
            flags.external_ip.as_deref().map(|address| json!([address])),
        ),
        ("ipFamilies", families.map(Value::from)),
        (
            "ipFamilyPolicy",
            flags.ip_family_policy.as_deref().map(Value::from),
        ),
    ];
    for (field, value) in optional {
        if let Some(value) = value {
            spec[field] = value;
        }
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": flags.service, "ownerReferences": [objects::owner(exposed)?]},
        "spec": spec,
    }))
}

fn selector(flags: &Expose, exposed: &Value) -> Result<Value> {
    if flags.kind != ExposedKind::Vmirs {
        let value = launcher_pod::label_value(&flags.object);
        return Ok(json!({kubevirt_api::labels::VMI_ID: value}));
    }
    let selector = &exposed["spec"]["selector"];
    let expressions = selector["matchExpressions"].as_array();
    if expressions.is_some_and(|list| !list.is_empty()) {
        let message = format!(
            "replica set {}: spec.selector.matchExpressions cannot be the selector of a service: \
             create the service with kubectl",
            flags.object
        );
        return Err(Usage::new(message).into());
    }
    let labels = selector.get("matchLabels").cloned();
    labels.context("the replica set has no spec.selector.matchLabels")
}

fn ports(flags: &Expose, exposed: &Value) -> Result<Value> {
    if let Some(port) = flags.port {
        let mut one = json!({"protocol": flags.protocol, "port": port});
        if let Some(target) = &flags.target_port {
            one["targetPort"] = match target.parse::<u16>() {
                Ok(number) => number.into(),
                Err(_) => target.as_str().into(),
            };
        }
        if let Some(name) = &flags.port_name {
            one["name"] = name.as_str().into();
        }
        return Ok(json!([one]));
    }
    let spec = match flags.kind {
        ExposedKind::Vmi => &exposed["spec"],
        ExposedKind::Vm | ExposedKind::Vmirs => &exposed["spec"]["template"]["spec"],
    };
    let ports = listed_ports(spec);
    if ports.is_empty() {
        let message = format!(
            "{}: its interface on the pod network lists no ports: give --port",
            flags.object
        );
        return Err(Usage::new(message).into());
    }
    Ok(ports.into())
}

/// The ports that the interface on the pod network lists.
fn listed_ports(spec: &Value) -> Vec<Value> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let networks = items(&spec["networks"]);
    let Some(network) = networks.iter().find(|network| !network["pod"].is_null()) else {
        return vec![];
    };
    let interfaces = items(&spec["domain"]["devices"]["interfaces"]);
    let on_network = |interface: &&Value| text(interface, "/name") == text(network, "/name");
    let Some(interface) = interfaces.iter().find(on_network) else {
        return vec![];
    };
    let ports = items(&interface["ports"]).into_iter().enumerate();
    let ports = ports.map(|(index, listed)| {
        let mut port = json!({"name": format!("port-{}", index + 1), "port": listed["port"]});
        if let Some(protocol) = text(&listed, "/protocol") {
            port["protocol"] = protocol.into();
        }
        port
    });
    ports.collect()
}
