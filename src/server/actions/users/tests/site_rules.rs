//! What a site sets of signing in: networks, how many browsers, and passwords.

use std::net::{IpAddr, Ipv4Addr};

use api::audit::{AuditEntryView, AuditQuery};
use api::invitations::NewInvitationBody;
use api::notices::NoticeWord;
use api::ssh::NewSshKeyBody;
use api::users::UserPatchBody;
use rules::grants::GrantRole;
use rules::permissions::Permission;
use rules::users::Role;

use crate::access::ssh_key::tests::some_key;
use crate::access::tests::*;
use crate::access::*;
use crate::actions::notices::{self, NoticeKind};
use crate::actions::settings::{self, SettingWrite};
use crate::actions::users::{self, TokensAfterReset, change_password};
use crate::actions::{audit, invitations, tenancy};
use crate::catalog::Lane;
use crate::{Failure, Server, code};

fn there(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, n))
}

/// The newest acts with this name, newest first.
async fn acts(server: &Server, act: &str) -> Vec<AuditEntryView> {
    // Some rows are written in the background, before what is written next.
    let wait = server.catalog().write(Lane::Requests, "wait", |_| Ok(()));
    wait.await.unwrap();
    let wanted = AuditQuery {
        act: act.to_owned(),
        ..AuditQuery::default()
    };
    let found = audit::list(server, &local_root(server), &wanted).await;
    found.unwrap().items
}

/// The id of the browser that a caller has.
fn browser_of(caller: &Caller) -> String {
    match caller.via {
        Via::Browser { session } => session.0.to_string(),
        Via::Token { .. } | Via::SshKey { .. } | Via::Session { .. } | Via::LocalRoot => {
            String::new()
        }
    }
}

async fn only_from(
    server: &Server,
    by: &Caller,
    who: &str,
    networks: &[&str],
) -> Result<(), Failure> {
    let networks = networks.iter().map(|text| (*text).to_owned()).collect();
    let patch = UserPatchBody {
        networks: Some(networks),
        ..UserPatchBody::default()
    };
    users::patch(server, by, who, patch, None).await.map(drop)
}

