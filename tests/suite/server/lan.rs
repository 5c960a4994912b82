//! A real server on the network: who is believed, what plain HTTP gets, which ports are open, and that
//! nothing leaves the machine. Clients are the ones that people have: curl, wget, openssl, python.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than a start takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);
const PASSWORD: &str = super::the_box::PASSWORD;

/// A server process with a console, a way to it and a second origin, all on loopback.
pub(super) struct House {
    folder: tempfile::TempDir,
    pub(super) child: Child,
    pub(super) console: u16,
    pub(super) way: u16,
    pub(super) apps: u16,
}

fn free_port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
    probe.local_addr().expect("bound").port()
}

impl House {
    pub(super) fn open() -> Self {
        Self::start(&[], "on")
    }

    /// Starts the server, as the last words of `before` where there are some; `tls` as the setting says it.
    pub(super) fn start(before: &[&str], tls: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("fardel-lan-")
            .tempdir()
            .expect("a folder");
        let ports = [free_port(), free_port(), free_port()];
        let binary = env!("CARGO_BIN_EXE_fardel");
        let words: Vec<&str> = before.iter().copied().chain([binary, "serve"]).collect();
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let child = Command::new(words[0])
            .args(&words[1..])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", folder.path())
            .env("FARDEL_CONFIG", "/nonexistent")
            .env("FARDEL_DATA", folder.path().join("d"))
            .env("FARDEL_RUN", folder.path().join("r"))
            .env("FARDEL_POOL_SIZE", "none")
            .env("FARDEL_SESSION_DISK", "none")
            .env("FARDEL_TLS", tls)
            .env("FARDEL_LISTEN", format!("127.0.0.1:{}", ports[0]))
            .env("FARDEL_LISTEN_HTTP", format!("127.0.0.1:{}", ports[1]))
            .env("FARDEL_LISTEN_APPS", format!("127.0.0.1:{}", ports[2]))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let mut house = Self {
            folder,
            child,
            console: ports[0],
            way: ports[1],
            apps: ports[2],
        };
        let began = Instant::now();
        while !house.said().contains("stop ") {
            let ended = house.child.try_wait().expect("looked");
            assert!(
                ended.is_none() && began.elapsed() < TIMEOUT,
                "the server does not serve ({ended:?}):\n{}",
                house.said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        if tls == "on" {
            fs::write(house.authority(), house.authority_pem()).expect("written");
        }
        house
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.crt")
    }

    fn authority_pem(&self) -> String {
        let kept = fs::read_to_string(self.folder.path().join("d/tls/authority.pem"));
        let kept = kept.expect("the authority");
        let at = kept
            .find("-----BEGIN CERTIFICATE-----")
            .expect("a certificate");
        kept[at..].to_owned()
    }

    fn fingerprint(&self) -> String {
        let said = self.said();
        let line = said.lines().find(|line| line.contains("SHA-256"));
        let line = line.expect("the server says its fingerprint");
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    }

    fn at(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.console)
    }

    /// What a program of this machine prints; the server's authority in `$CA`.
    fn sh(&self, script: &str) -> String {
        let done = Command::new("sh")
            .args(["-c", script])
            .env("CA", self.authority())
            .env("AT", self.at(""))
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        text(&done)
    }

    /// The product's own command line as somebody else on the network.
    fn fardel(&self, words: &[&str]) -> (i32, String) {
        let done = Command::new(env!("CARGO_BIN_EXE_fardel"))
            .args(words)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("FARDEL_CONFIG", "/nonexistent")
            .stdin(Stdio::null())
            .output()
            .expect("the product");
        (done.status.code().unwrap_or(-1), text(&done))
    }

    fn local(&self, words: &[&str]) -> (i32, String) {
        let run = self.folder.path().join("r").display().to_string();
        self.fardel(&[&["--run", run.as_str()], words].concat())
    }

    fn user(&self) -> PathBuf {
        let file = self.folder.path().join("password");
        fs::write(&file, PASSWORD).expect("written");
        let shown = file.display().to_string();
        let words = [
            "user",
            "add",
            "mina",
            "--administrator",
            "--password-file",
            &shown,
        ];
        let (code, said) = self.local(&words);
        assert_eq!(code, 0, "{said}");
        file
    }
}

impl House {
    /// A token of somebody new who may do everything.
    pub(super) fn token(&self) -> String {
        self.user();
        let words = format!("{{\"name\": \"mina\", \"password\": \"{PASSWORD}\"}}");
        let (code, said) = self.local(&["api", "POST", "/sign-in", &words]);
        assert_eq!(code, 0, "{said}");
        let token: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        token["secret"].as_str().expect("a secret").to_owned()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server said:\n{}", self.said());
        }
    }
}

