//! `release/publish`, with a registry on loopback: what it pushes can be pulled, installed and run, and says the same everywhere.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output},
};

use serde_json::{Value, json};
use tenure_testbed::{Cluster, RELEASE_NAMESPACE, eventually, program};
use tenure_tests::DEADLINE;

const VERSION: &str = env!("CARGO_PKG_VERSION");

const PROJECT: [(&str, &str); 3] = [
    ("HOME_URL", "https://example.com/tenure"),
    ("SOURCE_URL", "https://example.com/tenure/source"),
    ("SECURITY_CONTACT", "mailto:security@example.com"),
];

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn success(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(status.success(), "{command:?}: {}{}", text(stdout.clone()), text(stderr));
    text(stdout)
}

fn sha256(file: &Path) -> String {
    success(Command::new("sha256sum").arg(file)).split(' ').next().unwrap().to_owned()
}

/// crane, with a registry that it serves until the end of the test.
struct Registry {
    crane: PathBuf,
    process: Child,
    address: String,
}

impl Registry {
    async fn start(directory: &Path) -> Self {
        let built = success(
            Command::new("go").current_dir(workspace()).args(["tool", "-C", "release", "-n", "crane"]),
        );
        let crane = PathBuf::from(built.trim());
        let serve = ["registry", "serve", "--address", "127.0.0.1:0"];
        // it says its port there, and goes on writing
        let log = directory.join("registry.log");
        let stderr = File::create(&log).unwrap();
        let process = Command::new(&crane).args(serve).stderr(stderr).spawn().unwrap();
        let port = eventually("the registry to serve", DEADLINE, async || {
            let text = fs::read_to_string(&log)?;
            Ok(text.lines().find_map(|line| Some(line.split_once("serving on port ")?.1.to_owned())))
        });
        let port = port.await.unwrap();
        Self { crane, process, address: format!("127.0.0.1:{port}") }
    }

    fn crane(&self, arguments: &[&str]) -> String {
        success(Command::new(&self.crane).args(arguments)).trim().to_owned()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The programs of this build in place of those of each platform: without debug information, or they would be ten times as large.
fn programs(files: &Path) {
    let directories = ["linux-amd64", "linux-arm64"].map(|platform| files.join("programs").join(platform));
    for directory in &directories {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("version"), VERSION).unwrap();
    }
    for name in ["tenure-webhook", "tenure-keeper", "kubectl-tenure"] {
        let [stripped, copy] = directories.each_ref().map(|directory| directory.join(name));
        success(Command::new("strip").arg("-o").args([&stripped, &program(name).unwrap()]));
        fs::copy(&stripped, copy).unwrap();
    }
}

/// `release/publish`, with helm on its PATH and all that it asks for, but for a registry.
fn publish(files: &Path, helm: &Path) -> Command {
    let mut command = Command::new(workspace().join("release/publish"));
    let path =
        env::join_paths([helm.to_owned()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap())));
    command
        .env("PATH", path.unwrap())
        .env("FILES", files)
        .env("HELM_CONFIG_HOME", files.join("helm"))
        .envs(PROJECT);
    command.env_remove("REGISTRY").env_remove("VERSION");
    command
}

/// The lines of the Dockerfile about an image that begin with a word.
fn dockerfile(image: &str, word: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace().join("Dockerfile")).unwrap();
    let lines = text.lines().skip_while(|line| !line.ends_with(&format!("FROM scratch AS {image}"))).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("FROM"));
    lines.filter_map(|line| line.strip_prefix(&format!("{word} "))).map(str::to_owned).collect()
}

fn assert_image(registry: &Registry, image: &str, files: &Path) {
    let name = format!("{}/gpu/tenure-{image}:{VERSION}", registry.address);
    let index: Value = serde_json::from_str(&registry.crane(&["manifest", &name])).unwrap();
    let platforms = index["manifests"].as_array().unwrap().iter().map(|of| of["platform"].clone());
    let architectures = ["amd64", "arm64"];
    let expected = architectures.map(|architecture| json!({"architecture": architecture, "os": "linux"}));
    assert_eq!(platforms.collect::<Vec<_>>(), expected, "{image}");
    for architecture in architectures {
        let platform = format!("linux/{architecture}");
        let config: Value =
            serde_json::from_str(&registry.crane(&["config", "--platform", &platform, &name])).unwrap();
        let config = &config["config"];
        let entrypoint: Value = serde_json::from_str(&dockerfile(image, "ENTRYPOINT").concat()).unwrap();
        assert_eq!(config["Entrypoint"], entrypoint, "{image}");
        assert_eq!(json!([config["User"]]), json!(dockerfile(image, "USER")), "{image}");
        let ports = config["ExposedPorts"].as_object().unwrap().keys();
        let mut exposed: Vec<_> =
            dockerfile(image, "EXPOSE").concat().split(' ').map(str::to_owned).collect();
        exposed.sort();
        assert_eq!(ports.map(|port| port.trim_end_matches("/tcp")).collect::<Vec<_>>(), exposed, "{image}");
        assert_eq!(config["Labels"]["org.opencontainers.image.version"], VERSION);

        let pulled = files.join(format!("{image}-{architecture}"));
        fs::create_dir(&pulled).unwrap();
        let tar = pulled.join("image.tar");
        registry.crane(&["export", "--platform", &platform, &name, tar.to_str().unwrap()]);
        success(Command::new("tar").arg("--extract").arg("--file").arg(&tar).arg("--directory").arg(&pulled));
        let (program, built) =
            (format!("tenure-{image}"), files.join("programs").join(format!("linux-{architecture}")));
        assert_eq!(sha256(&pulled.join(&program)), sha256(&built.join(&program)), "{image}");
        let version = success(Command::new(pulled.join(&program)).arg("--version"));
        assert!(version.contains(VERSION), "{version}");
    }
}

