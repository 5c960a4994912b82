//! Resource groups: nodes that serve sessions of their own, and who may use them.

use rules::names::TenantName;
use rules::policy::{PreemptionMode, Spreading};
use rules::resource_group::ResourceGroup;
use rules::session::SessionKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::{KindShape, PreemptionShape, SpreadingShape};

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

/// What is left out: both kinds, spread as the settings say, without preemption, used by everybody, without nodes.
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