fn text(done: &Output) -> String {
    let all = [&done.stdout[..], &done.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

fn lacks(program: &str) -> bool {
    let look = format!("command -v {program} >/dev/null && {program} --version >/dev/null 2>&1");
    !Command::new("sh")
        .args(["-c", &look])
        .status()
        .is_ok_and(|status| status.success())
}

/// Promise (Isolation and access): The LAN is encrypted from the first second by the server's own certificate
/// authority. curl, wget, python and openssl accept the server with that authority's certificate and reject it
/// without.
#[test]
fn users_s_own_programs_believe_the_box_by_its_authority_and_not_without() {
    let house = House::open();
    let python = "import ssl,urllib.request as u,sys; print(u.urlopen(sys.argv[1]+'/healthz', context=ssl.create_default_context(cafile=sys.argv[2] or None)).read().decode())";
    let programs = [
        (
            "curl",
            "curl -sS --cacert $CA $AT/healthz".to_owned(),
            "curl -sS $AT/healthz; test $? = 60 && echo refused".to_owned(),
        ),
        (
            "curl",
            "curl -sS --http1.1 --cacert $CA $AT/healthz".to_owned(),
            "curl -sS --http1.1 $AT/healthz || echo refused".to_owned(),
        ),
        (
            "wget",
            "wget -qO- --ca-certificate=$CA $AT/healthz".to_owned(),
            "wget -qO- $AT/healthz || echo refused".to_owned(),
        ),
        (
            "python3",
            format!("python3 -c \"{python}\" $AT $CA"),
            format!("python3 -c \"{python}\" $AT '' 2>/dev/null || echo refused"),
        ),
    ];
    let mut asked = 0;
    for (program, with, without) in programs {
        if lacks(program) {
            continue;
        }
        asked += 1;
        assert_eq!(house.sh(&with).trim(), "ok", "{with}");
        let said = house.sh(&without);
        assert!(
            said.lines().any(|line| line == "refused"),
            "{without}: {said}"
        );
    }
    if asked == 0 {
        skips::skip(
            "users_s_own_programs_believe_the_box_by_its_authority_and_not_without",
            "neither curl nor wget nor python3 is here",
        );
        return;
    }
    if !lacks("curl") {
        // Both versions of HTTP, and browsers' cookies only over TLS.
        let form = "-H 'sec-fetch-site: same-origin' -H \"Origin: $AT\" -d code=x -d name=y -d password=z -d again=z $AT/setup";
        for version in ["--http2", "--http1.1"] {
            let said = house.sh(&format!("curl -sSi {version} --cacert $CA {form}"));
            assert!(
                said.contains(" 422"),
                "our own form is taken over {version}: {said}"
            );
        }
        let foreign = house.sh(&format!(
            "curl -sSi --cacert $CA {}",
            form.replace("$AT\"", "https://evil\"")
        ));
        assert!(foreign.contains(" 403"), "{foreign}");
    }
    if !Command::new("openssl")
        .arg("version")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        return;
    }
    for version in ["-tls1_2", "-tls1_3"] {
        let said = house.sh(&format!("openssl s_client {version} -verify_return_error -CAfile $CA -connect 127.0.0.1:{} </dev/null 2>&1", house.console));
        assert!(
            said.contains("Verify return code: 0 (ok)"),
            "{version}: {said}"
        );
    }
    let said = house.sh(&format!(
        "openssl s_client -tls1_1 -connect 127.0.0.1:{} </dev/null 2>&1",
        house.console
    ));
    assert!(
        !said.contains("Cipher is ECDHE"),
        "an old version was taken: {said}"
    );
}

#[test]
fn plain_http_is_shown_the_way_and_nothing_else() {
    let house = House::open();
    let ask = |port: u16, request: &str| -> String {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("open");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    };
    let to = house.console;
    for port in [house.way, house.console] {
        for (request, status, place) in [
            (
                "GET /sessions?q=a%20b HTTP/1.1\r\nHost: gpu-01.lab:80\r\n",
                "307",
                format!("https://gpu-01.lab:{to}/sessions?q=a%20b"),
            ),
            (
                "GET /healthz HTTP/1.1\r\nHost: [fd00::1]\r\n",
                "307",
                format!("https://[fd00::1]:{to}/healthz"),
            ),
            (
                "HEAD / HTTP/1.0\r\n",
                "307",
                format!("https://127.0.0.1:{to}/"),
            ),
            ("GET / HTTP/1.1\r\nHost: a@evil\r\n", "400", String::new()),
            (
                "POST /api/v1/sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n",
                "403",
                String::new(),
            ),
            (
                "DELETE /api/v1/sessions/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer y\r\n",
                "403",
                String::new(),
            ),
        ] {
            let said = ask(port, &format!("{request}Connection: close\r\n\r\n"));
            assert!(
                said.starts_with("HTTP/1.") && said.contains(status),
                "{request}: {said}"
            );
            let location = said
                .lines()
                .find_map(|line| line.strip_prefix("location: "));
            assert_eq!(location.unwrap_or_default(), place, "{request}");
            assert!(!said.to_lowercase().contains("set-cookie"), "{said}");
        }
    }
    let said = ask(house.console, "\x00\x01garbage\r\n\r\n");
    assert!(!said.contains("200"), "{said}");
}

/// Promise (Isolation and access): No port of a server answers a request without credentials.
#[test]
fn no_port_of_a_server_answers_anything_without_credentials() {
    let house = House::open();
    if lacks("curl") {
        skips::skip(
            "no_port_of_a_server_answers_anything_without_credentials",
            "curl is not here",
        );
        return;
    }
    let open = listening(house.child.id());
    let expected = BTreeSet::from([house.console, house.way, house.apps]);
    assert_eq!(
        open, expected,
        "every port that is open is one that the settings name"
    );
    // Everything that the route table says is for somebody, and pages beside it.
    let mut paths: Vec<(&str, String)> = fardel::doors::api::openapi::ROUTES
        .iter()
        .filter(|route| route.needs != fardel::doors::api::openapi::Needs::Nothing)
        .map(|route| {
            (
                route.method,
                route
                    .path
                    .replace("{id}", "x")
                    .replace("{port}", "1")
                    .replace("{app}", "1")
                    .replace("{share}", "x")
                    .replace("{number}", "1"),
            )
        })
        .collect();
    assert!(paths.len() > 30, "the table was read");
    for page in [
        "/",
        "/sessions",
        "/images",
        "/queue",
        "/me",
        "/sessions/x/terminal",
    ] {
        paths.push(("GET", page.to_owned()));
    }
    for port in &open {
        // One process for all of them: `-w` writes each status on a line.
        let mut script = String::from("curl -s --cacert $CA -w '%{http_code}\\n' -o /dev/null");
        for (number, (method, path)) in paths.iter().enumerate() {
            let scheme = if *port == house.way { "http" } else { "https" };
            let next = if number == 0 {
                ""
            } else {
                " --next -s --cacert $CA -w '%{http_code}\\n' -o /dev/null"
            };
            // A HEAD has no body to wait for.
            let method = match *method {
                "HEAD" => "--head".to_owned(),
                other => format!("-X {other}"),
            };
            script.push_str(&format!(
                "{next} {method} {scheme}://127.0.0.1:{port}{path}"
            ));
        }
        let said = house.sh(&script);
        let statuses: Vec<&str> = said.lines().collect();
        assert_eq!(statuses.len(), paths.len(), "{said}");
        for ((method, path), status) in paths.iter().zip(statuses) {
            let good = match *port {
                // Whether an app is open at a port is told to none without its cookie.
                p if p == house.apps => matches!(status, "303" | "401" | "403"),
                p if p == house.way => matches!(status, "307" | "403"),
                // 303 leads to the sign-in; 400 and 404 are for routes whose sign-in is asked second.
                _ => matches!(status, "303" | "401" | "403"),
            };
            assert!(good, "{port} {method} {path}: {status} without credentials");
        }
    }
    let sockets = [house.folder.path().join("r/fardel.sock")];
    for socket in sockets {
        let mode = fs::metadata(&socket).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", socket.display());
    }
}

/// Proves too: `a_stranger_shuts_nobody_out`
#[test]
fn the_local_way_answers_at_once_while_wrong_passwords_lock_a_name_on_the_network() {
    let house = House::open();
    if lacks("curl") {
        skips::skip(
            "the_local_way_answers_at_once_while_wrong_passwords_lock_a_name_on_the_network",
            "curl is not here",
        );
        return;
    }
    house.user();
    let guess = "curl -s -D - -o /dev/null --cacert $CA -H \"Origin: $AT\" -H 'content-type: application/json' \
                 -d '{\"name\": \"mina\", \"password\": \"wrong-password-1\"}' $AT/api/v1/sign-in";
    let began = Instant::now();
    let wait = loop {
        assert!(began.elapsed() < TIMEOUT, "guesses do not wait");
        let told = house.sh(guess).to_lowercase();
        let after = told
            .lines()
            .find_map(|line| line.strip_prefix("retry-after:"));
        let Some(after) = after else {
            assert!(told.contains(" 401"), "{told}");
            continue;
        };
        let seconds: u64 = after.trim().parse().expect("a number of seconds");
        // Long enough to tell a call that waits from one that is slow on a loaded machine.
        if seconds >= 8 {
            break Duration::from_secs(seconds);
        }
        std::thread::sleep(Duration::from_secs(seconds));
    };
    let began = Instant::now();
    let (code, said) = house.local(&["api", "GET", "/users"]);
    let took = began.elapsed();
    assert!(code == 0 && said.contains("mina"), "{code}: {said}");
    assert!(took < wait, "root waited for {took:?} of {wait:?}");
    let still = house.sh(guess);
    assert!(still.contains(" 429"), "the name waits no more: {still}");
}

#[test]
fn figures_need_a_token_on_the_machine_itself_too() {
    let house = House::open();
    if lacks("curl") {
        skips::skip(
            "figures_need_a_token_on_the_machine_itself_too",
            "curl is not here",
        );
        return;
    }
    let asked = |more: &str| {
        let status = "curl -s -o /dev/null -w '%{http_code}' --cacert $CA";
        let said = house.sh(&format!("{status} {more} $AT/metrics"));
        said.trim().to_owned()
    };
    assert_eq!(asked(""), "401");
    assert_eq!(asked("-H 'X-Forwarded-For: 127.0.0.1'"), "401");
    let token = house.token();
    assert_eq!(asked(&format!("-H 'Authorization: Bearer {token}'")), "200");
}

#[test]
fn over_a_real_connection_with_tls_a_planted_cookie_counts_nowhere() {
    let house = House::open();
    if lacks("curl") {
        skips::skip(
            "over_a_real_connection_with_tls_a_planted_cookie_counts_nowhere",
            "curl is not here",
        );
        return;
    }
    house.user();
    let form = "-H 'sec-fetch-site: same-origin' -H \"Origin: $AT\" -d name=mina";
    let signed_in = house.sh(&format!(
        "curl -sSi --cacert $CA {form} -d password={PASSWORD} $AT/login"
    ));
    let set = |name: &str| {
        let mut lines = signed_in.lines();
        lines.find_map(|line| line.strip_prefix(&format!("set-cookie: {name}=")))
    };
    assert_eq!(set("fardel"), None, "{signed_in}");
    let own = set("__Host-Http-fardel").and_then(|rest| rest.split(';').next());
    let own = own.unwrap_or_else(|| panic!("no cookie: {signed_in}"));
    for (sent, status) in [
        (format!("__Host-Http-fardel={own}"), "200"),
        (format!("fardel=planted; __Host-Http-fardel={own}"), "200"),
        (format!("__Host-Http-fardel={own}; fardel=planted"), "200"),
        // What another program of the same host can set as well.
        (format!("fardel={own}"), "401"),
        (format!("__Host-fardel={own}"), "401"),
    ] {
        let asked = format!(
            "curl -s -o /dev/null -w '%{{http_code}}' --cacert $CA -H 'Cookie: {sent}' $AT/api/v1/me"
        );
        assert_eq!(house.sh(&asked).trim(), status, "{sent}");
    }
}

/// The TCP ports on which a process listens, as the kernel's tables say.
fn listening(pid: u32) -> BTreeSet<u16> {
    let own: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("our own child")
        .flatten()
        .filter_map(|fd| {
            fs::read_link(fd.path())
                .ok()?
                .to_str()
                .map(ToOwned::to_owned)
        })
        .collect();
    ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"]
        .iter()
        .flat_map(|table| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            let lines: Vec<(bool, String)> = text
                .lines()
                .skip(1)
                .map(|l| (table.starts_with("tcp"), l.to_owned()))
                .collect();
            lines
        })
        .filter_map(|(tcp, line)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let port = u16::from_str_radix(words[1].rsplit(':').next()?, 16).ok()?;
            // Any socket of another sort is a door too.
            let open = !tcp || words[3] == "0A";
            (open && own.contains(&format!("socket:[{}]", words[9]))).then_some(port)
        })
        .collect()
}

