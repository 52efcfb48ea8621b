//! Random workloads of every operator on every backend: interpreted, assembled, in C, as CUDA built
//! for the CPU, and as OpenCL. `AUTOTUNE_CASES` sets the number of workloads per test.
//!
//! Without a compiler or device, these tests print a notice and pass; `AUTOTUNE_REQUIRE=g++,opencl`
//! makes that a failure.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use autotune_ir::{CpuTarget, DType, GpuTarget, Isa, Program, Target, interpret, verify};
use autotune_schedules::{Candidate, ScheduleSpace, tolerance};
use autotune_workloads::{Epilogue, Operands, Reference, Types, Workload, operators};
use ndarray::ArrayD;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::common::cases::{Choices, cases, for_cases, for_cases_in_parallel};
use crate::common::cuda_on_cpu::OnCpu;
use crate::common::opencl::OpenCl;
use crate::common::operators::random_of;
use crate::common::spaces::some;
use crate::common::targets::{random_cpu, random_gpu};
use crate::common::{missing, or_long};

/// Numbers of workloads in an ordinary run, at least one of each operator, and in a long run.
const INTERPRETED: [u64; 2] = [22, 440];
const ASSEMBLED: [u64; 2] = [88, 880];
const IN_C: [u64; 2] = [22, 132];
const AS_CUDA: [u64; 2] = [22, 66];
const AS_OPENCL: [u64; 2] = [22, 66];
/// Schedules of a workload that are compiled, in an ordinary and a long run.
const COMPILED: [usize; 2] = [1, 2];
/// Number of programs that are built as one library.
const OF_LIBRARY: usize = 11;

/// A random workload with some of its schedules, for the operator and target that a seed chooses.
struct Case {
    seed: u64,
    workload: Workload,
    candidates: Vec<Candidate>,
    operands: Operands,
    reference: Reference,
}

impl Case {
    fn new(seed: u64, target: &Target, schedules: usize, rng: &mut impl Rng) -> Self {
        let kinds = operators();
        let plain = random_of(kinds[seed as usize % kinds.len()].name, rng);
        let typed = random_typed(&plain, target, rng);
        // Tf32 has kernels only for contractions with packed, constant weights.
        let is_multiplied =
            typed.dtype() == DType::Tf32 && typed.spec().is_contraction() && !typed.weights().is_empty();
        let packed = Some(&typed).filter(|_| is_multiplied).and_then(|typed| typed.with_constant_weights(true).ok());
        let workload = packed.unwrap_or(typed);

        let space = ScheduleSpace::new(&workload, target);
        assert_eq!(space.refusal(), None, "seed {seed}: {workload} on {target}");
        let candidates = some(&space, schedules, rng);
        let operands = Operands::random(workload.spec(), seed);
        let reference = Reference::new(&workload, &operands, seed).unwrap();
        Self { seed, workload, candidates, operands, reference }
    }

    fn expected(&self) -> &ArrayD<f32> {
        self.reference.exact().expect("small workloads are compared in full")
    }

    /// Asserts that a program's output is near the reference.
    fn check(&self, candidate: &Candidate, program: &Program, output: Result<ArrayD<f32>, String>) {
        let (config, target) = (candidate.config(), candidate.target());
        let context = format!("seed {}: {} on {target}\n{config}\n{program}", self.seed, self.workload);
        let output = output.unwrap_or_else(|problem| panic!("{context}\n{problem}"));
        let expected = self.expected();
        assert_eq!(output.shape(), expected.shape(), "{context}");
        let differences =
            output.iter().zip(expected).map(|(a, r)| if a.is_finite() { (a - r).abs() } else { f32::INFINITY });
        let error = f64::from(differences.fold(0.0, f32::max) / self.reference.largest());
        assert!(error <= tolerance(&self.workload, config), "{context}\nerror {error}");
    }

    /// Runs and checks all schedules.
    fn check_all(&self, run: impl Fn(&Program, &Target, &Operands) -> Result<ArrayD<f32>, String>) {
        for candidate in &self.candidates {
            let program = candidate.lower().unwrap();
            self.check(candidate, &program, run(&program, candidate.target(), &self.operands));
        }
    }
}

