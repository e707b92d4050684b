use std::fmt;
use std::sync::Arc;

use vyre_spec::codes::{self, Class, Code};
use vyre_spec::{Diagnostic, Severity};

/// Why a backend refused or failed: a diagnostic with a stable code and a cure.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendError {
    diagnostic: Box<Diagnostic>,
}

impl BackendError {
    /// A failure that no other code describes. A message that holds its own `Fix:` sentence keeps it as the cure.
    pub fn new(message: impl Into<String>) -> Self {
        Self::with_code(&codes::backend::FAILED, message)
    }

    /// A failure with a code of the table. A message that holds its own `Fix:` sentence keeps it as the cure.
    pub fn with_code(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        match message.split_once("Fix:") {
            Some((what, fix)) if !fix.trim().is_empty() => {
                Diagnostic::new(code, what.trim_end()).with_fix(fix.trim()).into()
            }
            _ => Diagnostic::new(code, message).into(),
        }
    }

    /// The problems of a program that did not validate, as one error.
    pub fn invalid_program(problems: &[Diagnostic]) -> Self {
        match problems {
            [] => Self::with_code(&codes::backend::INVALID_PROGRAM, "the program is not valid"),
            [only] => only.clone().into(),
            [first, rest @ ..] => {
                let mut diagnostic = first.clone();
                diagnostic.message = format!("{} (and {} more problems)", first.message, rest.len());
                diagnostic.into()
            }
        }
    }

    /// The stable code, `V` and four digits.
    pub fn code(&self) -> &'static str {
        self.diagnostic.code.id
    }

    /// Whom the failure concerns.
    pub fn class(&self) -> Class {
        self.diagnostic.code.class
    }

    /// What happened, without the cure.
    pub fn message(&self) -> &str {
        &self.diagnostic.message
    }

    /// What to do about it, without the leading `Fix:`.
    pub fn fix(&self) -> &str {
        &self.diagnostic.fix
    }

    /// The whole diagnostic.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.diagnostic
    }

    /// The whole diagnostic.
    pub fn into_diagnostic(self) -> Diagnostic {
        *self.diagnostic
    }
}

impl From<Diagnostic> for BackendError {
    fn from(diagnostic: Diagnostic) -> Self {
        let mut diagnostic = Box::new(diagnostic);
        // Whatever reaches a caller as an error is one, even where the table's default is milder.
        diagnostic.severity = Severity::Error;
        BackendError { diagnostic }
    }
}

impl From<Arc<[Diagnostic]>> for BackendError {
    fn from(problems: Arc<[Diagnostic]>) -> Self {
        Self::invalid_program(&problems)
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.diagnostic, f)
    }
}

impl std::error::Error for BackendError {}