#[test]
fn the_client_believes_a_fingerprint_that_somebody_compared_and_only_that_one() {
    let house = House::open();
    let password = house.user().display().to_string();
    let at = house.at("");
    let login = ["login", &at, "--name", "mina", "--password-file", &password];

    let (code, said) = house.fardel(&login);
    assert!(
        code == 1 && said.contains(&house.fingerprint()),
        "shown and not believed: {said}"
    );
    let wrong = "00:".repeat(32);
    let (code, said) = house.fardel(&[&login[..], &["--fingerprint", &wrong]].concat());
    assert!(
        code == 1 && said.contains("server.other-fingerprint"),
        "{said}"
    );
    let (code, said) = house.fardel(&["--server", &at, "ps"]);
    assert!(code == 8 && said.contains("server.untrusted"), "{said}");

    let right = house.fingerprint().to_lowercase().replace(':', "");
    let (code, said) = house.fardel(&[&login[..], &["--fingerprint", &right]].concat());
    assert_eq!(code, 0, "{said}");
    let (code, said) = house.fardel(&["me", "get", "-o", "name"]);
    assert!(code == 0 && said.contains("mina"), "remembered: {said}");

    // Another box on the same address is not believed, whatever it shows.
    let other = House::open();
    let (code, said) = house.fardel(&["--server", &other.at(""), "ps"]);
    assert!(code == 8 && said.contains("server.untrusted"), "{said}");
    let file = other.authority().display().to_string();
    let (code, said) = house.fardel(&["--server", &other.at(""), "--ca", &file, "ps"]);
    assert!(
        code == 4 && said.contains("sign-in.needed"),
        "believed, but nobody there: {said}"
    );
    let (code, said) = house.fardel(&["--server", &at, "--ca", &file, "ps"]);
    assert!(
        code == 8 && said.contains("server.untrusted"),
        "a file stands alone: {said}"
    );
    let plain = at.replace("https", "http");
    let (code, said) = house.fardel(&["--server", &plain, "ps"]);
    assert!(
        code == 8 && said.contains("server.elsewhere") && said.contains(&at),
        "{said}"
    );
}

