//! Runs containers of the image without a container engine: those of the `podman run` lines in the
//! documentation, and the pods of the Kubernetes manifest.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use quorate_shell::{Failed, is_installed, read_output, report_skip, workspace_root};
use rustix::fs::{Gid, Uid};
use saphyr::{LoadableYamlNode as _, Yaml};
use serde_json::Value;

use crate::{image::USER_ID, program::PackagedProgram};

const PACKAGES_PAGE: &str = "docs/operate/packages.md";
const KUBERNETES_MANIFEST: &str = "packaging/kubernetes/quorate.yaml";
const NEEDED_PROGRAMS: [&str; 6] = ["curl", "ip", "nsenter", "setpriv", "timeout", "unshare"];

/// A container that is to be run.
struct Container {
    name: String,
    environment: Vec<String>,
    /// Arguments in place of those of the image, if any.
    arguments: Vec<String>,
    /// Folders, and their paths in the container.
    mounts: Vec<(PathBuf, String)>,
}

/// Checks the page and the manifest with an unpacked image and its configuration.
pub(crate) fn check_containers(
    image: &Path,
    config: &Value,
    program: &PackagedProgram,
) -> Result<(), Failed> {
    let what = "no container is run";
    if let Some(missing) = NEEDED_PROGRAMS.iter().find(|name| !is_installed(name)) {
        return report_skip(what, &format!("there is no {missing}"));
    }
    let text = |name: &str| fs::read_to_string(workspace_root().join(name));
    let (page, manifest) = (text(PACKAGES_PAGE)?, text(KUBERNETES_MANIFEST)?);
    let lines = section_commands(&page, "Container").filter(|line| line.starts_with("podman run"));
    let lines: Vec<&str> = lines.collect();
    let [open, secured] = lines[..] else {
        return Err(Failed(format!(
            "{PACKAGES_PAGE}: {} lines with `podman run`, not two",
            lines.len()
        )));
    };
    for (line, client) in [
        (open, "quorate kv --client 127.0.0.1:7450 SET a b"),
        (secured, "quorate kv --client 127.0.0.1:7450 --tls certs/client-me SET a b"),
    ] {
        let folder = tempfile::tempdir()?;
        create_certificates(folder.path(), &page, "Container", program)?;
        let container = podman_container(folder.path(), line)?;
        let test = retry_line(&format!("nsenter --net=/run/netns/{} {client}", container.name));
        if !run(image, config, program, folder.path(), &[container], &test)? {
            return report_skip(what, "it takes namespaces with a bridge");
        }
        println!("  works: {line}");
    }
    let folder = tempfile::tempdir()?;
    create_certificates(folder.path(), &page, "Kubernetes", program)?;
    let (pods, test) = manifest_pods(folder.path(), &manifest, &page)?;
    run(image, config, program, folder.path(), &pods, &test)?;
    println!("  the {} pods of {KUBERNETES_MANIFEST} become ready, by its probes", pods.len());
    Ok(())
}

/// Returns the command lines in the blocks of a section.
fn section_commands<'a>(page: &'a str, heading: &str) -> impl Iterator<Item = &'a str> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading));
    let blocks = section.unwrap_or_default().split("```").skip(1).step_by(2);
    blocks.flat_map(str::lines).map(|line| line.split("  #").next().unwrap_or_default().trim_end())
}

/// Runs the commands of a section that create certificates.
fn create_certificates(
    folder: &Path,
    page: &str,
    section: &str,
    program: &PackagedProgram,
) -> Result<(), Failed> {
    for line in section_commands(page, section) {
        if let Some(words) = line.strip_prefix("quorate cert") {
            let words = words.split_whitespace();
            read_output(Command::new(&program.path).current_dir(folder).arg("cert").args(words))?;
        }
    }
    Ok(())
}

/// Returns the container of a `podman run` line of the page.
fn podman_container(folder: &Path, line: &str) -> Result<Container, Failed> {
    let (mut environment, mut mounts) = (Vec::new(), Vec::new());
    let mut words = line.split_whitespace().skip(2);
    let wrong = || Failed(format!("{PACKAGES_PAGE}: not understood: {line}"));
    while let Some(word) = words.next() {
        let value = || words.clone().next().ok_or_else(wrong);
        match word {
            "--env" => environment.push(value()?.to_owned()),
            "--volume" => {
                let parts: Vec<&str> = value()?.split(':').collect();
                let [from, to, ref options @ ..] = parts[..] else { return Err(wrong()) };
                let volume = folder.join(from);
                fs::create_dir_all(&volume)?;
                // Podman changes the owner of a new volume, and of any volume with the option U.
                if options == ["U"] || !from.starts_with('.') {
                    change_owner(&volume, USER_ID)?;
                }
                mounts.push((volume, to.to_owned()));
            }
            "--publish" => drop(value()?),
            image if image.starts_with("quorate:") => break,
            _ => return Err(wrong()),
        }
        words.next();
    }
    let arguments = words.map(str::to_owned).collect();
    Ok(Container { name: "container".to_owned(), environment, arguments, mounts })
}

/// Changes the owner of a folder and its files.
fn change_owner(folder: &Path, user: u32) -> Result<(), Failed> {
    let own = |path: &Path| {
        rustix::fs::chown(path, Some(Uid::from_raw(user)), Some(Gid::from_raw(USER_ID)))
    };
    own(folder).map_err(Failed::at_path(folder))?;
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        own(&path).map_err(Failed::at_path(&path))?;
    }
    Ok(())
}

