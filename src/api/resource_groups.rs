//! Resource groups: nodes that serve sessions of their own, and who may use them.

use rules::calendar::{GroupWindow, OnHolidays, WeekDay, minute_of, time_of};
use rules::fair_share::QueueOrder;
use rules::names::TenantName;
use rules::policy::{BackfillMode, PreemptionMode, Spreading};
use rules::refusal::Refusal;
use rules::refusals;
use rules::resource_group::ResourceGroup;
use rules::session::SessionKind;
use rules::units::{CpuShare, quoted};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::{
    BackfillModeShape, KindShape, OnHolidaysShape, PreemptionShape, QueueOrderShape,
    SpreadingShape, WeekDayShape,
};

/// One resource group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ResourceGroup)]
pub struct ResourceGroupView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    #[schema(value_type = String)]
    pub name: TenantName,
    /// What people read; empty: the name.
    pub title: String,
    /// It has every node that no other group has, and stays.
    pub founding: bool,
    /// Kinds of sessions that it takes.
    #[schema(value_type = Vec<KindShape>)]
    pub kinds: Vec<SessionKind>,
    /// How sessions are spread over its devices and nodes; null: as the settings say.
    #[schema(value_type = Option<SpreadingShape>)]
    pub spreading: Option<Spreading>,
    /// In which order its queue is served; null: as the site's is.
    #[schema(value_type = Option<QueueOrderShape>)]
    pub order: Option<QueueOrder>,
    /// Who may start before one that waits in it; null: as the site says.
    #[schema(value_type = Option<BackfillModeShape>)]
    pub backfill: Option<BackfillMode>,
    /// How many times its sessions together may hold the cores of a node; 1 gives each core once.
    #[schema(value_type = f64)]
    pub cpu_overcommit: CpuShare,
    /// When other rules hold; one at a time.
    pub windows: Vec<GroupWindowView>,
    /// IANA name of the zone in which the times of windows are.
    pub time_zone: String,
    /// Whether batch sessions that yield are stopped for sessions of higher priority.
    #[schema(value_type = PreemptionShape)]
    pub preemption: PreemptionMode,
    /// Everybody may use it.
    pub everybody: bool,
    /// Who may use it; null where everybody may, and for callers who may not read the system.
    pub access: Option<GroupAccessView>,
    /// Names of its nodes, by name; null for callers who may not read the system.
    pub nodes: Option<Vec<String>>,
    /// Version, and ETag.
    pub generation: u64,
}

/// A time of the week in which other rules hold for a resource group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ResourceGroupWindow)]
#[serde(deny_unknown_fields)]
pub struct GroupWindowView {
    /// Days on which it begins.
    #[schema(value_type = Vec<WeekDayShape>, min_items = 1)]
    pub days: Vec<WeekDay>,
    /// Time of day at which it begins.
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub from: String,
    /// Time of day at which it ends; on the day after where that is not later than `from`.
    #[schema(pattern = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]
    pub to: String,
    /// In which order the queue is served; null: as the group says.
    #[serde(default)]
    #[schema(value_type = Option<QueueOrderShape>)]
    pub order: Option<QueueOrder>,
    /// Who may start before one that waits; null: as the group says.
    #[serde(default)]
    #[schema(value_type = Option<BackfillModeShape>)]
    pub backfill: Option<BackfillMode>,
    /// Kinds of sessions that start meanwhile; null: all, empty: none.
    #[serde(default)]
    #[schema(value_type = Option<Vec<KindShape>>)]
    pub kinds: Option<Vec<SessionKind>>,
    /// Only sessions with a time limit of no more start meanwhile; null: all.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_runtime_seconds: Option<u64>,
    /// Whether it begins on holidays of the site; null: as on other days.
    #[serde(default)]
    #[schema(value_type = Option<OnHolidaysShape>)]
    pub holidays: Option<OnHolidays>,
}

impl GroupWindowView {
    pub fn of(window: &GroupWindow) -> Self {
        Self {
            days: window.days.iter().copied().collect(),
            from: time_of(window.from),
            to: time_of(window.to),
            order: window.order,
            backfill: window.backfill,
            kinds: window.kinds.clone(),
            max_runtime_seconds: window.max_runtime_seconds,
            holidays: Some(window.holidays).filter(|on| *on != OnHolidays::Yes),
        }
    }

    /// Errors: `group.window-invalid`.
    pub fn window(&self) -> Result<GroupWindow, Refusal> {
        let minute = |time: &str| {
            let wrong = || refusals::group_window_invalid(quoted(time));
            minute_of(time).ok_or_else(wrong)
        };
        let window = GroupWindow {
            days: self.days.iter().copied().collect(),
            from: minute(&self.from)?,
            to: minute(&self.to)?,
            order: self.order,
            backfill: self.backfill,
            kinds: self.kinds.clone(),
            max_runtime_seconds: self.max_runtime_seconds,
            holidays: self.holidays.unwrap_or_default(),
        };
        window.checked()
    }
}