/// A user who may come from some networks only is refused from elsewhere, on each request and whatever they prove; what
/// is open ends.
///
/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test]
async fn a_user_is_refused_from_elsewhere_on_each_request() {
    let (server, boss) = with_mina().await;
    let boss = boss.caller;
    users::create(&server, &boss, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap();
    let (_, token) = users::tokens::create(&server, &jae.caller, "t", &["me".into()], None, &[])
        .await
        .unwrap();
    let elsewhere = sign_in(&server, "jae", GOOD, there(9)).await.unwrap();
    let stream = lease(&server, &elsewhere.caller);
    let own = lease(&server, &jae.caller);

    only_from(&server, &boss, "jae", &["192.0.2.0/24"])
        .await
        .unwrap();
    let ended = stream.await;
    assert_eq!(ended.code, "sign-in.address-refused");
    let still = tokio::time::timeout(std::time::Duration::from_secs(2), own).await;
    assert!(still.is_err(), "a stream from an own network ended");
    let token = token.reveal();
    assert_eq!(code(by_cookie(&server, &jae.cookie, HERE).await), "done");
    assert_eq!(code(by_token(&server, token, HERE).await), "done");
    for refused in [
        code(by_cookie(&server, &jae.cookie, there(9)).await),
        code(by_token(&server, token, there(9)).await),
        code(sign_in(&server, "jae", GOOD, there(9)).await),
    ] {
        assert_eq!(refused, "sign-in.address-refused");
    }
    // Who does not know the password learns nothing of it, and guesses no faster by a right one.
    let wrong = async || code(sign_in(&server, "jae", "wrong wrong wrong", there(9)).await);
    for _ in 0..4 {
        assert_eq!(wrong().await, "sign-in.wrong");
    }
    let right = sign_in(&server, "jae", GOOD, there(9)).await;
    assert_eq!(code(right), "sign-in.address-refused");
    assert_eq!(wrong().await, "sign-in.locked");

    // Nobody locks themselves out; another administrator, or root, may do as they like.
    let own = only_from(&server, &boss, "mina", &["10.0.0.0/8"]).await;
    assert_eq!(code(own), "network.own-address");
    let own = only_from(&server, &boss, "mina", &["10.0.0.0/8", "192.0.2.7"]).await;
    assert_eq!(code(own), "done");
    let root = local_root(&server);
    assert_eq!(
        code(only_from(&server, &root, "mina", &["10.0.0.0/8"]).await),
        "done"
    );
    assert_eq!(code(only_from(&server, &root, "mina", &[]).await), "done");
    assert_eq!(code(by_cookie(&server, &jae.cookie, HERE).await), "done");
}

/// A token that is bound to networks opens nothing elsewhere, and makes nothing that does: no wider token, no SSH key.
#[tokio::test]
async fn a_token_of_some_networks_is_refused_elsewhere_and_makes_nothing_wider() {
    let (server, boss) = with_mina().await;
    let mina = boss.caller;
    let every: Vec<String> = ["me", "sessions:read", "sessions:enter"]
        .map(str::to_owned)
        .into();
    let make = async |by: &Caller, networks: &[&str]| {
        let networks: Vec<String> = networks.iter().map(|text| (*text).to_owned()).collect();
        users::tokens::create(&server, by, "t", &every, None, &networks).await
    };
    for wrong in ["lab", "10.1.0.0/33"] {
        assert_eq!(code(make(&mina, &[wrong]).await), "network.invalid");
    }
    let (shown, token) = make(&mina, &["192.0.2.9/24", "192.0.2.0/24"])
        .await
        .unwrap();
    assert_eq!(shown.networks, ["192.0.2.0/24"]);
    let refused = code(by_token(&server, token.reveal(), there(9)).await);
    assert_eq!(refused, "token.address-refused");
    let bound = by_token(&server, token.reveal(), HERE)
        .await
        .unwrap()
        .unwrap();
    for wider in ["192.0.0.0/16", "198.51.100.0/24"] {
        assert_eq!(
            code(make(&bound, &[wider]).await),
            "network.wider",
            "{wider}"
        );
    }
    let (narrower, _) = make(&bound, &["192.0.2.7"]).await.unwrap();
    assert_eq!(narrower.networks, ["192.0.2.7/32"]);
    let (same, token) = make(&bound, &[]).await.unwrap();
    assert_eq!(same.networks, ["192.0.2.0/24"]);
    let refused = code(by_token(&server, token.reveal(), there(9)).await);
    assert_eq!(refused, "token.address-refused");
    let none = users::access_keys::create(&server, &bound, "k", &every, None, &[]).await;
    assert_eq!(none.unwrap().0.networks, ["192.0.2.0/24"]);
    let key = NewSshKeyBody {
        public_key: some_key(1),
        ..NewSshKeyBody::default()
    };
    let refused = users::ssh_keys::add(&server, &bound, key.clone()).await;
    assert_eq!(code(refused), "network.bound");
    assert_eq!(
        code(users::ssh_keys::add(&server, &mina, key).await),
        "done"
    );
}

/// Nor does one of an administrator hand out what is good elsewhere: an account, a password, a link, an address that opens
/// an account, a role that administers. What opens nothing it may.
#[tokio::test]
async fn a_token_of_some_networks_opens_no_account() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mina) = with_settings(folder.path()).await;
    users::create(&server, &mina, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let every: Vec<String> = Permission::ALL.map(|one| one.word().to_owned()).into();
    let here = ["192.0.2.0/24".to_owned()];
    let (_, token) = users::tokens::create(&server, &mina, "job", &every, None, &here)
        .await
        .unwrap();
    let bound = by_token(&server, token.reveal(), HERE)
        .await
        .unwrap()
        .unwrap();
    let patched = async |by: &Caller, patch: UserPatchBody| {
        code(users::patch(&server, by, "jae", patch, None).await)
    };
    let addressed = || UserPatchBody {
        email: Some("other@lab.example".to_owned()),
        ..UserPatchBody::default()
    };
    let promoted = || UserPatchBody {
        role: Some(Role::Administrator),
        ..UserPatchBody::default()
    };
    let from = |networks: &[&str]| UserPatchBody {
        networks: Some(networks.iter().map(|one| (*one).to_owned()).collect()),
        ..UserPatchBody::default()
    };
    let named = || UserPatchBody {
        full_name: Some("Jae Lee".to_owned()),
        ..UserPatchBody::default()
    };
    let invited = || NewInvitationBody {
        role: GrantRole::Member,
        email: None,
        max_uses: None,
        expires_at: None,
        member_until: None,
    };
    let set = async |by: &Caller| {
        let tokens = TokensAfterReset::Kept;
        code(users::set_password(&server, by, "jae", "another long enough", tokens).await)
    };
    let linked =
        async |by: &Caller| code(users::sign_in_link::make(&server, by, "jae", None).await);
    let granted = async |by: &Caller| {
        let auditor = GrantRole::Auditor;
        code(tenancy::grant(&server, by, "jae", auditor, None, None).await)
    };
    let asked =
        async |by: &Caller| code(invitations::create(&server, by, "default", invited()).await);
    let made = users::create(&server, &bound, "sol", Role::User, GOOD).await;
    assert_eq!(code(made), "network.bound");
    assert_eq!(set(&bound).await, "network.bound");
    assert_eq!(linked(&bound).await, "network.bound");
    assert_eq!(patched(&bound, addressed()).await, "network.bound");
    assert_eq!(patched(&bound, promoted()).await, "network.bound");
    assert_eq!(granted(&bound).await, "network.bound");
    assert_eq!(asked(&bound).await, "network.bound");
    let none = users::get(&server, &mina, "sol").await;
    assert_eq!(code(none), "user.not-found");
    let jae = users::get(&server, &mina, "jae").await.unwrap();
    assert_eq!((jae.email, jae.role), (None, Role::User));

    // An account that is good from some networks alone is not good from others by it.
    assert_eq!(patched(&mina, from(&["192.0.2.0/24"])).await, "done");
    assert_eq!(patched(&bound, from(&[])).await, "network.bound");
    let more = from(&["192.0.2.0/24", "10.0.0.0/8"]);
    assert_eq!(patched(&bound, more).await, "network.bound");
    assert_eq!(patched(&bound, from(&["192.0.2.0/28"])).await, "done");

    // Who says who proves users becomes any of them.
    let changed = async |key: &str, value: &str| {
        code(settings::change(&server, &bound, key, value, SettingWrite::Real).await)
    };
    assert_eq!(changed("oidc_name", "Lab").await, "network.bound");
    assert_eq!(changed("backup_keep", "9").await, "done");
    assert_eq!(patched(&bound, named()).await, "done");
    let suspended = users::suspend(&server, &bound, "jae", true, None).await;
    assert_eq!(code(suspended), "done");
    users::suspend(&server, &mina, "jae", false, None)
        .await
        .unwrap();
    // A browser of the same administrator may all of it.
    assert_eq!(linked(&mina).await, "done");
    assert_eq!(patched(&mina, addressed()).await, "done");
    assert_eq!(granted(&mina).await, "done");
    assert_eq!(asked(&mina).await, "done");
    assert_eq!(set(&mina).await, "done");
}