/// Returns the pods of the manifest, and a script that waits for its probes.
fn manifest_pods(
    folder: &Path,
    manifest: &str,
    page: &str,
) -> Result<(Vec<Container>, String), Failed> {
    let objects =
        Yaml::load_from_str(manifest).map_err(Failed::at_path(Path::new(KUBERNETES_MANIFEST)))?;
    let set = objects.iter().find(|object| object["kind"].as_str() == Some("StatefulSet"));
    let set =
        &set.ok_or_else(|| Failed(format!("{KUBERNETES_MANIFEST} has no StatefulSet")))?["spec"];
    let pod = &set["template"]["spec"];
    let container = &pod["containers"][0];
    let list = |value: &'static str| container[value].as_sequence().into_iter().flatten();
    let text = |value: &Yaml<'_>| value.as_str().unwrap_or_default().to_owned();
    let secrets: Vec<(&str, &str)> = section_commands(page, "Kubernetes")
        .filter_map(|line| line.strip_prefix("kubectl create secret generic "))
        .filter_map(|words| words.split_once(" --from-file="))
        .collect();
    let (mut pods, mut test) = (Vec::new(), String::new());
    for number in 0..set["replicas"].as_integer().unwrap_or_default() {
        let name = format!("{}-{number}", text(&set["serviceName"]));
        let mut mounts = Vec::new();
        for mount in list("volumeMounts") {
            let mut volumes = pod["volumes"].as_sequence().into_iter().flatten();
            let volume = volumes.find(|volume| volume["name"] == mount["name"]);
            let secret = volume.map(|volume| text(&volume["secret"]["secretName"]));
            let from = secrets.iter().find(|(name, _)| secret.as_deref() == Some(*name));
            let from = match (from, secret) {
                (Some((_, from)), _) => folder.join(from),
                // No secret, so a new volume.
                (None, None) => folder.join(&name),
                (None, Some(secret)) => {
                    return Err(Failed(format!(
                        "{PACKAGES_PAGE} does not create the secret {secret}"
                    )));
                }
            };
            fs::create_dir_all(&from)?;
            // Same effect as `fsGroup`, which makes volumes and secrets accessible.
            read_output(Command::new("chmod").args(["-R", "g=u"]).arg(&from))?;
            change_owner(&from, 0)?;
            mounts.push((from, text(&mount["mountPath"])));
        }
        let arguments = list("args").map(|word| text(word).replace("$(POD_NAME)", &name)).collect();
        for probe in ["readinessProbe", "livenessProbe"] {
            let get = &container[probe]["httpGet"];
            let mut ports = list("ports");
            let port = ports.find(|port| port["name"] == get["port"]);
            let port = port.and_then(|port| port["containerPort"].as_integer()).unwrap_or_default();
            let scheme = get["scheme"].as_str().unwrap_or("HTTP").to_lowercase();
            let url = format!("{scheme}://{name}:{port}{}", text(&get["path"]));
            test += &retry_line(&format!("curl --fail --silent --show-error --insecure {url}"));
        }
        pods.push(Container { name, environment: Vec::new(), arguments, mounts });
    }
    for name in ["quorate-0.quorate", "quorate-2.quorate"] {
        let _ = writeln!(test, "quorate kv --client {name}:7450 --tls certs/client-me INCR a");
    }
    Ok((pods, test))
}

/// Returns a line of a script that repeats a command until it succeeds.
fn retry_line(command: &str) -> String {
    format!("until {command}; do sleep 0.2; done\n")
}

/// Runs containers and a script. Returns whether this machine permits that.
fn run(
    image: &Path,
    config: &Value,
    program: &PackagedProgram,
    folder: &Path,
    containers: &[Container],
    test: &str,
) -> Result<bool, Failed> {
    let config = &config["config"];
    let words = |key: &str| {
        let words = config[key].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    for container in containers {
        let quoted =
            |words: Vec<String>| words.iter().map(|word| format!(" '{word}'")).collect::<String>();
        let own = folder.join("containers").join(&container.name);
        fs::create_dir_all(&own)?;
        let mounts = container.mounts.iter();
        let mounts = mounts.map(|(from, to)| format!("{} {to}\n", from.display()));
        fs::write(own.join("mounts"), mounts.collect::<String>())?;
        let arguments = match container.arguments.is_empty() {
            true => words("Cmd"),
            false => container.arguments.clone(),
        };
        let environment = [words("Env"), container.environment.clone()].concat();
        let user = config["User"].as_str().unwrap_or_default();
        let command = format!(
            "exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin{} setpriv --no-new-privs chroot --userspec={user} \"$root\"{}\n",
            quoted(environment),
            quoted([words("Entrypoint"), arguments].concat()),
        );
        fs::write(own.join("run"), command)?;
    }
    let programs = program.path.canonicalize()?;
    let programs = programs.parent().unwrap_or(folder).display();
    fs::write(folder.join("test"), format!("PATH={programs}:$PATH\n{test}"))?;
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c"])
        .args([include_str!("containers.sh"), "sh"])
        .args([image, folder])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), text.contains("connected")) {
        (true, _) => Ok(true),
        (false, true) => Err(Failed(format!("containers: {}\n{text}", output.status))),
        (false, false) => Ok(false),
    }
}
