//! `/me/ssh-keys`: the public keys of the user who looks, a form for a new one, how the server is reached by SSH, and the
//! question before a key is removed.

use api::ssh::{NewSshKeyBody, SshKeyView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::names::SshKeyId;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::users::ssh_keys;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::me::full;
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/me/ssh-keys";
/// Days that a key may be good for; 0 is for good.
const LIFETIMES: [u64; 4] = [0, 30, 90, 365];

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/ssh_keys.html")]
pub struct SshKeysPage {
    pub t: Text,
    pub f: PageLayout,
    /// None where the server takes no SSH connections.
    pub server: Option<ReachedBySsh>,
    pub keys: Vec<OwnSshKeyRow>,
    /// Why there can be no other key, in place of the form; empty while there is room.
    pub full: String,
    pub public_key: String,
    pub name: String,
    pub lifetimes: Vec<Choice>,
}

/// What a client needs to know.
pub struct ReachedBySsh {
    pub line: String,
    pub fingerprint: String,
}

pub struct OwnSshKeyRow {
    pub id: String,
    pub name: String,
    pub kind: String,
    pub fingerprint: String,
    pub ends: String,
    pub used: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/me/ssh-keys", get(show).post(add))
        .route("/me/ssh-keys/{id}/remove", get(ask).post(remove))
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match read(&console, &visit, &caller, NewSshKeyForm::default()).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Me, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    form: NewSshKeyForm,
) -> Result<SshKeysPage, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let keys = ssh_keys::list(&console.server, caller).await?;
    let server = match ssh_keys::ssh_server(&console.server).await {
        Ok(server) => Some(ReachedBySsh {
            line: command(t.ssh_keys_session(), visit, server.port),
            fingerprint: server.fingerprint,
        }),
        Err(Failure::Refusal(_)) => None,
        Err(fault) => return Err(fault),
    };
    let used = keys
        .iter()
        .map(|key| (key.name.as_str(), key.used_at, key.created_at));
    Ok(SshKeysPage {
        t,
        f: layout(console, visit, caller, Nav::Me),
        server,
        full: full(t, ssh_keys::no_room(keys.len()), used),
        keys: keys.iter().map(|key| row(visit, key, now)).collect(),
        lifetimes: LIFETIMES
            .map(|days| {
                let told = match days {
                    0 => t.ssh_keys_for_good().to_owned(),
                    days => t.me_days_n(days),
                };
                Choice::new(days.to_string(), told, days == form.days())
            })
            .into(),
        public_key: form.public_key,
        name: form.name,
    })
}

/// What is typed into a shell to open a session: called as in its own list, or `OWNER+SESSION`.
pub(super) fn command(session: &str, visit: &RequestContext, port: u16) -> String {
    format!("ssh {session}@{} -p {port}", host(&visit.authority))
}

/// The host of an address with a port or without one.
fn host(authority: &str) -> &str {
    match authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, _)) => host,
        None => authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host),
    }
}

fn row(visit: &RequestContext, key: &SshKeyView, now: Timestamp) -> OwnSshKeyRow {
    let t = visit.text;
    let never = || t.common_never().to_owned();
    OwnSshKeyRow {
        id: key.id.to_string(),
        name: key.name.clone(),
        kind: key.kind.clone(),
        fingerprint: key.fingerprint.clone(),
        ends: key.expires_at.map_or_else(never, |at| visit.clock.date(at)),
        used: key
            .used_at
            .map_or_else(never, |at| visit.clock.ago(at, now)),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NewSshKeyForm {
    public_key: String,
    name: String,
    days: String,
}

impl NewSshKeyForm {
    fn days(&self) -> u64 {
        let days = self.days.parse().ok();
        days.filter(|days| LIFETIMES.contains(days)).unwrap_or(0)
    }
}

async fn add(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(mut form): Form<NewSshKeyForm>,
) -> Response {
    let now = console.server.clock().now();
    let days = form.days();
    let wanted = NewSshKeyBody {
        public_key: form.public_key.clone(),
        name: Some(form.name.clone()),
        expires_at: (days > 0).then(|| now.plus_seconds(days * 86_400)),
    };
    match ssh_keys::add(&console.server, &caller, wanted).await {
        Ok(key) => responses::see_with(PATH, "ssh-key-added", &key.name),
        Err(Failure::Refusal(refusal)) => {
            // A secret that was pasted by mistake is not sent back.
            if refusal.code == rules::codes::SSH_KEY_PRIVATE {
                form.public_key.clear();
            }
            let refused = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("public_key");
            let visit = visit.refusing(refused);
            match read(&console, &visit, &caller, form).await {
                Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
                Err(failure) => super::failed(&console, &visit, &caller, Nav::Me, &failure),
            }
        }
        Err(fault) => super::failed(&console, &visit, &caller, Nav::Me, &fault),
    }
}

/// `GET /me/ssh-keys/{id}/remove`: what would end with it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let keys = match ssh_keys::list(&console.server, &caller).await {
        Ok(keys) => keys,
        Err(failure) => return super::failed(&console, &visit, &caller, Nav::Me, &failure),
    };
    let Some(key) = keys.into_iter().find(|key| key.id.to_string() == id) else {
        let refusal = refusals::ssh_key_not_found();
        return super::failed(&console, &visit, &caller, Nav::Me, &refusal.into());
    };
    let title = t.ssh_keys_remove_title(&key.name);
    let frame = layout(&console, &visit, &caller, Nav::Me);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.ssh_keys_remove_lead());
    page.items = vec![key.fingerprint];
    let action = format!("{PATH}/{}/remove", key.id);
    page.form = Some(DialogForm::removal(action, t.ssh_keys_remove()));
    dialog::answer(&console, &visit, Nav::Me, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let removed = match id.parse::<SshKeyId>() {
        Ok(id) => ssh_keys::remove(&console.server, &caller, id).await,
        Err(_) => Err(refusals::ssh_key_not_found().into()),
    };
    match removed {
        Ok(()) => responses::see_with(PATH, "ssh-key-gone", ""),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Me, &failure),
    }
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn a_host_loses_its_port() {
        for (authority, expected) in [
            ("box", "box"),
            ("box:8443", "box"),
            ("192.0.2.7:443", "192.0.2.7"),
            ("[2001:db8::7]:443", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
        ] {
            assert_eq!(host(authority), expected);
        }
    }
}
