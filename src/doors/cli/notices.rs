//! The caller's notices from the command line: the list, and that they were read.

use api::notices::NoticeView;
use api::page::ListPage;
use serde_json::json;

use super::answer::Answer;
use super::client::HttpClient;
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, print};

pub(super) async fn notices(
    client: &HttpClient,
    view: &OutputStyle,
    read: bool,
) -> Result<u8, CliError> {
    let Answer { body, read: page } = client
        .read::<ListPage<NoticeView>>("/api/v1/me/notices")
        .await?;
    if view.for_humans() && page.items.is_empty() {
        complain("There are no notices.\n");
    } else {
        print(&view.list(&body, columns::NOTICES)?);
    }
    // Only what was shown, or nearly so, is read.
    if read {
        client.post("/api/v1/me/notices/read", &json!({})).await?;
    }
    Ok(0)
}
