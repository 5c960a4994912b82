//! The commands on days off.

use std::path::Path;

use api::holidays::HolidayCalendarView;
use hyper::Method;
use rules::holiday::{CalendarDay, Holidays, MAX_HOLIDAY_LIST, read_list, told};
use serde_json::json;

use super::args::HolidayCommand;
use super::client::{Extra, HttpClient};
use super::error::CliError;
use super::output::OutputStyle;
use super::print;

const PATH: &str = "/api/v1/holidays";

pub(super) async fn holiday(
    client: &HttpClient,
    view: &OutputStyle,
    request: HolidayCommand,
) -> Result<u8, CliError> {
    match request {
        HolidayCommand::Ls { domain } => {
            let calendar = read(client, domain.as_deref()).await?;
            let body = serde_json::to_value(&calendar).unwrap_or_default();
            print(&view.said(&body, told(&days_of(&calendar)).trim_end())?);
        }
        HolidayCommand::Import {
            file,
            replace,
            domain,
        } => {
            let fresh = read_list(&text_of(&file)?);
            let fresh =
                fresh.map_err(|refusal| CliError::usage(refusal.text).hint(refusal.hint))?;
            let calendar = read(client, domain.as_deref()).await?;
            let mut days = match replace {
                true => Holidays::new(),
                false => days_of(&calendar),
            };
            days.extend(fresh);
            put(client, view, &calendar, &days).await?;
        }
        HolidayCommand::Rm { days, domain } => {
            let calendar = read(client, domain.as_deref()).await?;
            let mut left = days_of(&calendar);
            for day in days {
                let known = CalendarDay::parse(&day).and_then(|day| left.remove(&day));
                if known.is_none() {
                    return Err(CliError::usage(format!("{day} is no holiday there.")));
                }
            }
            put(client, view, &calendar, &left).await?;
        }
    }
    Ok(0)
}

/// The calendar of a domain, or of the site.
async fn read(client: &HttpClient, domain: Option<&str>) -> Result<HolidayCalendarView, CliError> {
    let body = client.get(PATH).await?;
    let all: Vec<HolidayCalendarView> =
        serde_json::from_value(body["items"].clone()).unwrap_or_default();
    let mut all = all.into_iter();
    let found = all.find(|one| one.domain.as_deref() == domain);
    found.ok_or_else(|| CliError::usage("There is no such calendar.".to_owned()))
}

fn days_of(calendar: &HolidayCalendarView) -> Holidays {
    let days = calendar.days.iter();
    days.filter_map(|one| Some((CalendarDay::parse(&one.day)?, one.name.clone())))
        .collect()
}

async fn put(
    client: &HttpClient,
    view: &OutputStyle,
    seen: &HolidayCalendarView,
    days: &Holidays,
) -> Result<(), CliError> {
    let body = json!({"domain": seen.domain, "list": told(days)});
    let extra = Extra::json(&body).header("If-Match", format!("\"{}\"", seen.generation));
    let changed = client.call(Method::PUT, PATH, extra).await?;
    let said = format!("{} days", days.len());
    print(&view.said(&changed.json()?, &said)?);
    Ok(())
}

fn text_of(file: &Path) -> Result<String, CliError> {
    let shown = file.display();
    let wrong = |error| CliError::usage(format!("{shown}: {error}"));
    let size = std::fs::metadata(file).map_err(wrong)?.len();
    if size > MAX_HOLIDAY_LIST as u64 {
        let most = MAX_HOLIDAY_LIST >> 10;
        return Err(CliError::usage(format!(
            "{shown} is larger than {most} KiB."
        )));
    }
    std::fs::read_to_string(file).map_err(|error| CliError::usage(format!("{shown}: {error}")))
}
