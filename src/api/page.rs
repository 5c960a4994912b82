//! One page of any list. Knows nothing of what is listed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListPage<T> {
    pub items: Vec<T>,
    /// Asks for the page after this one; null at the end.
    pub next_cursor: Option<String>,
    /// Items on all pages together; 10,000 stands for that many or more.
    pub estimated_total: u64,
}
