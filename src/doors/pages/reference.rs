//! `/api/docs`: every operation of the REST API as a page, and every schema, made from the table and the document the
//! API itself is made from. Both are handed in where the doors are joined; this page never asks the API.

mod korean;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusals;
use serde_json::Value;

use super::authentication::PageCaller;
use super::components;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Language, Text};

/// All there is to know of the API.
#[derive(Clone, Debug, Default)]
pub struct ApiReference {
    pub groups: Vec<OperationGroup>,
    pub schemas: Vec<SchemaEntry>,
}

impl ApiReference {
    fn schema(&self, name: &str) -> Option<&SchemaEntry> {
        self.schemas.iter().find(|schema| schema.name == name)
    }
}

/// Operations of one noun.
#[derive(Clone, Debug)]
pub struct OperationGroup {
    pub name: String,
    pub operations: Vec<OperationEntry>,
}

impl OperationGroup {
    /// The noun as a heading.
    fn title(&self, t: &Text) -> &str {
        match self.name.as_str() {
            "apps" => t.apps_title(),
            "folders" => t.folders_title(),
            "gpus" => t.nav_gpus(),
            "images" => t.nav_images(),
            "sessions" => t.nav_sessions(),
            "streams" => t.api_streams(),
            "system" => t.nav_system(),
            "tenancy" => t.api_tenancy(),
            "users" => t.nav_users(),
            name => name,
        }
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub struct OperationEntry {
    /// Its name in generated clients; also its anchor.
    pub name: &'static str,
    pub method: &'static str,
    pub path: &'static str,
    pub summary: &'static str,
    /// The scope a token needs; empty where none is.
    pub scope: String,
    /// Words of the query with what they mean.
    pub query: Vec<(&'static str, &'static str)>,
    /// Name of the body's schema; empty where there is none.
    pub body: &'static str,
    pub answer: Vec<AnswerKind>,
    pub statuses: String,
    /// The same from a shell.
    pub curl: String,
}

impl OperationEntry {
    /// What it does, in the reader's language.
    fn told(&self, t: &Text) -> &'static str {
        match t.language {
            Language::English => self.summary,
            Language::Korean => korean::summary(self.name).unwrap_or(self.summary),
        }
    }

    /// What a word of its query means, in the reader's language.
    fn meaning(&self, t: &Text, word: &str) -> &'static str {
        let mut words = self.query.iter();
        let english = words.find(|(known, _)| *known == word);
        let english = english.map_or("", |(_, meaning)| *meaning);
        match t.language {
            Language::English => english,
            Language::Korean => korean::query(self.name, word).unwrap_or(english),
        }
    }
}

/// What a success brings.
#[derive(Clone, Debug)]
pub enum AnswerKind {
    Schema(String),
    /// A media type, or a protocol.
    Other(String),
}

/// A kind of value in bodies and answers.
#[derive(Clone, Debug, Default)]
pub struct SchemaEntry {
    pub name: String,
    pub about: String,
    pub fields: Vec<SchemaField>,
    /// The words it may be; empty where it is no list of words.
    pub values: Vec<String>,
}

/// One field of it.
#[derive(Clone, Debug)]
pub struct SchemaField {
    pub name: String,
    pub kind: String,
    /// The schema that the kind names.
    pub link: Option<String>,
    pub required: bool,
    pub about: String,
}

impl SchemaField {
    /// What a value of it is, in the reader's language.
    fn kind_told(&self, t: &Text) -> String {
        match t.language {
            Language::English => self.kind.clone(),
            Language::Korean => korean::kind(&self.kind),
        }
    }
}

const SCHEMAS: &str = "#/components/schemas/";

/// Every schema of an OpenAPI document, by name.
pub fn schemas(document: &Value) -> Vec<SchemaEntry> {
    let all = document["components"]["schemas"].as_object();
    all.into_iter().flatten().map(entry).collect()
}

fn entry((name, schema): (&String, &Value)) -> SchemaEntry {
    let needed = |field: &str| {
        let required = schema["required"].as_array();
        required.is_some_and(|names| names.iter().any(|name| name == field))
    };
    let fields = schema["properties"].as_object();
    SchemaEntry {
        name: name.clone(),
        about: words(&schema["description"]),
        fields: fields
            .into_iter()
            .flatten()
            .map(|(field, value)| {
                let (kind, link) = kind(value);
                SchemaField {
                    name: field.clone(),
                    kind,
                    link,
                    required: needed(field),
                    about: words(&value["description"]),
                }
            })
            .collect(),
        values: schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    }
}

