//! Sign-ins by a provider that is honest, lies, changes its keys, or is dead: a small one, written here.

use std::time::Instant;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::begun_sign_ins::{BEGUN_SECONDS, MAX_BEGUN_OF_ADDRESS};
use super::super::id_token::tests::TestSigner;
use super::super::tests::{GOOD, HERE, later, with_settings};
use super::super::{by_cookie, sign_in};
use super::*;
use crate::catalog::Lane;
use crate::code;

/// What the provider does, and what it was told.
struct TestIssuer {
    signer: TestSigner,
    /// Signs instead of the one in the list.
    liar: Option<TestSigner>,
    header: Value,
    /// What its tokens say instead of the truth.
    lies: Vec<(&'static str, Value)>,
    unsigned: bool,
    user: &'static str,
    groups: Value,
    nonce: String,
    challenge: String,
    asked: u32,
    /// The question that is answered a byte at a time, without an end; empty: none.
    drips: &'static str,
}

/// Between two bytes of a dripping answer.
const DRIP: Duration = Duration::from_millis(50);
/// How much later than it should a loaded machine may tell that the time is over: who waits for a second step is later.
const LATE: Duration = MAX_STEP;

type SharedIssuer = Arc<Mutex<TestIssuer>>;

fn honest() -> TestIssuer {
    TestIssuer {
        signer: TestSigner::new("a"),
        liar: None,
        header: json!({"alg": "ES256", "kid": "a"}),
        lies: Vec::new(),
        unsigned: false,
        user: "kim",
        groups: json!(["staff"]),
        nonce: String::new(),
        challenge: String::new(),
        asked: 0,
        drips: "",
    }
}

fn answer(issuer: &mut TestIssuer, origin: &str, request: &str) -> (u16, String) {
    issuer.asked += 1;
    let path = request.split(' ').nth(1).unwrap_or_default();
    match path {
        "/.well-known/openid-configuration" => {
            let said = json!({
                "issuer": origin,
                "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"),
                "jwks_uri": format!("{origin}/keys"),
                "code_challenge_methods_supported": ["S256"],
            });
            (200, said.to_string())
        }
        "/keys" => (200, issuer.signer.list()),
        "/token" => {
            let body = request.split("\r\n\r\n").nth(1).unwrap_or_default();
            let verifier = body
                .split('&')
                .find_map(|pair| pair.strip_prefix("code_verifier="));
            let digest = Sha256::digest(verifier.unwrap_or_default().as_bytes());
            let challenge = URL_SAFE_NO_PAD.encode(digest);
            if challenge != issuer.challenge || !body.contains("code=good") {
                return (400, json!({"error": "invalid_grant"}).to_string());
            }
            let mut claims = json!({
                "iss": origin, "aud": "fardel", "sub": format!("id of {}", issuer.user),
                "nonce": issuer.nonce, "iat": 1_800_000_000, "exp": 1_900_000_000,
                "preferred_username": issuer.user, "name": "Kim", "groups": issuer.groups,
            });
            for (name, value) in &issuer.lies {
                claims[*name] = value.clone();
            }
            let signer = issuer.liar.as_ref().unwrap_or(&issuer.signer);
            let mut token = signer.token(&issuer.header, &claims);
            if issuer.unsigned {
                let (signed, _) = token.rsplit_once('.').expect("three parts");
                token = format!("{signed}.");
            }
            (
                200,
                json!({"id_token": token, "token_type": "Bearer"}).to_string(),
            )
        }
        _ => (404, String::new()),
    }
}

async fn serve(mut stream: TcpStream, origin: String, issuer: SharedIssuer) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let Ok(read @ 1..) = stream.read(&mut piece).await else {
            return;
        };
        request.extend(&piece[..read]);
        let text = String::from_utf8_lossy(&request).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse::<usize>().unwrap_or(0));
        if body.len() >= length {
            break;
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let dripping = locked(&issuer).drips;
    if text.split(' ').nth(1) == Some(dripping) {
        return drip(stream).await;
    }
    let (status, body) = answer(&mut locked(&issuer), &origin, &text);
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // Who asked may have gone away.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}

/// Answers a byte at a time, until who asked goes away.
async fn drip(mut stream: TcpStream) {
    let mut next: &[u8] = b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n{";
    while stream.write_all(next).await.is_ok() {
        next = b" ";
        tokio::time::sleep(DRIP).await;
    }
}

/// A provider; gives its origin.
async fn provider(issuer: &SharedIssuer) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let origin = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let (issuer, own) = (Arc::clone(issuer), origin.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, own.clone(), Arc::clone(&issuer)));
        }
    });
    origin
}

