//! The commands on reservations.

use api::reservations::ReservationView;
use hyper::Method;
use rules::reservation::ReservationState;
use rules::units::{Bytes, CpuShare, GpuShare};
use serde_json::{Map, Value, json};

use super::args::{ReservationCommand, ReservationFlags};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print};

const PATH: &str = "/api/v1/reservations";

pub(super) async fn reservation(
    client: &HttpClient,
    view: &OutputStyle,
    request: ReservationCommand,
) -> Result<u8, CliError> {
    match request {
        ReservationCommand::Ls => {
            print(&view.list(&client.get(PATH).await?, columns::RESERVATIONS)?);
        }
        ReservationCommand::Get { reservation } => {
            let body = client.get(&path(&reservation)).await?;
            print(&view.one(&body, columns::RESERVATIONS)?);
        }
        ReservationCommand::Book {
            name,
            project,
            user,
            maintenance,
            flags,
        } => {
            if flags.from.is_none() || flags.to.is_none() {
                return Err(CliError::usage("Give --from and --to.".to_owned()));
            }
            let mut body = said(&flags, &Value::Null)?;
            body.insert("name".to_owned(), name.into());
            for (key, holder) in [("project", project), ("user", user)] {
                if let Some(holder) = holder {
                    body.insert(key.to_owned(), holder.into());
                }
            }
            if maintenance {
                body.insert("maintenance".to_owned(), true.into());
            }
            let made = client
                .send::<ReservationView>(PATH, &Value::Object(body))
                .await?;
            let name = made.read.name.as_str();
            let told = match made.read.state {
                ReservationState::Asked => format!("{name}  requested"),
                _ => name.to_owned(),
            };
            print(&view.said(&made.body, &told)?);
        }
        ReservationCommand::Change {
            reservation,
            name,
            flags,
        } => {
            let path = path(&reservation);
            let now = client.call(Method::GET, &path, Extra::default()).await?;
            let tag = now.header("etag").unwrap_or("*").to_owned();
            let mut patch = said(&flags, &now.json()?["resources"])?;
            if let Some(name) = name {
                patch.insert("name".to_owned(), name.into());
            }
            let body = Value::Object(patch);
            let mut extra = Extra::json(&body).header("If-Match", tag);
            extra.content_type = Some("application/merge-patch+json");
            let changed = client.call(Method::PATCH, &path, extra).await?;
            print(&view.one(&changed.json()?, columns::RESERVATIONS)?);
        }
        ReservationCommand::Cancel { reservations } => {
            for reservation in reservations {
                client
                    .call(Method::DELETE, &path(&reservation), Extra::default())
                    .await?;
                let told = format!("{reservation}  cancelled");
                print(&view.said(&json!({"name": reservation}), &told)?);
            }
        }
        ReservationCommand::Approve {
            reservations,
            reason,
        } => {
            let body = match reason {
                Some(reason) => json!({"reason": reason}),
                None => json!({}),
            };
            for reservation in reservations {
                let path = format!("{}/approve", path(&reservation));
                let booked = client.post(&path, &body).await?;
                let name = booked["name"].as_str().unwrap_or(&reservation);
                print(&view.said(&booked, &format!("{name}  booked"))?);
            }
        }
        ReservationCommand::Refuse {
            reservations,
            reason,
        } => {
            let body = json!({"reason": reason});
            for reservation in reservations {
                let path = format!("{}/refuse", path(&reservation));
                let refused = client.post(&path, &body).await?;
                let name = refused["name"].as_str().unwrap_or(&reservation);
                print(&view.said(&refused, &format!("{name}  refused"))?);
            }
        }
        ReservationCommand::Withdraw { reservations } => {
            for reservation in reservations {
                let path = format!("{}/withdraw", path(&reservation));
                let withdrawn = client.call(Method::POST, &path, Extra::default()).await?;
                let told = format!("{reservation}  withdrawn");
                print(&view.said(&withdrawn.json()?, &told)?);
            }
        }
    }
    Ok(0)
}

fn path(reservation: &str) -> String {
    format!("{PATH}/{}", encoded(reservation))
}

/// The fields that the flags name. `before`: the amounts that the reservation has now, since they are replaced as a
/// whole.
fn said(flags: &ReservationFlags, before: &Value) -> Result<Map<String, Value>, CliError> {
    let mut body = Map::new();
    for (name, text) in [
        ("from", &flags.from),
        ("to", &flags.to),
        ("time_zone", &flags.time_zone),
        ("before", &flags.before),
    ] {
        if let Some(text) = text {
            body.insert(name.to_owned(), text.clone().into());
        }
    }
    if let Some(repeats) = flags.repeats {
        body.insert("repeats".to_owned(), repeats.into());
    }
    if flags.skip_holidays {
        body.insert("skip_holidays".to_owned(), true.into());
    }
    let gpu = |text: &str| serde_json::to_value(GpuShare::parse(text).ok()?).ok();
    let cpu = |text: &str| serde_json::to_value(CpuShare::parse(text).ok()?).ok();
    let bytes = |text: &str| serde_json::to_value(Bytes::parse(text).ok()?).ok();
    type AmountReader<'a> = &'a dyn Fn(&str) -> Option<Value>;
    let all: [(&str, &Option<String>, AmountReader<'_>); 3] = [
        ("gpu", &flags.gpu, &gpu),
        ("cpu", &flags.cpu, &cpu),
        ("memory", &flags.mem, &bytes),
    ];
    let mut resources = before.as_object().cloned().unwrap_or_default();
    let mut any = false;
    for (name, text, reading) in all {
        let Some(text) = text else {
            continue;
        };
        let value = reading(text);
        let wrong = || CliError::usage(format!("{text} is no amount for {name}."));
        resources.insert(name.to_owned(), value.ok_or_else(wrong)?);
        any = true;
    }
    if any {
        body.insert("resources".to_owned(), Value::Object(resources));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_the_body_of_a_reservation() {
        let flags = ReservationFlags {
            from: Some("2026-12-01T09:00".to_owned()),
            gpu: Some("12".to_owned()),
            ..ReservationFlags::default()
        };
        let before = json!({"gpu": 4, "cpu": 8, "memory": 1024});
        let body = Value::Object(said(&flags, &before).expect("valid"));
        assert_eq!(
            body,
            json!({
                "from": "2026-12-01T09:00",
                "resources": {"gpu": 12, "cpu": 8, "memory": 1024},
            })
        );
        let wrong = ReservationFlags {
            gpu: Some("many".to_owned()),
            ..ReservationFlags::default()
        };
        assert!(said(&wrong, &Value::Null).is_err());
        let nothing = said(&ReservationFlags::default(), &before).expect("valid");
        assert!(nothing.is_empty(), "what is left out stays");
    }
}
