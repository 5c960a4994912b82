//! Services as the labels of images made for Backend.AI list them: `jupyterlab:http:8090,vscode:http:8180`. What starts one
//! stands in files for their own agent; where it is a program that we know, our description starts it.

use crate::app::{AppChoice, AppDefinition, AppName, MAX_IMAGE_APPS, built_in};

/// The label of such an image.
pub const SERVICES_LABEL: &str = "ai.backend.service-ports";

/// Services by another name than the program has here, so that an app is called the same in all images.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("jupyterlab", "jupyter"),
    ("jupyter", "notebook"),
    ("vscode", "code"),
    ("mlflow-ui", "mlflow"),
];

/// The apps that such a label lists. What is no web page, or cannot be read, is left out: the label is not ours.
pub fn apps_of_services(label: &str) -> Vec<AppDefinition> {
    let known = built_in();
    let mut all: Vec<AppDefinition> = Vec::new();
    for (name, port) in services(label).take(MAX_IMAGE_APPS) {
        let other = OTHER_NAMES.iter().find(|(theirs, _)| *theirs == name);
        let ours = other.map_or(name.as_str(), |(_, ours)| *ours);
        let Ok(ours) = AppName::parse(ours) else {
            continue;
        };
        let choice = AppChoice::Named(ours);
        let app = match known.iter().find(|known| known.choice == choice) {
            Some(known) => AppDefinition {
                port,
                ..known.clone()
            },
            None => AppDefinition {
                choice,
                ..AppDefinition::of_port(port)
            },
        };
        if all.iter().all(|before| before.choice != app.choice) {
            all.push(app);
        }
    }
    all
}

/// Names and ports; of a service with several ports, in brackets, the first.
fn services(label: &str) -> impl Iterator<Item = (String, u16)> {
    label.split(',').filter_map(|entry| {
        let mut parts = entry.trim().splitn(3, ':');
        let (name, protocol, port) = (parts.next()?, parts.next()?, parts.next()?);
        let port = port.trim_start_matches('[').trim_end_matches(']');
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        let is_page = matches!(protocol, "http" | "preopen");
        is_page.then(|| (name.to_ascii_lowercase().replace('_', "-"), port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_other_images_are_apps_by_our_names() {
        let label = "jupyter:http:8070, jupyterlab:http:8090,vscode:http:8180,ttyd:http:7681,\
             Tensor_Board:preopen:[6060,6061],sshd:tcp:2200,term:pty:1,jupyter:http:1";
        let apps = apps_of_services(label);
        let named: Vec<_> = apps
            .iter()
            .map(|app| (app.choice.to_string(), app.port, app.program.as_str()))
            .collect();
        let expected = [
            ("notebook", 8070, "jupyter-notebook"),
            ("jupyter", 8090, "jupyter-lab"),
            ("code", 8180, "code-server"),
            ("ttyd", 7681, ""),
            ("tensor-board", 6060, ""),
        ];
        assert_eq!(
            named,
            expected.map(|(name, port, program)| (name.to_owned(), port, program))
        );
        let unreadable = [
            "",
            ":",
            "a:http",
            "a:http:0",
            "a:http:99999",
            "../a:http:1",
            "a b:http:1",
        ];
        for label in unreadable {
            assert!(apps_of_services(label).is_empty(), "{label:?}");
        }
        let many: Vec<String> = (1..=99)
            .map(|port| format!("a{port}:http:{port}"))
            .collect();
        assert_eq!(apps_of_services(&many.join(",")).len(), MAX_IMAGE_APPS);
    }
}