/// A user is told of a sign-in from a network that they never came from; of the first one nothing is told, nor of one from a
/// place that they know or from the machine itself. Others learn nothing of it.
#[tokio::test]
async fn a_sign_in_from_a_new_place_is_told() {
    let (server, boss) = with_mina().await;
    let mina = boss.caller;
    users::create(&server, &mina, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let enter = async |from: IpAddr| sign_in(&server, "jae", GOOD, from).await.unwrap().caller;
    let told = async |reader: &Caller| -> Vec<String> {
        let all = notices::list(&server, reader).await.unwrap();
        let places = all.into_iter().filter_map(|one| match one.about {
            NoticeKind::SignedIn(source) => Some(source),
            _ => None,
        });
        places.collect()
    };
    let signed_in = async || {
        let user = users::get(&server, &mina, "jae").await.unwrap();
        (user.signed_in_at, user.generation)
    };
    let (never, version) = signed_in().await;
    assert_eq!(never, None);
    let jae = enter(HERE).await;
    assert_eq!(signed_in().await, (Some(server.clock().now()), version));
    enter(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99))).await;
    enter(IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
    assert!(told(&jae).await.is_empty());
    for from in [there(9), there(10), HERE, there(9)] {
        enter(from).await;
    }
    assert_eq!(told(&jae).await, ["198.51.100.9"]);
    assert!(told(&mina).await.is_empty());
    assert_eq!(notices::unread(&server, &jae), 1);
    let views = notices::views(&server, &jae).await.unwrap();
    let one = views.iter().find(|one| one.kind == NoticeWord::SignedIn);
    let one = one.unwrap();
    assert_eq!(
        (one.name.as_deref(), one.message.as_deref(), one.unread),
        (None, Some("198.51.100.9"), true)
    );
    notices::mark_read(&server, &jae).await.unwrap();
    assert_eq!(notices::unread(&server, &jae), 0);

    // What is kept has a bound: the place that was not come from for longest is new again.
    let user = jae.subject.user;
    let known = server
        .catalog()
        .write(Lane::Requests, "sign in from many places", move |rows| {
            for n in 0..31 {
                assert!(!rows.signs_in_from(user, &format!("10.0.{n}.0/24"))?);
            }
            let recent = rows.signs_in_from(user, "198.51.100.0/24")?;
            Ok((recent, rows.signs_in_from(user, "192.0.2.0/24")?))
        })
        .await
        .unwrap();
    assert_eq!(known, (true, false));
}

