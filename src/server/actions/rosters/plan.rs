//! What each row of a roster would do, asked of the catalog as it is now. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use api::rosters::{RosterAction, RosterFault, RosterPlan, RosterRow};
use api::secret::SecretText;
use ring::hmac;
use rules::grants::{Grant, GrantRole, GrantScope, HeldGrant};
use rules::names::{EmailAddress, PolicyId, UserName};
use rules::permissions::{Permission, Subject, may};
use rules::quota::{PolicyLevel, PolicyLimits};
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::{Project, Scope, TenantState};
use rules::units::{GpuShare, Timestamp};
use rules::users::User;

use super::read::{Column, RosterLine};
use crate::Failure;
use crate::access::password::{self, PasswordRules};
use crate::actions::four_eyes;
use crate::actions::policies::no_room;
use crate::actions::tenancy::find_project;
use crate::catalog::ReadTransaction;
use crate::catalog::policies::PolicyRecord;

/// A row with what it stands for.
pub(super) struct PlannedRow {
    pub(super) row: RosterRow,
    /// None where the row has faults.
    pub(super) act: Option<PlannedAct>,
    /// None where the row has faults, too.
    pub(super) policy: Option<PlannedPolicy>,
}

/// The policy that a row attaches to its account, which has another one or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedPolicy {
    pub(super) choice: PolicyChoice,
    /// What it takes the place of.
    pub(super) replaces: Option<PolicyId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PolicyChoice {
    Known(PolicyId),
    /// One of this name, which says this of GPUs and nothing else, is made with the first row that needs it.
    New {
        name: String,
        gpu: GpuShare,
    },
}

/// What is to be done for a row.
pub(super) enum PlannedAct {
    Create {
        account: NewAccount,
        member: HeldGrant,
    },
    /// The account, and the membership it has not yet.
    Join {
        user: User,
        /// Full name and address, where they change too.
        renamed: Option<AccountNames>,
        member: HeldGrant,
    },
    Change {
        user: User,
        renamed: AccountNames,
        /// Differs from the one before in role or end; None where it stays.
        member: Option<HeldGrant>,
    },
    Nothing,
}

/// Full name and address of an account.
pub(super) type AccountNames = (String, Option<EmailAddress>);

pub(super) struct NewAccount {
    pub(super) name: UserName,
    pub(super) full_name: String,
    pub(super) email: Option<EmailAddress>,
    /// None: one is to be drawn.
    pub(super) password: Option<SecretText>,
    pub(super) project: Project,
}

/// Plans every row, in the order of the file. `project` is where rows belong that name none; None: the first project of
/// the subject's own domain. Dates end in the time zone `zone`. O(rows) look-ups.
pub(super) fn plan(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    lines: &[RosterLine],
    project: Option<&str>,
    zone: &str,
    (now, passwords): (Timestamp, PasswordRules),
) -> Result<Vec<PlannedRow>, Failure> {
    let mut planner = Planner {
        view,
        subject,
        usual: project.unwrap_or_default(),
        zone,
        now,
        passwords,
        projects: BTreeMap::new(),
        policies: None,
        new_policies: BTreeSet::new(),
        names: BTreeSet::new(),
        addresses: BTreeSet::new(),
    };
    lines.iter().map(|line| planner.row(line)).collect()
}

/// The plan as callers see it. `key` is the site's own.
pub(super) fn shown(planned: Vec<PlannedRow>, key: &[u8]) -> RosterPlan {
    let digest = digest(&planned, key);
    let rows: Vec<RosterRow> = planned.into_iter().map(|planned| planned.row).collect();
    let count = |action| rows.iter().filter(|row| row.action == action).count() as u32;
    RosterPlan {
        digest,
        creates: count(RosterAction::Create),
        joins: count(RosterAction::Join),
        changes: count(RosterAction::Change),
        unchanged: count(RosterAction::Unchanged),
        faulty: count(RosterAction::Fault),
        rows,
    }
}

