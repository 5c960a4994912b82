//! A launch with a network and three folders beside a launch without, in turns on one server.

use std::io;

use base::figures::{quantile, ratio};
use fardel::doors::bench::launches::{import, in_turns, usual};
use serde_json::{Value, json};

use super::member::Member;
use super::subject::BenchServer;
use super::tiny::Tiny;
use super::wire::Connection;

const FOLDERS: [&str; 3] = ["data", "models", "results"];
const POLICY: &str = "bench-network";

pub(super) fn mounted(count: usize) -> io::Result<Value> {
    let tiny = Tiny::make()?;
    let (subject, _) = BenchServer::fresh("mounts")?;
    let member = Member::first(&subject)?;
    let mut root = subject.local()?;
    import(&mut root, &tiny.archive())?;
    allow_target(&mut root, POLICY, "db=10.1.2.3:5432")?;
    for name in FOLDERS {
        member.folder(&subject, name)?;
    }
    let mut with = usual();
    with["network"] = json!("list");
    with["mounts"] = FOLDERS
        .iter()
        .map(|name| json!({"folder": name, "at": format!("/data/{name}")}))
        .collect();
    let mut local = member.local(&subject)?;
    let samples = in_turns(&mut local, &[usual(), with], count, &mut |_| Ok(()))?;
    let [without, with] = samples.as_slice() else {
        return Err(io::Error::other("two requests give two samples"));
    };
    let p50 = |samples: &[f64]| quantile(samples, 0.5);
    Ok(json!({
        "without": without.figure(),
        "with": with.figure(),
        "what": "the usual launch of a tiny image, and the same with network `list` and three folders, in turns",
        "p50_ratio": ratio(p50(&with.process), p50(&without.process)),
    }))
}

/// Lets sessions of the first administrator have a network with this target, by a policy of this name.
pub(super) fn allow_target(root: &mut Connection, policy: &str, target: &str) -> io::Result<()> {
    let egress = json!({"networks": ["none", "list"], "targets": [target]});
    root.post(
        "/api/v1/policies",
        &json!({"name": policy, "egress": egress}),
    )?
    .good("make a policy")?;
    // The name of the first administrator of a bench.
    let to = json!({"level": "user", "subject": "bench"}).to_string();
    let kind = "content-type: application/json\r\n";
    root.send("PUT", &format!("/api/v1/policies/{policy}/uses"), kind, &to)?
        .good("attach the policy")
        .map(drop)
}
