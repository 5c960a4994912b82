//! Invitations in the console: `/projects/{id}/invitations` makes links and lists those that can be used, `/join` is
//! where a link leads. The code of a link is shown once, to its maker.

use api::invitations::{InvitationView, NewInvitationBody, OfferView};
use api::secret::SecretText;
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use rules::grants::GrantRole;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::access::{self, Caller, SignInFrom};
use server::actions::{invitations, rosters, tenancy};
use server::{Failure, access::NewMember};
use uuid::Uuid;

use super::authentication::{self, OptionalPageCaller, PageCaller, PagePeer};
use super::components::{self, Alert, Choice};
use super::dialog::{self, DialogForm};
use super::form_faults::RefusedForm;
use super::layout::{Attribute, Nav, PageLayout};
use super::projects::{address, failed, heading, question, role_name};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::table::{
    DataTable, EmptyTable, RowAction, TableCell, TableColumn, TableLine, TableState,
};
use super::{PagesContext, guest, layout, responses};
use crate::doors::origin;
use crate::doors::text::{Text, codes};

const JOIN: &str = "/join";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/invitations.html")]
pub struct InvitationsPage {
    pub t: Text,
    pub f: PageLayout,
    pub project: String,
    /// Address of the project's page.
    pub back: String,
    pub made: Option<MadeLink>,
    /// Why there can be no other, in place of the form; empty while there is room.
    pub full: String,
    pub roles: Vec<Choice>,
    pub lifetimes: Vec<Choice>,
    pub form: InvitationForm,
    pub table: DataTable,
}

