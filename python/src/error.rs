//! Conversion of errors to the exception classes of `autotune._errors`.

use std::error::Error;

use autotune_network::onnx::ImportError;
use autotune_network::{FamilyError, SessionError, SubjectLoadError};
use pyo3::prelude::*;

/// Converts an error of a session.
pub(crate) fn exception(py: Python<'_>, error: SessionError) -> PyErr {
    let class = match &error {
        SessionError::Family(error) => class_of_family(error),
        SessionError::Load(error) => match **error {
            SubjectLoadError::Import { source: ImportError::Shape { .. }, .. } => "ShapeError",
            _ => "ModelError",
        },
        SessionError::Db(_) => "DatabaseError",
        SessionError::Subject(_)
        | SessionError::Workload(_)
        | SessionError::NoInput { .. }
        | SessionError::Open { .. }
        | SessionError::NoCpu
        | SessionError::Target(_) => "OptionError",
        SessionError::Input { .. } => "ShapeError",
        SessionError::InPhases | SessionError::NotPhased | SessionError::Precision(_) | SessionError::Threads(_) => {
            "Error"
        }
    };
    raised(py, class, one_line(&error))
}

fn class_of_family(error: &FamilyError) -> &'static str {
    match error {
        FamilyError::Outside { .. } | FamilyError::Import(ImportError::Shape { .. }) => "ShapeError",
        FamilyError::Run(_) | FamilyError::Evaluate(_) => "ShapeError",
        FamilyError::Import(_) | FamilyError::Graph(_) => "ModelError",
        FamilyError::Compile(_) => "Error",
    }
}

/// Creates an exception of a class of `autotune._errors`.
pub(crate) fn raised(py: Python<'_>, class: &str, message: String) -> PyErr {
    let class = py.import("autotune._errors").and_then(|errors| errors.getattr(class));
    match class.and_then(|class| class.call1((message,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Formats an error with its causes, without those that its message already ends with.
fn one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