#[test]
fn a_sites_certificate_goes_in_by_request_and_out_again_while_users_are_connected() {
    const NAME: &str =
        "a_sites_certificate_goes_in_by_request_and_out_again_while_users_are_connected";
    if lacks("curl")
        || !Command::new("openssl")
            .arg("version")
            .output()
            .is_ok_and(|o| o.status.success())
    {
        skips::skip(NAME, "needs curl and openssl, as users have them");
        return;
    }
    let house = House::open();
    let place = house.folder.path();
    let (code, said) = house.local(&["tls", "csr", "--name", "gpu.lab"]);
    assert!(code == 0 && !said.contains("PRIVATE"), "{said}");
    let request: String = said[said.find("-----BEGIN").expect("PEM")..]
        .split_inclusive("-----END CERTIFICATE REQUEST-----\n")
        .take(1)
        .collect();
    fs::write(place.join("csr"), request).expect("written");
    let sign = "cd $HOME && openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj '/CN=Site' -days 30 2>/dev/null && \
        printf 'subjectAltName=DNS:gpu.lab\nextendedKeyUsage=serverAuth\n' > ext && \
        openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 20 -extfile ext -out site.pem 2>/dev/null && \
        openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days -1 -extfile ext -out old.pem 2>/dev/null; echo signed";
    assert_eq!(house.sh(sign).trim(), "signed");
    let ask = format!(
        "curl -sS --cacert $HOME/ca.pem --connect-to gpu.lab::127.0.0.1: https://gpu.lab:{}/healthz",
        house.console
    );
    let file = |name: &str| place.join(name).display().to_string();
    for (name, expected) in [
        ("ca.pem", "tls.key-mismatch"),
        ("csr", "tls.certificate-unreadable"),
    ] {
        let (code, said) = house.local(&["tls", "import", &file(name)]);
        assert!(code != 0 && said.contains(expected), "{name}: {said}");
    }
    if fs::metadata(place.join("old.pem")).is_ok_and(|old| old.len() > 0) {
        let (_, said) = house.local(&["tls", "import", &file("old.pem")]);
        assert!(said.contains("tls.certificate-expired"), "{said}");
    }
    assert_eq!(
        house.sh("curl -sS --cacert $CA $AT/healthz").trim(),
        "ok",
        "nothing has changed"
    );

    let (code, said) = house.local(&["tls", "import", &file("site.pem")]);
    assert!(code == 0 && said.contains("the site's"), "{said}");
    assert_eq!(house.sh(&ask).trim(), "ok", "served at once");
    let said = house.sh("curl -skS $AT/readyz");
    assert!(
        said.contains("certificate.ends-soon"),
        "twenty days are few: {said}"
    );
    assert!(!house.sh("curl -sS --cacert $CA $AT/healthz").contains("ok"));

    let (code, _) = house.local(&["tls", "reset"]);
    assert_eq!(code, 0);
    assert_eq!(
        house.sh("curl -sS --cacert $CA $AT/healthz").trim(),
        "ok",
        "its own again"
    );
    let (code, _) = house.local(&["tls", "reset", "--previous"]);
    assert_eq!(code, 0);
    assert_eq!(house.sh(&ask).trim(), "ok", "and the site's again");
    let keys = fs::read_dir(place.join("d/tls")).expect("a folder");
    for key in keys.flatten() {
        let mode = key.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", key.path().display());
    }
    assert!(!house.said().contains("PRIVATE"), "no key in the log");
}