/// A server whose users sign in by this provider, with the local administrator mina.
async fn asking(folder: &Path, origin: &str) -> (Server, Caller) {
    let text = format!(
        "oidc_issuer = '{origin}'\n\
         oidc_client = 'fardel'\n\
         oidc_origin = 'https://fardel.example.org'\n\
         ldap_groups = 'staff -> default:member'\n"
    );
    std::fs::write(folder.join("fardel.toml"), text).unwrap();
    with_settings(folder).await
}

/// An honest provider, the folder of the settings, and a server whose users sign in by that provider.
async fn with_honest() -> (SharedIssuer, tempfile::TempDir, Server) {
    let issuer = Arc::new(Mutex::new(honest()));
    let folder = tempfile::tempdir().unwrap();
    let origin = provider(&issuer).await;
    let (server, _) = asking(folder.path(), &origin).await;
    (issuer, folder, server)
}

fn parameter(address: &str, name: &str) -> String {
    let (_, query) = address.split_once('?').unwrap();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(known, _)| *known == name);
    found.map_or_else(String::new, |(_, value)| value.to_owned())
}

/// Begins, and tells the provider what the browser would.
async fn begun(server: &Server, issuer: &SharedIssuer, again: Option<&Caller>) -> ProviderStart {
    let start = begin_by_provider(server, HERE, "/sessions", again)
        .await
        .unwrap();
    note(issuer, &start);
    start
}

fn note(issuer: &SharedIssuer, start: &ProviderStart) {
    let mut issuer = locked(issuer);
    issuer.nonce = parameter(&start.to, "nonce");
    issuer.challenge = parameter(&start.to, "code_challenge");
}

fn back(start: &ProviderStart) -> ProviderReturn {
    ProviderReturn {
        code: "good".to_owned(),
        state: parameter(&start.to, "state"),
        ..ProviderReturn::default()
    }
}

async fn finished(server: &Server, start: &ProviderStart) -> Result<ProviderOutcome, Failure> {
    finish_by_provider(server, back(start), Some(&start.browser), HERE.into()).await
}

async fn whole(server: &Server, issuer: &SharedIssuer) -> Result<ProviderOutcome, Failure> {
    let start = begun(server, issuer, None).await;
    finished(server, &start).await
}

/// The sign-in of an outcome.
async fn caller_of(server: &Server, outcome: ProviderOutcome) -> Caller {
    let ProviderOutcome::SignedIn { step, next } = outcome else {
        panic!("signed in");
    };
    assert_eq!(next, "/sessions");
    let SignInStep::Done(signed_in) = step else {
        panic!("no code was needed");
    };
    let caller = by_cookie(server, &signed_in.cookie, HERE).await;
    caller.unwrap().expect("the cookie is good")
}

/// Who signs in by a whole way through the provider.
async fn admitted(server: &Server, issuer: &SharedIssuer) -> Caller {
    let outcome = whole(server, issuer).await.unwrap();
    caller_of(server, outcome).await
}

