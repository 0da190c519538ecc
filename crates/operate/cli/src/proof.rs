//! Global flags: output format, certificate and login.

use std::{
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use clap::Args;
use quorate_admin::certificates::CertificateView;
use quorate_client::Login;
use quorate_tls::{ClientFiles, ClientTrust, Validity, read_validities};

use crate::{
    certificates::unix_now_s,
    logging,
    output::{self, Exit, Output, Problem},
    password,
};

/// Flags of every command.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Print one JSON document to standard output, also for errors
    // A string, because `quorate bench` has a flag of the same name that may be followed by a file.
    #[arg(long, global = true, env = "QUORATE_JSON", value_name = "BOOL", hide_possible_values = true,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    json: Option<String>,
    // A string, like the setting of the same name of `quorate start`.
    /// Connect over TLS with the certificate, key and authority in this folder, as created by
    /// 'quorate cert client'
    #[arg(long, global = true, env = "QUORATE_TLS", value_name = "DIR")]
    tls: Option<String>,
    /// Log in as this user with a password, where no certificate identifies you
    #[arg(long, global = true, env = "QUORATE_LOGIN", value_name = "NAME")]
    login: Option<String>,
    /// Read the password for --login from this file (`-`: standard input) [default: ask for it]
    #[arg(long, global = true, env = "QUORATE_LOGIN_FILE", value_name = "FILE")]
    login_file: Option<PathBuf>,
}

impl Global {
    /// Returns the output format that the flags select.
    #[must_use]
    pub fn output(&self) -> Output {
        Output { json: self.json.as_deref().is_some_and(output::is_switched_on) }
    }

    /// Returns the folder given by `--tls`, if any. An empty variable counts as unset.
    #[must_use]
    pub fn tls(&self) -> Option<&Path> {
        self.tls.as_deref().filter(|folder| !folder.is_empty()).map(Path::new)
    }

    /// Returns an error if the value of `--json` means neither on nor off.
    pub fn check_json(&self) -> Result<(), Problem> {
        let is_switch = |text: &str| output::is_switched_on(text) || output::is_switched_off(text);
        match self.json.as_deref() {
            Some(text) if !is_switch(text) => {
                let what = format_args!("--json must be on or off (got {text})");
                Err(Problem::usage_error(what)
                    .with_hint("use --json without a value; QUORATE_JSON=1 does the same"))
            }
            _ => Ok(()),
        }
    }

    /// Discards the credentials, for commands that connect to no node. Such commands must not fail
    /// because of a variable such as `QUORATE_TLS`.
    pub fn forget_credentials(&mut self) {
        (self.tls, self.login, self.login_file) = (None, None, None);
    }

    /// Starts logging and sets the credentials. With `proves`, requests to nodes use the
    /// certificate of `--tls`.
    pub fn start_command(&self, proves: bool) -> Result<(), Problem> {
        let wanted = env::var_os(logging::FILTER_VARIABLE);
        let wanted = wanted.as_ref().map(|wanted| wanted.to_string_lossy());
        logging::start(wanted.as_deref())?;
        self.tls().filter(|_| proves).map_or(Ok(()), use_certificate)?;
        use_login(self.login.as_deref(), self.login_file.as_deref())
    }
}

/// Makes all requests to nodes use the certificate in `folder`.
pub fn use_certificate(folder: &Path) -> Result<(), Problem> {
    let files = ClientFiles::in_folder(folder);
    read_validities(&files.cert)?
        .first()
        .map_or(Ok(()), |own| check_certificate(&files.cert, *own, unix_now_s()))?;
    quorate_admin::client::use_certificate(&files)?;
    let _ = CERTIFICATE.set(ClientTrust::load(&files)?);
    Ok(())
}

/// Returns an error if the user's certificate is not valid now. A node would just disconnect.
fn check_certificate(file: &Path, valid: Validity, now_s: i64) -> Result<(), Problem> {
    let Some(since) = CertificateView::view_at("client", valid, now_s).invalidity_period() else {
        return Ok(());
    };
    let what = format_args!("the certificate {} {since}", file.display());
    Err(Problem::new(Exit::Failed, "tls", what).with_hint(
        "renew it with 'quorate cert client NAME --renew', or check this machine's clock",
    ))
}

/// Makes all requests to nodes use a name and its password, if a name is given.
fn use_login(name: Option<&str>, file: Option<&Path>) -> Result<(), Problem> {
    let Some(name) = name else {
        return match file {
            Some(_) => {
                Err(Problem::usage_error("--login-file needs --login")
                    .with_hint("add --login NAME"))
            }
            None => Ok(()),
        };
    };
    let password = password::read_password(file, &format!("password of {name}"))?;
    match quorate_admin::client::use_login(name, &password) {
        true => {
            let name = name.to_owned();
            let _ = LOGIN.set(Login { name, password });
            Ok(())
        }
        false => Err(Problem::usage_error(format_args!("--login {name}: not a valid user name"))),
    }
}

/// Client certificate from the folder given by `--tls`.
static CERTIFICATE: OnceLock<ClientTrust> = OnceLock::new();

/// Returns the client certificate, if `--tls` was given.
pub fn certificate() -> Option<ClientTrust> {
    CERTIFICATE.get().cloned()
}

/// Name given by `--login`, with its password.
static LOGIN: OnceLock<Login> = OnceLock::new();

/// Returns the login, if `--login` was given.
pub fn login() -> Option<Login> {
    LOGIN.get().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_tls_folder_means_no_tls() {
        let global = |tls: &str| {
            let tls = Some(tls.to_owned());
            Global { json: None, tls, login: None, login_file: None }
        };
        assert_eq!(global("").tls(), None);
        assert_eq!(global("d").tls(), Some(Path::new("d")));
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_is_an_error_with_its_date() {
        let valid = Validity { begins_unix_s: 20, ends_unix_s: 60 };
        let told = |now_s| check_certificate(Path::new("c.crt"), valid, now_s);
        assert_eq!(told(40), Ok(()));
        let expired = told(61).unwrap_err();
        assert_eq!(expired.message, "the certificate c.crt expired on 1970-01-01 00:01:00 UTC");
        assert!(told(19).unwrap_err().message.contains("is not valid until 1970-01-01 00:00:20"));
    }
}