#[test]
fn the_wizard_starts_a_session_and_measures_it() {
    const NAME: &str = "the_wizard_starts_a_session_and_measures_it";
    let house = House::open();
    if let Some(why) = house
        .said()
        .lines()
        .find_map(|line| line.split_once("none can run: "))
    {
        skips::skip(NAME, why.1);
        return;
    }
    if lacks("curl") {
        skips::skip(NAME, "curl is not here");
        return;
    }
    let said = house.said();
    let code = said
        .split("code=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let ask = "curl -sS --cacert $CA -b $HOME/jar -c $HOME/jar -H \"Origin: $AT\"";
    let redirect = "-o /dev/null -w '%{redirect_url}'";
    let form = format!(
        "-d code={} -d name=mina -d password={PASSWORD} -d again={PASSWORD} $AT/setup",
        code.expect("a link")
    );
    let at = house.sh(&format!("{ask} {redirect} {form}"));
    assert!(at.ends_with("/setup/time"), "{at}");
    let at = house.sh(&format!(
        "{ask} {redirect} -d image=host $AT/setup/test/run"
    ));
    assert!(at.ends_with("/setup/test"), "{at}");
    let page = house.sh(&format!("{ask} -H 'Accept-Language: en' $AT/setup/test"));
    assert!(page.contains("Sessions work on this machine"), "{page}");
    assert!(
        page.contains("<dt>Memory limit in force</dt><dd>yes</dd>"),
        "{page}"
    );
    let report = house.sh(&format!("{ask} -H 'Accept-Language: en' $AT/setup/report"));
    assert!(
        report.contains("<dt>Exit code</dt><dd>0</dd>") && report.contains(&house.fingerprint()),
        "{report}"
    );
}

#[test]
fn fardel_trust_prints_what_the_box_shows() {
    let house = House::open();
    let (code, said) = house.local(&["trust"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(&house.fingerprint()) && said.contains(&house.authority_pem()),
        "{said}"
    );
    let (code, said) = house.local(&["trust", "-o", "json"]);
    assert!(code == 0 && said.contains("\"in_use\": true"), "{said}");
}

/// Programs before the server's own: a network of its own with nothing but loopback and a way out that
/// leads nowhere and counts.
const ALONE: [&str; 5] = ["unshare", "--net", "sh", "-c", ALONE_SCRIPT];
const ALONE_SCRIPT: &str = "ip link set lo up && ip link add out type veth peer name other && ip link set other up && ip addr add 192.0.2.7/24 dev out && \
     ip link set out up && ip route add default via 192.0.2.1 && exec \"$0\" \"$@\"";

/// Promise (Isolation and access): Nothing leaves the machine: the server resolves no name and opens no
/// connection. A new address is served without dropping a connection.
#[test]
fn nothing_leaves_the_machine_and_a_new_address_is_served_without_dropping_anybody() {
    const NAME: &str =
        "nothing_leaves_the_machine_and_a_new_address_is_served_without_dropping_anybody";
    let able = Command::new(ALONE[0])
        .args(&ALONE[1..])
        .arg("true")
        .output()
        .is_ok_and(|done| done.status.success());
    if !able || lacks("curl") {
        skips::skip(
            NAME,
            "needs root, unshare, ip and curl for a network of its own",
        );
        return;
    }
    let house = House::start(&ALONE, "on");
    let pid = house.child.id();
    let inside = |script: &str| {
        house.sh(&format!(
            "nsenter --net=/proc/{pid}/ns/net sh -c '{script}' 2>&1"
        ))
    };
    let _ = house.user();
    let (_, said) = house.local(&["session", "ls"]);
    assert!(said.contains("sessions"), "{said}");

    // Somebody who stays.
    let mut stays = Command::new("nsenter")
        .arg(format!("--net=/proc/{pid}/ns/net"))
        .args(["openssl", "s_client", "-quiet", "-CAfile"])
        .arg(house.authority())
        .args(["-connect", &format!("127.0.0.1:{}", house.console)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl");
    let mut to = stays.stdin.take().expect("piped");
    let mut from = BufReader::new(stays.stdout.take().expect("piped"));
    let mut still_there = || {
        to.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("sent");
        to.flush().expect("sent");
        let mut line = String::new();
        from.read_line(&mut line).expect("an answer");
        let status = line.clone();
        while line != "ok\n" && !line.is_empty() {
            line.clear();
            from.read_line(&mut line).expect("the rest");
        }
        status
    };
    assert!(still_there().contains("200"));

    let ask = format!(
        "curl -sS --cacert {} https://10.98.7.6:{}/healthz",
        house.authority().display(),
        house.console
    );
    // The listener is on 127.0.0.1; the address is what the certificate has to name.
    let named = ask.replace(
        "https://10.98.7.6",
        "--connect-to ::127.0.0.1: https://10.98.7.6",
    );
    let refused = inside(&named);
    assert!(
        refused.contains("10.98.7.6") && !refused.contains("ok"),
        "{refused}"
    );
    inside("ip addr add 10.98.7.6/32 dev lo");
    let began = Instant::now();
    loop {
        assert!(
            still_there().contains("200"),
            "the one who stays was dropped"
        );
        if inside(&named).trim() == "ok" {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "{}", inside(&named));
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(
        still_there().contains("200"),
        "the one who stays was dropped"
    );
    let _ = stays.kill();
    let _ = stays.wait();

    // IPv4 only: the kernel itself speaks IPv6 on a link that comes up. Our own curl went over loopback.
    let counted = inside("cat /proc/net/snmp /proc/net/arp");
    let udp: Vec<&str> = counted
        .lines()
        .filter(|line| line.starts_with("Udp:"))
        .collect();
    let out = column(&udp, "OutDatagrams");
    assert_eq!(
        out, 0,
        "a datagram was sent, perhaps to a name server:\n{counted}"
    );
    let ip: Vec<&str> = counted
        .lines()
        .filter(|line| line.starts_with("Ip:"))
        .collect();
    assert_eq!(column(&ip, "OutNoRoutes"), 0, "{counted}");
    assert!(
        !counted.contains("192.0.2.1 "),
        "somebody looked for the way out:\n{counted}"
    );
}

/// One figure of `/proc/net/snmp`: a line of titles, then a line of numbers.
fn column(lines: &[&str], title: &str) -> u64 {
    let at = lines[0].split_whitespace().position(|word| word == title);
    let number = at.and_then(|at| lines[1].split_whitespace().nth(at));
    number
        .and_then(|n| n.parse().ok())
        .expect("the kernel counts this")
}
