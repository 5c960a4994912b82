//! The registry of a real server as programs of others meet it: podman and docker over TLS, and images that Debian's own
//! registry gives. Each program has directories of its own; the daemon of docker makes neither bridge nor rules of a
//! firewall, and ends with its test.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::lan::House;
use super::super::the_box::TheBox;
use super::{HANG, OCI_INDEX, OCI_MANIFEST, RegistryCaller, SmallImage, can_unpack, digest, ended};

/// Longer than one program takes on a loaded machine, seconds.
const TIMEOUT_SECONDS: &str = "120";
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Of `kim` with the password `secretpw`, as htpasswd writes it.
const HTPASSWD: &str = "kim:$2y$05$abcdefghijklmnopqrstuuR7UBR7cQzqdiR2LxtQQaYH2tFlWc4Mu\n";

/// Where packages are unpacked that would start a service where they are installed.
fn unpacked() -> Option<PathBuf> {
    std::env::var_os("FARDEL_PEERS").map(PathBuf::from)
}

/// A program, unpacked or installed.
fn program(name: &str) -> Option<PathBuf> {
    let roots = unpacked().into_iter().chain([PathBuf::from("/usr")]);
    let mut places = roots.flat_map(|root| ["sbin", "bin"].map(|part| root.join(part).join(name)));
    places.find(|place| place.exists())
}

fn new_folder(name: &str) -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix(name).tempdir().expect("a folder")
}

/// A program that gets TERM when the thread of its test ends, also where that was killed.
fn ending_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// A client of registries with the words that come before all others.
struct ClientProgram {
    folder: tempfile::TempDir,
    program: PathBuf,
    first: Vec<String>,
}

