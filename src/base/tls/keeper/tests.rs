//! A folder of certificates through its life, with a clock set by hand and an authority of a site beside.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

const NOW: i64 = 1_795_000_000_000;

fn names(hosts: &[&str]) -> HostNames {
    HostNames {
        host: hosts[0].to_owned(),
        hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
        addresses: ["10.1.4.20", "127.0.0.1"]
            .map(|a| a.parse().expect("an address"))
            .into(),
    }
}

struct KeeperFixture {
    folder: tempfile::TempDir,
    clock: Clock,
}

impl KeeperFixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            clock: Clock::set_by_hand(Timestamp::from_millis(NOW)),
        }
    }

    fn open(&self) -> Result<Keeper, TlsError> {
        Keeper::open(self.folder.path(), self.clock.clone(), names(&["gpu-01"]))
    }

    fn days(&self, days: i64) {
        self.clock
            .set(Timestamp::from_millis(NOW + days * 86_400_000));
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

fn code<T: std::fmt::Debug>(done: Result<T, TlsError>) -> String {
    match done {
        Err(TlsError::Refused(refusal)) => {
            assert!(
                !refusal.hint.is_empty() || refusal.code == "tls.too-many-names",
                "{refusal:?} has no way out"
            );
            refusal.code
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// What a site's own authority gives.
struct Site {
    key: String,
    certificate: String,
    middle: String,
}

/// A certificate for `host`, from `from` to `to` (years), by an intermediate authority.
fn site(host: &str, from: i32, to: i32, usage: ExtendedKeyUsagePurpose) -> Site {
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(2046, 1, 1);
        params
    };
    let (root_key, middle_key, key) = (
        KeyPair::generate().expect("a key"),
        KeyPair::generate().expect("a key"),
        KeyPair::generate().expect("a key"),
    );
    let root_params = authority("Site root");
    let root = Issuer::from_params(&root_params, &root_key);
    let middle_params = authority("Site middle");
    let middle = middle_params.signed_by(&middle_key, &root).expect("signed");
    let issuer = Issuer::from_params(&middle_params, &middle_key);
    let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, host);
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params.extended_key_usages = vec![usage];
    let made = params.signed_by(&key, &issuer).expect("signed");
    Site {
        key: key.serialize_pem(),
        certificate: made.pem(),
        middle: middle.pem(),
    }
}

fn good(host: &str) -> Site {
    site(host, 2026, 2028, ExtendedKeyUsagePurpose::ServerAuth)
}

#[test]
fn the_authority_is_made_once_and_the_certificate_follows_the_machine() {
    let place = KeeperFixture::new();
    let first = place.open().expect("made");
    let authority = first.authority();
    let own = first.shown().expect("shown").certificate;
    assert_eq!(own.names, ["gpu-01", "10.1.4.20", "127.0.0.1"]);
    assert!(authority.in_use && !own.authority);
    drop(first);

    let again = place.open().expect("read");
    assert_eq!(again.authority(), authority);
    assert_eq!(again.shown().expect("shown").certificate, own);
    assert!(!again.renew(names(&["gpu-01"])).expect("looked"));

    assert!(
        again.renew(names(&["gpu-02"])).expect("looked"),
        "another name"
    );
    let renewed = again.shown().expect("shown").certificate;
    assert_eq!(renewed.names[0], "gpu-02");
    assert_eq!(again.authority(), authority);

    place.days(300);
    assert!(!again.renew(names(&["gpu-02"])).expect("looked"));
    place.days(370);
    assert!(
        again.renew(names(&["gpu-02"])).expect("looked"),
        "its end is near"
    );
    assert!(again.shown().expect("shown").certificate.not_after > renewed.not_after);
    let made = place.file("own.pem");
    assert_eq!(
        made.matches("BEGIN CERTIFICATE").count(),
        2,
        "the authority goes along"
    );
}

#[test]
fn a_clock_that_jumps_leaves_a_certificate_that_browsers_take() {
    let place = KeeperFixture::new();
    let keeper = place.open().expect("made");
    let own = keeper.shown().expect("shown").certificate;
    let whole = own.not_after.seconds_since(own.not_before) / DAY;
    assert!(whole <= 825, "Apple's systems refuse {whole} days");
    assert!(keeper.worries().is_empty(), "{:?}", keeper.worries());

    place.days(-730);
    assert!(
        !keeper.renew(names(&["gpu-01"])).expect("looked"),
        "a clock behind makes nothing new"
    );
    let codes: Vec<&str> = keeper.worries().iter().map(|w| w.code).collect();
    assert_eq!(codes, ["clock.behind"]);

    // A box whose clock starts in 1970 makes certificates that are good today.
    let dead = KeeperFixture::new();
    dead.clock.set(Timestamp::from_millis(0));
    let made = dead
        .open()
        .expect("made")
        .shown()
        .expect("shown")
        .certificate;
    let today = Timestamp::from_millis(NOW);
    assert!(
        made.not_before <= today && today < made.not_after,
        "{made:?}"
    );

    // Made while the clock was five years ahead: made anew once it is right.
    let ahead = KeeperFixture::new();
    ahead.days(5 * 365);
    let keeper = ahead.open().expect("made");
    ahead.days(0);
    assert!(keeper.renew(names(&["gpu-01"])).expect("looked"));
}

#[test]
fn a_damaged_or_open_authority_is_not_replaced_in_silence() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = KeeperFixture::new();
    drop(place.open().expect("made"));
    let path = place.folder.path().join("authority.pem");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("set");
    assert_eq!(code(place.open()), "tls.key-exposed");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
    std::fs::write(&path, "-----BEGIN CERT").expect("written");
    assert_eq!(code(place.open()), "tls.authority-damaged");
    assert_eq!(
        place.file("authority.pem"),
        "-----BEGIN CERT",
        "left as it was"
    );
}

#[test]
fn bad_certificates_are_refused_by_name_and_change_nothing() {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let place = KeeperFixture::new();
    let keeper = place.open().expect("made");
    let before = keeper.shown().expect("shown");
    let ours = good("gpu-01");
    let other = good("gpu-01");
    let old = site("gpu-01", 2020, 2022, ServerAuth);
    let early = site("gpu-01", 2039, 2041, ServerAuth);
    let mail = site("gpu-01", 2026, 2028, ClientAuth);
    let named = good("mail.lab");
    let turned = format!("{}{}", ours.middle, ours.certificate);
    let gap = format!("{}{}", ours.certificate, other.middle);
    for (certificate, key, expected) in [
        ("", Some(&ours.key), "tls.certificate-unreadable"),
        ("hello", Some(&ours.key), "tls.certificate-unreadable"),
        (&ours.certificate, Some(&other.key), "tls.key-mismatch"),
        (&ours.certificate, None, "tls.key-missing"),
        (
            &ours.certificate,
            Some(&"no key".to_owned()),
            "tls.key-unreadable",
        ),
        (&old.certificate, Some(&old.key), "tls.certificate-expired"),
        (
            &early.certificate,
            Some(&early.key),
            "tls.certificate-not-yet",
        ),
        (&mail.certificate, Some(&mail.key), "tls.certificate-usage"),
        (&named.certificate, Some(&named.key), "tls.certificate-name"),
        (&turned, Some(&ours.key), "tls.chain-order"),
        (&gap, Some(&ours.key), "tls.chain-order"),
    ] {
        let done = keeper.import(certificate, key.map(String::as_str), None);
        assert_eq!(code(done), expected);
    }
    assert_eq!(
        code(keeper.reset(CertificateKind::Site)),
        "tls.nothing-before"
    );
    assert_eq!(keeper.shown().expect("shown"), before);
    assert_eq!(place.file("site.pem"), "");
}

#[test]
fn a_sites_certificate_is_served_kept_and_put_back() {
    let place = KeeperFixture::new();
    let keeper = place.open().expect("made");
    let (one, two) = (good("gpu-01"), good("ai.lab"));
    let chain = format!("{}{}", one.certificate, one.middle);
    keeper.import(&chain, Some(&one.key), None).expect("taken");
    assert_eq!(keeper.shown().expect("shown").kind, CertificateKind::Site);
    assert!(!keeper.authority().in_use);
    keeper
        .import(&two.certificate, Some(&two.key), Some("ai.lab"))
        .expect("a name that users use");
    assert_eq!(keeper.worries()[0].code, "certificate.other-name");
    let shown = keeper.shown().expect("shown");
    assert_eq!(shown.previous.expect("kept").names, ["gpu-01"]);
    assert_eq!(
        keeper.reset(CertificateKind::Site).expect("back").names,
        ["gpu-01"]
    );
    drop(keeper);
    let keeper = place.open().expect("read");
    assert_eq!(keeper.shown().expect("shown").certificate.names, ["gpu-01"]);

    place.days(390);
    let worry = &keeper.worries()[0];
    assert_eq!(worry.code, "certificate.ends-soon", "{worry:?}");
    place.days(900);
    assert_eq!(keeper.worries()[0].code, "certificate.expired");
    keeper.reset(CertificateKind::Own).expect("own");
    keeper.renew(names(&["gpu-01"])).expect("renewed");
    assert!(keeper.worries().is_empty(), "{:?}", keeper.worries());
    assert_eq!(
        code(keeper.reset(CertificateKind::Site)),
        "tls.certificate-expired"
    );

    // A file that broke on the disk leaves the box reachable.
    std::fs::write(place.folder.path().join("site.pem"), "broken").expect("written");
    let path = place.folder.path().join("site.pem");
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
    let keeper = place.open().expect("serves all the same");
    assert_eq!(keeper.worries()[0].code, "certificate.damaged");
}

#[test]
fn the_key_of_a_request_never_leaves_and_its_certificate_is_taken_without_it() {
    let place = KeeperFixture::new();
    let keeper = place.open().expect("made");
    for wrong in ["a b", "-x", "*.*.lab", "höst"] {
        assert_eq!(
            code(keeper.request(&[wrong.to_owned()], "")),
            "tls.name-invalid",
            "{wrong}"
        );
    }
    let request = keeper
        .request(&["gpu.example".to_owned(), "10.9.9.9".to_owned()], "Lab")
        .expect("made");
    assert!(
        request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"),
        "{request}"
    );
    assert!(!request.contains("PRIVATE"));
    let shown = keeper.shown().expect("shown");
    assert_eq!(shown.requested.expect("kept"), ["gpu.example", "10.9.9.9"]);

    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::from_params(&params, &key);
    let mut asked = rcgen::CertificateSigningRequestParams::from_pem(&request).expect("a request");
    asked.params.not_before = date_time_ymd(2026, 1, 1);
    asked.params.not_after = date_time_ymd(2028, 1, 1);
    let signed = asked.signed_by(&issuer).expect("signed").pem();
    let facts = keeper.import(&signed, None, None).expect("taken");
    assert_eq!(facts.names, ["gpu.example", "10.9.9.9"]);
    assert_eq!(keeper.shown().expect("shown").requested, None);
}
