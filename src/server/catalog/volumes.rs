//! Rows of volumes. Decides nothing; who makes folders on one, `rules::volume` says.

use rules::names::{TenantName, VolumeId};
use rules::units::Bytes;
use rules::volume::{MappedUser, Volume, VolumeAccess};
use rusqlite::{Params, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::{Failure, ServerFault};

/// One volume, and how many folders lie on it, those in the trash included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeRecord {
    pub(crate) volume: Volume,
    pub(crate) folders: u64,
}

fn volume_row(row: &Row<'_>) -> rusqlite::Result<VolumeRecord> {
    Ok(VolumeRecord {
        volume: Volume {
            id: VolumeId(value::id(row, "id")?),
            name: value::word(row, "name", |text| TenantName::parse(text).ok())?,
            path: row.get("path")?,
            access: value::json(row, "access")?,
            mapped: mapped_row(row)?,
            folder_limit: limit_row(row)?,
            created_at: value::time(row, "created_at")?,
            generation: value::unsigned(row, "generation")?,
        },
        folders: value::unsigned(row, "folders")?,
    })
}

fn mapped_row(row: &Row<'_>) -> rusqlite::Result<Option<MappedUser>> {
    let (uid, gid): (Option<u32>, Option<u32>) = (row.get("mapped_uid")?, row.get("mapped_gid")?);
    Ok(uid.zip(gid).map(|(uid, gid)| MappedUser { uid, gid }))
}

fn limit_row(row: &Row<'_>) -> rusqlite::Result<Option<Bytes>> {
    let bytes: Option<i64> = row.get("folder_limit")?;
    Ok(bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes))
}

fn written(access: &VolumeAccess) -> Result<String, Failure> {
    let text = serde_json::to_string(access);
    text.map_err(|error| ServerFault::new("write down who uses a volume", error).into())
}

impl ReadTransaction<'_> {
    fn volumes_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<VolumeRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select volume.*,
                 (select count(*) from folder where folder.volume = volume.id) as folders
             from volume
             where {condition}
             order by volume.name"
        ))?;
        let rows = statement.query_map(values, volume_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// All volumes, by name. Costs one range of an index for each.
    pub(crate) fn volumes(&self) -> Result<Vec<VolumeRecord>, Failure> {
        self.volumes_where("true", [])
    }

    pub(crate) fn volume(&self, id: VolumeId) -> Result<Option<VolumeRecord>, Failure> {
        let found = self.volumes_where("volume.id = ?1", [id.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    pub(crate) fn volume_named(&self, name: &str) -> Result<Option<VolumeRecord>, Failure> {
        let found = self.volumes_where("volume.name = ?1", [name])?;
        Ok(found.into_iter().next())
    }
}

impl Rows<'_> {
    pub(crate) fn insert_volume(&self, one: &Volume) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into volume
                     (id, name, path, access, created_at, generation, mapped_uid, mapped_gid, folder_limit)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                one.id.0.as_bytes(),
                one.name.as_str(),
                &one.path,
                written(&one.access)?,
                one.created_at.as_millis(),
                value::signed(one.generation),
                one.mapped.map(|user| user.uid),
                one.mapped.map(|user| user.gid),
                one.folder_limit.map(|limit| value::signed(limit.0)),
            ))?;
        Ok(())
    }

    /// Writes name, path, who uses it and the limit of new folders; raises the generation.
    pub(crate) fn put_volume(&self, one: &Volume) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update volume
                 set name = ?2, path = ?3, access = ?4, folder_limit = ?5, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                one.id.0.as_bytes(),
                one.name.as_str(),
                &one.path,
                written(&one.access)?,
                one.folder_limit.map(|limit| value::signed(limit.0)),
            ))?;
        Ok(())
    }

    pub(crate) fn forget_volume(&self, id: VolumeId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from volume where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
