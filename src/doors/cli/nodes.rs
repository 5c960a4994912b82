//! Nodes from the command line: the list, one with what its kernel says, maintenance.

use api::nodes::{MachineFacts, NodeDetail, NodeView};
use api::page::ListPage;
use serde_json::json;

use super::answer::Answer;
use super::args::{MaintenanceState, NodeCommand};
use super::client::{HttpClient, encoded};
use super::error::CliError;
use super::output::{OutputStyle, age, dash, span};
use super::{columns, print};

pub(super) async fn node(
    client: &HttpClient,
    view: &OutputStyle,
    request: NodeCommand,
) -> Result<u8, CliError> {
    match request {
        NodeCommand::Ls => {
            let body = client.get("/api/v1/nodes").await?;
            print(&view.list(&body, columns::NODES)?);
        }
        NodeCommand::Get { node } => {
            let path = path(&named(client, node).await?);
            let Answer { body, read } = client.read::<NodeDetail>(&path).await?;
            print(&view.said(&body, &shown(&read, view))?);
        }
        NodeCommand::Maintenance {
            state,
            node,
            message,
        } => {
            let path = format!("{}/maintenance", path(&named(client, node).await?));
            let wanted = json!({"maintenance": state == MaintenanceState::On, "message": message});
            let Answer { body, read } = client.send::<NodeView>(&path, &wanted).await?;
            let mut line = format!("{}  {}", read.name, read.state.word());
            if !read.message.is_empty() {
                line.push_str(&format!("  {}", read.message));
            }
            print(&view.said(&body, &line)?);
        }
    }
    Ok(0)
}

fn path(name: &str) -> String {
    format!("/api/v1/nodes/{}", encoded(name))
}

/// The node that was named, or the only one there is.
async fn named(client: &HttpClient, node: Option<String>) -> Result<String, CliError> {
    if let Some(name) = node {
        return Ok(name);
    }
    let all = client.read::<ListPage<NodeView>>("/api/v1/nodes").await?;
    match all.read.items.as_slice() {
        [one] => Ok(one.name.clone()),
        several => {
            let names: Vec<&str> = several.iter().map(|node| node.name.as_str()).collect();
            let text = format!("There are {} nodes: name one.", names.len());
            Err(CliError::usage(text).hint(names.join(", ")))
        }
    }
}

fn shown(detail: &NodeDetail, view: &OutputStyle) -> String {
    let node = &detail.node;
    let mut lines = format!("{}  {}", node.name, node.state.word());
    let mut say = |name: &str, value: String| {
        lines.push_str(&format!("\n  {name:<9} {value}"));
    };
    if node.maintenance {
        say("message", dash(&node.message));
    }
    for problem in &node.problems {
        say("problem", problem.text.clone());
    }
    say("cpu", columns::cpu_of(node));
    say("memory", format!("{} of {}", node.memory_used, node.memory));
    say("gpus", columns::gpus_of(node));
    say("sessions", node.sessions.to_string());
    say("reported", format!("{} ago", age(node.seen_at, view.now)));
    if let Some(facts) = &detail.facts {
        for (name, value) in kernel(facts) {
            say(name, value);
        }
    }
    lines
}

/// What the kernel says, line by line.
fn kernel(facts: &MachineFacts) -> Vec<(&'static str, String)> {
    let figures = |all: &[f64], decimals: usize| {
        let all = all.iter().map(|one| format!("{one:.decimals$}"));
        all.collect::<Vec<_>>().join(" ")
    };
    let mut lines = vec![
        ("kernel", dash(&facts.kernel)),
        ("processor", dash(&facts.processor)),
        ("up", span(facts.up_seconds)),
        ("load", dash(&figures(&facts.load, 2))),
    ];
    lines.extend(facts.pressure.iter().map(|one| {
        let some = figures(&one.some, 1);
        ("pressure", format!("{}: {some} %", one.of))
    }));
    lines.extend(facts.disks.iter().map(|one| {
        let bytes = rules::units::Bytes;
        let state = if one.holds_state {
            ", holds the state"
        } else {
            ""
        };
        let (free, all) = (bytes(one.free), bytes(one.bytes));
        (
            "disk",
            format!("{}: {free} free of {all}{state}", one.place),
        )
    }));
    lines.extend(facts.networks.iter().map(|one| {
        let speed = one
            .megabits
            .map_or(String::new(), |speed| format!(", {speed} Mbit/s"));
        let errors = match one.errors {
            0 => String::new(),
            errors => format!(", {errors} errors"),
        };
        (
            "network",
            format!("{}: {}{speed}{errors}", one.name, one.state),
        )
    }));
    lines.extend(facts.heat.iter().map(|one| {
        let most = one
            .critical
            .map_or(String::new(), |most| format!(" of {most:.0} °C"));
        ("heat", format!("{}: {:.0} °C{most}", one.name, one.celsius))
    }));
    lines
}
