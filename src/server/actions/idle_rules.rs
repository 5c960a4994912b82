//! What a user may do with idle rules: administrators of the site write and try them, owners of sessions keep theirs.
//! Judges nothing by itself; the controller does once a minute.

use api::idle_rules::{
    IdleDryEndView, IdleDryRunView, IdleRulePatchBody, IdleRuleView, IdleThresholdsBody,
    NewIdleRuleBody, SessionIdleView,
};
use rules::idleness::{
    DryEnd, IdleAction, IdleLevel, IdleRule, IdleSample, MAX_EXEMPT_LENGTH, ScopedIdleRule,
    closest, dry_run,
};
use rules::names::{ContainerName, IdleRuleId, SessionId, TenantName};
use rules::object::Object;
use rules::permissions::{Permission, may};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{DesiredState, Session, SessionState, hidden};
use rules::tenancy::Scope;
use rules::units::Timestamp;
use tokio::sync::broadcast;
use uuid::Uuid;

use super::sessions::find::find as find_session;
use super::tenancy::{find_domain, find_project};
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::idle_rules::{IdleRuleRecord, IdleWatch};
use crate::catalog::{Catalog, Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

/// Rules of a site. Higher: each minute reads more of them for each session. Lower: projects share one.
const MAX_IDLE_RULES: usize = 100;
/// Sessions that a dry run names. Higher: the page is long. Lower: it is not seen whom a rule would hit.
const MAX_EXAMPLES: usize = 50;

/// All rules by name; for administrators and auditors of the site. Never more than 100.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<IdleRuleView>, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server.catalog().read_now("list idle rules", |view| {
        Ok(view.idle_rules()?.into_iter().map(show).collect())
    })
}

/// One rule, by id or name. Errors: `idle-rule.not-found`.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<IdleRuleView, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    server
        .catalog()
        .read_now("show an idle rule", |view| Ok(show(find(view, which)?)))
}

/// Why a site with so many rules can have no other; None while there is room.
pub fn no_room(known: usize) -> Option<Refusal> {
    (known >= MAX_IDLE_RULES).then(|| refusals::idle_rule_too_many(MAX_IDLE_RULES))
}

/// Makes a rule. It judges from the next minute on; nobody ends before both warnings.
///
/// Errors: `idle-rule.*`, `domain.not-found`, `project.not-found`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewIdleRuleBody,
) -> Result<IdleRuleView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let name = name_of(&asked.name)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "make an idle rule", move |rows| {
            if let Some(full) = no_room(rows.idle_rules()?.len()) {
                return Err(full.into());
            }
            let id = IdleRuleId::make(rows.now, base::observe::random());
            let made = IdleRuleRecord {
                name,
                ..asked_for(rows, &caller, &asked, id)?
            };
            rows.insert_idle_rule(&made)?;
            note(
                rows,
                &caller,
                &made.name,
                "idle-rule.added",
                "",
                &told(&made),
            )?;
            Ok(show(find(rows, &id.to_string())?))
        })
        .await
}

/// What is wrong with a rule by itself, each fault at its field, so that a form marks all of them at once; its name is
/// for `name_fault`. Reads no rows: a name that is taken and a project that is not there `create` refuses.
pub fn faults(asked: &NewIdleRuleBody) -> Vec<Refusal> {
    let mut faults = asked.rule().faults();
    faults.extend(subject_fault(asked));
    faults.extend(exempt_of(&asked.exempt).err());
    faults
}

/// What is wrong with the name of a rule by itself.
pub fn name_fault(name: &str) -> Option<Refusal> {
    name_of(name).err()
}

