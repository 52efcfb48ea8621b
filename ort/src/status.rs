//! Results of the functions of the API.

use std::panic::{AssertUnwindSafe, catch_unwind};

use autotune_network::onnx::ImportError;
use autotune_network::{FamilyError, SessionError, SubjectLoadError};
use ort_sys::stub::Error;
use ort_sys::{OrtErrorCode, OrtStatusPtr};

use crate::element::ElementError;
use crate::text_options::OptionError;

/// Reason that a function fails.
pub(crate) struct ApiError {
    code: OrtErrorCode,
    message: String,
}

impl ApiError {
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { code: OrtErrorCode::ORT_INVALID_ARGUMENT, message: message.into() }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self { code: OrtErrorCode::ORT_NOT_IMPLEMENTED, message: message.into() }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let code = match &error {
            SessionError::Family(FamilyError::Outside { .. } | FamilyError::Run(_)) => {
                OrtErrorCode::ORT_INVALID_ARGUMENT
            }
            SessionError::Family(FamilyError::Import(error)) => code_of_import(error),
            SessionError::Load(error) => match &**error {
                SubjectLoadError::Import { source, .. } => code_of_import(source),
                _ => OrtErrorCode::ORT_INVALID_GRAPH,
            },
            _ => OrtErrorCode::ORT_FAIL,
        };
        Self { code, message: error.to_string() }
    }
}

fn code_of_import(error: &ImportError) -> OrtErrorCode {
    match error {
        ImportError::Io { .. } => OrtErrorCode::ORT_NO_SUCHFILE,
        ImportError::Malformed(_) => OrtErrorCode::ORT_INVALID_PROTOBUF,
        ImportError::Shape { .. } => OrtErrorCode::ORT_INVALID_ARGUMENT,
        _ => OrtErrorCode::ORT_NOT_IMPLEMENTED,
    }
}

impl From<OptionError> for ApiError {
    fn from(error: OptionError) -> Self {
        Self::argument(error.to_string())
    }
}

impl From<ElementError> for ApiError {
    fn from(error: ElementError) -> Self {
        match error {
            ElementError::Type(_) => Self::unsupported(error.to_string()),
            ElementError::Inexact => Self::argument(error.to_string()),
        }
    }
}

impl From<ImportError> for ApiError {
    fn from(error: ImportError) -> Self {
        Self { code: code_of_import(&error), message: error.to_string() }
    }
}

/// Does the work of a function, and returns its status. A panic does not leave this function, since
/// the caller may be a program in C.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), ApiError>) -> OrtStatusPtr {
    let ApiError { code, message } = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OrtStatusPtr::default(),
        Ok(Err(error)) => error,
        Err(_) => ApiError {
            code: OrtErrorCode::ORT_RUNTIME_EXCEPTION,
            message: "internal error of autotune: see standard error".into(),
        },
    };
    // Text in C ends at the first zero.
    Error::new_sys(code, message.replace('\0', " "))
}

/// Defines functions of the API that return a status, and `add_functions`, which adds them to a
/// table. The body is unsafe code with the value `Result<(), ApiError>`.
macro_rules! api_functions {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        fn add_functions(api: &mut ort_sys::OrtApi) {
            $(api.$name = $name;)*
        }

        $(
        #[allow(non_snake_case, unused_unsafe)]
        unsafe extern "system" fn $name($($argument: $type),*) -> ort_sys::OrtStatusPtr {
            // SAFETY: the caller passes handles of this API that are not released, and pointers to
            // as much memory as the function reads and writes.
            $crate::status::guarded(|| unsafe { $body })
        }
        )*
    };
}
pub(crate) use api_functions;

/// Defines functions of the API that release a handle, and `add_releases`, which adds them to a
/// table.
macro_rules! release_functions {
    ($($name:ident($type:ty)),* $(,)?) => {
        fn add_releases(api: &mut ort_sys::OrtApi) {
            $(api.$name = $name;)*
        }

        $(
        #[allow(non_snake_case)]
        unsafe extern "system" fn $name(released: *mut <$type as $crate::handle::Handle>::Sys) {
            // SAFETY: the caller releases a handle of this API, once.
            unsafe { $crate::handle::release::<$type>(released) }
        }
        )*
    };
}
pub(crate) use release_functions;