/// Returns the workload with random element types that the target has kernels for.
fn random_typed(plain: &Workload, target: &Target, rng: &mut impl Rng) -> Workload {
    let uniform = DType::ALL.map(Types::of);
    let out = Types { out: DType::F32, ..Types::of(DType::Bf16) };
    let rounded = Types { out: DType::Bf16, ..Types::of(DType::F32) };
    let mixed = [out, rounded, Types::of_sums(DType::Bf16, DType::Bf16), Types::of_sums(DType::Bf16, DType::F32)];
    let typed = uniform.into_iter().chain(mixed).filter_map(|types| plain.with_types(types).ok());
    let typed: Vec<Workload> = typed.filter(|typed| typed.unsupported_dtype(target).is_none()).collect();
    let typed = typed.choose(rng).unwrap();
    let table = typed.result_dtype().bytes() == 1 && rng.random_bool(0.5);
    typed.with_epilogue(Epilogue { table, ..typed.epilogue() })
}

fn stated(word: &str) -> Target {
    Target::Gpu(GpuTarget::stated(word).unwrap())
}

fn assert_interpreted(target_of: fn(&mut Choices) -> Target) {
    for_cases_in_parallel(cases(or_long(INTERPRETED)), |seed, choices| {
        let target = target_of(choices);
        Case::new(seed, &target, 3, choices).check_all(|program, target, operands| {
            verify(program, target).map_err(|problem| problem.to_string())?;
            interpret(program, operands).map_err(|problem| problem.to_string())
        });
    });
}

#[test]
fn programs_for_cpus_are_proven_and_interpreted() {
    assert_interpreted(random_cpu);
}

#[test]
fn programs_for_gpus_are_proven_and_interpreted() {
    assert_interpreted(random_gpu);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_are_assembled() {
    use crate::common::machine;
    use autotune_codegen::asm::assemble;
    for (isa, features) in [(Isa::Avx2, &[][..]), (Isa::Avx512, &[]), (Isa::Avx512, &["avx512bf16"])] {
        let runs = machine::runs(isa) && features.iter().all(|feature| machine::has(feature));
        for_cases_in_parallel(cases(or_long(ASSEMBLED)), |seed, choices| {
            let features = features.iter().map(|feature| feature.to_string()).collect();
            let target = Target::Cpu(CpuTarget { isa, features, ..CpuTarget::generic_avx2(1 + seed as usize % 2) });
            let case = Case::new(seed, &target, 4, choices);
            case.check_all(|program, target, operands| {
                let code = assemble(program, target).map_err(|error| error.to_string())?;
                assert_eq!(code.entries.len(), program.stages.len());
                Ok(if runs { machine::run(program, &code, operands) } else { case.expected().clone() })
            });
        });
    }
}

#[test]
fn programs_are_written_in_c() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    for_cases_in_parallel(cases(or_long(IN_C)), |seed, choices| {
        Case::new(seed, &target, or_long(COMPILED), choices).check_all(crate::common::c::run);
    });
}

/// Runs the threads in both orders.
#[test]
fn programs_are_written_in_cuda() {
    let (target, seeds) = (stated("cuda:sm_90"), (0..cases(or_long(AS_CUDA))).collect::<Vec<u64>>());
    seeds.par_chunks(OF_LIBRARY).for_each(|seeds| {
        let case = |&seed: &u64| Case::new(seed, &target, or_long(COMPILED), &mut ChaCha8Rng::seed_from_u64(seed));
        let all: Vec<Case> = seeds.iter().map(case).collect();
        let each: Vec<(&Case, &Candidate)> =
            all.iter().flat_map(|case| case.candidates.iter().map(move |candidate| (case, candidate))).collect();
        let programs: Vec<Program> = each.iter().map(|(_, candidate)| candidate.lower().unwrap()).collect();
        let built = match OnCpu::build(programs.clone(), |_, text| text) {
            Ok(built) => built,
            Err(reason) => return missing("g++", &reason),
        };
        for (number, (case, candidate)) in each.into_iter().enumerate() {
            for backwards in [false, true] {
                let output = built.run(number, &case.operands, backwards);
                case.check(candidate, &programs[number], output);
            }
        }
    });
}

#[test]
fn programs_are_written_in_opencl() {
    let device = match OpenCl::find() {
        Ok(device) => device,
        Err(reason) => return missing("opencl", &reason),
    };
    let target = Target::detect("opencl", None).unwrap();
    for_cases(cases(or_long(AS_OPENCL)), |seed, choices| {
        let case = Case::new(seed, &target, or_long(COMPILED), choices);
        case.check_all(|program, _, operands| device.run(program, operands));
    });
}
