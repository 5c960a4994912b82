//! Where values come from, what is refused and in which words, and what a running server takes up.

use super::*;

fn given(text: &str) -> (tempfile::TempDir, SettingsSources) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fardel.toml");
    std::fs::write(&file, text).unwrap();
    let name = file.display().to_string();
    let sources = SettingsSources::new(SettingsLayer::default(), move |variable| match variable {
        "FARDEL_CONFIG" => Some(name.clone()),
        _ => None,
    });
    (folder, sources)
}

fn standing<'a>(reading: &'a LoadedSettings, key: &str) -> &'a EffectiveSetting {
    reading.standings.iter().find(|s| s.key == key).unwrap()
}

#[test]
fn every_key_has_its_field_in_a_layer_and_in_the_settings() {
    let (_folder, sources) = given("");
    let settings = serde_json::to_value(sources.read().unwrap().settings).unwrap();
    let mut fields: Vec<&str> = settings
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut keys: Vec<&str> = KEYS.iter().map(|key| key.key).collect();
    fields.sort_unstable();
    keys.sort_unstable();
    assert_eq!(fields, keys);
    for key in KEYS {
        let value = literal(if key.default.is_empty() {
            key.example
        } else {
            key.default
        });
        let table: Table = [(key.key.to_owned(), value.expect(key.key))]
            .into_iter()
            .collect();
        SettingsLayer::deserialize(table).unwrap_or_else(|error| panic!("{}: {error}", key.key));
        assert_eq!(key.variable, format!("FARDEL_{}", key.key.to_uppercase()));
    }
}

#[test]
fn an_unknown_key_names_the_nearest() {
    let refusal = parse("lisen = '1.2.3.4:5'", "x.toml").unwrap_err();
    assert_eq!(refusal.code, "setting.unknown");
    assert!(
        refusal.to_string().contains("Did you mean listen?"),
        "{refusal}"
    );
    let refusal = parse("favourite_colour = 'blue'", "x.toml").unwrap_err();
    assert!(refusal.hint.contains("fardel config show"), "{refusal}");
}

#[test]
fn broken_toml_is_named_by_file_and_line_and_wrong_types_by_what_would_work() {
    let refusal = parse("# a\nkeep_days = 3\nlisten = 127.0.0.1:1\n", "x.toml").unwrap_err();
    assert_eq!(refusal.code, "setting.syntax");
    assert!(refusal.text.starts_with("x.toml, line 3: "), "{refusal}");
    for (text, wanted) in [
        ("keep_days = '3'", "For example: keep_days = 30"),
        ("keep_days = -3", "For example: keep_days = 30"),
        (
            "host_environment = 1",
            "For example: host_environment = true",
        ),
        (
            "[listen]\nport = 1",
            "For example: listen = \"127.0.0.1:7860\"",
        ),
    ] {
        let refusal = parse(text, "x.toml").unwrap_err();
        assert_eq!(refusal.code, "setting.wrong-type", "{text}");
        assert_eq!(refusal.hint, wanted, "{text}");
    }
}

#[test]
fn a_later_source_wins_and_each_value_says_its_source() {
    let (folder, _) = given("listen = '127.0.0.1:1'\nkeep_days = 3\nlog_json = true\n");
    let file = folder.path().join("fardel.toml");
    let more = folder.path().join("conf.d/20-site.toml");
    std::fs::create_dir(folder.path().join("conf.d")).unwrap();
    std::fs::write(&more, "keep_days = 4\n").unwrap();
    let name = file.display().to_string();
    let sources = |flags| {
        let name = name.clone();
        SettingsSources::new(flags, move |variable| match variable {
            "FARDEL_CONFIG" => Some(name.clone()),
            "FARDEL_LISTEN" => Some("127.0.0.1:2".into()),
            _ => None,
        })
    };
    let reading = sources(SettingsLayer::default()).read().unwrap();
    assert_eq!(
        (reading.settings.listen.port(), reading.settings.keep_days),
        (2, 4)
    );
    for (key, source) in [
        ("listen", "FARDEL_LISTEN".to_owned()),
        ("keep_days", more.display().to_string()),
        ("log_json", file.display().to_string()),
        ("cpu", "built-in".to_owned()),
    ] {
        assert_eq!(standing(&reading, key).source.to_string(), source, "{key}");
    }
    let flags = |port: &str| SettingsLayer {
        listen: Some(format!("127.0.0.1:{port}")),
        ..SettingsLayer::default()
    };
    let reading = sources(flags("3")).read().unwrap();
    assert_eq!(reading.settings.listen.port(), 3);
    assert_eq!(standing(&reading, "listen").source, SettingSource::Flag);
    let reading = sources(flags("2")).read().unwrap();
    assert_eq!(
        standing(&reading, "listen").source,
        SettingSource::Variable("FARDEL_LISTEN")
    );
}