/// A cookie or a token that is used from a network that is not its user's may be stolen: the acts of the user say so.
#[tokio::test]
async fn a_request_from_elsewhere_is_an_act_of_its_user() {
    let (server, boss) = with_mina().await;
    users::create(&server, &boss.caller, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap();
    let (_, token) = users::tokens::create(&server, &jae.caller, "t", &["me".into()], None, &[])
        .await
        .unwrap();
    only_from(&server, &boss.caller, "jae", &["192.0.2.0/24"])
        .await
        .unwrap();
    let reason = "sign-in.address-refused";
    let by_browser = async {
        let came = code(by_cookie(&server, &jae.cookie, there(9)).await);
        refused(&server, "POST /sessions", &came);
    };
    as_request(there(9), "request-1", by_browser).await;
    let by_program = async {
        let came = code(by_token(&server, token.reveal(), there(9)).await);
        refused(&server, "POST /api/v1/sessions", &came);
    };
    as_request(there(9), "request-2", by_program).await;
    let told = acts(&server, "request.refused").await;
    let told: Vec<(&str, &str, &str, &str)> = told
        .iter()
        .map(|act| {
            let (actor, via) = (act.actor.as_str(), act.via.as_str());
            (actor, via, act.object.as_str(), act.reason.as_str())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("jae", "token", "POST /api/v1/sessions", reason),
            ("jae", "browser", "POST /sessions", reason),
        ]
    );
}

#[tokio::test]
async fn what_is_under_way_with_an_old_password_does_not_outlive_a_reset() {
    let (server, boss) = with_mina().await;
    let boss = boss.caller;
    users::create(&server, &boss, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().caller;
    let reset = async |password: &str| {
        let tokens = TokensAfterReset::Revoked;
        users::set_password(&server, &boss, "jae", password, tokens)
            .await
            .unwrap();
    };
    // The old password is looked at while the new one is set.
    let mut late = std::pin::pin!(sign_in(&server, "jae", GOOD, HERE));
    let early = begun(late.as_mut()).await;
    reset("another good one 9").await;
    if early.is_pending() {
        let _ = late.await;
    }
    let open = users::sign_ins(&server, &jae).await.unwrap();
    assert!(open.is_empty(), "by the old password: {open:?}");
    let (old, new) = ("another good one 9", "third good one 3");
    let mut late = std::pin::pin!(change_password(&server, &jae, old, new));
    let early = begun(late.as_mut()).await;
    reset("fourth good one 4").await;
    if early.is_pending() {
        let _ = late.await;
    }
    let signed_in = sign_in(&server, "jae", "fourth good one 4", HERE).await;
    assert_eq!(code(signed_in), "done", "what was reset is overwritten");
}

/// Tries by name and by address are counted together, and the refusal says what was typed: not whose an address is.
#[tokio::test]
async fn who_types_an_address_is_not_told_whose_it_is() {
    let (server, signed_in) = with_mina().await;
    let patch = UserPatchBody {
        email: Some("office@lab.example".to_owned()),
        ..UserPatchBody::default()
    };
    users::patch(&server, &signed_in.caller, "mina", patch, None)
        .await
        .unwrap();
    for _ in 0..6 {
        let wrong = sign_in(&server, "mina", "wrong wrong wrong", HERE).await;
        assert_eq!(code(wrong), "sign-in.wrong");
    }
    for (typed, said) in [
        ("office@lab.example", true),
        ("Office@lab.example", true),
        ("mina", false),
    ] {
        let Err(Failure::Refusal(refusal)) = sign_in(&server, typed, GOOD, HERE).await else {
            panic!("{typed} was let in");
        };
        assert_eq!(refusal.code, "sign-in.locked");
        assert!(refusal.text.contains(typed), "{}", refusal.text);
        let told = serde_json::to_string(&refusal).unwrap();
        assert_eq!(!told.contains("mina"), said, "{told}");
    }
}

/// A browser where the password before was right is a stranger to the one that was set since: it has no count of its own.
#[tokio::test]
async fn a_new_password_is_known_in_no_browser_yet() {
    let (server, signed_in) = with_mina().await;
    let guess = async |device: &str| {
        let from = by(HERE, Some(device));
        code(sign_in(&server, "mina", "wrong wrong wrong", from).await)
    };
    let old = signed_in.device;
    for _ in 0..3 {
        assert_eq!(guess(&old).await, "sign-in.wrong");
    }
    let new = "another good one 9";
    change_password(&server, &signed_in.caller, GOOD, new)
        .await
        .unwrap();
    // As everybody who comes from there, known or not.
    for _ in 0..6 {
        assert_eq!(guess("").await, "sign-in.wrong");
    }
    assert_eq!(guess(&old).await, "sign-in.locked");
    later(&server, 3_601);
    let again = sign_in(&server, "mina", new, by(HERE, Some(&old))).await;
    let again = again.unwrap().device;
    assert_ne!(again, old);
    for _ in 0..6 {
        assert_eq!(guess("").await, "sign-in.wrong");
    }
    assert_eq!(guess("").await, "sign-in.locked");
    assert_eq!(guess(&again).await, "sign-in.wrong");
}

/// A user who has to set a password before anything else goes on with nothing that was open: by a token after a reset
/// that kept it, by a browser after the age that the site allows.
///
/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test]
async fn what_is_open_ends_where_a_password_has_to_be_set_first() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss) = with_settings(folder.path()).await;
    let set = |key: &str, value: &str| server.in_force().change(key, Some(value)).unwrap();
    let soon = async |stream: Lease| {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(1), stream).await;
        ended.map_or_else(|_| "open".to_owned(), |refusal| refusal.code)
    };
    let robot = async |caller: &Caller| {
        let made = users::tokens::create(&server, caller, "t", &["me".into()], None, &[]).await;
        let known = by_token(&server, made.unwrap().1.reveal(), HERE).await;
        known.unwrap().unwrap()
    };
    users::create(&server, &boss, "jae", Role::User, GOOD)
        .await
        .unwrap();
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().caller;
    let by_program = robot(&jae).await;
    set("password_change_first", "true");
    assert_eq!(soon(lease(&server, &by_program)).await, "open");
    let kept = TokensAfterReset::Kept;
    users::set_password(&server, &boss, "jae", "another good one 9", kept)
        .await
        .unwrap();
    let ended = soon(lease(&server, &by_program)).await;
    assert_eq!(ended, "password.change-needed");

    set("password_days", "90");
    later(&server, 89 * 86_400);
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    let by_program = robot(&mina).await;
    assert_eq!(soon(lease(&server, &mina)).await, "open");
    later(&server, 86_400);
    let ended = soon(lease(&server, &mina)).await;
    assert_eq!(ended, "password.change-needed");
    assert_eq!(soon(lease(&server, &by_program)).await, "open");
    // On the page that sets another one, what is open stays.
    let led = Caller {
        must_change_password: true,
        ..mina
    };
    assert_eq!(soon(lease(&server, &led)).await, "open");
}

