//! Rows of presets. Decides nothing; which of several is meant, `rules::preset` says.

use rules::names::{PresetId, ResourceGroupId, TenantName};
use rules::permissions::Reach;
use rules::preset::{Preset, PresetScope};
use rules::tenancy::{DomainId, ProjectId};
use rusqlite::{OptionalExtension as _, Params, Row};
use uuid::Uuid;

use super::reach::{ReachedTable, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One preset, and the names of its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresetRecord {
    pub(crate) preset: Preset,
    /// None for one of the site.
    pub(crate) domain_name: Option<String>,
    /// None for one of the site or a domain.
    pub(crate) project_name: Option<String>,
    /// None for one of any resource group.
    pub(crate) group_name: Option<String>,
}

/// The members of a project reach its presets by their grants.
const PRESET: ReachedTable = ReachedTable {
    owner: "null",
    has_domain: true,
    project: Some("project"),
};

fn preset_row(row: &Row<'_>) -> rusqlite::Result<PresetRecord> {
    let domain = value::id_or_none(row, "domain")?.map(DomainId);
    let project = value::id_or_none(row, "project")?.map(ProjectId);
    Ok(PresetRecord {
        preset: Preset {
            id: PresetId(value::id(row, "id")?),
            scope: match (domain, project) {
                (Some(domain), Some(project)) => PresetScope::Project { domain, project },
                (Some(domain), None) => PresetScope::Domain(domain),
                (None, _) => PresetScope::Site,
            },
            name: value::word(row, "name", |text| TenantName::parse(text).ok())?,
            title: row.get("title")?,
            title_ko: row.get("title_ko")?,
            amounts: value::json(row, "amounts")?,
            group: value::id_or_none(row, "resource_group")?.map(ResourceGroupId),
            position: row.get("position")?,
            is_default: row.get("is_default")?,
            generation: value::unsigned(row, "generation")?,
        },
        domain_name: row.get("domain_name")?,
        project_name: row.get("project_name")?,
        group_name: row.get("group_name")?,
    })
}

/// The key of the index on scope and name.
fn key(scope: PresetScope) -> Vec<u8> {
    let (domain, project) = scope.parts();
    let id = project.map(|id| id.0).or(domain.map(|id| id.0));
    id.map_or_else(Vec::new, |id: Uuid| id.as_bytes().to_vec())
}

impl ReadTransaction<'_> {
    fn presets_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<PresetRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select preset.*, domain.name as domain_name, project.name as project_name,
                    resource_group.name as group_name
             from (select * from preset where {condition}) as preset
             left join domain on domain.id = preset.domain
             left join project on project.id = preset.project
             left join resource_group on resource_group.id = preset.resource_group
             order by preset.domain is not null, domain.name, preset.project is not null, project.name,
                      preset.position, preset.name"
        ))?;
        let rows = statement.query_map(values, preset_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The presets of the site, of the reader's home domain and of everything in reach: the site's first, then by domain
    /// and project, each by position and name. O(presets).
    pub(crate) fn presets(
        &self,
        reach: &Reach,
        home: DomainId,
    ) -> Result<Vec<PresetRecord>, Failure> {
        let (reached, value) = condition(reach, PRESET, "?1");
        self.presets_where(
            &format!("project is null and (domain is null or domain = ?2) or {reached}"),
            (value, home.0.as_bytes()),
        )
    }

    /// The presets that a launch in the project may name, also those that a narrower one of the same name hides. Costs
    /// three ranges of an index.
    pub(crate) fn presets_for(
        &self,
        domain: DomainId,
        project: ProjectId,
    ) -> Result<Vec<PresetRecord>, Failure> {
        self.presets_where(
            "coalesce(project, domain, x'') in (?1, ?2, x'')",
            [project.0.as_bytes(), domain.0.as_bytes()],
        )
    }

    /// The presets of one scope alone. Costs one range of an index.
    pub(crate) fn presets_of(&self, scope: PresetScope) -> Result<Vec<PresetRecord>, Failure> {
        self.presets_where("coalesce(project, domain, x'') = ?1", [key(scope)])
    }

    pub(crate) fn preset(&self, id: PresetId) -> Result<Option<PresetRecord>, Failure> {
        let found = self.presets_where("id = ?1", [id.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    /// Whether another preset of the scope has the name.
    pub(crate) fn preset_name_taken(&self, preset: &Preset) -> Result<bool, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select 1
                 from preset
                 where coalesce(project, domain, x'') = ?1 and name = ?2 and id <> ?3",
            )?
            .query_row(
                (
                    key(preset.scope),
                    preset.name.as_str(),
                    preset.id.0.as_bytes(),
                ),
                |_| Ok(()),
            )
            .optional()?;
        Ok(found.is_some())
    }
}

impl Rows<'_> {
    pub(crate) fn insert_preset(&self, preset: &Preset) -> Result<(), Failure> {
        let (domain, project) = preset.scope.parts();
        self.connection
            .prepare_cached(
                "insert into preset
                     (id, domain, project, name, title, title_ko, amounts, position, is_default,
                      generation, resource_group)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute((
                preset.id.0.as_bytes(),
                domain.map(|id| *id.0.as_bytes()),
                project.map(|id| *id.0.as_bytes()),
                preset.name.as_str(),
                &preset.title,
                &preset.title_ko,
                value::text(&preset.amounts),
                preset.position,
                preset.is_default,
                value::signed(preset.generation),
                preset.group.map(|group| *group.0.as_bytes()),
            ))?;
        Ok(())
    }

    /// Writes all but the scope; raises the generation.
    pub(crate) fn put_preset(&self, preset: &Preset) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update preset
                 set name = ?2, title = ?3, title_ko = ?4, amounts = ?5, position = ?6,
                     is_default = ?7, resource_group = ?8, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                preset.id.0.as_bytes(),
                preset.name.as_str(),
                &preset.title,
                &preset.title_ko,
                value::text(&preset.amounts),
                preset.position,
                preset.is_default,
                preset.group.map(|group| *group.0.as_bytes()),
            ))?;
        Ok(())
    }

    /// Takes the mark of the default from the others of the scope.
    pub(crate) fn only_default_preset(&self, preset: &Preset) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update preset
                 set is_default = 0, generation = generation + 1
                 where coalesce(project, domain, x'') = ?1 and id <> ?2 and is_default = 1",
            )?
            .execute((key(preset.scope), preset.id.0.as_bytes()))?;
        Ok(())
    }

    pub(crate) fn forget_preset(&self, id: PresetId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from preset where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