/// A provider's user signs in by authorization code with PKCE, in the browser that began and once
/// only; the account is made at the first sign-in and found again by its subject.
#[tokio::test]
async fn a_provider_admits_the_browser_that_began_once() {
    let issuer = Arc::new(Mutex::new(honest()));
    let folder = tempfile::tempdir().unwrap();
    let origin = provider(&issuer).await;
    let (server, _) = asking(folder.path(), &origin).await;
    let start = begun(&server, &issuer, None).await;
    assert!(start.to.starts_with(&format!("{origin}/authorize?")));
    assert_eq!(parameter(&start.to, "code_challenge_method"), "S256");
    assert_eq!(
        parameter(&start.to, "redirect_uri"),
        "https%3A%2F%2Ffardel.example.org%2Flogin%2Freturn"
    );
    let unknown = rules::codes::PROVIDER_RETURN_UNKNOWN;
    let other = finish_by_provider(&server, back(&start), Some("another"), HERE.into()).await;
    assert_eq!(code(other), unknown);
    let none = finish_by_provider(&server, back(&start), None, HERE.into()).await;
    assert_eq!(code(none), unknown);
    let outcome = finished(&server, &start).await.unwrap();
    let kim = caller_of(&server, outcome).await;
    assert_eq!(kim.name.as_str(), "kim");
    assert_eq!(code(finished(&server, &start).await), unknown);
    let again = admitted(&server, &issuer).await;
    assert_eq!(again.subject.user, kim.subject.user);
    // No password is one of theirs.
    assert_eq!(
        code(sign_in(&server, "kim", "", HERE).await),
        "sign-in.wrong"
    );
    assert_eq!(
        code(sign_in(&server, "kim", "!", HERE).await),
        "sign-in.wrong"
    );
    let late = begun(&server, &issuer, None).await;
    later(&server, BEGUN_SECONDS);
    assert_eq!(code(finished(&server, &late).await), unknown);
}

/// A provider whose tokens are of another issuer, audience or sign-in, over, unsigned, signed by
/// another key or by another algorithm admits nobody, and a local account is never its user's.
#[tokio::test]
async fn a_provider_that_lies_admits_nobody() {
    let (issuer, _folder, server) = with_honest().await;
    let wrong = rules::codes::PROVIDER_TOKEN_WRONG;
    let with = async |change: fn(&mut TestIssuer)| {
        let mut lying = honest();
        std::mem::swap(&mut lying.signer, &mut locked(&issuer).signer);
        change(&mut lying);
        *locked(&issuer) = lying;
        // The keys may be read anew each time.
        later(&server, 60);
        code(whole(&server, &issuer).await)
    };
    assert_eq!(with(|_| {}).await, "done");
    let lies: [fn(&mut TestIssuer); 11] = [
        |issuer| issuer.lies.push(("iss", json!("http://127.0.0.1:1"))),
        |issuer| issuer.lies.push(("aud", json!("another"))),
        |issuer| issuer.lies.push(("exp", json!(1_700_000_000))),
        |issuer| issuer.lies.push(("nonce", json!("another"))),
        |issuer| issuer.lies.push(("sub", json!(""))),
        |issuer| issuer.unsigned = true,
        |issuer| issuer.header = json!({"alg": "none"}),
        |issuer| issuer.header = json!({"alg": "HS256", "kid": "a"}),
        |issuer| issuer.header = json!({"alg": "ES256", "kid": "b"}),
        |issuer| issuer.header = json!({"alg": "ES256", "kid": "a", "crit": ["b64"], "b64": false}),
        |issuer| issuer.liar = Some(TestSigner::new("a")),
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        assert_eq!(with(lie).await, wrong, "lie {at}");
    }
    // A part of the server, and a name that only looks like one of this site: its first letter is a Kelvin sign.
    let names: [fn(&mut TestIssuer); 2] = [
        |issuer| issuer.user = "system",
        |issuer| issuer.user = "\u{212a}ira",
    ];
    for name in names {
        let named = with(name).await;
        assert_eq!(named, rules::codes::DIRECTORY_ENTRY_UNUSABLE);
    }
    let taken = with(|issuer| issuer.user = "mina").await;
    assert_eq!(taken, rules::codes::DIRECTORY_ENTRY_UNUSABLE);
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

/// A provider that changes its keys is believed by the new one at the next sign-in, and no sooner
/// than some seconds after the last look.
#[tokio::test]
async fn a_provider_may_change_its_keys() {
    let (issuer, _folder, server) = with_honest().await;
    assert_eq!(tried(&server).await, Some(Ok(())));
    assert_eq!(code(whole(&server, &issuer).await), "done");
    let asked = locked(&issuer).asked;
    assert_eq!(code(whole(&server, &issuer).await), "done");
    assert_eq!(locked(&issuer).asked, asked + 1, "nothing is read twice");
    {
        let mut issuer = locked(&issuer);
        issuer.signer = TestSigner::new("b");
        issuer.header = json!({"alg": "ES256", "kid": "b"});
    }
    let wrong = rules::codes::PROVIDER_TOKEN_WRONG;
    assert_eq!(code(whole(&server, &issuer).await), wrong);
    later(&server, KEYS_SECONDS);
    assert_eq!(code(whole(&server, &issuer).await), "done");
}

/// Whoever fails as often as they like delays no one who signs in from the same address, and who is not admitted any more
/// stands in the log as the one who failed.
#[tokio::test]
async fn failed_returns_keep_no_neighbour_out() {
    let (issuer, _folder, server) = with_honest().await;
    let wrong = rules::codes::PROVIDER_TOKEN_WRONG;
    for _ in 0..20 {
        let start = begun(&server, &issuer, None).await;
        let bad = ProviderReturn {
            code: "bad".to_owned(),
            ..back(&start)
        };
        let refused = finish_by_provider(&server, bad, Some(&start.browser), HERE.into()).await;
        assert_eq!(code(refused), wrong);
    }
    let kim = admitted(&server, &issuer).await.subject.user;
    server
        .catalog()
        .write(Lane::Requests, "suspend a user", move |rows| {
            let user = rows.user(kim)?.expect("the row is there");
            let changed = User {
                suspended: true,
                ..user.clone()
            };
            rows.put_user(&changed, user.generation)?;
            Ok(())
        })
        .await
        .unwrap();
    let mut owner = None;
    let start = begun(&server, &issuer, None).await;
    let browser = Some(start.browser.as_str());
    let refused = finish(&server, back(&start), browser, HERE.into(), &mut owner).await;
    assert_eq!(code(refused), "user.suspended");
    assert_eq!(owner.map(|owner| owner.id), Some(kim));
}

/// A dead provider keeps nobody waiting for more than two seconds, the name on the sign-in page
/// and a local sign-in not at all.
#[tokio::test]
async fn a_dead_provider_delays_no_page_and_no_local_sign_in() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = listener.local_addr().unwrap().port();
    let (server, _) = asking(folder.path(), &format!("http://127.0.0.1:{port}")).await;
    let begun = Instant::now();
    let refused = begin_by_provider(&server, HERE, "/", None).await;
    let Err(Failure::Refusal(refusal)) = refused else {
        panic!("a dead provider admits nobody");
    };
    assert_eq!(refusal.code, rules::codes::PROVIDER_UNREACHABLE);
    assert_eq!(refusal.retry_after_seconds, Some(RETRY_SECONDS));
    assert!(begun.elapsed() < MAX_STEP + LATE, "{:?}", begun.elapsed());
    let waiting = begin_by_provider(&server, HERE, "/", None);
    let local = async {
        let begun = Instant::now();
        assert_eq!(provider_name(&server).as_deref(), Some("single sign-on"));
        assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
        begun.elapsed()
    };
    let (waited, took) = tokio::join!(waiting, local);
    assert_eq!(code(waited), rules::codes::PROVIDER_UNREACHABLE);
    assert!(took < MAX_STEP, "{took:?}");
    drop(listener);
    let refused = code(begin_by_provider(&server, HERE, "/", None).await);
    assert_eq!(refused, rules::codes::PROVIDER_UNREACHABLE);
    // A trial is an answer, whatever comes of it.
    assert!(tried(&server).await.unwrap().is_err());
}

