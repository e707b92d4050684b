use std::fmt;
use std::sync::Arc;

use vyre_driver::BackendError;
use vyre_spec::Diagnostic;
use vyre_spec::codes::Class;

/// Why something was refused or failed: everything that went wrong, each with code, place and cure. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct Error(Arc<[Diagnostic]>);

impl Error {
    /// Everything that went wrong, the cause first.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.0
    }

    /// The cause.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0[0]
    }

    /// The stable code of the cause, `V` and four digits.
    pub fn code(&self) -> &'static str {
        self.diagnostic().code.id
    }

    /// What happened, without the cure.
    pub fn message(&self) -> &str {
        &self.diagnostic().message
    }

    /// What to do about it, without the leading `Fix:`.
    pub fn fix(&self) -> &str {
        &self.diagnostic().fix
    }

    /// Whom the failure concerns.
    pub fn class(&self) -> Class {
        self.diagnostic().code.class
    }

    /// The same error, with its cause told otherwise.
    pub(crate) fn retold(&self, message: String) -> Error {
        let mut diagnostics = self.0.to_vec();
        diagnostics[0].message = message;
        Error(diagnostics.into())
    }

    /// The same error with another cure.
    pub(crate) fn with_fix(&self, fix: &str) -> Error {
        let mut diagnostics = self.0.to_vec();
        diagnostics[0].fix = fix.into();
        Error(diagnostics.into())
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Error(Arc::new([diagnostic]))
    }
}

impl From<Vec<Diagnostic>> for Error {
    fn from(diagnostics: Vec<Diagnostic>) -> Self {
        if diagnostics.is_empty() {
            return BackendError::new("something failed without saying why").into();
        }
        Error(diagnostics.into())
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        error.into_diagnostic().into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            fmt::Display::fmt(diagnostic, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