/// The plugin from its archive, whose checksum stands in two files.
fn assert_plugin(out: &Path, files: &Path) -> PathBuf {
    let name = format!("kubectl-tenure-{VERSION}-linux-amd64.tar.gz");
    let archive = out.join(&name);
    let checksum = sha256(&archive);
    let checksums = fs::read_to_string(out.join("checksums.txt")).unwrap();
    assert!(checksums.contains(&format!("{checksum}  {name}")), "{checksums}");
    let krew = fs::read_to_string(out.join("tenure.yaml")).unwrap();
    let krew: Value = serde_saphyr::from_str(&krew).unwrap();
    assert_eq!(krew["spec"]["version"], format!("v{VERSION}"));
    let platforms = krew["spec"]["platforms"].as_array().unwrap();
    let platform = platforms
        .iter()
        .find(|of| of["selector"]["matchLabels"] == json!({"os": "linux", "arch": "amd64"}))
        .unwrap();
    assert_eq!(platform["sha256"], checksum);
    let uri = format!("https://example.com/tenure/source/releases/download/v{VERSION}/{name}");
    assert_eq!((&platform["uri"], &platform["bin"]), (&json!(uri), &json!("kubectl-tenure")));
    success(Command::new("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(files));
    files.join("kubectl-tenure")
}

#[tokio::test]
async fn what_is_published_to_a_registry_is_pulled_installed_and_run_from_there() {
    let cluster = Cluster::start_api_server_alone("release").await.unwrap();
    let files = &cluster.directory().join("release");
    fs::create_dir(files).unwrap();
    let registry = Registry::start(files).await;
    programs(files);
    let mut command = publish(files, cluster.binaries().directory());
    let said = success(command.env("REGISTRY", format!("{}/gpu", registry.address)).env("VERSION", VERSION));
    let out = files.join(VERSION);
    let chart = format!("oci://{}/gpu/charts/tenure", registry.address);
    assert!(said.contains(&format!("helm install tenure {chart} --version {VERSION}")), "{said}");
    for image in ["webhook", "keeper"] {
        assert_image(&registry, image, files);
    }

    let install =
        ["install", "tenure", &chart, "--version", VERSION, "--plain-http", "--namespace", RELEASE_NAMESPACE];
    cluster.helm(&[&install[..], &["--create-namespace"]].concat()).await.unwrap().success().unwrap();
    for image in ["webhook", "keeper"] {
        let repository = format!("{}/gpu/tenure-{image}", registry.address);
        let digest = registry.crane(&["digest", &format!("{repository}:{VERSION}")]);
        let field = "jsonpath={.spec.template.spec.containers[0].image}";
        let get = [
            "get",
            "deployment",
            &format!("tenure-{image}"),
            "--namespace",
            RELEASE_NAMESPACE,
            "--output",
            field,
        ];
        let used = cluster.kubectl(&get).await.unwrap().success().unwrap();
        assert_eq!(used, format!("{repository}@{digest}"));
    }
    let metadata =
        cluster.helm(&["show", "chart", &chart, "--version", VERSION, "--plain-http"]).await.unwrap();
    let metadata: Value = serde_saphyr::from_str(&metadata.success().unwrap()).unwrap();
    assert_eq!((&metadata["version"], &metadata["appVersion"]), (&json!(VERSION), &json!(VERSION)));
    let [(_, home), (_, source), (_, contact)] = PROJECT;
    assert_eq!((&metadata["home"], &metadata["sources"]), (&json!(home), &json!([source])));
    assert!(
        metadata["annotations"]["artifacthub.io/links"].as_str().unwrap().contains(contact),
        "{metadata}"
    );

    // as the README has it done, so that the commands of the pages find their files
    let charts = files.join("charts").display().to_string();
    let pull = ["pull", &chart, "--version", VERSION, "--plain-http", "--untar", "--untardir", &charts];
    cluster.helm(&pull).await.unwrap().success().unwrap();
    for file in ["values-kai.yaml", "files/crds/scheduling.run.ai_queues.yaml"] {
        assert!(Path::new(&charts).join("tenure").join(file).exists(), "{file}");
    }

    let plugin = assert_plugin(&out, files);
    let version = success(Command::new(&plugin).arg("version").env("KUBECONFIG", cluster.kubeconfig()));
    assert!(version.contains(VERSION), "{version}");
    let queues = success(Command::new(&plugin).args(["list", "-A"]).env("KUBECONFIG", cluster.kubeconfig()));
    assert_eq!(queues, "");
}

#[test]
fn a_release_that_lacks_something_is_refused_before_anything_is_pushed() {
    let files = Path::new("/nonexistent");
    let refusal = |changes: &[(&str, &str)], sentence: &str| {
        let mut command = publish(files, files);
        let Output { status, stderr, .. } = command.envs(changes.iter().copied()).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(!status.success() && stderr.contains(sentence), "{changes:?}: {stderr}");
    };
    let registry = ("REGISTRY", "127.0.0.1:1");
    refusal(&[], "REGISTRY is empty: name where images and chart go");
    refusal(
        &[registry, ("VERSION", "9.9.9")],
        &format!("VERSION is 9.9.9, but the programs are of version {VERSION}"),
    );
    for (variable, _) in PROJECT {
        refusal(&[registry, (variable, "")], &format!("{variable} is empty: set it in release/project"));
    }
}
