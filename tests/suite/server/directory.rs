//! Sign-ins by a directory that others wrote: Debian's slapd, over LDAPS and StartTLS, with groups, with a user who leaves,
//! and while it stands still.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use server::{Failure, access};

use super::the_box::{As, PASSWORD, TheBox};

/// Where Debian keeps it.
const SLAPD: &str = "/usr/sbin/slapd";
const SLAPADD: &str = "/usr/sbin/slapadd";
/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a directory may hold a sign-in, as the manual says.
const MAX_HELD: Duration = Duration::from_secs(2);
/// For all the rest of a sign-in but the hash of its password. Longer: a sign-in that is held twice passes. Shorter: a
/// loaded machine tries more often.
const MARGIN: Duration = Duration::from_millis(1_900);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const BASE: &str = "dc=example,dc=org";

/// Three users, two groups and the account by which the server looks.
const ENTRIES: &str = "\
dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: cn=fardel,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: fardel
userPassword: of the service

dn: uid=kim,dc=example,dc=org
objectClass: inetOrgPerson
uid: kim
cn: Kim of the directory
sn: Kim
mail: kim@example.org
userPassword: of kim
memberOf: cn=heads,dc=example,dc=org
memberOf: cn=staff,dc=example,dc=org

dn: uid=lee,dc=example,dc=org
objectClass: inetOrgPerson
uid: lee
cn: Lee of the directory
sn: Lee
mail: lee@example.org
userPassword: of lee
memberOf: cn=staff,dc=example,dc=org

dn: uid=park,dc=example,dc=org
objectClass: inetOrgPerson
uid: park
cn: Park of the directory
sn: Park
userPassword: of park

dn: cn=heads,dc=example,dc=org
objectClass: groupOfNames
cn: heads
member: uid=kim,dc=example,dc=org
member: cn=fardel,dc=example,dc=org

dn: cn=staff,dc=example,dc=org
objectClass: groupOfNames
cn: staff
member: uid=kim,dc=example,dc=org
member: uid=lee,dc=example,dc=org
";

/// A slapd of its own on two ports of loopback; gone with the test.
struct Slapd {
    folder: tempfile::TempDir,
    child: Child,
    plain: u16,
    encrypted: u16,
}

impl Drop for Slapd {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to end. One that stands still is killed too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    probe.local_addr().expect("bound").port()
}

fn done(command: &mut Command) {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// One element of BER: its tag, the length in four bytes, what is in it.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a short text");
    [&[tag, 0x84][..], &length.to_be_bytes()[..], content].concat()
}