/// The windows that a group has from now on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = ResourceGroupWindows)]
#[serde(deny_unknown_fields)]
pub struct GroupWindowsBody {
    #[schema(max_items = 21)]
    pub windows: Vec<GroupWindowView>,
    /// IANA name of the zone in which their times are; the caller's when left out.
    #[serde(default)]
    pub time_zone: Option<String>,
}

/// Whose sessions a group takes: those of any of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ResourceGroupAccess)]
pub struct GroupAccessView {
    /// Names, in order.
    pub domains: Vec<String>,
    /// `DOMAIN/NAME`, in order.
    pub projects: Vec<String>,
    /// Names, in order.
    pub users: Vec<String>,
}

impl ResourceGroupView {
    /// `access` and `nodes` where the caller may know them.
    pub fn new(
        group: ResourceGroup,
        access: Option<GroupAccessView>,
        nodes: Option<Vec<String>>,
    ) -> Self {
        Self {
            id: group.id.0,
            founding: group.id == rules::names::ResourceGroupId::DEFAULT,
            name: group.name,
            title: group.title,
            kinds: group.kinds.list(),
            spreading: group.spreading,
            order: group.order,
            backfill: group.backfill,
            cpu_overcommit: CpuShare(group.cpu_overcommit.hundredths()),
            windows: group
                .calendar
                .windows
                .iter()
                .map(GroupWindowView::of)
                .collect(),
            time_zone: group.calendar.zone,
            preemption: group.preemption,
            everybody: group.access.is_none(),
            access,
            nodes,
            generation: group.generation,
        }
    }

    /// What people read.
    pub fn heading(&self) -> &str {
        match self.title.is_empty() {
            true => self.name.as_str(),
            false => &self.title,
        }
    }
}

/// What is left out: both kinds, spread as the settings say, served as the site's queue, without preemption, used by
/// everybody, without nodes.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewResourceGroup)]
#[serde(deny_unknown_fields)]
pub struct NewResourceGroupBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[serde(default)]
    #[schema(max_length = 60, format = "plain-text")]
    pub title: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<Vec<KindShape>>)]
    pub kinds: Option<Vec<SessionKind>>,
    #[serde(default)]
    #[schema(value_type = Option<SpreadingShape>)]
    pub spreading: Option<Spreading>,
    #[serde(default)]
    #[schema(value_type = Option<QueueOrderShape>)]
    pub order: Option<QueueOrder>,
    #[serde(default)]
    #[schema(value_type = Option<BackfillModeShape>)]
    pub backfill: Option<BackfillMode>,
    /// At most two decimals; 1 when left out.
    #[serde(default)]
    #[schema(value_type = Option<f64>, minimum = 1, maximum = 8)]
    pub cpu_overcommit: Option<CpuShare>,
    #[serde(default)]
    #[schema(value_type = Option<PreemptionShape>)]
    pub preemption: Option<PreemptionMode>,
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = ResourceGroupPatch)]
#[serde(deny_unknown_fields)]
pub struct ResourceGroupPatchBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    #[schema(max_length = 60, format = "plain-text")]
    pub title: Option<String>,
    #[schema(value_type = Option<Vec<KindShape>>)]
    pub kinds: Option<Vec<SessionKind>>,
    /// A null leaves it to the settings.
    #[serde(default, deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<SpreadingShape>)]
    pub spreading: Option<Option<Spreading>>,
    /// A null leaves it to the site's rule.
    #[serde(default, deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<QueueOrderShape>)]
    pub order: Option<Option<QueueOrder>>,
    /// A null leaves it to the site's rule.
    #[serde(default, deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<BackfillModeShape>)]
    pub backfill: Option<Option<BackfillMode>>,
    /// At most two decimals.
    #[schema(value_type = Option<f64>, minimum = 1, maximum = 8)]
    pub cpu_overcommit: Option<CpuShare>,
    #[schema(value_type = Option<PreemptionShape>)]
    pub preemption: Option<PreemptionMode>,
}

/// The nodes that a group has from now on. Each leaves the group that it was in; those that are left out go to the
/// founding group. Of the founding group: nodes that come back to it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = ResourceGroupNodes)]
#[serde(deny_unknown_fields)]
pub struct GroupNodesBody {
    /// Names or ids.
    pub nodes: Vec<String>,
}

/// Who may use a group from now on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewResourceGroupAccess)]
#[serde(deny_unknown_fields)]
pub struct GroupAccessBody {
    /// Everybody may; the lists are empty then.
    #[serde(default)]
    pub everybody: bool,
    /// Names or ids.
    #[serde(default)]
    pub domains: Vec<String>,
    /// Ids, names or `DOMAIN/NAME`.
    #[serde(default)]
    pub projects: Vec<String>,
    /// Names or ids.
    #[serde(default)]
    pub users: Vec<String>,
}
