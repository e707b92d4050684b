//! Problems as they are found, and the places they are found at.

use std::fmt;

use vyre_spec::Diagnostic;
use vyre_spec::codes::{self, Code};

/// More problems than this are only counted.
const MOST: usize = 1000;

/// A place in a program: `body[2].then[0].value`. Cheap to move along, rendered when there is something to report.
#[derive(Clone, Debug, Default)]
pub(super) struct Place(Vec<(&'static str, Option<usize>)>);

impl Place {
    pub(super) fn of(field: &'static str) -> Place {
        Place(vec![(field, None)])
    }

    pub(super) fn at(field: &'static str, index: usize) -> Place {
        Place(vec![(field, Some(index))])
    }

    pub(super) fn push(&mut self, field: &'static str) {
        self.0.push((field, None));
    }

    pub(super) fn push_at(&mut self, field: &'static str, index: usize) {
        self.0.push((field, Some(index)));
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (field, index)) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            f.write_str(field)?;
            if let Some(index) = index {
                write!(f, "[{index}]")?;
            }
        }
        Ok(())
    }
}

/// The problems found so far.
#[derive(Default)]
pub(super) struct Report {
    problems: Vec<Diagnostic>,
    more: usize,
}

impl Report {
    pub(super) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    pub(super) fn add(&mut self, code: Code, message: impl Into<String>, place: &Place) {
        self.push(Diagnostic::new(code, message).at(place.to_string()));
    }

    pub(super) fn push(&mut self, problem: Diagnostic) {
        if self.problems.len() < MOST {
            self.problems.push(problem);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        if self.more > 0 {
            let message = format!("{} more problems are not shown", self.more);
            self.problems.push(Diagnostic::new(&codes::ir::IR_LIMIT, message).with_fix("Repair those above first."));
        }
        self.problems
    }
}