/// A description in one line, without the marks of code.
fn words(description: &Value) -> String {
    description
        .as_str()
        .unwrap_or_default()
        .replace('`', "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// What a value is in words, and the schema that it names.
fn kind(value: &Value) -> (String, Option<String>) {
    if let Some(name) = value["$ref"]
        .as_str()
        .and_then(|place| place.strip_prefix(SCHEMAS))
    {
        return (name.to_owned(), Some(name.to_owned()));
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        if let Some(kinds) = value[several].as_array() {
            let kinds: Vec<_> = kinds.iter().map(kind).collect();
            let link = kinds.iter().find_map(|(_, link)| link.clone());
            let told: Vec<String> = kinds.into_iter().map(|(told, _)| told).collect();
            return (told.join(" or "), link);
        }
    }
    let named = match &value["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" or "),
        _ => "any".to_owned(),
    };
    let format = value["format"].as_str();
    match (named.as_str(), format) {
        ("array", _) => {
            let (items, link) = kind(&value["items"]);
            (format!("list of {items}"), link)
        }
        ("object", _) if value["additionalProperties"].is_object() => {
            let (items, link) = kind(&value["additionalProperties"]);
            (format!("map to {items}"), link)
        }
        (_, Some("date-time")) => (named.replace("string", "time"), None),
        (_, Some("uuid")) => (named.replace("string", "id"), None),
        _ => (named, None),
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/reference.html")]
pub struct ReferencePage {
    pub t: Text,
    pub f: PageLayout,
    pub reference: Arc<ApiReference>,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/schema.html")]
pub struct SchemaPage {
    pub t: Text,
    pub f: PageLayout,
    pub schema: SchemaEntry,
    /// Operations that take or answer it: method, path, anchor.
    pub used: Vec<(&'static str, &'static str, &'static str)>,
}

/// `GET /api/docs`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let page = ReferencePage {
        t: visit.text,
        f: layout(&console, &visit, &caller, Nav::Api),
        reference: console.reference(),
    };
    responses::page(&console, &visit, StatusCode::OK, &page)
}

/// `GET /api/docs/{schema}`
pub async fn schema(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(name): Path<String>,
) -> Response {
    let f = layout(&console, &visit, &caller, Nav::Api);
    let reference = console.reference();
    let Some(schema) = reference.schema(&name) else {
        let refusal = refusals::page_unknown();
        return responses::refused(&console, &visit, Some(f), &refusal);
    };
    let operations = reference.groups.iter().flat_map(|g| &g.operations);
    let used = operations
        .filter(|operation| {
            let answers = |kind: &AnswerKind| matches!(kind, AnswerKind::Schema(of) if *of == name);
            operation.body == name || operation.answer.iter().any(answers)
        })
        .map(|operation| (operation.method, operation.path, operation.name))
        .collect();
    let page = SchemaPage {
        t: visit.text,
        f,
        schema: schema.clone(),
        used,
    };
    responses::page(&console, &visit, StatusCode::OK, &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_a_title_in_both_languages() {
        let reference = crate::doors::reference();
        for group in &reference.groups {
            let english = group.title(&Text::default());
            assert_ne!(english, group.name, "a name is no title");
            let korean = group.title(&Text::new(Language::Korean));
            assert!(korean == "GPU" || !korean.is_ascii(), "{}", group.name);
        }
    }

    #[test]
    fn every_schema_that_a_page_links_to_is_there() {
        let reference = crate::doors::reference();
        let known = |name: &str| reference.schema(name).is_some();
        let mut links = 0;
        for schema in &reference.schemas {
            for field in &schema.fields {
                if let Some(link) = &field.link {
                    assert!(known(link), "{}.{} is a {link}", schema.name, field.name);
                    links += 1;
                }
            }
        }
        for operation in reference.groups.iter().flat_map(|group| &group.operations) {
            assert!(
                operation.body.is_empty() || known(operation.body),
                "{}",
                operation.name
            );
            for answer in &operation.answer {
                if let AnswerKind::Schema(name) = answer {
                    assert!(known(name), "{}: {name}", operation.name);
                    links += 1;
                }
            }
        }
        assert!(links > 100, "{links}");
    }

    #[test]
    fn a_request_to_copy_holds_what_its_body_needs_and_nothing_unknown() {
        let reference = crate::doors::reference();
        let mut bodies = 0;
        for operation in reference.groups.iter().flat_map(|group| &group.operations) {
            assert!(!operation.curl.contains(['{', '}']) || !operation.body.is_empty());
            let Some(schema) = reference.schema(operation.body) else {
                continue;
            };
            let body = operation.curl.split("-d '").nth(1).expect("a body");
            let body = body.split('\'').next().expect("its end");
            let body: Value = serde_json::from_str(body).expect("JSON");
            let body = body.as_object().expect("an object");
            for field in &schema.fields {
                assert!(
                    !field.required || body.contains_key(&field.name),
                    "{}: no {}",
                    operation.name,
                    field.name
                );
            }
            for name in body.keys() {
                assert!(
                    schema.fields.iter().any(|field| field.name == *name),
                    "{}: {name}",
                    operation.name
                );
            }
            bodies += 1;
        }
        assert!(bodies > 10, "{bodies}");
    }
}
