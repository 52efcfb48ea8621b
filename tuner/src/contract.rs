//! Contract tests for external searchers, cost models and measurers. Each function panics with a
//! description of the violation.
//!
//! ```
//! use autotune::contract;
//! use autotune::search::Random;
//!
//! contract::searcher(|_| Random);
//! ```

mod measurer;
mod searcher;

pub use autotune_cost_model::contract::cost_model;
pub use measurer::measurer;
pub use searcher::searcher;
