//! Adds two operators from outside the library, without changing it.
//!
//! `cargo run --release -p autotune-examples --example custom_operator [TRIALS]`
//!
//! Registers a correlation of signals, which is a contraction, and a masked log-sum-exp, which
//! takes several passes over its rows. Both pass the operator contract, are tuned with the existing
//! sketches, looked up as a compiler does, and run on the caller's memory.

use std::fmt;

use anyhow::Context;
use autotune::ir::program::{BinaryOp, Compare, Expr, UnaryOp};
use autotune::ir::spec::{Reduction, axis_vars};
use autotune::schedules::tolerance;
use autotune::workloads::{
    Computed, Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive, contract, element, named_axes, register_operator,
};
use autotune::{Operands, Query, Target, Task, Tuner, TuningDb, View, ViewMut, Workload, max_rel_error, reference};
use ndarray::ArrayD;

/// `output[o, x] = Σ input[c, x + k] * weight[o, c, k]`, over channels `c` and taps `k`.
#[derive(Debug)]
struct Correlate {
    c: usize,
    w: usize,
    o: usize,
    k: usize,
}

static CORRELATE: OperatorKind =
    OperatorKind { name: "correlate", fields: "c,w,o,k", example: "correlate:c=4,w=40,o=16,k=5", parse };

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let size = |field| fields.required(field);
    Ok(Box::new(Correlate { c: size("c")?, w: size("w")?, o: size("o")?, k: size("k")? }))
}

impl WorkloadOperator for Correlate {
    fn kind(&self) -> &'static OperatorKind {
        &CORRELATE
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "c={},w={},o={},k={}", self.c, self.w, self.o, self.k)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { c, w, o, k } = *self;
        check_positive("correlate", &[("c", c), ("w", w), ("o", o), ("k", k)])?;
        if k > w {
            let reason = format!("{k} taps exceed a signal of {w}");
            return Err(WorkloadError::Unfit { op: "correlate", field: "k", reason });
        }
        check_elements("correlate", &[("input", &[c, w]), ("weight", &[o, c, k])], &[o, w, c, k])
    }

    fn formula(&self) -> OperatorFormula {
        let Self { c, w, o, k } = *self;
        let width = w - k + 1;
        let axes = [("o", o, false), ("ow", width, false), ("c", c, true), ("kw", k, true)];
        let [channel, x, from, tap] = axis_vars();

        let input = OperandTensor { name: "input", shape: vec![c, w], is_constant: false };
        let weight = OperandTensor { name: "weight", shape: vec![o, c, k], is_constant: true };
        OperatorFormula::product(
            &axes,
            [(input, vec![from.clone(), x.clone() + &tap]), (weight, vec![channel.clone(), from, tap])],
            (vec![o, width], vec![channel, x]),
            0,
        )
    }
}

/// `output[m] = log(Σ exp(input[m, n]))` over those `n` where `mask[m, n] > 0`.
#[derive(Clone, Copy, Debug)]
struct MaskedLogSumExp {
    m: usize,
    n: usize,
}

static MASKED_LOG_SUM_EXP: OperatorKind = OperatorKind {
    name: "masked_log_sum_exp",
    fields: "m,n",
    example: "masked_log_sum_exp:m=5,n=75",
    parse: |fields| Ok(Box::new(MaskedLogSumExp { m: fields.required("m")?, n: fields.required("n")? })),
};

impl WorkloadOperator for MaskedLogSumExp {
    fn kind(&self) -> &'static OperatorKind {
        &MASKED_LOG_SUM_EXP
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "m={},n={}", self.m, self.n)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { m, n }, op) = (*self, "masked_log_sum_exp");
        check_positive(op, &[("m", m), ("n", n)])?;
        check_elements(op, &[("input", &[m, n])], &[m, n])
    }

    /// Defines two intermediate tensors, `largest[m]` and `total[m]`: numbers 2 and 3, after the
    /// two operands.
    fn formula(&self) -> OperatorFormula {
        let Self { m, n } = *self;
        let [row, column] = axis_vars();
        let at = [row.clone(), column];
        let [input, mask] = [0, 1].map(|operand| element(operand, &at));
        let [largest, total] = [2, 3].map(|computed| element(computed, std::slice::from_ref(&row)));
        let zero = Expr::Const(0.0);
        let masked = |value, otherwise| Expr::select(Compare::Less, [zero.clone(), mask.clone()], value, otherwise);
        let exp = Expr::unary(UnaryOp::Exp, Expr::binary(BinaryOp::Sub, input.clone(), largest.clone()));

        let of_row = |name, reduction, value| {
            let axes = named_axes(&[("m", m, false), ("n", n, true)]);
            Computed { name, axes, value, reduction, dims: vec![0] }
        };
        let given = |name| OperandTensor { name, shape: vec![m, n], is_constant: false };
        OperatorFormula {
            operands: vec![given("input"), given("mask")],
            computed: vec![
                of_row("largest", Reduction::Max, masked(input, Expr::Const(f32::NEG_INFINITY))),
                of_row("total", Reduction::Sum, masked(exp, zero.clone())),
            ],
            axes: named_axes(&[("m", m, false)]),
            value: Expr::sum(largest, Expr::unary(UnaryOp::Log, total)),
            reduction: Reduction::Sum,
            share: None,
            shape: vec![m],
            index: vec![row],
            channel: 0,
        }
    }
}

fn main() -> anyhow::Result<()> {
    // Worker processes run this program, too: they must know the operators before they serve.
    register_operator(&CORRELATE)?;
    register_operator(&MASKED_LOG_SUM_EXP)?;
    autotune::serve_if_worker();
    let trials = std::env::args().nth(1).map_or(Ok(64), |text| text.parse()).context("TRIALS is no number")?;

    for text in ["correlate:c=64,w=4100,o=64,k=5,bias,act=relu", "masked_log_sum_exp:m=512,n=1000"] {
        let workload: Workload = text.parse()?;
        contract::operator(workload.operator().kind().name);
        tune_and_run(&workload, trials)?;
    }
    Ok(())
}

fn tune_and_run(workload: &Workload, trials: usize) -> anyhow::Result<()> {
    let target = Target::detect("cpu", None)?;
    let db = TuningDb::temporary()?;
    let report = Tuner::new(&target).trials(trials).database(&db).tune(&[Task::single(workload.clone())])?;
    let task = &report.tasks[0];
    println!("{workload}: {:?} s, untuned {:?} s", task.best_secs, task.default_secs);

    let tuned = Query::new(workload, &target).source(&db).best()?;
    let operands = Operands::random(workload.spec(), 1);
    let views: Vec<View> = operands.iter().filter_map(|x| Some(View::new(x.as_slice()?, x.shape()))).collect();
    let mut output = vec![f32::NAN; workload.output_shape().iter().product()];
    tuned.build()?.run(&views, &mut [ViewMut::new(&mut output, workload.output_shape())])?;

    let output = ArrayD::from_shape_vec(workload.output_shape(), output)?;
    let error = max_rel_error(&output, &reference(workload, &operands));
    anyhow::ensure!(error <= tolerance(workload, tuned.config()), "the kernel is wrong by {error:.1e}");
    println!("{}\nruns on the caller's memory; largest relative error {error:.1e}", tuned.config());
    Ok(())
}