impl ClientProgram {
    /// Runs it, with this text as its input.
    fn told(&self, words: &[&str], input: &str) -> Output {
        let mut child = Command::new("timeout")
            .args(["-k", "5", TIMEOUT_SECONDS])
            .arg(&self.program)
            .args(&self.first)
            .args(words)
            .env("HOME", self.folder.path())
            .env("REGISTRY_AUTH_FILE", self.file("auth.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("its input");
        // A program that asks for nothing may have closed it.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    /// What it prints; it succeeds.
    fn said(&self, words: &[&str]) -> String {
        let done = self.told(words, "");
        assert!(done.status.success(), "{words:?}: {done:?}");
        let said = String::from_utf8(done.stdout).expect("text");
        said.trim().to_owned()
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A layer that holds this, as a file.
    fn layer(&self, content: &str) -> String {
        let file = self.file(&format!("{content}.tar"));
        fs::write(&file, SmallImage::new(content).layer).expect("written");
        file
    }
}

/// What podman pushes over TLS is pulled with the digests that it named, as manifests of OCI and of Docker and as a list of
/// them. Without the server's authority and without a token it does not sign in.
///
/// Proves too: `skopeo_pushes_and_pulls_with_equal_digests`
#[tokio::test]
async fn podman_pushes_and_pulls_with_equal_digests() {
    const NAME: &str = "podman_pushes_and_pulls_with_equal_digests";
    if !can_unpack(NAME, &TheBox::open().await) {
        return;
    }
    let Some(program) = program("podman") else {
        skips::skip(NAME, "podman is not here");
        return;
    };
    let house = House::open();
    let (token, host) = (house.token(), format!("127.0.0.1:{}", house.console));
    let folder = new_folder("fardel-podman-");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let first = vec![
        format!("--root={}", place("root")),
        format!("--runroot={}", place("run")),
        "--storage-driver=vfs".to_owned(),
        // Else it keeps its state and its networks where other containers of this machine have theirs.
        format!("--tmpdir={}", place("tmp")),
        format!("--network-config-dir={}", place("networks")),
    ];
    let certificates = folder.path().join("certificates");
    fs::create_dir(&certificates).expect("made");
    fs::copy(house.authority(), certificates.join("ca.crt")).expect("copied");
    let trust = format!("--cert-dir={}", certificates.display());
    let policy = folder.path().join(".config/containers");
    fs::create_dir_all(&policy).expect("made");
    let any = json!({"default": [{"type": "insecureAcceptAnything"}]}).to_string();
    fs::write(policy.join("policy.json"), any).expect("written");
    let podman = ClientProgram {
        folder,
        program,
        first,
    };

    let sign_in = |more: &[&str], token: &str| {
        let words = ["login", "-u", "mina", "--password-stdin"];
        let words = [&words[..], more, &[host.as_str()]].concat();
        podman.told(&words, token)
    };
    let unknown = sign_in(&[], &token);
    assert!(!unknown.status.success(), "without the authority");
    let wrong = sign_in(&[&trust], "fardel_wrong");
    assert!(!wrong.status.success(), "without a token");
    let right = sign_in(&[&trust], &token);
    assert!(right.status.success(), "{right:?}");

    let own = format!("{host}/lab/tiny:1");
    podman.said(&["import", "-q", &podman.layer("hello"), &own]);
    let note = podman.file("digest");
    let noted = || fs::read_to_string(&note).expect("a digest");
    let mut pushed = Vec::new();
    for format in ["oci", "v2s2"] {
        let there = format!("{host}/lab/tiny:{format}");
        let push = ["push", "-q", &trust, "--digestfile", &note, "--format"];
        podman.said(&[&push[..], &[format, &own, &format!("docker://{there}")]].concat());
        pushed.push((there, noted()));
    }
    assert_ne!(pushed[0].1, pushed[1].1, "manifests of two kinds");
    for (there, digest) in &pushed {
        podman.said(&["rmi", "-af"]);
        podman.said(&["pull", "-q", &trust, there]);
        let shown = podman.said(&["image", "inspect", "--format", "{{.Digest}}", there]);
        assert_eq!(shown, *digest, "{there}");
    }

    podman.said(&["manifest", "create", "many"]);
    let listed = format!("docker://{host}/lab/tiny:oci");
    podman.said(&["manifest", "add", &trust, "many", &listed]);
    let there = format!("docker://{host}/lab/many:1");
    let push = ["manifest", "push", "--all", &trust, "--digestfile", &note];
    podman.said(&[&push[..], &["many", &there]].concat());
    podman.said(&["rmi", "-af"]);
    // It is there under the digest that it was pushed with.
    let by_digest = format!("{host}/lab/many@{}", noted());
    podman.said(&["pull", "-q", &trust, &by_digest]);
}

/// A daemon of docker, with the client that speaks to it.
struct DockerDaemon {
    child: Child,
    client: ClientProgram,
}

impl DockerDaemon {
    /// Errors: why there is none here.
    fn start() -> Result<Self, String> {
        let found = |name: &str| program(name).ok_or_else(|| format!("{name} is not here"));
        let (daemon, client) = (found("dockerd")?, found("docker")?);
        found("containerd")?;
        let folder = new_folder("fardel-docker-");
        let place = |name: &str| folder.path().join(name).display().to_string();
        // Else it makes its key below /etc.
        let settings = json!({"deprecated-key-path": place("key.json")}).to_string();
        fs::write(place("daemon.json"), settings).expect("written");
        let mut path = PATH.to_owned();
        if let Some(root) = unpacked() {
            let root = root.display();
            path = format!("{root}/bin:{root}/sbin:{path}");
        }
        let socket = format!("unix://{}", place("socket"));
        let log = fs::File::create(place("log")).expect("a log");
        let child = ending_with_us(&daemon)
            .arg(format!("--config-file={}", place("daemon.json")))
            .arg(format!("--data-root={}", place("data")))
            .arg(format!("--exec-root={}", place("run")))
            .arg(format!("--pidfile={}", place("pid")))
            .arg(format!("--host={socket}"))
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .args(["--ip-forward=false", "--storage-driver=vfs"])
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .map_err(|error| format!("the daemon does not start: {error}"))?;
        let first = vec![
            format!("--config={}", place("client")),
            format!("--host={socket}"),
        ];
        let client = ClientProgram {
            folder,
            program: client,
            first,
        };
        let mut started = Self { child, client };
        let begun = Instant::now();
        while !started.client.told(&["version"], "").status.success() {
            let is_over = started.child.try_wait().expect("looked").is_some();
            if is_over || begun.elapsed() > HANG {
                let log = started.log();
                let last = log.lines().last().unwrap_or_default();
                return Err(format!("the daemon does not serve: {last}"));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(started)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.client.file("log")).unwrap_or_default()
    }
}

impl Drop for DockerDaemon {
    /// Ends it by TERM, upon which it ends its containerd and takes its mounts down.
    fn drop(&mut self) {
        let end = format!("kill {}", self.child.id());
        let _ = Command::new("sh").args(["-c", &end]).status();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < HANG {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // It binds its data on itself. Where it fell, that mount stays.
        let data = self.client.file("data");
        let _ = Command::new("umount")
            .args(["-q", "-l", &data])
            .stderr(Stdio::null())
            .status();
        if std::thread::panicking() {
            eprintln!("docker said:\n{}", self.log());
        }
    }
}

/// The digest that a push ends with.
fn pushed_digest(said: &str) -> String {
    let (_, rest) = said.rsplit_once("digest: ").expect("a digest");
    let digest = rest.split_whitespace().next();
    digest.unwrap_or_default().to_owned()
}

/// What docker pushes is pulled with the digest that it named, under a second name too, and a tag that moved gives the newer
/// image. Docker takes any certificate from a loopback address; podman is who looks at ours.
///
/// Proves too: `skopeo_pushes_and_pulls_with_equal_digests`
#[tokio::test]
async fn docker_pushes_and_pulls_with_equal_digests() {
    const NAME: &str = "docker_pushes_and_pulls_with_equal_digests";
    if !can_unpack(NAME, &TheBox::open().await) {
        return;
    }
    let daemon = match DockerDaemon::start() {
        Ok(daemon) => daemon,
        Err(reason) => {
            skips::skip(NAME, &reason);
            return;
        }
    };
    let docker = &daemon.client;
    let house = House::open();
    let (token, host) = (house.token(), format!("127.0.0.1:{}", house.console));
    let sign_in = |token: &str| {
        let words = ["login", "-u", "mina", "--password-stdin", host.as_str()];
        docker.told(&words, token)
    };
    assert!(!sign_in("fardel_wrong").status.success(), "without a token");
    let right = sign_in(&token);
    assert!(right.status.success(), "{right:?}");

    let [own, other] = ["lab/tiny:1", "lab/other:2"].map(|name| format!("{host}/{name}"));
    let image = docker.said(&["import", &docker.layer("hello"), &own]);
    let pushed = pushed_digest(&docker.said(&["push", &own]));
    docker.said(&["tag", &own, &other]);
    assert_eq!(pushed_digest(&docker.said(&["push", &other])), pushed);
    docker.said(&["rmi", &own, &other]);
    for name in [&own, &other] {
        docker.said(&["pull", "-q", name]);
        let shown = docker.said(&[
            "image",
            "inspect",
            "--format",
            "{{.Id}} {{.RepoDigests}}",
            name,
        ]);
        assert!(shown.starts_with(&image), "{shown}");
        assert!(shown.contains(&pushed), "{shown} has no {pushed}");
    }

    let newer = docker.said(&["import", &docker.layer("newer"), &own]);
    assert_ne!(pushed_digest(&docker.said(&["push", &own])), pushed);
    docker.said(&["rmi", &own]);
    docker.said(&["pull", "-q", &own]);
    let shown = docker.said(&["image", "inspect", "--format", "{{.Id}}", &own]);
    assert_eq!(shown, newer);
}

/// Debian's registry, with TLS and one user.
struct DebianRegistry {
    folder: tempfile::TempDir,
    child: Child,
    host: String,
}

impl DebianRegistry {
    /// Errors: why there is none here.
    fn start() -> Result<Self, String> {
        let found = |name: &str| program(name).ok_or_else(|| format!("{name} is not here"));
        let (registry, openssl) = (found("docker-registry")?, found("openssl")?);
        let folder = new_folder("fardel-registry-");
        let made = Command::new(openssl)
            .current_dir(folder.path())
            .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-subj", "/CN=registry of a test"])
            .args(["-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", "key.pem", "-out", "ca.crt"])
            .output()
            .expect("it runs");
        assert!(made.status.success(), "{made:?}");
        let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
        let host = probe.local_addr().expect("bound").to_string();
        drop(probe);
        let settings = json!({
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": folder.path().join("data")}},
            "auth": {"htpasswd": {"realm": "test", "path": folder.path().join("htpasswd")}},
            "http": {
                "addr": host,
                "tls": {
                    "certificate": folder.path().join("ca.crt"),
                    "key": folder.path().join("key.pem"),
                },
            },
        });
        // JSON is YAML.
        let file = folder.path().join("settings.yml");
        fs::write(&file, settings.to_string()).expect("written");
        fs::write(folder.path().join("htpasswd"), HTPASSWD).expect("written");
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let child = ending_with_us(&registry)
            .arg("serve")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .map_err(|error| format!("the registry does not start: {error}"))?;
        let mut started = Self {
            folder,
            child,
            host,
        };
        let begun = Instant::now();
        while TcpStream::connect(&started.host).is_err() {
            let ended = started.child.try_wait().expect("looked");
            assert!(ended.is_none() && begun.elapsed() < HANG, "{ended:?}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(started)
    }

    /// Has skopeo push an OCI layout.
    fn take(&self, skopeo: &Path, layout: &Path, name: &str) {
        let pushed = Command::new("timeout")
            .args(["-k", "5", TIMEOUT_SECONDS])
            .arg(skopeo)
            .args(["--insecure-policy", "copy", "--all", "--preserve-digests"])
            .arg(format!("--dest-cert-dir={}", self.folder.path().display()))
            .arg("--dest-creds=kim:secretpw")
            .arg(format!("oci:{}", layout.display()))
            .arg(format!("docker://{}/{name}", self.host))
            .env("HOME", self.folder.path())
            .output()
            .expect("it runs");
        assert!(pushed.status.success(), "{name}: {pushed:?}");
    }
}

impl Drop for DebianRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            eprintln!("the registry said:\n{}", log.unwrap_or_default());
        }
    }
}

/// Two images and an index of them, for this kind of machine and for another.
fn lay_down_index(folder: &Path, ours: &SmallImage, other: &SmallImage) {
    other.lay_down(folder);
    ours.lay_down(folder);
    let config: Value = serde_json::from_slice(&ours.config).expect("JSON");
    let entry = |image: &SmallImage, architecture: &Value| {
        json!({
            "mediaType": OCI_MANIFEST,
            "digest": digest(&image.manifest),
            "size": image.manifest.len(),
            "platform": {"os": "linux", "architecture": architecture},
        })
    };
    let index = json!({
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [entry(other, &json!("other")), entry(ours, &config["architecture"])],
    })
    .to_string();
    let name = digest(index.as_bytes());
    let name = name.trim_start_matches("sha256:");
    fs::write(folder.join("blobs/sha256").join(name), &index).expect("written");
    let outer = json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": OCI_INDEX,
            "digest": digest(index.as_bytes()),
            "size": index.len(),
        }],
    });
    fs::write(folder.join("index.json"), outer.to_string()).expect("written");
}

/// An image of Debian's registry, over TLS and by name and password, is pulled byte for byte; of an index, the manifest for
/// this kind of machine is.
#[tokio::test]
async fn images_are_pulled_from_debians_registry() {
    const NAME: &str = "images_are_pulled_from_debians_registry";
    if !can_unpack(NAME, &TheBox::open().await) {
        return;
    }
    let Some(skopeo) = program("skopeo") else {
        skips::skip(NAME, "skopeo is not here");
        return;
    };
    let registry = match DebianRegistry::start() {
        Ok(registry) => registry,
        Err(reason) => {
            skips::skip(NAME, &reason);
            return;
        }
    };
    let folder = registry.folder.path();
    let [one, ours, other] = ["one", "ours", "other"].map(SmallImage::new);
    one.lay_down(&folder.join("one"));
    lay_down_index(&folder.join("many"), &ours, &other);
    for name in ["one", "many"] {
        let there = format!("lab/{name}:1");
        registry.take(&skopeo, &folder.join(name), &there);
    }
    let credentials = folder.join("credentials.json");
    let pair = STANDARD.encode("kim:secretpw");
    let auths = json!({"auths": {registry.host.clone(): {"auth": pair}}}).to_string();
    fs::write(&credentials, auths).expect("written");
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&credentials, closed).expect("closed to others");
    // They live as long as the test's process: settings of a box are static.
    let host: &'static str = registry.host.clone().leak();
    let authority: &'static str = folder.join("ca.crt").display().to_string().leak();
    let credentials: &'static str = credentials.display().to_string().leak();
    let more: &'static [(&'static str, &'static str)] = vec![
        ("FARDEL_REGISTRIES", host),
        ("FARDEL_REGISTRY_CA_FILE", authority),
        ("FARDEL_REGISTRY_CREDENTIALS_FILE", credentials),
    ]
    .leak();
    let here = TheBox::with(more, Vec::new()).await;
    let ada = RegistryCaller {
        the_box: &here,
        name: "ada",
        who: &here.admin,
    };
    for (name, image) in [("one", &one), ("many", &ours)] {
        let body = json!({ "image": format!("{host}/lab/{name}:1") });
        let answer = here.post(&here.admin, "/api/v1/images/pull", body).await;
        assert_eq!(answer.status, 202, "{}", answer.short());
        let done = ended(&here, &answer.json()).await;
        assert_eq!(done["state"], "succeeded", "{done}");
        let path = format!("/v2/lab/{name}/manifests/1");
        let manifest = ada.ask("GET", &path, &[], b"").await;
        assert_eq!(manifest.bytes, image.manifest, "{name}");
        let layer = format!("/v2/lab/{name}/blobs/{}", digest(&image.layer));
        assert_eq!(ada.ask("GET", &layer, &[], b"").await.bytes, image.layer);
    }
}