/// Changes a rule. Its warnings start over.
///
/// Errors: as `create`; `idle-rule.not-found`, `idle-rule.stale`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: IdleRulePatchBody,
    if_match: Option<u64>,
) -> Result<IdleRuleView, Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let name = patch.name.as_deref().map(name_of).transpose()?;
    let exempt = patch.exempt.as_deref().map(exempt_of).transpose()?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change an idle rule", move |rows| {
            let before = find(rows, &which)?;
            let was = &before.scoped;
            if if_match.is_some_and(|seen| seen != was.generation) {
                return Err(refusals::idle_rule_stale(&before.name, was.generation).into());
            }
            let rule = IdleRule {
                below: patch
                    .below
                    .map_or(was.rule.below, |Object(below)| below.into()),
                of: patch.of.unwrap_or(was.rule.of),
                window_seconds: patch.window_seconds.unwrap_or(was.rule.window_seconds),
                grace_seconds: patch.grace_seconds.unwrap_or(was.rule.grace_seconds),
                action: patch.action.unwrap_or(was.rule.action),
                extend_seconds: patch.extend_seconds.unwrap_or(was.rule.extend_seconds),
                extend_times: patch.extend_times.unwrap_or(was.rule.extend_times),
            };
            rule.check()?;
            let changed = IdleRuleRecord {
                scoped: ScopedIdleRule {
                    kind: patch.kind.unwrap_or(was.kind),
                    exempt: exempt.unwrap_or_else(|| was.exempt.clone()),
                    rule,
                    ..was.clone()
                },
                name: name.unwrap_or_else(|| before.name.clone()),
                whose: before.whose.clone(),
            };
            if changed == before {
                return Ok(show(before));
            }
            rows.put_idle_rule(&changed)?;
            let (from, to) = (told(&before), told(&changed));
            note(
                rows,
                &caller,
                &changed.name,
                "idle-rule.changed",
                &from,
                &to,
            )?;
            Ok(show(find(rows, &changed.scoped.id.to_string())?))
        })
        .await
}

/// Removes a rule; what it told sessions holds no more. Errors: `idle-rule.not-found`.
pub async fn remove(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    may(&caller.subject, Permission::SystemWrite, &Scope::SITE)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "remove an idle rule", move |rows| {
            let found = find(rows, &which)?;
            rows.forget_idle_rule(found.scoped.id)?;
            note(
                rows,
                &caller,
                &found.name,
                "idle-rule.removed",
                &told(&found),
                "",
            )
        })
        .await
}

/// What a rule would have done over the samples that are kept, at most a week of them, beside the other rules that there
/// are: sessions that a closer one judges are left to it. A name of a rule that there is: as if it were changed to this.
/// Changes nothing. Reads the minutes of each session that it judges, on a thread for blocking work.
///
/// Errors: as `create`, but for the name.
pub async fn try_out(
    server: &Server,
    caller: &Caller,
    asked: NewIdleRuleBody,
) -> Result<IdleDryRunView, Failure> {
    may(&caller.subject, Permission::SystemRead, &Scope::SITE)?;
    let catalog = server.catalog().clone();
    let (rule, rules) = catalog.read_now("read an idle rule", |view| {
        let (known, others): (Vec<_>, Vec<_>) = view
            .idle_rules()?
            .into_iter()
            .partition(|row| row.name == asked.name.trim());
        // A new one is the youngest of all.
        let id = known.first().map_or(Uuid::max(), |row| row.scoped.id.0);
        let rule = asked_for(view, caller, &asked, IdleRuleId(id))?.scoped;
        let mut rules: Vec<_> = others.into_iter().map(|row| row.scoped).collect();
        rules.push(rule.clone());
        Ok((rule, rules))
    })?;
    tokio::task::spawn_blocking(move || tried(&catalog, &rule, &rules))
        .await
        .map_err(|ended| ServerFault::new("try an idle rule", ended))?
}

