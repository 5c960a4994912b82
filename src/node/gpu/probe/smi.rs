//! What `nvidia-smi` prints, for machines on which the helper cannot run: fewer things, and slower.
//! Reads tables only; a value that is not a number is not known.

use std::path::Path;
use std::time::Duration;

use super::child::Child;
use super::{CardTold, DriverReport, FigureTold, number_of};
use crate::gpu::watchdog::ProcessMemory;

const MIB: u64 = 1 << 20;

/// The program said nothing that can be read, or nothing in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

const CARDS: &str = "--query-gpu=uuid,name,pci.bus_id,memory.total,mig.mode.current,\
    ecc.errors.uncorrected.volatile.total";
const FIGURES: &str = "--query-gpu=uuid,memory.used,utilization.gpu,temperature.gpu,power.draw";
const HELD: &str = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory";

pub(super) fn cards(program: &Path, patience: Duration) -> Result<DriverReport, Unreadable> {
    Ok(DriverReport {
        cards: read_cards(&printed(program, CARDS, patience)?)?,
        faults: Vec::new(),
        // It prints, and sets nothing.
        limits: false,
    })
}

pub(super) fn figures(program: &Path, patience: Duration) -> Result<Vec<FigureTold>, Unreadable> {
    read_figures(&printed(program, FIGURES, patience)?)
}

pub(super) fn held(program: &Path, patience: Duration) -> Result<Vec<ProcessMemory>, Unreadable> {
    read_held(&printed(program, HELD, patience)?)
}

fn printed(program: &Path, query: &str, patience: Duration) -> Result<String, Unreadable> {
    let arguments = [query.as_ref(), "--format=csv,noheader,nounits".as_ref()];
    let mut child = Child::start(program.as_os_str(), &arguments).map_err(|_| Unreadable)?;
    let printed = child.all(patience);
    child.kill();
    let printed = printed.map_err(|_| Unreadable)?;
    String::from_utf8(printed).map_err(|_| Unreadable)
}

/// The rows of a table with so many columns; none where a row has more or fewer.
fn rows<const COLUMNS: usize>(text: &str) -> Result<Vec<[&str; COLUMNS]>, Unreadable> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let columns: Vec<&str> = line.split(',').map(str::trim).collect();
            <[&str; COLUMNS]>::try_from(columns).map_err(|_| Unreadable)
        })
        .collect()
}

fn read_cards(text: &str) -> Result<Vec<CardTold>, Unreadable> {
    let cards = rows::<6>(text)?.into_iter().map(|row| {
        let [uuid, model, pci, memory, partitioned, errors] = row;
        number_of(uuid).ok_or(Unreadable)?;
        Ok(CardTold {
            uuid: Some(uuid.to_owned()),
            model: Some(model.to_owned()),
            pci: Some(pci.to_owned()),
            memory: memory.parse::<u64>().ok().map(|mib| mib * MIB),
            // It prints no partitions in a table: a card that is cut has none that anybody could be given.
            parts: (partitioned == "Enabled").then(Vec::new),
            uncorrected_errors: errors.parse().ok(),
            ..CardTold::default()
        })
    });
    cards.collect()
}

fn read_figures(text: &str) -> Result<Vec<FigureTold>, Unreadable> {
    let figures = rows::<5>(text)?.into_iter().map(|row| {
        let [uuid, memory, busy, celsius, watts] = row;
        number_of(uuid).ok_or(Unreadable)?;
        // 310.52; never more than a few kilowatts.
        let milliwatts = watts.split_once('.').map_or_else(
            || watts.parse::<u32>().ok()?.checked_mul(1000),
            |(whole, part)| {
                let part: u32 = format!("{part:0<3}").get(..3)?.parse().ok()?;
                whole
                    .parse::<u32>()
                    .ok()?
                    .checked_mul(1000)?
                    .checked_add(part)
            },
        );
        Ok(FigureTold {
            error: None,
            uuid: Some(uuid.to_owned()),
            memory: memory.parse::<u64>().ok().map(|mib| mib * MIB),
            busy: busy.parse().ok(),
            celsius: celsius.parse().ok(),
            milliwatts,
        })
    });
    figures.collect()
}

fn read_held(text: &str) -> Result<Vec<ProcessMemory>, Unreadable> {
    let held = rows::<3>(text)?.into_iter().map(|[uuid, pid, memory]| {
        Ok(ProcessMemory {
            pid: pid.parse().map_err(|_| Unreadable)?,
            device: number_of(uuid).ok_or(Unreadable)?,
            bytes: memory.parse::<u64>().map_err(|_| Unreadable)? * MIB,
        })
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "GPU-00112233-4455-6677-8899-aabbccddeeff";

    #[test]
    fn tables_are_read_and_what_is_no_number_is_not_known() {
        let text = format!(
            "{NAME}, NVIDIA H200, 00000000:41:00.0, 143771, Disabled, 0\n\
             {NAME}, NVIDIA T4, 00000000:42:00.0, [N/A], [N/A], [N/A]\n"
        );
        let cards = read_cards(&text).expect("a table");
        assert_eq!(cards.len(), 2);
        assert_eq!(cards[0].memory, Some(143_771 * MIB));
        assert_eq!(cards[0].uncorrected_errors, Some(0));
        assert_eq!((cards[0].parts.clone(), cards[1].memory), (None, None));
        let partitioned = read_cards(&format!(
            "{NAME}, NVIDIA A100, 0:1:0.0, 81920, Enabled, 0\n"
        ));
        assert_eq!(partitioned.expect("a table")[0].parts, Some(Vec::new()));
        let figures = read_figures(&format!("{NAME}, 3712, 97, 61, 310.5\n")).expect("a table");
        assert_eq!(figures[0].memory, Some(3712 * MIB));
        assert_eq!(figures[0].milliwatts, Some(310_500));
        let held = read_held(&format!("{NAME}, 4711, 704\n\n")).expect("a table");
        assert_eq!((held[0].pid, held[0].bytes), (4711, 704 * MIB));
        assert_eq!(read_held("").expect("nobody holds anything"), []);
    }

    #[test]
    fn what_is_no_table_is_not_believed() {
        for text in [
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "No devices were found",
            "GPU-1, NVIDIA H200, 0, 1, Disabled, 0",
            &format!("{NAME}, NVIDIA H200"),
        ] {
            assert_eq!(read_cards(text).err(), Some(Unreadable), "{text}");
            assert_eq!(read_figures(text).err(), Some(Unreadable), "{text}");
            assert_eq!(read_held(text).err(), Some(Unreadable), "{text}");
        }
        // Half a list of who holds what would clear the other half.
        let half = format!("{NAME}, 1, 704\n{NAME}, 2, [N/A]\n");
        assert_eq!(read_held(&half).err(), Some(Unreadable));
    }
}