#[test]
fn a_bad_value_says_its_source_and_what_would_work() {
    for (text, code) in [
        ("listen = 'here'", "setting.listen-invalid"),
        ("cpu = 'many'", "cpu.invalid"),
        ("memory = 'much'", "size.invalid"),
    ] {
        let (folder, sources) = given(text);
        let refusal = sources.read().unwrap_err();
        assert_eq!(refusal.code, code);
        assert!(
            refusal
                .text
                .starts_with(&folder.path().display().to_string()),
            "{refusal}"
        );
        assert!(!refusal.hint.is_empty(), "{refusal}");
    }
    let sources = SettingsSources::new(SettingsLayer::default(), |name| {
        (name == "FARDEL_KEEP_DAYS").then(|| "ever".to_owned())
    });
    let refusal = sources.read().unwrap_err();
    assert_eq!(
        refusal.text,
        "FARDEL_KEEP_DAYS: \"ever\" is not a whole number."
    );
}

#[test]
fn the_sample_changes_nothing_and_all_of_it_is_good_when_it_is_uncommented() {
    assert_eq!(parse(&sample(), "sample").unwrap(), Table::new());
    let all: String = sample()
        .lines()
        .filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')))
        .map(|line| format!("{line}\n"))
        .collect();
    let table = parse(&all, "sample").unwrap();
    assert_eq!(table.len(), KEYS.len());
    let (_folder, sources) = given(&all);
    let reading = sources.read().unwrap();
    for (standing, key) in reading.standings.iter().zip(KEYS) {
        if !key.default.is_empty() {
            assert_eq!(standing.value, literal(key.default), "{}", key.key);
        }
    }
}

#[test]
fn a_running_server_keeps_what_needs_a_restart_and_says_what_waits() {
    let (folder, sources) = given("keep_days = 3\n");
    let old = sources.read().unwrap();
    std::fs::write(
        folder.path().join("fardel.toml"),
        "listen = '127.0.0.1:9'\nkeep_days = 3\n",
    )
    .unwrap();
    let newer = sources.read().unwrap();
    let now = old.followed_by(&newer);
    assert_eq!(now.settings, old.settings);
    assert_eq!(now.waiting(), ["listen"]);
    assert!(old.changed(&now).is_empty());
    let waiting = standing(&now, "listen").waiting.clone().unwrap();
    assert_eq!(waiting.value, Some(Value::String("127.0.0.1:9".into())));
    // Taken back before any restart: nothing waits any more.
    std::fs::write(folder.path().join("fardel.toml"), "keep_days = 3\n").unwrap();
    let back = now.followed_by(&sources.read().unwrap());
    assert!(back.waiting().is_empty());
    assert_eq!(standing(&back, "listen").source, SettingSource::BuiltIn);
}

#[test]
fn only_loopback_is_served_as_it_is_unless_somebody_says_so() {
    for (listen, tls, encrypted) in [
        ("127.0.0.1:1", None, false),
        ("[::1]:1", None, false),
        ("0.0.0.0:443", None, true),
        ("10.1.4.20:443", Some("auto"), true),
        ("127.0.0.1:1", Some("on"), true),
        ("0.0.0.0:1", Some("off"), false),
    ] {
        let flags = SettingsLayer {
            listen: Some(listen.into()),
            tls: tls.map(Into::into),
            ..SettingsLayer::default()
        };
        let settings = Settings::read(flags, |_| None).unwrap();
        assert_eq!(settings.encrypted(), encrypted, "{listen} {tls:?}");
    }
    let refused = |flags| Settings::read(flags, |_| None).unwrap_err().code;
    let tls = Some("yes".into());
    assert_eq!(
        refused(SettingsLayer {
            tls,
            ..SettingsLayer::default()
        }),
        "setting.tls-invalid"
    );
    let listen_http = Some("80".into());
    let flags = SettingsLayer {
        listen_http,
        ..SettingsLayer::default()
    };
    assert_eq!(refused(flags), "setting.listen-http-invalid");
    let named = |name: &str| SettingsLayer {
        apps_name: Some(name.into()),
        ..SettingsLayer::default()
    };
    assert_eq!(refused(named("*.box.lab")), "setting.apps-name-invalid");
    let read = |name: &str| {
        let read = Settings::read(named(name), |_| None).expect("a name");
        read.apps_name
    };
    assert_eq!(read(" Apps.Box.lab "), Some("apps.box.lab".into()));
    assert_eq!(read(""), None);
}

