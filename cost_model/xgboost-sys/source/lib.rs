//! Empty: this package only names a source (see `Cargo.toml`).