/// A link that is shown this once.
pub struct MadeLink {
    pub link: String,
    /// The link as a picture, as SVG.
    pub picture: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/join.html")]
pub struct JoinPage {
    pub t: Text,
    pub f: PageLayout,
    pub code: String,
    /// None: the link is of no use, or the code is missing.
    pub offer: Option<Offered>,
    /// The signed-in user, who joins with their own account.
    pub own: Option<String>,
    /// Where one signs in first, to join with an account that is there.
    pub sign_in: String,
    pub name: String,
    pub full_name: String,
    pub shortest: usize,
    pub alert: Option<Alert>,
    pub refused: bool,
}

/// What the link offers.
pub struct Offered {
    pub project: String,
    pub lead: String,
    /// The address that it is for; it cannot be changed.
    pub email: Option<String>,
}

impl JoinPage {
    fn focus(&self, field: &str) -> Attribute {
        Attribute::focus(!self.refused && field == "name")
    }
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/projects/{id}/invitations", get(show).post(create))
        .route(
            "/projects/{id}/invitations/{invitation}",
            get(ask).post(revoke),
        )
        .route("/join", get(offer).post(join))
        .route("/join/own", post(join_own))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MadeQuery {
    made: String,
    page: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct InvitationForm {
    pub role: String,
    pub email: String,
    pub uses: String,
    pub days: String,
    pub until: String,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(asked): Query<MadeQuery>,
) -> Response {
    let made = asked.made.parse::<Uuid>().ok();
    let code = made.and_then(|made| console.made_secrets.take(caller.subject.user, made));
    let form = InvitationForm::default();
    let shown = ShownInvitations {
        id: &id,
        page: &asked.page,
        code,
    };
    answer(&console, &visit, &caller, shown, form, StatusCode::OK).await
}

/// Which page of which project's invitations, and the code of one just made.
struct ShownInvitations<'a> {
    id: &'a str,
    /// As typed in the address.
    page: &'a str,
    code: Option<SecretText>,
}

async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    shown: ShownInvitations<'_>,
    form: InvitationForm,
    status: StatusCode,
) -> Response {
    match page(console, visit, caller, shown, form).await {
        Ok(page) => responses::page(console, visit, status, &page),
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

async fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    shown: ShownInvitations<'_>,
    form: InvitationForm,
) -> Result<InvitationsPage, Failure> {
    let t = visit.text;
    let open = invitations::list(&console.server, caller, shown.id).await?;
    let full = invitations::no_room(open.len());
    let project = tenancy::project(&console.server, caller, shown.id).await?;
    let role = GrantRole::parse(&form.role).unwrap_or(GrantRole::Member);
    let days = form.days.parse().unwrap_or(7_u64);
    Ok(InvitationsPage {
        t,
        f: layout(console, visit, caller, Nav::Projects),
        project: heading(&project).to_owned(),
        back: address(&project),
        made: shown.code.map(|code| made_link(visit, &code)),
        full: full.map_or_else(String::new, |refusal| codes::refusal(t, &refusal)),
        roles: [GrantRole::Member, GrantRole::Viewer, GrantRole::Lead]
            .map(|one| Choice::new(one.word(), role_name(t, one), one == role))
            .into(),
        lifetimes: [1, 7, 30, 90]
            .map(|one: u64| Choice::new(one.to_string(), t.invitations_days(one), one == days))
            .into(),
        form: InvitationForm {
            uses: match form.uses.is_empty() {
                true => "1".to_owned(),
                false => form.uses,
            },
            ..form
        },
        table: table(visit, address(&project), shown.page, open),
    })
}

fn made_link(visit: &RequestContext, code: &SecretText) -> MadeLink {
    let scheme = if visit.secure { "https" } else { "http" };
    let link = format!(
        "{scheme}://{}{JOIN}?code={}",
        visit.authority,
        code.reveal()
    );
    let picture = super::qr::picture(&link);
    MadeLink { link, picture }
}

/// The links that can still be used. `page` is as typed in the address.
fn table(
    visit: &RequestContext,
    project: String,
    page: &str,
    open: Vec<InvitationView>,
) -> DataTable {
    let t = visit.text;
    let here = format!("{project}/invitations");
    let columns = [
        TableColumn::new("whom", t.invitations_whom()).class("first"),
        TableColumn::new("role", t.users_role()).class("below"),
        TableColumn::new("used", t.invitations_used()).class("below"),
        TableColumn::new("ends", t.invitations_ends()).class("below"),
        TableColumn::new("until", t.invitations_until()).class("wide"),
        TableColumn::new("actor", t.invitations_by()).class("wide"),
    ];
    let asked = [("page".to_owned(), page.to_owned())];
    let mut state = TableState::read(here.clone(), &[], &asked);
    state.columns = columns.iter().map(|column| column.key).collect();
    let total = open.len() as u64;
    let rows = state
        .page_of(open)
        .iter()
        .map(|one| TableLine {
            id: format!("i-{}", one.id),
            mark: None,
            cells: columns
                .iter()
                .map(|column| cell(visit, column.key, one))
                .collect(),
            action: Some(RowAction {
                href: format!("{here}/{}", one.id),
                icon: "trash-2",
                label: t.invitations_revoke_of(whom(t, one)),
                dialog: true,
            }),
        })
        .collect();
    let empty = EmptyTable::without_rows("key-round", t.invitations_none(), "");
    DataTable::new(t, &state, &columns, "whom", rows, total, empty)
}

fn whom(t: Text, invitation: &InvitationView) -> String {
    let known = invitation.email.clone();
    known.unwrap_or_else(|| t.invitations_anyone().to_owned())
}

fn used(t: Text, invitation: &InvitationView) -> String {
    t.invitations_used_of(u64::from(invitation.used), u64::from(invitation.max_uses))
}

fn cell(visit: &RequestContext, key: &str, invitation: &InvitationView) -> TableCell {
    let t = visit.text;
    TableCell::text(match key {
        "whom" => whom(t, invitation),
        "role" => role_name(t, invitation.role).to_owned(),
        "used" => used(t, invitation),
        "ends" => visit.clock.date(invitation.expires_at),
        "until" => invitation
            .member_until
            .map_or_else(String::new, |at| visit.clock.last_day(at)),
        "actor" => invitation.actor.clone(),
        _ => String::new(),
    })
}

/// What the form asks for. Errors: each at its field.
fn wanted(
    console: &PagesContext,
    caller: &Caller,
    form: &InvitationForm,
) -> Result<NewInvitationBody, Refusal> {
    let now = console.server.clock().now();
    let email = form.email.trim();
    let uses = match (email.is_empty(), form.uses.trim()) {
        (false, _) | (true, "") => Some(1),
        (true, text) => Some(text.parse().unwrap_or(0)),
    };
    let days: u64 = form.days.parse().unwrap_or(7);
    Ok(NewInvitationBody {
        role: GrantRole::parse(&form.role).unwrap_or(GrantRole::Member),
        email: Some(email.to_owned()).filter(|text| !text.is_empty()),
        max_uses: uses,
        expires_at: Some(now.plus_seconds(days.min(1_000) * 86_400)),
        member_until: until(form.until.trim(), caller, now)?,
    })
}

fn until(text: &str, caller: &Caller, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let last = rosters::last_instant(text, &caller.time_zone, now);
    last.map(Some).map_err(|refusal| refusal.at("/until"))
}

/// `POST /projects/{id}/invitations`
async fn create(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(form): Form<InvitationForm>,
) -> Response {
    let made = async {
        let wanted = wanted(&console, &caller, &form)?;
        invitations::create(&console.server, &caller, &id, wanted).await
    };
    match made.await {
        Ok(made) => {
            let code = SecretText::new(made.code);
            let new = made.invitation.id;
            console.made_secrets.keep(caller.subject.user, new, code);
            let id = encoded(&id);
            responses::see(&format!("/projects/{id}/invitations?made={new}"))
        }
        Err(Failure::Refusal(refusal)) => {
            let refusal = named_as_typed(refusal);
            let action = format!("/projects/{id}/invitations");
            let refused = RefusedForm::new(visit.text, &action, &refusal).otherwise_at("role");
            let visit = visit.refusing(refused);
            let status = responses::status(&refusal);
            let shown = ShownInvitations {
                id: &id,
                page: "",
                code: None,
            };
            answer(&console, &visit, &caller, shown, form, status).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// The fields of the form have shorter names than those of the API.
fn named_as_typed(refusal: Refusal) -> Refusal {
    match refusal.pointer.as_deref() {
        Some("/max_uses") => refusal.at("/uses"),
        Some("/expires_at") => refusal.at("/days"),
        _ => refusal,
    }
}

/// `GET /projects/{id}/invitations/{invitation}`: what revoking means, and the button.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, invitation)): Path<(String, String)>,
) -> Response {
    let t = visit.text;
    let open = match invitations::list(&console.server, &caller, &id).await {
        Ok(open) => open,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let Some(found) = open
        .into_iter()
        .find(|one| one.id.to_string() == invitation)
    else {
        let refusal = refusals::invitation_not_found();
        return failed(&console, &visit, &caller, &refusal.into());
    };
    let back = format!("/projects/{}/invitations", encoded(&id));
    let (title, lead) = (t.invitations_revoke_title(), t.invitations_revoke_lead());
    let mut page = question(&console, &visit, &caller, &back, title.to_owned(), lead);
    page.items = vec![format!(
        "{} · {} · {}",
        role_name(t, found.role),
        whom(t, &found),
        used(t, &found)
    )];
    page.form = Some(DialogForm {
        action: format!("{back}/{}", found.id),
        fields: Vec::new(),
        icon: "trash-2",
        go: t.invitations_revoke().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Projects, page)
}

async fn revoke(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((id, invitation)): Path<(String, String)>,
) -> Response {
    match invitations::revoke(&console.server, &caller, &id, &invitation).await {
        Ok(()) => {
            let back = format!("/projects/{}/invitations", encoded(&id));
            responses::see_with(&back, "invitation-revoked", "")
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JoinForm {
    code: String,
    name: String,
    full_name: String,
    password: String,
    again: String,
}

/// `GET /join?code=`: what a link offers.
async fn offer(
    State(console): State<PagesContext>,
    visit: RequestContext,
    OptionalPageCaller(caller): OptionalPageCaller,
    Query(asked): Query<JoinForm>,
) -> Response {
    let offer = access::offer(&console.server, &asked.code);
    let own = caller.map(|caller| caller.name.to_string());
    match offer {
        Ok(offer) => joining(
            &console,
            &visit,
            StatusCode::OK,
            Some(offer),
            own,
            asked,
            None,
        ),
        Err(Failure::Refusal(refusal)) => {
            let status = responses::status(&refusal);
            let alert = Alert::warning(codes::refusal(visit.text, &refusal));
            joining(&console, &visit, status, None, own, asked, Some(alert))
        }
        Err(fault) => responses::failure(&console, &visit, None, &fault),
    }
}

fn joining(
    console: &PagesContext,
    visit: &RequestContext,
    status: StatusCode,
    offer: Option<OfferView>,
    own: Option<String>,
    typed: JoinForm,
    alert: Option<Alert>,
) -> Response {
    let t = visit.text;
    let next = format!("{JOIN}?code={}", typed.code);
    let page = JoinPage {
        t,
        f: guest(console, visit),
        offer: offer.map(|offer| Offered {
            lead: t.join_lead(offer.invited_by, role_name(t, offer.role)),
            project: offer.project,
            email: offer.email,
        }),
        own,
        sign_in: format!("/login?next={}", encoded(&next)),
        code: typed.code,
        name: typed.name,
        full_name: typed.full_name,
        shortest: console.server.settings().password_length as usize,
        alert,
        refused: visit.refused.is_some(),
    };
    responses::page(console, visit, status, &page)
}

/// `POST /join`: makes the account and signs it in.
async fn join(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    headers: HeaderMap,
    Form(typed): Form<JoinForm>,
) -> Response {
    let t = visit.text;
    let new = NewMember {
        name: typed.name.clone(),
        full_name: typed.full_name.clone(),
        password: SecretText::new(typed.password.clone()),
    };
    let from = SignInFrom {
        agent: origin::agent(&headers),
        ..peer.address().into()
    };
    let joined = match typed.password == typed.again {
        true => access::join(&console.server, &typed.code, new, from).await,
        false => Err(refusals::password_differs().at("/again").into()),
    };
    let refusal = match joined {
        Ok(signed_in) => {
            let response = responses::see_with("/", "joined", "");
            return authentication::with_sign_in(&console, &visit, response, &signed_in);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return responses::failure(&console, &visit, None, &fault),
    };
    let status = responses::status(&refusal);
    let typed = JoinForm {
        password: String::new(),
        again: String::new(),
        ..typed
    };
    match access::offer(&console.server, &typed.code) {
        Ok(offer) => {
            let form = RefusedForm::new(t, JOIN, &refusal).otherwise_at("name");
            let visit = visit.refusing(form);
            joining(&console, &visit, status, Some(offer), None, typed, None)
        }
        Err(_) => {
            let alert = Alert::warning(codes::refusal(t, &refusal));
            joining(&console, &visit, status, None, None, typed, Some(alert))
        }
    }
}

/// `POST /join/own`: joins with the account that is signed in.
async fn join_own(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<JoinForm>,
) -> Response {
    match invitations::accept(&console.server, &caller, &typed.code).await {
        Ok(_) => responses::see_with("/", "joined", ""),
        Err(Failure::Refusal(refusal)) => {
            let status = responses::status(&refusal);
            let alert = Alert::warning(codes::refusal(visit.text, &refusal));
            let own = Some(caller.name.to_string());
            let offer = access::offer(&console.server, &typed.code).ok();
            joining(&console, &visit, status, offer, own, typed, Some(alert))
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
