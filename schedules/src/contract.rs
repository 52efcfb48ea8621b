//! Tests for operators and sketches, those from outside and ours.

use autotune_ir::interp::interpret;
use autotune_ir::{Target, verify};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::workload::{Workload, WorkloadError, operators};
use crate::{Candidate, Operands, ScheduleSpace, max_rel_error, reference, tolerance};

/// Most multiply-adds of a workload that is interpreted.
const MAX_FLOPS: f64 = 4e6;
/// Configs that are drawn for each workload.
const CONFIGS: usize = 24;

/// Tests an operator that is registered: its text form is read as it is written, unknown and zero fields are refused by name, and its
/// formula is one that programs can be made from.
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
    assert_eq!(example.operator().kind().name, kind.name, "the example is of another operator");
    assert_eq!(parse(&text).as_ref(), Ok(&example), "'{text}' is not read as it was written");

    let unknown = parse(&format!("{text},no_such_field=1"));
    assert!(matches!(unknown, Err(WorkloadError::UnknownField { .. })), "an unknown field is taken: {unknown:?}");
    let (_, fields) = text.split_once(':').unwrap_or_default();
    for field in fields.split(',').filter_map(|field| field.split_once('=')) {
        // Fields such as padding may be zero.
        if let Err(error) = parse(&text.replace(&format!("{}={}", field.0, field.1), &format!("{}=0", field.0))) {
            use WorkloadError::{BadValue, Missing, Unfit};
            let named = matches!(&error, Unfit { .. } | Missing { .. } | BadValue { .. });
            assert!(named, "'{}=0' is refused without its name: {error}", field.0);
        }
    }

    formula(&example);
}

/// Sizes of the formula fit each other.
fn formula(workload: &Workload) {
    let spec = workload.spec();
    assert!(spec.operands().count() > 0, "{workload} has no operand");
    for equation in &spec.equations {
        let mut accesses = equation.loads();
        accesses.push(&equation.output);
        for access in accesses {
            let tensor = spec.tensor(access);
            let place = format!("{workload}: '{}'", tensor.name);
            assert_eq!(
                access.index.len(),
                tensor.shape.len(),
                "{place} has another number of dimensions than its index"
            );
            let known = access
                .index
                .iter()
                .flat_map(|index| &index.terms)
                .all(|term| (term.0.0 as usize) < equation.axes.len());
            assert!(known, "{place} is indexed by an axis that there is not");
        }

        let output = spec.tensor(&equation.output);
        for (index, &extent) in equation.output.index.iter().zip(&output.shape) {
            let (low, high) = equation.range(index);
            assert_eq!((low, high), (0, extent as i64 - 1), "{workload}: '{}' is not written whole", output.name);
        }
        let reduced = equation
            .output
            .index
            .iter()
            .flat_map(|index| &index.terms)
            .any(|term| equation.axes[term.0.0 as usize].reduce);
        assert!(!reduced, "{workload}: an axis of the result is summed over");
    }
}

/// Tests a sketch of a target on workloads that it is for, and on others: what is drawn of its knobs is lowered to programs that the
/// verifier passes and that compute the same as the reference by the interpreter. Workloads should be small: beyond a few million
/// multiply-adds they are not interpreted.
///
/// # Panics
///
/// If a test fails.
pub fn sketch(name: &str, target: &Target, workloads: &[Workload]) {
    let mut tested = 0;
    for (seed, workload) in workloads.iter().enumerate() {
        let space = ScheduleSpace::new(workload, target);
        let offered = if space.refusal().is_some() { &[] } else { space.sketches() };
        let Some(knobs) = offered.iter().find(|knobs| knobs.name() == name) else { continue };
        let is_of_sketch = |candidate: &Candidate| candidate.sketch() == name;
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        let draws = (0..CONFIGS * 8).map(|_| space.sample(&mut rng)).filter(is_of_sketch).take(CONFIGS);
        let default = knobs.sketch.default(workload, target, knobs);
        let default = default.map(|(_, point)| space.candidate(&point.to_config()));

        let operands = (workload.flops() <= MAX_FLOPS).then(|| Operands::random(workload.spec(), seed as u64));
        let wanted = operands.as_ref().map(|operands| reference(workload, operands));
        for candidate in default.into_iter().chain(draws.collect::<Vec<_>>()) {
            let place = format!("{workload}\n{candidate}\non {}", target.key());
            assert!(space.contains(&candidate), "a config that was drawn is not in the space: {place}");
            let program = candidate.lower().unwrap_or_else(|error| panic!("{error}: {place}"));
            verify(&program, target).unwrap_or_else(|error| panic!("{error}: {place}"));

            if let (Some(operands), Some(wanted)) = (&operands, &wanted) {
                let output = interpret(&program, operands).unwrap_or_else(|error| panic!("{error}: {place}"));
                let error = max_rel_error(&output, wanted);
                assert!(error <= tolerance(workload, &candidate), "wrong by {error:.1e}: {place}");
            }
            tested += 1;
        }
    }
    assert!(tested > 0, "the sketch '{name}' is for none of the workloads, or none of its configs is valid");
}