fn tried(
    catalog: &Catalog,
    rule: &ScopedIdleRule,
    rules: &[ScopedIdleRule],
) -> Result<IdleDryRunView, Failure> {
    let judges = |session: &Session| {
        let closest = closest(rules, session);
        // Tests of devices are nobody's sessions.
        session.device_affinity.is_none() && closest.is_some_and(|one| one.id == rule.id)
    };
    let mut run = IdleDryRunView {
        sessions: 0,
        ended: 0,
        gpu_hours: 0.0,
        busy_again: 0,
        examples: Vec::new(),
    };
    let samples = catalog.samples();
    let sampled = samples.sampled_containers()?;
    for containers in sampled.chunk_by(|(a, _), (b, _)| a == b) {
        let id = containers[0].0;
        let found = catalog.read_now("look at a session", |view| {
            let Some(session) = view.session(id)?.filter(judges) else {
                return Ok(None);
            };
            let owner = view.user_name(session.owner)?;
            Ok(Some((session, owner)))
        })?;
        let Some((session, owner)) = found else {
            continue;
        };
        let all: Vec<Vec<IdleSample>> = containers
            .iter()
            .map(|container| samples.minutes_of(*container, Timestamp::default()))
            .collect::<Result<_, _>>()?;
        run.sessions += 1;
        for end in dry_run(&rule.rule, &all) {
            let owner = owner.as_ref().map_or_else(String::new, ToString::to_string);
            take(&mut run, &session, owner, &end);
        }
    }
    Ok(run)
}

/// Counts one end; of the examples those that free most stay.
fn take(run: &mut IdleDryRunView, session: &Session, owner: String, end: &DryEnd) {
    let gpu = session.spec.demand.gpu;
    let gpu_hours = gpu.as_f64() * end.until.millis_since(end.at) as f64 / 3_600_000.0;
    run.ended += 1;
    run.gpu_hours += gpu_hours;
    run.busy_again += u64::from(end.busy_again);
    run.examples.push(IdleDryEndView {
        session: session.id,
        name: session.name.to_string(),
        owner,
        at: end.at,
        gpu,
        gpu_hours,
        busy_again: end.busy_again,
    });
    let most_first = |a: &IdleDryEndView, b: &IdleDryEndView| {
        let by_hours = b.gpu_hours.total_cmp(&a.gpu_hours);
        by_hours.then_with(|| b.at.cmp(&a.at))
    };
    run.examples.sort_by(most_first);
    run.examples.truncate(MAX_EXAMPLES);
}