/// Names a plan: the rows, what they do and where, and the accounts as they were when it was made. Without the key
/// nobody can try passwords against it.
pub(super) fn digest(planned: &[PlannedRow], key: &[u8]) -> String {
    let mut signed = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for PlannedRow { row, act, policy } in planned {
        let known = match act {
            Some(PlannedAct::Create { account, member }) => {
                let password = account.password.as_ref().map(SecretText::reveal);
                let domain = account.project.domain;
                format!("{domain} {member:?} {}", password.unwrap_or_default())
            }
            Some(PlannedAct::Join { user, member, .. }) => {
                format!(
                    "{} {} {:?} {member:?}",
                    user.id, user.generation, user.grants
                )
            }
            Some(PlannedAct::Change { user, member, .. }) => {
                format!(
                    "{} {} {:?} {member:?}",
                    user.id, user.generation, user.grants
                )
            }
            Some(PlannedAct::Nothing) | None => String::new(),
        };
        signed.update(format!("{row:?} {known} {policy:?}\n").as_bytes());
    }
    hex(signed.sign().as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Planner<'a> {
    view: &'a ReadTransaction<'a>,
    subject: &'a Subject,
    usual: &'a str,
    zone: &'a str,
    now: Timestamp,
    passwords: PasswordRules,
    projects: BTreeMap<String, Result<Project, Refusal>>,
    /// All there are, once a row needs one.
    policies: Option<Vec<PolicyRecord>>,
    /// Names of those that the rows before make.
    new_policies: BTreeSet<String>,
    /// Of the rows before.
    names: BTreeSet<String>,
    addresses: BTreeSet<String>,
}

/// What the cells of a row say, as far as they can be read.
struct ReadRow {
    name: Option<UserName>,
    email: Option<EmailAddress>,
    project: Option<Project>,
    role: GrantRole,
    expires_at: Option<Timestamp>,
    /// Name of the policy that is asked for; empty for none.
    policy_name: String,
    policy: Option<PlannedPolicy>,
}

impl ReadRow {
    fn member(&self, scope: GrantScope) -> HeldGrant {
        HeldGrant {
            grant: Grant {
                role: self.role,
                scope,
            },
            expires_at: self.expires_at,
        }
    }
}

impl Planner<'_> {
    fn row(&mut self, line: &RosterLine) -> Result<PlannedRow, Failure> {
        let mut faults: Vec<RosterFault> = Vec::new();
        for (column, refusal) in &line.faults {
            faults.push(fault(*column, refusal.clone()));
        }
        let mut read = self.cells(line, &mut faults)?;
        let act = match (read.name.clone(), read.project.clone()) {
            (Some(name), Some(project)) => {
                self.act(line, &name, &project, &mut read, &mut faults)?
            }
            _ => None,
        };
        let action = match &act {
            _ if !faults.is_empty() => RosterAction::Fault,
            Some(PlannedAct::Create { .. }) => RosterAction::Create,
            Some(PlannedAct::Join { .. }) => RosterAction::Join,
            Some(PlannedAct::Change { .. }) => RosterAction::Change,
            Some(PlannedAct::Nothing) => RosterAction::Unchanged,
            None => RosterAction::Fault,
        };
        let typed = |column| line.cell(column).to_owned();
        Ok(PlannedRow {
            row: RosterRow {
                line: line.number,
                name: read
                    .name
                    .map_or_else(|| typed(Column::Name), |name| name.to_string()),
                full_name: typed(Column::FullName),
                email: typed(Column::Email),
                project: read
                    .project
                    .map_or_else(|| typed(Column::Project), |one| one.name.to_string()),
                role: read.role,
                policy: read.policy_name,
                expires_at: read.expires_at,
                action,
                faults: faults.clone(),
            },
            act: act.filter(|_| faults.is_empty()),
            policy: read.policy.filter(|_| faults.is_empty()),
        })
    }

    fn cells(
        &mut self,
        line: &RosterLine,
        faults: &mut Vec<RosterFault>,
    ) -> Result<ReadRow, Failure> {
        let email = match line.cell(Column::Email) {
            "" => None,
            text => told(EmailAddress::parse(text), Column::Email, faults),
        };
        let name = match (line.cell(Column::Name), &email) {
            ("", Some(email)) => told(
                email.handle().ok_or_else(refusals::roster_name_missing),
                Column::Name,
                faults,
            ),
            ("", None) => {
                // A broken address was said already.
                if line.cell(Column::Email).is_empty() && line.faults.is_empty() {
                    faults.push(fault(Some(Column::Name), refusals::roster_name_missing()));
                }
                None
            }
            (text, _) => told(UserName::parse(&text.to_lowercase()), Column::Name, faults),
        };
        if let Some(name) = &name
            && !self.names.insert(name.to_string())
        {
            faults.push(fault(Some(Column::Name), refusals::roster_row_twice(name)));
        }
        if let Some(email) = &email
            && !self.addresses.insert(email.to_string())
        {
            faults.push(fault(
                Some(Column::Email),
                refusals::roster_row_twice(email),
            ));
        }
        let role = match line.cell(Column::Role) {
            "" => Some(GrantRole::Member),
            word => told(role(word), Column::Role, faults),
        };
        let expires_at = match line.cell(Column::ExpiresAt) {
            "" => None,
            text => told(
                last_instant(text, self.zone, self.now),
                Column::ExpiresAt,
                faults,
            ),
        };
        let project = self.project(line.cell(Column::Project))?;
        let policy = self.policy(line, faults)?;
        let (policy_name, choice) = policy.unzip();
        Ok(ReadRow {
            name,
            email,
            project: told(project, Column::Project, faults),
            role: role.unwrap_or(GrantRole::Member),
            expires_at,
            policy_name: policy_name.unwrap_or_default(),
            policy: choice.map(|choice| PlannedPolicy {
                choice,
                replaces: None,
            }),
        })
    }

    /// Name of the policy that a row asks for, and which one that is: by name or id, or the one that says of GPUs what the
    /// row does and nothing else.
    fn policy(
        &mut self,
        line: &RosterLine,
        faults: &mut Vec<RosterFault>,
    ) -> Result<Option<(String, PolicyChoice)>, Failure> {
        let (named, gpu) = (line.cell(Column::Policy), line.cell(Column::Gpu));
        let column = match (named, gpu) {
            ("", "") => return Ok(None),
            (_, "") => Column::Policy,
            ("", _) => Column::Gpu,
            _ => {
                faults.push(fault(Some(Column::Gpu), refusals::roster_policy_twice()));
                return Ok(None);
            }
        };
        // As attaching it by hand asks.
        let allowed = match may(self.subject, Permission::SystemWrite, &Scope::SITE) {
            Ok(()) => four_eyes::refuse_roster(self.view, self.subject),
            Err(refusal) => Err(refusal.into()),
        };
        match allowed {
            Ok(()) => {}
            Err(Failure::Refusal(refusal)) => {
                faults.push(fault(Some(column), refusal));
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        }
        let known = match self.policies.take() {
            Some(known) => known,
            None => self.view.policies()?,
        };
        let chosen = match column {
            Column::Gpu => GpuShare::parse(gpu).and_then(|gpu| self.policy_of(&known, gpu)),
            _ => known
                .iter()
                .find(|one| one.name == named || one.id.to_string() == named)
                .map(|one| (one.name.clone(), PolicyChoice::Known(one.id)))
                .ok_or_else(refusals::policy_not_found),
        };
        self.policies = Some(known);
        Ok(told(chosen, column, faults))
    }

    /// The policy that says this of GPUs and nothing else.
    fn policy_of(
        &mut self,
        known: &[PolicyRecord],
        gpu: GpuShare,
    ) -> Result<(String, PolicyChoice), Refusal> {
        let limits = PolicyLimits {
            gpu: Some(u64::from(gpu.0)),
            ..PolicyLimits::NONE
        };
        let says_it = |one: &&PolicyRecord| {
            let is_plain = one.egress.is_none() && !one.sudo && !one.no_inner_door && !one.no_home;
            is_plain && !one.require_limit && one.limits == limits
        };
        if let Some(one) = known.iter().find(says_it) {
            return Ok((one.name.clone(), PolicyChoice::Known(one.id)));
        }
        let name = format!("gpu-{gpu}");
        if known.iter().any(|one| one.name == name) {
            return Err(refusals::policy_name_taken(&name));
        }
        if !self.new_policies.contains(&name) {
            if let Some(full) = no_room(known.len() + self.new_policies.len()) {
                return Err(full);
            }
            self.new_policies.insert(name.clone());
        }
        Ok((name.clone(), PolicyChoice::New { name, gpu }))
    }

    fn project(&mut self, typed: &str) -> Result<Result<Project, Refusal>, Failure> {
        let which = if typed.is_empty() { self.usual } else { typed };
        if let Some(known) = self.projects.get(which) {
            return Ok(known.clone());
        }
        let found = match which {
            "" => self.first_project()?,
            which => {
                match find_project(self.view, self.subject, Permission::ProjectsWrite, which) {
                    Ok(project) => Ok(project),
                    Err(Failure::Refusal(refusal)) => Err(refusal),
                    Err(fault) => return Err(fault),
                }
            }
        };
        let found = found.and_then(|project| match project.state {
            TenantState::Active => Ok(project),
            TenantState::Archived => Err(refusals::project_archived(&project.name)),
        });
        self.projects.insert(which.to_owned(), found.clone());
        Ok(found)
    }

    fn first_project(&self) -> Result<Result<Project, Refusal>, Failure> {
        let first = rules::names::TenantName::first_project();
        let found = self
            .view
            .project_called(self.subject.domain, first.as_str())?;
        let project = match found {
            Some(id) => self.view.project(id)?,
            None => None,
        };
        let project = project
            .filter(|one| may(self.subject, Permission::ProjectsWrite, &one.scope()).is_ok());
        Ok(project.ok_or_else(refusals::roster_project_missing))
    }

    fn act(
        &self,
        line: &RosterLine,
        name: &UserName,
        project: &Project,
        read: &mut ReadRow,
        faults: &mut Vec<RosterFault>,
    ) -> Result<Option<PlannedAct>, Failure> {
        let scope = GrantScope::Project(project.id);
        let known = self.view.user_named(name.as_str())?;
        let writes_users = may(
            self.subject,
            Permission::UsersWrite,
            &Scope::domain(project.domain),
        );
        // A caller without users:write is not told which names and addresses there are.
        if let Some(email) = read.email.as_ref().filter(|_| writes_users.is_ok()) {
            let other = self.view.user_by_email(email)?;
            if other.is_some_and(|other| known.as_ref().is_none_or(|user| user.id != other.id)) {
                let refusal = refusals::user_email_taken(email);
                faults.push(fault(Some(Column::Email), refusal));
            }
        }
        let Some(user) = known else {
            if let Err(refusal) = writes_users {
                faults.push(fault(Some(Column::Name), refusal));
                return Ok(None);
            }
            if let Err(refusal) = name.for_new_user() {
                faults.push(fault(Some(Column::Name), refusal));
            }
            return Ok(Some(PlannedAct::Create {
                member: read.member(scope),
                account: self.new_account(line, name, project, read, faults),
            }));
        };
        // What exists elsewhere is a taken name here, and nothing else is said of it.
        if user.domain != project.domain || user.id == crate::catalog::users::ROOT {
            let refusal = match writes_users {
                Ok(()) => refusals::user_name_taken(name),
                Err(refusal) => refusal,
            };
            faults.push(fault(Some(Column::Name), refusal));
            return Ok(None);
        }
        if !line.cell(Column::Password).is_empty() {
            let refusal = refusals::roster_password_known(name);
            faults.push(fault(Some(Column::Password), refusal));
        }
        let full_name = match line.cell(Column::FullName) {
            "" => user.full_name.clone(),
            typed => typed.to_owned(),
        };
        let email = read.email.clone().or_else(|| user.email.clone());
        let renamed = full_name != user.full_name || email != user.email;
        if renamed {
            let grants: Vec<Grant> = user.grants.iter().map(|held| held.grant).collect();
            let refused = match writes_users {
                // Another address may open the account.
                Ok(()) if self.subject.outranks(&grants) && email != user.email => {
                    self.subject.may_open(&grants).err()
                }
                Ok(()) if self.subject.outranks(&grants) => None,
                Ok(()) => Some(refusals::user_outranked(&user.name)),
                Err(refusal) => Some(refusal),
            };
            faults.extend(refused.map(|refusal| fault(Some(Column::Name), refusal)));
            let reads_mail = email != user.email;
            if reads_mail && four_eyes::is_kept_apart(self.view, self.subject, &user)? {
                faults.push(fault(Some(Column::Email), refusals::approval_account()));
            }
        }
        if let Some(policy) = read.policy.take() {
            let replaces = self.view.policy_at(PolicyLevel::User, Some(user.id.0))?;
            let is_there = replaces.is_some_and(|id| policy.choice == PolicyChoice::Known(id));
            read.policy = (!is_there).then_some(PlannedPolicy { replaces, ..policy });
        }
        let held = user
            .grants
            .iter()
            .find(|held| held.grant.scope == scope && held.holds_at(self.now))
            .copied();
        // An empty cell keeps what a member has.
        if let Some(held) = held {
            if line.cell(Column::Role).is_empty() {
                read.role = held.grant.role;
            }
            if line.cell(Column::ExpiresAt).is_empty() {
                read.expires_at = held.expires_at;
            }
        }
        let (member, names) = (read.member(scope), (full_name, email));
        Ok(Some(match held {
            None => PlannedAct::Join {
                renamed: renamed.then_some(names),
                user,
                member,
            },
            Some(held) if held == member && !renamed && read.policy.is_none() => {
                PlannedAct::Nothing
            }
            Some(held) => PlannedAct::Change {
                member: (held != member).then_some(member),
                renamed: names,
                user,
            },
        }))
    }

    fn new_account(
        &self,
        line: &RosterLine,
        name: &UserName,
        project: &Project,
        read: &ReadRow,
        faults: &mut Vec<RosterFault>,
    ) -> NewAccount {
        let password = match line.cell(Column::Password) {
            "" => None,
            text => {
                let password = SecretText::from(text.to_owned());
                let checked = password::check_new(self.passwords, &password, name.as_str(), "");
                told(checked, Column::Password, faults);
                Some(password)
            }
        };
        NewAccount {
            name: name.clone(),
            full_name: line.cell(Column::FullName).to_owned(),
            email: read.email.clone(),
            password,
            project: project.clone(),
        }
    }
}

fn fault(column: Option<Column>, refusal: Refusal) -> RosterFault {
    RosterFault {
        column: column.map_or("row", Column::word).to_owned(),
        refusal,
    }
}

fn told<T>(read: Result<T, Refusal>, column: Column, faults: &mut Vec<RosterFault>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(refusal) => {
            faults.push(fault(Some(column), refusal));
            None
        }
    }
}