#[test]
fn another_data_directory_has_a_run_directory_of_its_own_unless_one_is_named() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let read = |data: Option<PathBuf>, flags: SettingsLayer, run: Option<PathBuf>| {
        let (config, runtime) = (at("none.toml"), at("r"));
        let text = |path: &Path| path.display().to_string();
        let known = [
            ("FARDEL_CONFIG", Some(config)),
            ("FARDEL_DATA", data),
            ("FARDEL_RUN", run),
            ("HOME", Some(at("home"))),
            ("XDG_RUNTIME_DIR", Some(runtime)),
        ];
        let value = |name: &str| known.iter().find(|(known, _)| *known == name)?.1.as_deref();
        Settings::read(flags, |name| value(name).map(text)).unwrap()
    };
    let flag = |data: PathBuf| SettingsLayer {
        data: Some(data),
        ..SettingsLayer::default()
    };
    let usual = read(None, SettingsLayer::default(), None);
    let same = read(Some(usual.data.clone()), SettingsLayer::default(), None);
    assert_eq!(same.run, usual.run);
    let other = read(Some(at("other")), SettingsLayer::default(), None);
    assert_ne!(other.run, usual.run);
    // The server has a flag, the command line a variable.
    assert_eq!(read(None, flag(at("other")), None).run, other.run);
    assert_ne!(read(None, flag(at("third")), None).run, other.run);
    let named = read(
        Some(at("other")),
        SettingsLayer::default(),
        Some(at("here")),
    );
    assert_eq!(named.run, at("here"));
}

#[test]
fn a_directory_elsewhere_is_asked_over_tls_only() {
    let code = |text: &str| {
        let (_folder, sources) = given(text);
        sources.read().map(|_| ()).map_err(|refusal| refusal.code)
    };
    let refused = |code: &str| Err(code.to_owned());
    let base = "ldap_base = 'dc=x'\n";
    let with = |text: &str| code(&format!("{base}{text}"));
    assert_eq!(with("ldap_url = 'ldaps://10.1.0.4'"), Ok(()));
    assert_eq!(with("ldap_url = 'ldap://dc1'"), Ok(()));
    let plain = |url: &str| with(&format!("ldap_url = '{url}'\nldap_start_tls = false"));
    assert_eq!(plain("ldap://10.1.0.4"), refused("setting.ldap-plain"));
    assert_eq!(
        plain("ldap://127.evil.example"),
        refused("setting.ldap-plain")
    );
    assert_eq!(plain("ldap://127.0.0.1"), Ok(()));
    assert_eq!(plain("ldap://localhost"), Ok(()));
    assert_eq!(plain("ldaps://10.1.0.4"), Ok(()));
    let no_base = code("ldap_url = 'ldaps://dc1'");
    assert_eq!(no_base, refused("setting.missing"));
    for bad in [
        "ldap_url = 'dc1'",
        "ldap_filter = '(uid=mina)'",
        "ldap_name = 'uid)(x'",
        "ldap_groups = 'staff -> default:administrator'",
        "ldap_domain = 'No'",
    ] {
        assert_eq!(with(bad), refused("setting.ldap-invalid"), "{bad}");
    }
}

#[test]
fn an_identity_provider_is_asked_over_tls_and_its_return_address_is_a_setting() {
    let code = |text: &str| {
        let (_folder, sources) = given(text);
        sources.read().map(|_| ()).map_err(|refusal| refusal.code)
    };
    let whole = |issuer: &str, origin: &str| {
        code(&format!(
            "oidc_issuer = '{issuer}'\noidc_client = 'fardel'\noidc_origin = '{origin}'"
        ))
    };
    let invalid = Err("setting.oidc-invalid".to_owned());
    assert_eq!(whole("https://id/realms/a", "https://box"), Ok(()));
    assert_eq!(whole("http://127.0.0.1:9", "https://box/"), Ok(()));
    for (issuer, origin) in [
        ("http://id", "https://box"),
        ("https://id?a=b", "https://box"),
        ("id", "https://box"),
        ("https://id", "http://box"),
        ("https://id", "https://box/login"),
        ("https://id", "box"),
    ] {
        assert_eq!(whole(issuer, origin), invalid, "{issuer} {origin}");
    }
    let missing = Err("setting.missing".to_owned());
    assert_eq!(code("oidc_issuer = 'https://id'"), missing);
    assert_eq!(
        code("oidc_issuer = 'https://id'\noidc_origin = 'https://box'"),
        missing
    );
    assert_eq!(code("oidc_scope = 'profile'"), invalid);
}

