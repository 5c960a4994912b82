//! What of a session's own layer becomes a layer of an image: what is left out, and what looks like a secret. Reads no
//! file; the caller brings paths and bytes.

use serde::{Deserialize, Serialize};

use crate::image::parse_reference;
use crate::quota::{AttachedPolicy, LimitKey, UsageByLevel, effective};
use crate::refusal::Refusal;
use crate::refusals;

/// Bytes of all files of one layer. Higher: a session stands still for longer while it is read. Lower: an
/// environment with several frameworks cannot be kept.
pub const MAX_LAYER_BYTES: u64 = 64 << 30;
/// Files, directories and links of one layer, as an import takes them.
pub const MAX_LAYER_ENTRIES: u64 = 1_000_000;
/// Directories above a file, as an import takes them.
pub const MAX_LAYER_DEPTH: usize = 256;
/// Secrets that are named; the others are counted. Higher: a page that is too long to read. Lower: more rounds.
pub const MAX_NAMED_SECRETS: usize = 200;
/// Larger files are judged by their names alone. Higher: looking takes longer. Lower: more is overlooked.
pub const MAX_SEARCHED_BYTES: u64 = 1 << 20;
/// Paths that a caller may leave out. Higher: each file is compared with more of them. Lower: long lists need two tries.
pub const MAX_EXCLUDED: usize = 64;
/// Longest such path, bytes: the kernel's own limit less its final zero.
pub const MAX_EXCLUDED_LENGTH: usize = 4095;
/// Images that one user may keep of sessions where no policy says how many. Higher: one user fills the disk of all. Lower: old
/// ones go sooner.
pub const MAX_OWN_IMAGES: u64 = 32;
/// Images that a policy may let one user keep. Higher: lists of images grow too long to look through.
pub const MAX_POLICY_IMAGES: u64 = 1_000;
/// The label of an image that names the session of which it was made.
pub const COMMITTED_FROM: &str = "fardel.committed-from";

/// What no image keeps, with all that is below: kernel file systems, what is temporary, homes, what package managers
/// download, and what every session gets of its own.
pub const LEFT_OUT: [&str; 14] = [
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/tmp",
    "/var/tmp",
    "/home",
    "/root",
    "/folders",
    "/var/cache/apt/archives",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
];

/// The paths that one layer leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerExclusions(Vec<String>);

impl LayerExclusions {
    /// What no image keeps, and these paths of the session and of its owner.
    pub fn with(paths: impl IntoIterator<Item = String>) -> Self {
        let fixed = LEFT_OUT.iter().map(|path| (*path).to_owned());
        let given = paths
            .into_iter()
            .map(|path| {
                let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
                format!("/{}", parts.collect::<Vec<_>>().join("/"))
            })
            .filter(|path| path != "/");
        let mut all: Vec<String> = fixed.chain(given).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    /// Whether a path, without a slash in front, is left out. O(paths left out).
    pub fn covers(&self, path: &str) -> bool {
        self.0.iter().any(|out| {
            let below = path.strip_prefix(&out[1..]);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Checks the paths that an owner leaves out.
///
/// Errors: `commit.exclude-invalid`, `commit.exclude-many`.
pub fn check_excluded(paths: &[String]) -> Result<(), Refusal> {
    if paths.len() > MAX_EXCLUDED {
        return Err(refusals::commit_exclude_many(MAX_EXCLUDED).at("/exclude"));
    }
    let is_good = |path: &String| {
        path.starts_with('/')
            && path.len() <= MAX_EXCLUDED_LENGTH
            && !path.contains('\0')
            && path.split('/').any(|part| !matches!(part, "" | "."))
            && path.split('/').all(|part| part != "..")
    };
    match paths.iter().all(is_good) {
        true => Ok(()),
        false => Err(refusals::commit_exclude_invalid().at("/exclude")),
    }
}

/// What the image of a session is called: below its owner's name, so that no name tells what another user has.
///
/// Errors: `image.reference-invalid`.
pub fn own_reference(user: &str, typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    let below = match typed.strip_prefix(user) {
        Some(rest) if rest.starts_with('/') => &rest[1..],
        _ => typed,
    };
    parse_reference(&format!("{user}/{below}")).map_err(|refusal| refusal.at("/reference"))
}

/// What kind of secret a file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretKind {
    PrivateKey,
    SshKey,
    Token,
    CloudCredentials,
    Password,
    EnvironmentFile,
    ShellHistory,
}

impl SecretKind {
    pub const ALL: [Self; 7] = [
        Self::PrivateKey,
        Self::SshKey,
        Self::Token,
        Self::CloudCredentials,
        Self::Password,
        Self::EnvironmentFile,
        Self::ShellHistory,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::PrivateKey => "private-key",
            Self::SshKey => "ssh-key",
            Self::Token => "token",
            Self::CloudCredentials => "cloud-credentials",
            Self::Password => "password",
            Self::EnvironmentFile => "environment-file",
            Self::ShellHistory => "shell-history",
        }
    }
}

/// A file that looks like it holds a secret. Never the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundSecret {
    /// Absolute, inside.
    pub path: String,
    pub kind: SecretKind,
}

/// What a session's own layer holds, found before any of it is read for good.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSurvey {
    /// Sum of the lengths of its files.
    pub bytes: u64,
    pub entries: u64,
    /// Files of the image that are removed.
    pub removed: u64,
    /// Sockets, devices and names that no layer can hold.
    pub skipped: u64,
    /// By path, at most `MAX_NAMED_SECRETS`.
    pub secrets: Vec<FoundSecret>,
    /// Those beyond.
    pub more_secrets: u64,
}

impl LayerSurvey {
    /// Notes a secret; of more than are named only their number.
    pub fn note(&mut self, path: String, kind: SecretKind) {
        match self.secrets.len() < MAX_NAMED_SECRETS {
            true => self.secrets.push(FoundSecret { path, kind }),
            false => self.more_secrets += 1,
        }
    }