/// A hash of `GOOD` by other costs than today's.
const OLD: &str = "$argon2id$v=19$m=1024,t=2,p=2$c2FsdHNhbHRzYWx0c2FsdA$mn3XPgj0CbEwW76thPIB6ZXETK7E2PdA7VcZE6LmhzU";

#[tokio::test]
async fn of_two_sign_ins_that_renew_an_old_hash_both_are_good() {
    let (server, signed_in) = with_mina().await;
    let mina = signed_in.caller.subject.user;
    server
        .catalog()
        .write_now(Lane::Requests, "keep an old hash", move |rows| {
            rows.put_password(mina, OLD, 0)
        })
        .unwrap();
    let (one, other) = tokio::join!(
        sign_in(&server, "mina", GOOD, HERE),
        sign_in(&server, "mina", GOOD, HERE)
    );
    assert_eq!([code(one), code(other)], ["done", "done"]);
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

/// Where a site bounds the browsers of a user, one too many ends the oldest or is refused, also when many sign in at the
/// same moment; tokens do not count.
#[tokio::test]
async fn a_sign_in_too_many_ends_the_oldest_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = with_settings(folder.path()).await;
    let set = |key: &str, value: &str| server.in_force().change(key, Some(value)).unwrap();
    set("sign_ins", "2");
    let open = |server: &Server| {
        let user = server
            .catalog()
            .read_now("count", |view| {
                let user = view.user_named("mina")?.unwrap();
                view.browsers(user.id)
            })
            .unwrap();
        user.len()
    };
    let mut tries = Vec::new();
    for _ in 0..6 {
        let server = server.clone();
        tries.push(tokio::spawn(async move {
            code(sign_in(&server, "mina", GOOD, HERE).await)
        }));
    }
    for one in tries {
        assert_eq!(one.await.unwrap(), "done");
    }
    assert_eq!(open(&server), 2);
    later(&server, 10);
    let ended = sign_in(&server, "mina", GOOD, HERE).await.unwrap();
    let oldest = ended.cookie;
    later(&server, 10);
    let newer = sign_in(&server, "mina", GOOD, HERE).await.unwrap().cookie;
    later(&server, 10);
    let known = async |cookie: &str| by_cookie(&server, cookie, HERE).await.unwrap().is_some();
    assert!(known(&oldest).await && known(&newer).await);
    let wanted = NewToken::by_sign_in(&server, "client", None).unwrap();
    let token = SignInFrom {
        use_of: SignInUse::Token(&wanted),
        ..HERE.into()
    };
    let traded = sign_in(&server, "mina", GOOD, token).await.unwrap();
    assert!(known(&oldest).await, "a token ended a browser");
    assert_eq!(open(&server), 2, "a browser that nobody has");
    let (_, secret) = traded.token.unwrap();
    let by_secret = by_token(&server, secret.reveal(), HERE).await.unwrap();
    assert_eq!(by_secret.unwrap().via, traded.caller.via);
    let newest = sign_in(&server, "mina", GOOD, HERE).await.unwrap().cookie;
    assert!(!known(&oldest).await && known(&newer).await && known(&newest).await);
    let told = acts(&server, "sign-in.ended").await;
    assert_eq!(
        (told[0].actor.as_str(), told[0].after.clone()),
        ("mina", browser_of(&ended.caller))
    );

    set("sign_ins_full", "\"refuse\"");
    let mut tries = Vec::new();
    for _ in 0..4 {
        let server = server.clone();
        tries.push(tokio::spawn(async move {
            code(sign_in(&server, "mina", GOOD, HERE).await)
        }));
    }
    for one in tries {
        assert_eq!(one.await.unwrap(), "sign-in.too-many");
    }
    assert!(known(&newer).await && known(&newest).await);
    // What rested for twelve hours does not count.
    later(&server, 12 * 3600);
    assert_eq!(code(sign_in(&server, "mina", GOOD, HERE).await), "done");
}

