//! The commands on the caller's second factor. Passwords come by file, standard input or keyboard; codes are worth
//! nothing once they were used, so they may stand in arguments.

use std::io::BufRead as _;

use api::second_factor::{RecoveryCodes, SecondFactorOffer, SecondFactorView};
use serde_json::{Value, json};

use super::answer::Answer;
use super::args::{SecondFactorCommand, SecondFactorCredentials};
use super::client::HttpClient;
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, login, print};

const PATH: &str = "/api/v1/me/second-factor";

pub(super) async fn run(
    request: SecondFactorCommand,
    client: &HttpClient,
    view: &OutputStyle,
) -> Result<(), CliError> {
    match request {
        SecondFactorCommand::Get => {
            let body = client.get(PATH).await?;
            print(&view.one(&body, columns::SECOND_FACTORS)?);
        }
        SecondFactorCommand::On(proof) => {
            let body = proven(client, &proof).await?;
            let offer = client.post(PATH, &body).await?;
            let offer = Answer::<SecondFactorOffer>::of(offer)?.read;
            complain(&format!(
                "Add this key to the app (time-based, SHA-1, 6 digits, 30 seconds):\n\n  {}\n\n{}\n\n",
                offer.key, offer.address
            ));
            let body = json!({"ticket": offer.ticket, "code": first_code()?});
            let path = format!("{PATH}/confirm");
            let made = client.post(&path, &body).await?;
            complain("The second factor is on. Keep these recovery codes; each works once.\n");
            told(view, made)?;
        }
        SecondFactorCommand::Off(proof) => {
            let body = proven(client, &proof).await?;
            let answer = client.post(&format!("{PATH}/remove"), &body).await?;
            print(&view.said(&answer, "The second factor is off.")?);
        }
        SecondFactorCommand::RecoveryCodes(proof) => {
            let body = proven(client, &proof).await?;
            let made = client
                .post(&format!("{PATH}/recovery-codes"), &body)
                .await?;
            told(view, made)?;
        }
    }
    Ok(())
}

/// Password, and the code where there is a second factor already.
async fn proven(client: &HttpClient, proof: &SecondFactorCredentials) -> Result<Value, CliError> {
    let password = login::password(&proof.password, "Password: ")?;
    let code = match &proof.code {
        Some(code) => Some(code.clone()),
        None if client.read::<SecondFactorView>(PATH).await?.read.enabled => {
            Some(login::code("Code: ")?)
        }
        None => None,
    };
    Ok(json!({"password": password, "code": code}))
}

fn first_code() -> Result<String, CliError> {
    complain("Code that the app shows now: ");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| CliError::usage(format!("Standard input cannot be read: {e}.")))?;
    Ok(line.trim().to_owned())
}

fn told(view: &OutputStyle, made: Value) -> Result<(), CliError> {
    let Answer { body, read } = Answer::<RecoveryCodes>::of(made)?;
    print(&view.said(&body, &read.codes.join("\n"))?);
    Ok(())
}