    /// How many secrets there are, named or not.
    pub fn secret_count(&self) -> u64 {
        self.secrets.len() as u64 + self.more_secrets
    }
}

/// What a path says by itself; it has no slash in front.
pub fn secret_by_name(path: &str) -> Option<SecretKind> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_in = |folder: &str| above == folder || above.ends_with(&format!("/{folder}"));
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    match name {
        ".netrc" | "_netrc" | ".git-credentials" | ".pgpass" | ".my.cnf" | ".pypirc" => {
            Some(SecretKind::Password)
        }
        "id_rsa" | "id_dsa" | "id_ecdsa" | "id_ed25519" | "id_ecdsa_sk" | "id_ed25519_sk" => {
            Some(SecretKind::SshKey)
        }
        "credentials" if is_in(".aws") => Some(SecretKind::CloudCredentials),
        "config" if is_in(".kube") => Some(SecretKind::CloudCredentials),
        "kaggle.json" if is_in(".kaggle") || is_in("kaggle") => Some(SecretKind::CloudCredentials),
        "config.json" if is_in(".docker") => Some(SecretKind::Password),
        "auth.json" if is_in("containers") => Some(SecretKind::Password),
        "token" if is_in("huggingface") || is_in(".huggingface") => Some(SecretKind::Token),
        "application_default_credentials.json" | "accessTokens.json" | "msal_token_cache.json" => {
            Some(SecretKind::CloudCredentials)
        }
        ".env" => Some(SecretKind::EnvironmentFile),
        _ if name.starts_with(".env.") && !ends(&[".example", ".sample", ".template"]) => {
            Some(SecretKind::EnvironmentFile)
        }
        _ if name.starts_with('.') && ends(&["_history", ".lesshst"]) => {
            Some(SecretKind::ShellHistory)
        }
        _ if ends(&[".p12", ".pfx", ".kdbx", ".keytab"]) => Some(SecretKind::PrivateKey),
        _ => None,
    }
}

/// Beginnings of tokens in known formats, with the least number of letters, digits, `-` and `_` behind.
const TOKENS: [(&str, usize, SecretKind); 19] = [
    ("fardel_", 43, SecretKind::Token),
    ("ghp_", 36, SecretKind::Token),
    ("gho_", 36, SecretKind::Token),
    ("ghu_", 36, SecretKind::Token),
    ("ghs_", 36, SecretKind::Token),
    ("ghr_", 36, SecretKind::Token),
    ("github_pat_", 22, SecretKind::Token),
    ("glpat-", 20, SecretKind::Token),
    ("hf_", 34, SecretKind::Token),
    ("npm_", 36, SecretKind::Token),
    ("nvapi-", 60, SecretKind::Token),
    ("pypi-AgEIcHlwaS5vcmc", 40, SecretKind::Token),
    ("sk-ant-", 40, SecretKind::Token),
    ("sk-proj-", 40, SecretKind::Token),
    ("xoxb-", 20, SecretKind::Token),
    ("xoxp-", 20, SecretKind::Token),
    ("AIza", 35, SecretKind::CloudCredentials),
    ("AKIA", 16, SecretKind::CloudCredentials),
    ("ASIA", 16, SecretKind::CloudCredentials),
];

