//! The commands on courses.

use api::courses::{CourseActView, CourseView};
use api::reservations::{ReservationView, ReservedResources};
use hyper::Method;
use rules::refusal::Refusal;
use rules::units::{Bytes, CpuShare, GpuShare};
use serde_json::{Map, Value, json};

use super::args::{CourseCommand, CourseFlags};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, print, values};

const PATH: &str = "/api/v1/courses";

pub(super) async fn course(
    client: &HttpClient,
    view: &OutputStyle,
    request: CourseCommand,
) -> Result<u8, CliError> {
    match request {
        CourseCommand::Ls => {
            print(&view.list(&client.get(PATH).await?, columns::COURSES)?);
        }
        CourseCommand::Get { course } => {
            let body = client.get(&path(&course)).await?;
            print(&view.one(&body, columns::COURSES)?);
        }
        CourseCommand::Create {
            name,
            project,
            flags,
        } => {
            if flags.from.is_none() || flags.to.is_none() {
                return Err(CliError::usage("Give --from and --to.".to_owned()));
            }
            let mut body = said(&flags)?;
            body.insert("name".to_owned(), name.into());
            body.insert("project".to_owned(), project.into());
            let made = client
                .send::<CourseView>(PATH, &Value::Object(body))
                .await?;
            let told = format!("{}  draft", made.read.name);
            print(&view.said(&made.body, &told)?);
        }
        CourseCommand::Edit {
            course,
            name,
            flags,
        } => {
            let mut patch = said(&flags)?;
            if let Some(name) = name {
                patch.insert("name".to_owned(), name.into());
            }
            change(client, view, &course, patch).await?;
        }
        CourseCommand::Open { course, to } => {
            let mut patch = Map::new();
            patch.insert("state".to_owned(), "open".into());
            if let Some(to) = to {
                patch.insert("to".to_owned(), to.into());
            }
            change(client, view, &course, patch).await?;
        }
        CourseCommand::End { course } => {
            let patch = Map::from_iter([("state".to_owned(), "closed".into())]);
            change(client, view, &course, patch).await?;
        }
        CourseCommand::Archive { course } => {
            let patch = Map::from_iter([("state".to_owned(), "archived".into())]);
            change(client, view, &course, patch).await?;
        }
        CourseCommand::Rm { courses } => {
            for course in courses {
                client
                    .call(Method::DELETE, &path(&course), Extra::default())
                    .await?;
                print(&view.said(&json!({"name": course}), &format!("{course}  removed"))?);
            }
        }
        CourseCommand::Members { course } => {
            let body = client.get(&format!("{}/members", path(&course))).await?;
            print(&view.list(&body, columns::COURSE_MEMBERS)?);
        }
        CourseCommand::Attendance { course } => {
            let body = client.get(&format!("{}/attendance", path(&course))).await?;
            print(&view.list(&body, columns::ATTENDANCE)?);
        }
        CourseCommand::Start {
            course,
            users,
            dry_run,
        } => {
            let mut body = of(users);
            body.insert("dry_run".to_owned(), dry_run.into());
            let word = if dry_run { "would start" } else { "started" };
            return act(client, view, (&course, "start"), body, word).await;
        }
        CourseCommand::Stop { course, users } => {
            return act(client, view, (&course, "stop"), of(users), "stopped").await;
        }
        CourseCommand::Extend {
            course,
            users,
            minutes,
        } => {
            let mut body = of(users);
            body.insert("minutes".to_owned(), minutes.into());
            return act(client, view, (&course, "extend"), body, "extended").await;
        }
        CourseCommand::Message {
            course,
            text,
            users,
        } => {
            let mut body = of(users);
            body.insert("text".to_owned(), text.into());
            return act(client, view, (&course, "message"), body, "told").await;
        }
        CourseCommand::HandOut { course, folder } => {
            let place = format!("{}/hand-out", path(&course));
            let body = json!({"folder": folder});
            let made = client.send::<Value>(&place, &body).await?;
            print(&view.said(&made.body, &format!("{folder}  handed out"))?);
        }
        CourseCommand::Timetable { course } => {
            let body = client.get(&format!("{}/timetable", path(&course))).await?;
            print(&view.list(&body, columns::RESERVATIONS)?);
        }
        CourseCommand::Book {
            course,
            day,
            from,
            to,
            gpu,
            cpu,
            mem,
            skip_holidays,
        } => {
            let resources = amounts(gpu.as_deref(), cpu.as_deref(), mem.as_deref())?;
            let body = json!({
                "day": day, "from": from, "to": to, "resources": resources,
                "skip_holidays": skip_holidays,
            });
            let place = format!("{}/timetable", path(&course));
            let booked = client.send::<ReservationView>(&place, &body).await?;
            let (name, weeks) = (&booked.read.name, booked.read.times.len());
            let state = booked.read.state.word();
            print(&view.said(&booked.body, &format!("{name}  {state}, {weeks} weeks"))?);
        }
    }
    Ok(0)
}