/// How a session stands under its rule: None where nothing was told it since it was last busy.
///
/// Errors: those of `sessions::get`.
pub async fn state(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<Option<SessionIdleView>, Failure> {
    server
        .catalog()
        .read_now("look whether a session is idle", |view| {
            let session = find_session(view, caller, Permission::SessionsRead, id)?;
            state_of(view, &session)
        })
}

/// The same of a session that was found already.
pub(super) fn state_of(
    view: &ReadTransaction<'_>,
    session: &Session,
) -> Result<Option<SessionIdleView>, Failure> {
    let state = standing(view, session)?;
    Ok(state.map(|(rule, watch)| shown(&rule, &watch)))
}

/// The rule that warned a session, and what it told. One that stops is past warnings; one that its owner paused is ended
/// by no rule.
fn standing(
    view: &ReadTransaction<'_>,
    session: &Session,
) -> Result<Option<(IdleRuleRecord, IdleWatch)>, Failure> {
    if session.state() != SessionState::Running || session.desired != DesiredState::Run {
        return Ok(None);
    }
    let state = view.idle_state(session)?;
    Ok(state.filter(|(_, watch)| !session.paused || watch.told.acted))
}

/// Keeps a session that was warned: its end is put off, and both warnings are given again before it.
///
/// Errors: `session.not-found`, `session.not-warned`, `session.kept-already`, `session.keep-used-up`.
pub async fn keep(server: &Server, caller: &Caller, id: &str) -> Result<SessionIdleView, Failure> {
    let (caller, id) = (caller.clone(), id.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "keep an idle session", move |rows| {
            let session = find_session(rows, &caller, Permission::SessionsWrite, &id)?;
            let state = standing(rows, &session)?;
            let (rule, watch) = state.ok_or_else(refusals::session_not_warned)?;
            let of = &rule.scoped.rule;
            let due = watch.due_at.unwrap_or(rows.now);
            let kept = watch.told.keep(of, rows.now.millis_since(due));
            let was_kept = watch.told.kept > 0 && !watch.told.acted;
            if (kept.is_some() || was_kept) && watch.told.kept >= of.extend_times {
                return Err(refusals::session_keep_used_up(of.extend_times).into());
            }
            let told = kept.ok_or_else(|| match was_kept {
                true => refusals::session_kept_already(),
                false => refusals::session_not_warned(),
            })?;
            let kept = IdleWatch {
                told,
                due_at: Some(due.max(rows.now).plus_seconds(of.extend_seconds)),
                ..watch
            };
            rows.put_idle_watch(session.id, &kept)?;
            let until = kept.due_at.map_or_else(String::new, |due| due.to_string());
            rows.note(NewEvent {
                actor: caller.name.as_str(),
                topic: "sessions",
                object: &session.id.to_string(),
                scope: session.scope(),
                code: "session.idle-kept",
                before: "",
                after: &until,
            })?;
            Ok(shown(&rule, &kept))
        })
        .await
}

/// Somebody inside a container, for the measures of rules; and the warnings that they should read.
pub struct Inside {
    catalog: Catalog,
    container: ContainerName,
    news: broadcast::Receiver<SessionId>,
}

impl Inside {
    /// Counts them as inside until it is dropped.
    pub fn of(server: &Server, container: ContainerName) -> Self {
        let catalog = server.catalog().clone();
        catalog.samples().entered(container);
        Self {
            news: catalog.idle_news(),
            catalog,
            container,
        }
    }

    /// They typed.
    pub fn typed(&self) {
        self.catalog.samples().typed(self.container);
    }

    /// Another pair of ears on the warnings of the session.
    pub fn warnings(&self) -> IdleWarnings {
        IdleWarnings {
            catalog: self.catalog.clone(),
            session: self.container.session,
            news: self.news.resubscribe(),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.catalog.samples().left(self.container);
    }
}

/// The warnings of one session, as they are given.
pub struct IdleWarnings {
    catalog: Catalog,
    session: SessionId,
    news: broadcast::Receiver<SessionId>,
}

impl IdleWarnings {
    /// Waits for the next warning: what the rule does, and in how many minutes. For ever where none comes.
    pub async fn next(&mut self) -> (IdleAction, u64) {
        loop {
            match self.news.recv().await {
                Ok(session) if session != self.session => continue,
                // Behind: one of the lost may have been this session's.
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
            let state = self.catalog.read_now("look at a warning", |view| {
                let Some(session) = view.session(self.session)? else {
                    return Ok(None);
                };
                state_of(view, &session)
            });
            // What cannot be read is on the page all the same.
            if let Ok(Some(state)) = state
                && let Some(ends_at) = state.ends_at
            {
                let left = ends_at.seconds_since(self.catalog.clock().now());
                return (state.action, left.div_ceil(60));
            }
        }
    }
}

fn shown(rule: &IdleRuleRecord, watch: &IdleWatch) -> SessionIdleView {
    let IdleRule {
        action,
        extend_times,
        extend_seconds,
        ..
    } = rule.scoped.rule;
    let told = &watch.told;
    SessionIdleView {
        rule: rule.name.clone(),
        action,
        warnings: told.warnings.iter().flatten().count() as u32,
        ends_at: watch.due_at,
        kept: told.kept,
        keeps_left: extend_times.saturating_sub(told.kept),
        extend_seconds,
    }
}

/// The rule that is asked for, under an id, without a name.
fn asked_for(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    asked: &NewIdleRuleBody,
    id: IdleRuleId,
) -> Result<IdleRuleRecord, Failure> {
    let rule = asked.rule();
    rule.check()?;
    if let Some(refusal) = subject_fault(asked) {
        return Err(refusal.into());
    }
    let which = subject_of(asked);
    let at = |failure: Failure| failure.at("/subject");
    let subject = match asked.level {
        IdleLevel::Site => None,
        IdleLevel::Domain => Some(find_domain(view, &caller.subject, which).map_err(at)?.id.0),
        IdleLevel::Project => {
            let permission = Permission::ProjectsRead;
            let found = find_project(view, &caller.subject, permission, which);
            Some(found.map_err(at)?.id.0)
        }
    };
    Ok(IdleRuleRecord {
        scoped: ScopedIdleRule {
            id,
            level: asked.level,
            subject,
            kind: asked.kind,
            exempt: exempt_of(&asked.exempt)?,
            rule,
            generation: 1,
        },
        name: String::new(),
        whose: String::new(),
    })
}

fn subject_of(asked: &NewIdleRuleBody) -> &str {
    asked.subject.as_deref().unwrap_or_default().trim()
}

/// A name where there is none to give, or none where one is needed.
fn subject_fault(asked: &NewIdleRuleBody) -> Option<Refusal> {
    let refusal = match (asked.level, subject_of(asked).is_empty()) {
        (IdleLevel::Site, true) | (IdleLevel::Domain | IdleLevel::Project, false) => return None,
        (IdleLevel::Site, false) => refusals::idle_rule_subject_unwanted(),
        (IdleLevel::Domain | IdleLevel::Project, true) => refusals::idle_rule_subject_missing(),
    };
    Some(refusal.at("/subject"))
}

fn name_of(typed: &str) -> Result<String, Refusal> {
    match TenantName::parse(typed.trim()) {
        Ok(name) => Ok(name.to_string()),
        Err(_) => Err(refusals::idle_rule_name_invalid().at("/name")),
    }
}

fn exempt_of(typed: &str) -> Result<String, Refusal> {
    let label = typed.trim();
    let bad = label.chars().count() > MAX_EXEMPT_LENGTH
        || label.chars().any(hidden)
        || label.starts_with('=');
    match bad {
        true => Err(refusals::idle_rule_exempt(MAX_EXEMPT_LENGTH).at("/exempt")),
        false => Ok(label.to_owned()),
    }
}

fn find(view: &ReadTransaction<'_>, which: &str) -> Result<IdleRuleRecord, Failure> {
    let found = view.idle_rule_called(which)?;
    found.ok_or_else(|| refusals::idle_rule_not_found().into())
}

fn show(row: IdleRuleRecord) -> IdleRuleView {
    let ScopedIdleRule {
        id,
        level,
        kind,
        exempt,
        rule,
        generation,
        ..
    } = row.scoped;
    IdleRuleView {
        id: id.0,
        name: row.name,
        level,
        subject: row.whose,
        kind,
        exempt,
        below: IdleThresholdsBody::from(rule.below),
        of: rule.of,
        window_seconds: rule.window_seconds,
        grace_seconds: rule.grace_seconds,
        action: rule.action,
        extend_seconds: rule.extend_seconds,
        extend_times: rule.extend_times,
        generation,
    }
}

/// `stop after 60 min of gpu<5% cpu<0.1`, for the journal.
fn told(row: &IdleRuleRecord) -> String {
    let rule = &row.scoped.rule;
    let below = &rule.below;
    let gpu = below.gpu_percent.map(|percent| format!("gpu<{percent}%"));
    let cpu = below.cpu.map(|cpu| format!("cpu<{cpu}"));
    let terminals = below.terminals.map(|count| format!("terminals<{count}"));
    let keys = below.keys.map(|count| format!("keys<{count}"));
    let all: Vec<String> = [gpu, cpu, terminals, keys].into_iter().flatten().collect();
    let (action, minutes) = (rule.action.word(), rule.window_seconds / 60);
    let (of, all) = (rule.of.word(), all.join(" "));
    format!("{action} after {minutes} min of {of} {all}")
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    name: &str,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: name,
        scope: Scope::SITE,
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
