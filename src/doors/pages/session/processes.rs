//! The processes of a session that runs, as rows of a page. Asks the node each time; keeps nothing.

use rules::names::ContainerName;

use super::super::PagesContext;
use super::super::components;
use crate::doors::text::Text;

/// One process.
pub struct ProcessRow {
    pub pid: u32,
    pub name: String,
    pub state: &'static str,
    pub cpu: String,
    pub memory: String,
}

/// The processes inside, the largest memory first; none where the node cannot be asked.
pub(super) async fn rows(
    t: Text,
    console: &PagesContext,
    container: ContainerName,
) -> Vec<ProcessRow> {
    let Ok(all) = console.streams.processes(container).await else {
        return Vec::new();
    };
    all.into_iter()
        .map(|process| ProcessRow {
            pid: process.pid,
            name: process.name,
            state: match process.state {
                'R' => t.processes_runs(),
                'T' | 't' => t.processes_stopped(),
                'Z' | 'X' => t.processes_over(),
                _ => t.processes_waits(),
            },
            cpu: components::took(t, process.cpu_millis),
            memory: components::size(process.memory_bytes),
        })
        .collect()
}
