//! A notice: what is wrong with the installation or worth knowing, for those who look after it. Nothing was
//! asked for, so nothing is refused. Never says how urgent it is: the place that shows it knows.

/// One notice: a stable code, what is so, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub code: &'static str,
    /// One English sentence.
    pub text: String,
    /// What would help; empty where nothing needs to be done.
    pub hint: String,
}

impl Notice {
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            hint: String::new(),
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}