impl Slapd {
    /// None where this machine lacks it; says so in the name of the test.
    fn start(test: &str) -> Option<Self> {
        for program in [SLAPD, SLAPADD, "/usr/bin/openssl"] {
            if !Path::new(program).exists() {
                skips::skip(test, &format!("{program} is not here"));
                return None;
            }
        }
        let folder = tempfile::Builder::new()
            .prefix("fardel-slapd-")
            .tempdir()
            .expect("a folder");
        let place = folder.path().display();
        fs::create_dir(folder.path().join("rows")).expect("made");
        let config = format!(
            "include /etc/ldap/schema/core.schema\n\
             include /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/inetorgperson.schema\n\
             modulepath /usr/lib/ldap\n\
             moduleload back_mdb\n\
             moduleload memberof\n\
             TLSCACertificateFile {place}/authority.pem\n\
             TLSCertificateFile {place}/authority.pem\n\
             TLSCertificateKeyFile {place}/key.pem\n\
             database mdb\n\
             suffix \"{BASE}\"\n\
             rootdn \"cn=admin,{BASE}\"\n\
             rootpw admin\n\
             directory {place}/rows\n\
             maxsize 16777216\n\
             overlay memberof\n\
             access to attrs=userPassword by anonymous auth\n\
             access to * by dn.exact=\"cn=fardel,{BASE}\" read\n"
        );
        fs::write(folder.path().join("slapd.conf"), config).expect("written");
        fs::write(folder.path().join("entries.ldif"), ENTRIES).expect("written");
        done(
            Command::new("/usr/bin/openssl")
                .current_dir(folder.path())
                .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
                .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
                .args(["-subj", "/CN=slapd of a test"])
                .args(["-addext", "subjectAltName=IP:127.0.0.1"])
                .args(["-addext", "basicConstraints=critical,CA:FALSE"])
                .args(["-keyout", "key.pem", "-out", "authority.pem"]),
        );
        done(Command::new(SLAPADD).current_dir(folder.path()).args([
            "-f",
            "slapd.conf",
            "-l",
            "entries.ldif",
        ]));
        let (plain, encrypted) = (free_port(), free_port());
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let child = Command::new(SLAPD)
            .current_dir(folder.path())
            // In front: with a level it does not fork.
            .args(["-d", "0", "-f", "slapd.conf", "-h"])
            .arg(format!(
                "ldap://127.0.0.1:{plain}/ ldaps://127.0.0.1:{encrypted}/"
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("slapd starts");
        let mut slapd = Self {
            folder,
            child,
            plain,
            encrypted,
        };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, encrypted)).is_err() {
            let ended = slapd.child.try_wait().expect("looked");
            let log = fs::read_to_string(slapd.folder.path().join("log")).unwrap_or_default();
            assert!(
                ended.is_none() && began.elapsed() < TIMEOUT,
                "slapd does not listen ({ended:?}):\n{log}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(slapd)
    }

    /// Sends one operation as the administrator of the directory.
    fn change(&self, operation: Vec<u8>) {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.plain)).expect("slapd listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let admin = format!("cn=admin,{BASE}");
        let version_name_password = [
            element(2, &[3]),
            element(4, admin.as_bytes()),
            element(0x80, b"admin"),
        ];
        let bind = element(0x60, &version_name_password.concat());
        for (number, operation) in [(1_u8, bind), (2, operation)] {
            let message = element(0x30, &[element(2, &[number]), operation].concat());
            stream.write_all(&message).expect("sent");
            let mut answer = [0; 512];
            let count = stream.read(&mut answer).expect("an answer");
            let answer = &answer[..count];
            let is_done = answer.windows(3).any(|part| part == [0x0a, 1, 0]);
            assert!(is_done, "{}", String::from_utf8_lossy(answer));
        }
    }

    fn remove(&self, entry: &str) {
        self.change(element(0x4a, format!("{entry},{BASE}").as_bytes()));
    }

    fn leave_group(&self, entry: &str, group: &str) {
        let text = |text: String| element(4, text.as_bytes());
        let value = element(0x31, &text(format!("{entry},{BASE}")));
        let member = element(0x30, &[text("member".to_owned()), value].concat());
        // 1: these values go.
        let one = element(0x30, &[element(0x0a, &[1]), member].concat());
        let group = text(format!("{group},{BASE}"));
        self.change(element(0x66, &[group, element(0x30, &one)].concat()));
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a process number"));
        kill(pid, signal).expect("it is ours");
    }

    /// Writes the settings file of a box and has it read, as an administrator does.
    async fn connect(&self, the_box: &TheBox, url: &str) {
        let password = self.folder.path().join("password");
        fs::write(&password, "of the service\n").expect("written");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("ours");
        let settings = format!(
            "ldap_url = \"{url}\"\n\
             ldap_ca_file = \"{place}/authority.pem\"\n\
             ldap_base = \"{BASE}\"\n\
             ldap_bind = \"cn=fardel,{BASE}\"\n\
             ldap_password_file = \"{place}/password\"\n\
             ldap_filter = \"(uid=%u)\"\n\
             ldap_groups = \"cn=heads,{BASE} -> default:lead; staff -> default:member\"\n",
            place = self.folder.path().display(),
        );
        fs::write(the_box.folder.path().join("fardel.toml"), settings).expect("written");
        let path = "/api/v1/settings/reload";
        let answer = the_box.post(&the_box.admin, path, json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.short());
    }
}

/// Signs in by name and password; gives the cookie, or the code of the refusal.
async fn by(the_box: &TheBox, name: &str, password: &str) -> Result<String, String> {
    match access::sign_in(&the_box.server, name, password, HERE).await {
        Ok(signed_in) => Ok(signed_in.cookie),
        Err(Failure::Refusal(refusal)) => Err(refusal.code),
        Err(Failure::Fault(fault)) => panic!("{fault:?}"),
    }
}

/// As `by`, once the directory answers within its two seconds, which a loaded machine may not do at once.
async fn answered(the_box: &TheBox, name: &str, password: &str) -> Result<String, String> {
    let began = Instant::now();
    loop {
        let answer = by(the_box, name, password).await;
        let is_late = answer
            .as_ref()
            .is_err_and(|code| code == "directory.unreachable");
        if !is_late || began.elapsed() > TIMEOUT {
            return answer;
        }
    }
}

/// The role of a user in the project `default`.
async fn role(the_box: &TheBox, name: &str) -> Option<String> {
    let path = "/api/v1/projects/default/members";
    let answer = the_box.get(&the_box.admin, path).await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    let members = answer.json()["items"].as_array().expect("a list").clone();
    let own = members
        .iter()
        .find(|member| member["user"]["name"] == name)?;
    own["role"].as_str().map(str::to_owned)
}

/// Looks whether users are still there until so many were suspended: one look leaves a user alone who signed in within the
/// same millisecond.
async fn look(the_box: &TheBox, suspended: usize) {
    let began = Instant::now();
    loop {
        let gone = server::simulation::look_at_directory(&the_box.server)
            .await
            .expect("rows can be written");
        if gone == suspended {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{gone} were suspended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slapd_admits_its_users_gives_them_roles_and_shuts_out_who_left() {
    let test = "slapd_admits_its_users_gives_them_roles_and_shuts_out_who_left";
    let Some(slapd) = Slapd::start(test) else {
        return;
    };
    let the_box = TheBox::open().await;
    let url = format!("ldaps://127.0.0.1:{}", slapd.encrypted);
    slapd.connect(&the_box, &url).await;
    let trial = "/api/v1/settings/sign-in/test";
    let tried = the_box.post(&the_box.admin, trial, json!({})).await.json();
    let works = json!([{"source": "ldap", "works": true, "answer": "", "problem": ""}]);
    assert_eq!(tried["items"], works, "{tried}");
    for (name, password) in [("kim", "wrong"), ("kim", ""), ("k*", "of kim"), ("*", "")] {
        let refused = answered(&the_box, name, password).await;
        let wrong = Err("sign-in.wrong".to_owned());
        assert_eq!(refused, wrong, "{name} {password}");
    }
    let kim = answered(&the_box, "kim", "of kim").await;
    let kim = kim.expect("kim is there");
    assert_eq!(role(&the_box, "kim").await.as_deref(), Some("lead"));
    let park = answered(&the_box, "park", "of park").await;
    park.expect("park is there");
    assert_eq!(role(&the_box, "park").await, None, "of no group");
    // By StartTLS, and by REST for a token.
    let url = format!("ldap://127.0.0.1:{}", slapd.plain);
    slapd.connect(&the_box, &url).await;
    let body = json!({"name": "lee", "password": "of lee"});
    let sign_in = "/api/v1/sign-in";
    let answer = the_box.post(&As::Nobody, sign_in, body.clone()).await;
    assert_eq!(answer.status, 201, "{}", answer.short());
    let lee = match &answer.json()["secret"] {
        Value::String(secret) => As::Token(secret.clone()),
        other => panic!("no token: {other}"),
    };
    assert_eq!(role(&the_box, "lee").await.as_deref(), Some("member"));
    let kim = As::Cookie(kim);
    for who in [&kim, &lee] {
        let answer = the_box.get(who, "/api/v1/sessions").await;
        assert_eq!(answer.status, 200, "{}", answer.short());
    }
    slapd.leave_group("uid=kim", "cn=heads");
    look_until(&the_box, "kim", "member").await;
    // Who is gone cannot sign in from now on, and what is open closes at the next look, which is every 15 minutes.
    slapd.remove("uid=lee");
    let answer = the_box.post(&As::Nobody, sign_in, body).await;
    assert_eq!(answer.short(), "401 sign-in.wrong");
    look(&the_box, 1).await;
    let answer = the_box.get(&lee, "/api/v1/sessions").await;
    assert!(
        matches!(answer.status.as_u16(), 401 | 403),
        "{}",
        answer.short()
    );
    slapd.remove("uid=kim");
    look(&the_box, 1).await;
    let answer = the_box.get(&kim, "/api/v1/sessions").await;
    assert_eq!(answer.status, 401, "{}", answer.short());
    let park = answered(&the_box, "park", "of park").await;
    park.expect("park is there");
    by(&the_box, "ada", PASSWORD)
        .await
        .expect("a local account");
}

/// Looks until a user has a role.
async fn look_until(the_box: &TheBox, name: &str, wanted: &str) {
    let began = Instant::now();
    loop {
        look(the_box, 0).await;
        let now = role(the_box, name).await;
        if now.as_deref() == Some(wanted) {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{name} is {now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A directory that takes connections and answers nothing holds a sign-in for two seconds, and local administrators for
/// none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slapd_that_stands_still_holds_its_users_for_two_seconds_and_no_local_account() {
    let test = "a_slapd_that_stands_still_holds_its_users_for_two_seconds_and_no_local_account";
    let Some(slapd) = Slapd::start(test) else {
        return;
    };
    let the_box = TheBox::open().await;
    let url = format!("ldaps://127.0.0.1:{}", slapd.encrypted);
    slapd.connect(&the_box, &url).await;
    let kim = answered(&the_box, "kim", "of kim").await;
    kim.expect("kim is there");
    slapd.signal(Signal::SIGSTOP);
    let began = Instant::now();
    // A loaded machine is slow for reasons of its own; where one waits for the other, no round shows otherwise.
    loop {
        let round = Instant::now();
        let held = async {
            let refused = by(&the_box, "kim", "of kim").await;
            (refused, round.elapsed())
        };
        let local = async {
            let admitted = by(&the_box, "ada", PASSWORD).await;
            (admitted.is_ok(), round.elapsed())
        };
        let ((refused, held_for), (admitted, local_after)) = tokio::join!(held, local);
        assert_eq!(refused, Err("directory.unreachable".to_owned()));
        assert!(admitted, "a local administrator needs no directory");
        // The password of either is hashed as slowly.
        let longest = MAX_HELD + MARGIN + local_after;
        if held_for < longest && local_after < held_for {
            break;
        }
        assert!(
            began.elapsed() < TIMEOUT,
            "held for {held_for:?} of {longest:?}; a local administrator waited {local_after:?}"
        );
    }
    slapd.signal(Signal::SIGCONT);
    let back = answered(&the_box, "kim", "of kim").await;
    back.expect("it is back");
}
