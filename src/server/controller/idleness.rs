//! Judges once a minute whether running sessions are idle, warns their owners twice, and then does what the rule says.
//! What was told stands in rows; how long a session has been quiet is read from its samples again after a restart.
//! Never ends a session whose newest sample is old: what is not measured is not idle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rules::idleness::{
    self, IdleProgress, IdleRule, IdleStep, IdleTold, STALE_MILLIS, ScopedIdleRule, SessionQuiet,
};
use rules::names::{IdleRuleId, SessionId};
use rules::session::{DesiredState, Session, SessionState};
use rules::units::Timestamp;
use rules::world::SharedSessions;

use crate::catalog::idle_rules::{IdleDecision, IdleWatch};
use crate::catalog::samples::Samples;
use crate::catalog::{Catalog, Lane, ReadTransaction};
use crate::{Failure, ServerFault};

/// How often sessions are judged, which is how often samples of minutes come.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// Seconds of samples that are read beyond what a rule needs, for gaps between them.
const SPARE_SECONDS: u64 = 7_200;

/// The rule of `rules::idleness::judge`; the simulation plants others.
pub(crate) type Judge<'a> = &'a (dyn Fn(&IdleRule, &IdleTold, SessionQuiet) -> IdleStep + Sync);

/// How quiet each running session is, as far as its samples were taken in. A fresh one reads them again.
#[derive(Debug, Default)]
pub(crate) struct IdleJudge {
    sessions: BTreeMap<SessionId, JudgedSession>,
}

/// One session under one version of one rule.
#[derive(Debug)]
struct JudgedSession {
    rule: (IdleRuleId, u64),
    incarnation: u32,
    containers: BTreeMap<u32, IdleProgress>,
}

/// What a round reads from the catalog.
struct IdleSight {
    rules: Vec<ScopedIdleRule>,
    watches: BTreeMap<SessionId, IdleWatch>,
    sessions: SharedSessions,
}

fn sight(view: &ReadTransaction<'_>) -> Result<IdleSight, Failure> {
    let rules: Vec<_> = view
        .idle_rules()?
        .into_iter()
        .map(|row| row.scoped)
        .collect();
    let any = !rules.is_empty();
    Ok(IdleSight {
        rules,
        watches: match any {
            true => view.idle_watches()?.into_iter().collect(),
            false => BTreeMap::new(),
        },
        sessions: match any {
            true => view.live_sessions()?,
            false => SharedSessions::default(),
        },
    })
}

impl IdleJudge {
    /// One round: reads the samples that are new, and warns or ends who is due. Costs one query without rules, else a
    /// visit of each live session and a query of each container that a rule judges, however long it has been idle.
    pub(crate) async fn round(&mut self, catalog: &Catalog, now: Timestamp) -> Result<(), Failure> {
        let seen = catalog.read("look for idle sessions", sight).await?;
        let (mut own, samples) = (std::mem::take(self), catalog.clone());
        let decided = tokio::task::spawn_blocking(move || {
            let decided = own.decide(&seen, samples.samples(), now, &idleness::judge);
            (own, decided)
        });
        let (own, decided) = decided
            .await
            .map_err(|ended| ServerFault::new("judge idle sessions", ended))?;
        *self = own;
        let mut outcome = Ok(());
        for decision in decided? {
            let done = decision.clone();
            let written = catalog
                .write(Lane::Loops, "warn or end an idle session", move |rows| {
                    rows.carry_out_idle(&done)
                })
                .await;
            // One that cannot be written keeps no other one waiting.
            outcome = self.written(catalog, &decision, written).and(outcome);
        }
        outcome
    }

    /// As `round`, but waits on this thread, with a rule of the caller's. For rehearsals.
    pub(crate) fn round_now(
        &mut self,
        catalog: &Catalog,
        now: Timestamp,
        judge: Judge<'_>,
    ) -> Result<(), Failure> {
        let seen = catalog.read_now("look for idle sessions", sight)?;
        for decision in self.decide(&seen, catalog.samples(), now, judge)? {
            let done = decision.clone();
            let written =
                catalog.write_now(Lane::Loops, "warn or end an idle session", move |rows| {
                    rows.carry_out_idle(&done)
                });
            self.written(catalog, &decision, written)?;
        }
        Ok(())
    }

