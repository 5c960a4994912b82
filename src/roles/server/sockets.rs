//! Takes ports, and says in a sentence who has one that cannot be had. Never serves anything.

use std::io::ErrorKind;
use std::net::SocketAddr;

use base::settings::Settings;
use node::doctor::ports::holder;
use rules::refusal::Refusal;
use rules::refusals;
use tokio::net::TcpListener;

/// The ports of the network that a server holds.
pub(super) struct Sockets {
    pub(super) console: TcpListener,
    /// Plain HTTP that only leads to HTTPS.
    pub(super) http: Option<TcpListener>,
    /// The first of the ports of apps.
    pub(super) apps: Option<TcpListener>,
    /// SSH into sessions.
    pub(super) ssh: Option<TcpListener>,
}

/// Takes every port that the settings name. Without the console's there is no server; without another
/// one there is, and the log says what is missing.
pub(super) async fn take(settings: &Settings) -> Result<Sockets, Refusal> {
    let console = bind("listen", settings.listen).await?;
    let mut others = [
        // Where nothing is encrypted there is no HTTPS to lead to.
        (
            "listen_http",
            settings.listen_http.filter(|_| settings.encrypted()),
            None,
        ),
        ("listen_apps", settings.listen_apps, None),
        ("listen_ssh", settings.listen_ssh, None),
    ];
    for (setting, wanted, taken) in &mut others {
        if let Some(address) = wanted {
            match bind(setting, *address).await {
                Ok(listener) => *taken = Some(listener),
                Err(refusal) => tracing::warn!(code = refusal.code, "{refusal}"),
            }
        }
    }
    let [(_, _, http), (_, _, apps), (_, _, ssh)] = others;
    Ok(Sockets {
        console,
        http,
        apps,
        ssh,
    })
}

async fn bind(setting: &str, address: SocketAddr) -> Result<TcpListener, Refusal> {
    let variable = format!("FARDEL_{}", setting.to_ascii_uppercase());
    TcpListener::bind(address)
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                let next = SocketAddr::new(address.ip(), address.port().wrapping_add(1).max(1024));
                let holder = holder(address.port())
                    .unwrap_or_else(|| "another program, perhaps another fardel".to_owned());
                let way = match setting {
                    "listen" => format!("Use `--listen {next}` or {variable}={next}"),
                    _ => format!("Use {variable}={next}"),
                };
                refusals::listen_taken(setting, address, &holder, &way)
            }
            ErrorKind::PermissionDenied => refusals::listen_denied(setting, address),
            ErrorKind::AddrNotAvailable => refusals::listen_no_such_address(setting, address.ip()),
            _ => refusals::listen_failed(setting, address, &error),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_names_its_setting_and_its_holder() {
        let first = bind("listen", ([127, 0, 0, 1], 0).into())
            .await
            .expect("a port");
        let address = first.local_addr().expect("bound");
        let refusal = bind("listen_http", address).await.expect_err("taken");
        assert_eq!(refusal.code, "listen.taken");
        let own = format!("(process {})", std::process::id());
        assert!(
            refusal.text.contains("listen_http") && refusal.text.contains(&own),
            "{refusal}"
        );
        assert!(refusal.hint.contains("FARDEL_LISTEN_HTTP="), "{refusal}");
        let nowhere = bind("listen", ([192, 0, 2, 1], 1).into())
            .await
            .expect_err("not ours");
        assert_eq!(nowhere.code, "listen.no-such-address");
    }

    #[tokio::test]
    async fn a_second_port_that_is_taken_does_not_stop_the_server() {
        let held = bind("listen", ([127, 0, 0, 1], 0).into())
            .await
            .expect("a port");
        let taken = held.local_addr().expect("bound").to_string();
        let settings = Settings::read(
            base::settings::SettingsLayer {
                listen: Some("127.0.0.1:0".into()),
                tls: Some("on".into()),
                listen_http: Some(taken),
                listen_apps: Some("127.0.0.1:0".into()),
                ..Default::default()
            },
            |_| None,
        )
        .expect("settings");
        let sockets = take(&settings).await.expect("serves");
        assert!(sockets.http.is_none() && sockets.apps.is_some());
    }
}