/// A provider that always sends something and comes to no end, at whichever question, holds a step no longer than one that
/// is silent, and no local account out; once it answers as before, its users sign in as before.
#[tokio::test]
async fn a_dripping_provider_holds_a_step_no_longer_and_no_local_account_out() {
    for question in ["/.well-known/openid-configuration", "/keys", "/token"] {
        let (issuer, _folder, server) = with_honest().await;
        locked(&issuer).drips = question;
        let mut asked = Instant::now();
        let refused = match begin_by_provider(&server, HERE, "/sessions", None).await {
            Ok(start) => {
                note(&issuer, &start);
                asked = Instant::now();
                code(finished(&server, &start).await)
            }
            Err(failure) => code(Err::<(), _>(failure)),
        };
        let took = asked.elapsed();
        assert_eq!(refused, rules::codes::PROVIDER_UNREACHABLE, "{question}");
        assert!(took >= MAX_STEP / 2, "{question} did not drip: {took:?}");
        assert!(took < MAX_STEP + LATE, "{question}: {took:?}");
        assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
        locked(&issuer).drips = "";
        later(&server, KEYS_SECONDS);
        assert_eq!(code(whole(&server, &issuer).await), "done", "{question}");
    }
}

/// Too many groups are refused by name, and so many that the answer is longer than any is, like an answer that cannot be
/// read; the account that was there keeps its role.
#[tokio::test]
async fn too_many_groups_of_a_provider_are_refused_and_change_nothing() {
    let (issuer, _folder, server) = with_honest().await;
    let id = admitted(&server, &issuer).await.subject.user;
    let grants = || {
        let user = server
            .catalog()
            .read_now("look at a user", |view| view.user(id));
        user.unwrap().expect("the row is there").grants
    };
    let before = grants();
    assert!(!before.is_empty(), "staff are members");
    for (many, refused) in [
        (MAX_GROUPS + 1, rules::codes::DIRECTORY_TOO_MANY_GROUPS),
        (100_000, rules::codes::PROVIDER_UNREACHABLE),
    ] {
        locked(&issuer).groups = json!(vec!["g"; many]);
        let asked = Instant::now();
        assert_eq!(code(whole(&server, &issuer).await), refused, "{many}");
        let took = asked.elapsed();
        assert!(took < MAX_STEP + LATE, "{many}: {took:?}");
        assert_eq!(grants(), before, "{many}");
    }
    locked(&issuer).groups = json!([]);
    assert_eq!(code(whole(&server, &issuer).await), "done");
    assert_ne!(grants(), before, "no group gives no role");
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

/// What was begun and did not come back is bounded for each address: the oldest goes first, and
/// other addresses keep theirs.
#[tokio::test]
async fn sign_ins_that_do_not_come_back_are_bounded_for_each_address() {
    let (_issuer, _folder, server) = with_honest().await;
    let elsewhere: IpAddr = [198, 51, 100, 9].into();
    begin_by_provider(&server, elsewhere, "/", None)
        .await
        .unwrap();
    for _ in 0..=MAX_BEGUN_OF_ADDRESS {
        begin_by_provider(&server, HERE, "/", None).await.unwrap();
    }
    let kept = server.provider_sign_ins().begun.count();
    assert_eq!(kept, MAX_BEGUN_OF_ADDRESS + 1);
}

/// A provider's user has no password to prove again: they sign in at the provider anew, and it
/// says when that was.
#[tokio::test]
async fn a_new_proof_is_one_that_the_provider_dates() {
    let (issuer, _folder, server) = with_honest().await;
    let kim = admitted(&server, &issuer).await;
    assert!(is_of_provider(&server, &kim));
    let proven = || code(proves(&server, &kim));
    assert_eq!(proven(), rules::codes::PROVIDER_AGAIN);
    let start = begun(&server, &issuer, Some(&kim)).await;
    assert_eq!(parameter(&start.to, "prompt"), "login");
    let wrong = rules::codes::PROVIDER_TOKEN_WRONG;
    assert_eq!(code(finished(&server, &start).await), wrong, "no date");
    locked(&issuer).lies = vec![("auth_time", json!(1_799_999_000))];
    let start = begun(&server, &issuer, Some(&kim)).await;
    assert_eq!(code(finished(&server, &start).await), wrong, "an old one");
    locked(&issuer).lies = vec![("auth_time", json!(1_800_000_000))];
    let start = begun(&server, &issuer, Some(&kim)).await;
    let outcome = finished(&server, &start).await.unwrap();
    assert!(matches!(outcome, ProviderOutcome::ProvenAgain));
    assert_eq!(proven(), "done");
    later(&server, PROVEN_SECONDS);
    assert_eq!(proven(), rules::codes::PROVIDER_AGAIN);
}

/// Whom an administrator removed, the provider does not bring back as a new account.
#[tokio::test]
async fn who_was_removed_here_does_not_come_back_by_the_provider() {
    let (issuer, _folder, server) = with_honest().await;
    let id = admitted(&server, &issuer).await.subject.user;
    server
        .catalog()
        .write(Lane::Requests, "remove a user", move |rows| {
            rows.remove_user(id)
        })
        .await
        .unwrap();
    let refused = code(whole(&server, &issuer).await);
    assert_eq!(refused, rules::codes::DIRECTORY_USER_REMOVED);
}
