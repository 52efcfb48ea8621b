//! The tests that every searcher, cost model and measurer must pass, for those who bring one: each
//! function panics with what is wrong.
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
