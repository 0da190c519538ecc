//! Checks that the ports and names of packaging/kubernetes/quorate.yaml agree. `cargo xtask package
//! check` runs its pods.

use std::collections::BTreeMap;

use saphyr::{LoadableYamlNode as _, Yaml};

const MANIFEST: &str = include_str!("../../../../../packaging/kubernetes/quorate.yaml");

/// Returns all objects by kind and name.
fn objects() -> BTreeMap<(String, String), Yaml<'static>> {
    let all = Yaml::load_from_str(MANIFEST).unwrap().into_iter();
    let named = |object: Yaml<'static>| {
        let kind = text(&object["kind"]);
        ((kind, text(&object["metadata"]["name"])), object)
    };
    all.map(named).collect()
}

fn object(kind: &str, name: &str) -> Yaml<'static> {
    let mut objects = objects();
    let object = objects.remove(&(kind.to_owned(), name.to_owned()));
    object.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn text(value: &Yaml<'_>) -> String {
    let text = value.as_str().map(str::to_owned);
    text.or_else(|| Some(value.as_integer()?.to_string()))
        .unwrap_or_else(|| panic!("no text: {value:?}"))
}

fn list<'a>(value: &'a Yaml<'_>) -> Vec<&'a Yaml<'a>> {
    value.as_sequence().unwrap().iter().collect()
}

/// Returns the pod of a stateful set and the pod's only container.
fn pod(set: &Yaml<'static>) -> (Yaml<'static>, Yaml<'static>) {
    let pod = set["spec"]["template"]["spec"].clone();
    let containers = list(&pod["containers"]).len();
    assert_eq!(containers, 1);
    let container = pod["containers"][0].clone();
    (pod, container)
}

/// Returns the flags with their values.
fn flags(container: &Yaml<'_>) -> BTreeMap<String, String> {
    let mut arguments = list(&container["args"]).into_iter().map(text);
    assert_eq!(arguments.next().as_deref(), Some("start"));
    let flag = |argument: String| {
        let (flag, value) = argument.split_once('=').unwrap();
        (flag.to_owned(), value.to_owned())
    };
    arguments.map(flag).collect()
}

/// The ports on which a node listens are those of its services and probes.
#[test]
fn ports_agree() {
    let (_, container) = pod(&object("StatefulSet", "quorate"));
    let flags = flags(&container);
    let mut ports = BTreeMap::new();
    for port in list(&container["ports"]) {
        let name = text(&port["name"]);
        let number = text(&port["containerPort"]);
        assert_eq!(flags[&format!("--{name}")], format!("0.0.0.0:{number}"));
        ports.insert(name, number);
    }
    assert_eq!(ports.len(), 4);
    for name in ["quorate", "quorate-clients"] {
        for port in list(&object("Service", name)["spec"]["ports"]) {
            assert_eq!(text(&port["port"]), ports[&text(&port["name"])]);
        }
    }
    for rule in list(&object("NetworkPolicy", "quorate")["spec"]["ingress"]) {
        for port in list(&rule["ports"]) {
            assert!(ports.contains_key(&text(&port["port"])));
        }
    }
    let probe = |name: &str| {
        let get = &container[name]["httpGet"];
        (text(&get["path"]), text(&get["port"]))
    };
    let at_admin = |path: &str| (path.to_owned(), "admin".to_owned());
    assert_eq!(probe("readinessProbe"), at_admin("/ready"));
    assert_eq!(probe("livenessProbe"), at_admin("/health"));
}

/// The list of peers has a name for each pod, as assigned by the service.
#[test]
fn names_agree() {
    let set = object("StatefulSet", "quorate");
    let (pod, container) = pod(&set);
    let replicas = text(&set["spec"]["replicas"]).parse().unwrap();
    let service = object("Service", &text(&set["spec"]["serviceName"]));
    assert_eq!(text(&service["spec"]["clusterIP"]), "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"].as_bool(), Some(true));
    let (name, service) = (text(&set["metadata"]["name"]), text(&service["metadata"]["name"]));
    let peers = (0..replicas)
        .map(|ordinal: u32| format!("{}={name}-{ordinal}.{service}:7451", ordinal + 1));
    let peers: Vec<String> = peers.collect();
    assert_eq!(flags(&container)["--cluster"], peers.join(","));
    // A majority must start before any node becomes ready.
    assert_eq!(text(&set["spec"]["podManagementPolicy"]), "Parallel");
    let label = |labels: &Yaml<'_>| text(&labels["app.kubernetes.io/name"]);
    let own = label(&set["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(label(&set["spec"]["selector"]["matchLabels"]), own);
    for ((kind, name), object) in objects() {
        let spec = &object["spec"];
        let selected = match kind.as_str() {
            "Service" => label(&spec["selector"]),
            "NetworkPolicy" => label(&spec["podSelector"]["matchLabels"]),
            _ => label(&spec["selector"]["matchLabels"]),
        };
        assert_eq!(selected, own, "{kind} {name}");
    }
    let budget = object("PodDisruptionBudget", "quorate");
    let may_go: u32 = text(&budget["spec"]["maxUnavailable"]).parse().unwrap();
    assert!(may_go * 2 < replicas, "{may_go} of {replicas} may go");
    // Data is stored below the root of the volume, where file systems keep entries of their own.
    let mount = &container["volumeMounts"][0];
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(text(&mount["name"]), text(&claim["metadata"]["name"]));
    let data = &flags(&container)["--data"];
    assert!(data.starts_with(&format!("{}/", text(&mount["mountPath"]))), "{data}");
    // It is the last release, which `cargo xtask release` sets.
    assert!(text(&container["image"]).starts_with("quorate:"));
    assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
}
