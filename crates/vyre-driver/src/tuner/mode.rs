use vyre_spec::{Diagnostic, codes};

const VARIABLE: &str = "VYRE_AUTOTUNER";

/// When and how launches are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Sweep the candidates at first use, before the first result.
    On,
    /// Never stall a caller: real dispatches carry the exploration until a decision is certified.
    NaturalGradient,
    /// Measure nothing and use nothing that was measured: every kernel runs with its own launch.
    OffUseDefault,
}

impl Mode {
    /// The mode when nothing else is asked for.
    pub const fn production_default() -> Self {
        Mode::NaturalGradient
    }

    /// The mode that `VYRE_AUTOTUNER` asks for. A word that names no mode gives the production default and is reported as
    /// a warning event; [`Mode::from_env_checked`] returns that warning.
    pub fn from_env() -> Self {
        let (mode, warning) = Mode::from_env_checked();
        if let Some(warning) = warning {
            tracing::warn!(code = warning.code.id, "{warning}");
        }
        mode
    }

    /// As [`Mode::from_env`], with the warning as a value.
    pub fn from_env_checked() -> (Self, Option<Diagnostic>) {
        let word = std::env::var_os(VARIABLE);
        Mode::from_word(word.as_deref().map(|word| word.to_string_lossy()).as_deref())
    }

    /// The mode that a word asks for; `None` means that the variable is unset.
    pub fn from_word(word: Option<&str>) -> (Self, Option<Diagnostic>) {
        let Some(word) = word else {
            return (Mode::production_default(), None);
        };
        match word {
            "on" => (Mode::On, None),
            "natural" | "ng" => (Mode::NaturalGradient, None),
            "off" | "default" => (Mode::OffUseDefault, None),
            _ => {
                let shown: String = word.chars().take(64).collect();
                let message = format!(
                    "{VARIABLE} is {shown:?}, which is none of `on`, `natural`, `ng`, `off` and `default`; tuning goes on as `natural`"
                );
                (Mode::production_default(), Some(Diagnostic::new(&codes::tuner::MODE, message)))
            }
        }
    }
}