const KEY_BEGIN: &[u8] = b"-----BEGIN ";
const KEY_END: &[u8] = b"PRIVATE KEY-----";
/// Bytes between the two, such as `OPENSSH `.
const KEY_KIND: usize = 24;

/// What the bytes of a file say: a private key, or a token in a known format. O(bytes).
pub fn secret_by_content(bytes: &[u8]) -> Option<SecretKind> {
    let mut begins = [false; 256];
    begins[usize::from(b'-')] = true;
    for (prefix, _, _) in TOKENS {
        begins[usize::from(prefix.as_bytes()[0])] = true;
    }
    let mut at = 0;
    while at < bytes.len() {
        if !begins[usize::from(bytes[at])] {
            at += 1;
            continue;
        }
        let rest = &bytes[at..];
        if is_private_key(rest) {
            return Some(SecretKind::PrivateKey);
        }
        let stands_alone = at == 0 || !is_token_byte(bytes[at - 1]);
        if stands_alone && let Some(kind) = token(rest) {
            return Some(kind);
        }
        at += 1;
    }
    None
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn token(rest: &[u8]) -> Option<SecretKind> {
    TOKENS.iter().find_map(|(prefix, least, kind)| {
        let behind = rest.strip_prefix(prefix.as_bytes())?;
        let fits = match *kind {
            // These have one length and upper-case letters only.
            SecretKind::CloudCredentials if *least == 16 => {
                let word = behind.get(..16)?;
                let upper = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit();
                word.iter().all(upper) && behind.get(16).is_none_or(|b| !is_token_byte(*b))
            }
            _ => {
                let word = behind.get(..*least)?;
                // A name in a program's text has no digit.
                word.iter().all(|b| is_token_byte(*b)) && word.iter().any(u8::is_ascii_digit)
            }
        };
        fits.then_some(*kind)
    })
}

/// The header of a key with a line behind it: programs that read keys hold the header alone.
fn is_private_key(rest: &[u8]) -> bool {
    let Some(behind) = rest.strip_prefix(KEY_BEGIN) else {
        return false;
    };
    let within = &behind[..behind.len().min(KEY_KIND + KEY_END.len())];
    let found = within.windows(KEY_END.len()).position(|w| w == KEY_END);
    let Some(end) = found.map(|at| at + KEY_END.len()) else {
        return false;
    };
    let line = match &behind[end..] {
        [b'\\', b'n', line @ ..] | [b'\r', b'\n', line @ ..] | [b'\n', line @ ..] => line,
        _ => return false,
    };
    let in_base64 = |b: &u8| b.is_ascii_alphanumeric() || b"+/=:-, ".contains(b);
    line.get(..16)
        .is_some_and(|first| first.iter().all(in_base64))
}

/// How many images of sessions a user to whom these policies are attached keeps: the lowest limit of them.
pub fn own_images_limit(attached: &[AttachedPolicy]) -> u64 {
    let all = effective(attached, &UsageByLevel::default());
    let found = all.iter().find(|one| one.key == LimitKey::Images);
    let most = found.map_or(MAX_OWN_IMAGES, |one| one.value);
    most.min(MAX_POLICY_IMAGES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{PolicyLevel, PolicyLimits};

    #[test]
    fn the_lowest_policy_says_how_many_images_a_user_keeps() {
        let policy = |level, images| AttachedPolicy {
            level,
            name: "x".to_owned(),
            limits: PolicyLimits {
                images,
                ..PolicyLimits::NONE
            },
            raised: Vec::new(),
        };
        assert_eq!(own_images_limit(&[]), MAX_OWN_IMAGES);
        let site = policy(PolicyLevel::Site, Some(40));
        assert_eq!(own_images_limit(std::slice::from_ref(&site)), 40);
        let user = policy(PolicyLevel::User, Some(3));
        assert_eq!(own_images_limit(&[site, user]), 3);
        let endless = policy(PolicyLevel::Site, Some(u64::MAX));
        assert_eq!(own_images_limit(&[endless]), MAX_POLICY_IMAGES);
        assert_eq!(own_images_limit(&[policy(PolicyLevel::Site, Some(0))]), 0);
    }

    #[test]
    fn homes_mounts_and_what_is_temporary_are_left_out_with_all_below() {
        let given = ["/data/./set/", "/", "//opt//key"].map(str::to_owned);
        let out = LayerExclusions::with(given);
        for path in [
            "proc",
            "home/mina/.ssh/id_rsa",
            "tmp/x",
            "data/set",
            "data/set/a",
            "opt/key",
            "root",
        ] {
            assert!(out.covers(path), "{path}");
        }
        for path in [
            "procs",
            "opt/home",
            "data/settings",
            "data",
            "etc/passwd",
            "usr/lib",
        ] {
            assert!(!out.covers(path), "{path}");
        }
    }

    #[test]
    fn a_path_to_leave_out_is_absolute_and_leads_nowhere_else() {
        assert_eq!(check_excluded(&["/opt/secret".to_owned()]), Ok(()));
        for bad in ["", "opt", "/", "//", "/./", "/a/../b", "/a\0b"] {
            let refused = check_excluded(&[bad.to_owned()]).unwrap_err();
            assert_eq!(refused.code, "commit.exclude-invalid", "{bad:?}");
        }
        let many = vec!["/a".to_owned(); MAX_EXCLUDED + 1];
        assert_eq!(
            check_excluded(&many).unwrap_err().code,
            "commit.exclude-many"
        );
    }

    #[test]
    fn an_image_of_a_session_is_called_below_its_owner() {
        for typed in ["tools", "mina/tools", " tools:latest "] {
            assert_eq!(
                own_reference("mina", typed).unwrap(),
                "mina/tools:latest",
                "{typed}"
            );
        }
        assert_eq!(own_reference("mina", "jae/x:1").unwrap(), "mina/jae/x:1");
        assert_eq!(own_reference("mina", "minas").unwrap(), "mina/minas:latest");
        for bad in ["", "A", "../x", "x y"] {
            let refused = own_reference("mina", bad).unwrap_err();
            assert_eq!(refused.code, "image.reference-invalid", "{bad}");
        }
    }

    #[test]
    fn names_tell_secrets_and_their_likes_are_let_be() {
        for (path, kind) in [
            ("opt/app/.env", SecretKind::EnvironmentFile),
            ("opt/app/.env.production", SecretKind::EnvironmentFile),
            ("srv/.netrc", SecretKind::Password),
            ("opt/.ssh/id_ed25519", SecretKind::SshKey),
            ("opt/.aws/credentials", SecretKind::CloudCredentials),
            ("srv/.bash_history", SecretKind::ShellHistory),
        ] {
            assert_eq!(secret_by_name(path), Some(kind), "{path}");
        }
        for path in [
            "opt/app/.env.example",
            "opt/environment",
            "opt/.ssh/id_ed25519.pub",
            "opt/aws/credentials",
            "usr/share/doc/history",
        ] {
            assert_eq!(secret_by_name(path), None, "{path}");
        }
    }

    #[test]
    fn contents_tell_keys_and_tokens_and_programs_that_read_them_are_let_be() {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n";
        assert_eq!(
            secret_by_content(key.as_bytes()),
            Some(SecretKind::PrivateKey)
        );
        let in_json = r#"{"private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B"}"#;
        assert_eq!(
            secret_by_content(in_json.as_bytes()),
            Some(SecretKind::PrivateKey)
        );
        let token = format!("export GH={}{}", "ghp_", "a1".repeat(18));
        assert_eq!(secret_by_content(token.as_bytes()), Some(SecretKind::Token));
        let cloud = format!("key = {}{}\n", "AKIA", "ABCDEFGH23456789");
        assert_eq!(
            secret_by_content(cloud.as_bytes()),
            Some(SecretKind::CloudCredentials)
        );
        for text in [
            "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0B\n",
            "if line == '-----BEGIN RSA PRIVATE KEY-----':\n",
            "-----BEGIN RSA PRIVATE KEY-----\0-----END",
            "hf_hub_download_and_load_a_model_by_name",
            "AKIAABCDEFGH23456789LONGER",
            "",
        ] {
            assert_eq!(secret_by_content(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn more_secrets_than_are_named_are_counted() {
        let mut survey = LayerSurvey::default();
        for number in 0..MAX_NAMED_SECRETS + 3 {
            survey.note(format!("/{number}"), SecretKind::Token);
        }
        assert_eq!(survey.secrets.len(), MAX_NAMED_SECRETS);
        assert_eq!((survey.more_secrets, survey.secret_count()), (3, 203));
    }
}