    fn written(
        &self,
        catalog: &Catalog,
        decision: &IdleDecision,
        written: Result<bool, Failure>,
    ) -> Result<(), Failure> {
        match written {
            Ok(true) if matches!(decision.step, IdleStep::Warn(_)) => {
                catalog.tell_idle(decision.session);
                Ok(())
            }
            Ok(_) => Ok(()),
            // Somebody was quicker; the next round sees what they did.
            Err(Failure::Refusal(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn decide(
        &mut self,
        seen: &IdleSight,
        samples: &Samples,
        now: Timestamp,
        judge: Judge<'_>,
    ) -> Result<Vec<IdleDecision>, Failure> {
        let mut judged = BTreeSet::new();
        let mut decisions = Vec::new();
        for session in seen.sessions.iter().filter(|session| may_be_idle(session)) {
            let Some(rule) = idleness::closest(&seen.rules, session) else {
                continue;
            };
            judged.insert(session.id);
            let told = IdleWatch::told_under(seen.watches.get(&session.id), rule, session);
            let Some((quiet, at)) = self.quiet(session, rule, &told, samples, now)? else {
                continue;
            };
            let step = judge(&rule.rule, &told, quiet);
            if step != IdleStep::Wait {
                decisions.push(IdleDecision {
                    session: session.id,
                    generation: session.generation,
                    rule: rule.clone(),
                    told,
                    step,
                    quiet: quiet.millis,
                    sampled_at: at,
                });
            }
        }
        self.sessions.retain(|id, _| judged.contains(id));
        Ok(decisions)
    }

    /// How long a session has been quiet, and the time of its newest sample; None where a container has none of late.
    fn quiet(
        &mut self,
        session: &Session,
        rule: &ScopedIdleRule,
        told: &IdleTold,
        samples: &Samples,
        now: Timestamp,
    ) -> Result<Option<(SessionQuiet, Timestamp)>, Failure> {
        let of = (rule.id, rule.generation);
        let fresh = || JudgedSession {
            rule: of,
            incarnation: session.incarnation,
            containers: BTreeMap::new(),
        };
        let judged = self.sessions.entry(session.id).or_insert_with(fresh);
        if judged.rule != of || judged.incarnation != session.incarnation {
            *judged = fresh();
        }
        let mut newest = Vec::new();
        let mut live = Vec::new();
        for container in session.live_containers() {
            let progress = judged.containers.entry(container.index).or_default();
            // The clock was set back: what is known is of a time to come.
            if progress.at().is_some_and(|at| at > now) {
                *progress = IdleProgress::default();
            }
            let span = (rule.rule.reads_seconds(told) + SPARE_SECONDS) * 1000;
            let begin = Timestamp::from_millis(now.as_millis().saturating_sub_unsigned(span));
            let since = progress.at().unwrap_or(begin);
            let rows = samples.minutes_of((session.id, container.index), since)?;
            for sample in rows.iter().filter(|sample| sample.at <= now) {
                if sample.incarnation == session.incarnation {
                    progress.take(&rule.rule, sample);
                }
            }
            newest.push(progress.at());
            live.push(*progress);
        }
        let is_late =
            |at: &Option<Timestamp>| at.is_none_or(|at| now.millis_since(at) > STALE_MILLIS);
        if newest.iter().any(is_late) {
            return Ok(None);
        }
        let at = newest.into_iter().flatten().max();
        Ok(SessionQuiet::of(live.iter()).zip(at))
    }
}

/// Whether anything could be ended: it runs, is wanted, and is nobody's test of a device.
fn may_be_idle(session: &Session) -> bool {
    session.state() == SessionState::Running
        && session.desired == DesiredState::Run
        && !session.paused
        && session.device_affinity.is_none()
}
