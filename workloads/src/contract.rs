//! Contract tests for operators, external ones and those of this crate.

use crate::workload::{Workload, WorkloadError, operators};

/// Tests a registered operator.
///
/// Its text form must be read as it is written, unknown and zero fields must be rejected by name,
/// and its formula must be consistent.
///
/// # Panics
///
/// If a test fails.
pub fn operator(name: &str) {
    let kind = operators().into_iter().find(|kind| kind.name == name);
    let kind = kind.unwrap_or_else(|| panic!("no operator '{name}' is registered"));
    let parse = |text: &str| text.parse::<Workload>();
    let example = parse(kind.example).unwrap_or_else(|error| panic!("example '{}': {error}", kind.example));
    let text = example.to_string();
    assert_eq!(example.operator().kind().name, kind.name, "the example names another operator");
    assert_eq!(parse(&text).as_ref(), Ok(&example), "parsing '{text}' gives another workload");

    let unknown = parse(&format!("{text},no_such_field=1"));
    assert!(matches!(unknown, Err(WorkloadError::UnknownField { .. })), "an unknown field is accepted: {unknown:?}");
    let (_, fields) = text.split_once(':').unwrap_or_default();
    for field in fields.split(',').filter_map(|field| field.split_once('=')) {
        // Fields such as padding may be zero.
        if let Err(error) = parse(&text.replace(&format!("{}={}", field.0, field.1), &format!("{}=0", field.0))) {
            use WorkloadError::{BadValue, Missing, Unfit};
            let named = matches!(&error, Unfit { .. } | Missing { .. } | BadValue { .. });
            assert!(named, "the error for '{}=0' does not name the field: {error}", field.0);
        }
    }

    formula(&example);
}

/// Checks that the sizes in the formula are consistent.
fn formula(workload: &Workload) {
    let spec = workload.spec();
    assert!(spec.operands().count() > 0, "{workload} has no operands");
    for equation in &spec.equations {
        let mut accesses = equation.loads();
        accesses.push(&equation.output);
        for access in accesses {
            let tensor = spec.tensor(access);
            let place = format!("{workload}: '{}'", tensor.name);
            assert_eq!(
                access.index.len(),
                tensor.shape.len(),
                "{place} and its index differ in their number of dimensions"
            );
            let known = access
                .index
                .iter()
                .flat_map(|index| &index.terms)
                .all(|term| (term.0.0 as usize) < equation.axes.len());
            assert!(known, "{place} is indexed by an axis that does not exist");
        }

        let output = spec.tensor(&equation.output);
        for (index, &extent) in equation.output.index.iter().zip(&output.shape) {
            let (low, high) = equation.range(index);
            assert_eq!(
                (low, high),
                (0, extent as i64 - 1),
                "{workload}: not every element of '{}' is written",
                output.name
            );
        }
        let reduced = equation
            .output
            .index
            .iter()
            .flat_map(|index| &index.terms)
            .any(|term| equation.axes[term.0.0 as usize].reduce);
        assert!(!reduced, "{workload}: a reduction axis indexes the result");
    }
}