fn role(word: &str) -> Result<GrantRole, Refusal> {
    let role = match word.to_lowercase().as_str() {
        "구성원" | "학생" | "student" => Some(GrantRole::Member),
        "책임자" | "교수" | "조교" | "teacher" => Some(GrantRole::Lead),
        "열람자" => Some(GrantRole::Viewer),
        word => GrantRole::parse(word),
    };
    role.filter(|role| role.is_of_project())
        .ok_or_else(refusals::grant_role_of_project)
}

/// The end that a text names: a date means its last instant in the time zone (an IANA name; empty: UTC), an instant such
/// as `2027-02-28T18:00:00Z` itself.
///
/// Errors: `roster.date`; `grant.ends-in-past` for what is not after `now`.
pub fn last_instant(text: &str, zone: &str, now: Timestamp) -> Result<Timestamp, Refusal> {
    let zone = jiff::tz::TimeZone::get(zone).unwrap_or(jiff::tz::TimeZone::UTC);
    let date = text.replace(['.', '/'], "-");
    let read = match date.trim_end_matches('-').parse::<jiff::civil::Date>() {
        Ok(date) => date
            .tomorrow()
            .ok()
            .and_then(|next| next.to_zoned(zone).ok())
            .map(|next| next.timestamp()),
        Err(_) => text.parse::<jiff::Timestamp>().ok(),
    };
    let end = read.map(|at| Timestamp::from_millis(at.as_millisecond()));
    match end {
        None => Err(refusals::roster_date()),
        Some(end) if end <= now => Err(refusals::grant_ends_in_past()),
        Some(end) => Ok(end),
    }
}