/// Amounts as the API takes them; what is left out is none.
fn amounts(gpu: Option<&str>, cpu: Option<&str>, mem: Option<&str>) -> Result<Value, CliError> {
    let gpu = gpu.map(GpuShare::parse).transpose();
    let cpu = cpu.map(CpuShare::parse).transpose();
    let memory = mem.map(Bytes::parse).transpose();
    let wrong = |refusal: Refusal| CliError::usage(refusal.text);
    let amounts = ReservedResources {
        gpu: gpu.map_err(wrong)?.unwrap_or_default(),
        cpu: cpu.map_err(wrong)?.unwrap_or_default(),
        memory: memory.map_err(wrong)?.unwrap_or_default(),
    };
    Ok(json!(amounts))
}

fn path(course: &str) -> String {
    format!("{PATH}/{}", encoded(course))
}

/// Whom an act is on; all where no user is named.
fn of(users: Vec<String>) -> Map<String, Value> {
    let mut body = Map::new();
    if !users.is_empty() {
        body.insert("users".to_owned(), users.into());
    }
    body
}

async fn change(
    client: &HttpClient,
    view: &OutputStyle,
    course: &str,
    patch: Map<String, Value>,
) -> Result<(), CliError> {
    let path = path(course);
    let now = client.call(Method::GET, &path, Extra::default()).await?;
    let tag = now.header("etag").unwrap_or("*").to_owned();
    let body = Value::Object(patch);
    let mut extra = Extra::json(&body).header("If-Match", tag);
    extra.content_type = Some("application/merge-patch+json");
    let changed = client.call(Method::PATCH, &path, extra).await?;
    print(&view.one(&changed.json()?, columns::COURSES)?);
    Ok(())
}

/// Does it, says how many, and names those for whom it was refused; 1 where there are any.
async fn act(
    client: &HttpClient,
    view: &OutputStyle,
    (course, verb): (&str, &str),
    body: Map<String, Value>,
    word: &str,
) -> Result<u8, CliError> {
    let path = format!("{}/{verb}", path(course));
    let done = client
        .send::<CourseActView>(&path, &Value::Object(body))
        .await?;
    print(&view.said(&done.body, &told(&done.read, word))?);
    if view.for_humans() {
        for one in &done.read.refused {
            complain(&format!("{}: {}\n", one.user, one.why.text));
        }
    }
    Ok(u8::from(!done.read.refused.is_empty()))
}

/// `102 started, 98 wait, 1 skipped, 2 left, 1 refused`; only what there is.
fn told(act: &CourseActView, word: &str) -> String {
    let mut all = vec![format!("{} {word}", act.done)];
    let refused = act.refused.len() as u64;
    for (number, what) in [
        (act.waiting, "wait"),
        (act.skipped, "skipped"),
        (act.left, "left"),
        (refused, "refused"),
    ] {
        if number > 0 {
            all.push(format!("{number} {what}"));
        }
    }
    all.join(", ")
}

/// The fields that the flags name.
fn said(flags: &CourseFlags) -> Result<Map<String, Value>, CliError> {
    let mut body = Map::new();
    for (name, text) in [
        ("from", &flags.from),
        ("to", &flags.to),
        ("time_zone", &flags.time_zone),
        ("title", &flags.title),
        ("image", &flags.image),
        ("rules", &flags.rules),
    ] {
        if let Some(text) = text {
            body.insert(name.to_owned(), text.clone().into());
        }
    }
    if let Some(preset) = &flags.preset {
        let preset = match preset.as_str() {
            "none" => "",
            name => name,
        };
        body.insert("preset".to_owned(), preset.into());
    }
    if let Some(limit) = &flags.max_runtime {
        let limit = match limit.as_str() {
            "none" => Value::Null,
            text => values::seconds(text)?.into(),
        };
        body.insert("max_runtime_seconds".to_owned(), limit);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_the_body_of_a_course() {
        let flags = CourseFlags {
            to: Some("2027-06-18T18:00".to_owned()),
            max_runtime: Some("3h".to_owned()),
            preset: Some("none".to_owned()),
            ..CourseFlags::default()
        };
        let body = Value::Object(said(&flags).expect("valid"));
        assert_eq!(
            body,
            json!({"to": "2027-06-18T18:00", "preset": "", "max_runtime_seconds": 10_800})
        );
        let wrong = CourseFlags {
            max_runtime: Some("soon".to_owned()),
            ..CourseFlags::default()
        };
        assert!(said(&wrong).is_err());
        let nothing = said(&CourseFlags::default()).expect("valid");
        assert!(nothing.is_empty(), "what is left out stays");
    }

    #[test]
    fn an_act_says_only_what_there_is() {
        let act = CourseActView {
            done: 102,
            waiting: 98,
            ..CourseActView::default()
        };
        assert_eq!(told(&act, "started"), "102 started, 98 wait");
        assert_eq!(told(&CourseActView::default(), "stopped"), "0 stopped");
    }
}