/// A policy bounds the browsers of each user too, where it is stricter than the setting.
#[tokio::test]
async fn a_policy_bounds_sign_ins_where_it_is_stricter_than_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mina) = with_settings(folder.path()).await;
    let set = |key: &str, value: &str| server.in_force().change(key, Some(value)).unwrap();
    let attach = |level: &'static str, limits: &'static str| {
        let user = mina.subject.user;
        server
            .catalog()
            .write_now(Lane::Requests, "attach a policy", move |rows| {
                let subject: &[u8] = match level {
                    "user" => user.0.as_bytes(),
                    _ => &[],
                };
                rows.attach_policy(level, subject, limits)
            })
            .unwrap();
    };
    let known = async |cookie: &str| by_cookie(&server, cookie, HERE).await.unwrap().is_some();
    let enter = async || {
        later(&server, 10);
        sign_in(&server, "mina", GOOD, HERE).await.unwrap().cookie
    };
    attach("site", r#"{"sign_ins":2}"#);
    let (first, second, third) = (enter().await, enter().await, enter().await);
    assert!(!known(&first).await && known(&second).await && known(&third).await);
    set("sign_ins", "5");
    attach("user", r#"{"sign_ins":1}"#);
    let fourth = enter().await;
    assert!(!known(&second).await && !known(&third).await && known(&fourth).await);
    set("sign_ins_full", "\"refuse\"");
    let refused = sign_in(&server, "mina", GOOD, HERE).await;
    assert_eq!(code(refused), "sign-in.too-many");
    assert!(known(&fourth).await);
}

/// Passwords follow what the site sets: length, kinds of characters, age, the last ones, and a change of one that was
/// given.
#[tokio::test]
async fn passwords_follow_what_the_site_sets() {
    let folder = tempfile::tempdir().unwrap();
    let (server, boss) = with_settings(folder.path()).await;
    let set = |key: &str, value: &str| server.in_force().change(key, Some(value)).unwrap();
    for (key, value) in [
        ("password_length", "65"),
        ("password_length", "9"),
        ("password_classes", "5"),
        ("password_days", "3651"),
        ("password_history", "11"),
        ("reservation_notice_hours", "8761"),
        ("sign_ins", "101"),
    ] {
        let refused = server.in_force().change(key, Some(value)).unwrap_err();
        assert_eq!(refused.code, "setting.beyond", "{key} {value}");
    }
    set("password_length", "12");
    set("password_classes", "3");
    let change = async |old: &str, new: &str| {
        let caller = &boss;
        code(change_password(&server, caller, old, new).await)
    };
    assert_eq!(change(GOOD, "Ab3 defghij").await, "password.too-short");
    assert_eq!(
        change(GOOD, "another good battery").await,
        "password.too-plain"
    );
    let made = users::create(&server, &boss, "jae", Role::User, "only small").await;
    assert_eq!(code(made), "password.too-short");

    set("password_history", "2");
    let (one, two, three) = ("first good one 1", "second good one 2", "third good one 3");
    assert_eq!(change(GOOD, one).await, "done");
    assert_eq!(change(one, one).await, "password.used");
    assert_eq!(change(one, two).await, "done");
    assert_eq!(change(two, one).await, "password.used");
    assert_eq!(change(two, three).await, "done");
    assert_eq!(change(three, one).await, "done", "older than the last two");

    set("password_days", "90");
    let due = async |cookie: &str| {
        let known = by_cookie(&server, cookie, HERE).await.unwrap().unwrap();
        known.must_change_password
    };
    let cookie = async || sign_in(&server, "mina", one, HERE).await.unwrap().cookie;
    later(&server, 90 * 86_400 - 1);
    assert!(!due(&cookie().await).await);
    later(&server, 1);
    let old = cookie().await;
    assert!(due(&old).await);
    let aged = by_cookie(&server, &old, HERE).await.unwrap().unwrap();
    let (token, secret) = users::tokens::create(&server, &aged, "t", &["me".into()], None, &[])
        .await
        .unwrap();
    let by_secret = by_token(&server, secret.reveal(), HERE)
        .await
        .unwrap()
        .unwrap();
    assert!(!by_secret.must_change_password, "a token aged: {token:?}");
    let wanted = NewToken::by_sign_in(&server, "client", None).unwrap();
    let traded = SignInFrom {
        use_of: SignInUse::Token(&wanted),
        ..HERE.into()
    };
    let traded = sign_in(&server, "mina", one, traded).await;
    assert_eq!(code(traded), "password.change-needed");
    change_password(&server, &aged, one, two).await.unwrap();
    assert!(!due(&old).await);

    set("password_change_first", "true");
    users::create(&server, &boss, "jae", Role::User, three)
        .await
        .unwrap();
    let jae = async |password: &str| sign_in(&server, "jae", password, HERE).await.unwrap();
    assert!(jae(three).await.caller.must_change_password);
    let first = jae(three).await.caller;
    change_password(&server, &first, three, one).await.unwrap();
    assert!(!jae(one).await.caller.must_change_password);
    let reset = TokensAfterReset::Kept;
    let again = users::set_password(&server, &boss, "jae", three, reset).await;
    assert_eq!(code(again), "password.used");
    users::set_password(&server, &boss, "jae", two, reset)
        .await
        .unwrap();
    assert!(jae(two).await.caller.must_change_password);
    // Nobody finds the passwords before in the answers of a user that was removed.
    users::remove(&server, &boss, "jae", None).await.unwrap();
    let left = server
        .catalog()
        .write_now(Lane::Requests, "look", move |rows| {
            rows.past_passwords(first.subject.user)
        });
    assert!(left.unwrap().is_empty());
}