#[test]
fn a_provider_of_saml_is_whole_and_led_to_over_tls() {
    let code = |text: &str| {
        let (_folder, sources) = given(text);
        sources.read().map(|_| ()).map_err(|refusal| refusal.code)
    };
    let whole = |issuer: &str, place: &str, origin: &str| {
        code(&format!(
            "saml_issuer = '{issuer}'\nsaml_sso_url = '{place}'\nsaml_origin = '{origin}'\n\
             saml_certificate_file = '/etc/fardel/saml.pem'"
        ))
    };
    let invalid = Err("setting.saml-invalid".to_owned());
    assert_eq!(
        whole("urn:id", "https://id/sso?a=b", "https://box/"),
        Ok(())
    );
    assert_eq!(whole("id", "http://127.0.0.1:9", "https://box"), Ok(()));
    for (issuer, place, origin) in [
        ("an id", "https://id", "https://box"),
        ("id", "http://id", "https://box"),
        ("id", "id", "https://box"),
        ("id", "https://id", "http://box"),
        ("id", "https://id", "https://box/login"),
    ] {
        assert_eq!(
            whole(issuer, place, origin),
            invalid,
            "{issuer} {place} {origin}"
        );
    }
    let missing = Err("setting.missing".to_owned());
    let parts = [
        "saml_issuer = 'id'",
        "saml_sso_url = 'https://id'",
        "saml_origin = 'https://box'",
    ];
    for count in 1..=parts.len() {
        assert_eq!(code(&parts[..count].join("\n")), missing, "{count}");
    }
    assert_eq!(code("saml_sso_url = 'https://id'"), Ok(()), "it is off");
    for bad in [
        "saml_user = 'a b'",
        "saml_groups = 'a b'",
        "saml_entity_id = 'a b'",
        "saml_name = 'a\tb'",
    ] {
        assert_eq!(code(bad), invalid, "{bad}");
    }
}

#[test]
fn the_audit_log_is_handed_over_to_addresses_and_a_token_goes_over_tls() {
    let code = |text: &str| {
        let (_folder, sources) = given(text);
        sources.read().map(|_| ()).map_err(|refusal| refusal.code)
    };
    for good in [
        "audit_to_syslog = 'tcp://10.1.0.9'",
        "audit_to_syslog = 'unix:///dev/log'",
        "audit_to_syslog = ''",
        "audit_to_http = 'https://10.1.0.9/take'",
        "audit_to_http = 'http://127.0.0.1:8088/take'",
        "audit_to_file = '/var/log/fardel/audit.jsonl'",
        "audit_to_file = ''",
    ] {
        assert_eq!(code(good), Ok(()), "{good}");
    }
    for bad in [
        "audit_to_syslog = '10.1.0.9'",
        "audit_to_syslog = 'unix://log'",
        "audit_to_http = 'http://10.1.0.9/take'",
        "audit_to_http = '10.1.0.9'",
    ] {
        assert_eq!(code(bad), Err("setting.audit-invalid".to_owned()), "{bad}");
    }
}

#[test]
fn a_mail_server_has_a_sender_and_its_password_goes_over_tls() {
    let code = |text: &str| {
        let (_folder, sources) = given(text);
        sources.read().map(|_| ()).map_err(|refusal| refusal.code)
    };
    let with = |more: &str| code(&format!("mail_from = 'fardel@lab.example'\n{more}"));
    let signed_in = "mail_user = 'fardel'\nmail_password_file = '/etc/fardel/mail.password'\n";
    for good in [
        "",
        "mail_server = '10.1.0.7'",
        "mail_server = 'mail.lab:2525'\nmail_security = 'none'",
        "mail_server = '[::1]'\nmail_security = 'tls'",
        "mail_origin = 'https://gpu.lab/'",
        "mail_server = ''",
    ] {
        assert_eq!(with(good), Ok(()), "{good}");
    }
    let own = format!("{signed_in}mail_server = '127.0.0.1'\nmail_security = 'none'");
    assert_eq!(with(&own), Ok(()));
    let plain = format!("{signed_in}mail_server = '10.1.0.7'\nmail_security = 'none'");
    assert_eq!(with(&plain), Err("setting.mail-plain".to_owned()));
    let missing = Err("setting.missing".to_owned());
    assert_eq!(code("mail_server = '10.1.0.7'"), missing);
    let no_password = "mail_server = '10.1.0.7'\nmail_user = 'fardel'";
    assert_eq!(with(no_password), missing);
    for bad in [
        "mail_server = 'smtp://10.1.0.7'",
        "mail_server = '10.1.0.7:0'",
        "mail_security = 'ssl'",
        "mail_origin = 'gpu.lab'",
        "mail_origin = 'https://gpu.lab/console'",
    ] {
        assert_eq!(with(bad), Err("setting.mail-invalid".to_owned()), "{bad}");
    }
    let injected = code("mail_from = \"a@b\\r\\nBcc: c@d\"");
    assert_eq!(injected, Err("setting.mail-invalid".to_owned()));
}
