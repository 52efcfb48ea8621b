//! Maps on every backend against the interpreter, bit for bit. Every operation, and on x86 random
//! expressions, on special operands, operands of any exponent, and usual ones.

#![cfg(unix)]

use autotune_codegen::asm::assemble;
use autotune_ir::program::LoopKind::{self, Block, Parallel, Serial, Thread, Vectorized};
use autotune_ir::program::{BinaryOp, Expr, UnaryOp};
use autotune_ir::{CpuTarget, GpuApi, Isa, Program, Target, interpret};
use rand::RngExt;

use crate::common::cases::for_cases;
use crate::common::cuda_on_cpu::OnCpu;
use crate::common::maps::{difference, every_operation, mapped, operands, random_value};
use crate::common::missing;
use crate::common::nvrtc::Nvrtc;
use crate::common::opencl::OpenCl;

const ON_CPU: [LoopKind; 2] = [Parallel, Vectorized];

fn target(isa: Isa) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) })
}

#[cfg(target_arch = "x86_64")]
fn check_assembled(program: &Program, isa: Isa, seed: u64, context: &str) {
    use crate::common::machine;
    let code = assemble(program, &target(isa)).unwrap_or_else(|e| panic!("{context}: {e}\n{program}"));
    if machine::runs(isa) {
        let operands = operands(program, seed);
        let wrong = difference(&machine::run(program, &code, &operands), &interpret(program, &operands).unwrap());
        assert_eq!(wrong, None, "{context}\n{program}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn random_maps_are_assembled() {
    for isa in [Isa::Avx2, Isa::Avx512] {
        for_cases(120, |seed, rng| {
            let maps: Vec<Expr> =
                (0..rng.random_range(1..4)).map(|_| random_value(rng, 1 + seed as usize % 4)).collect();
            let extents = [rng.random_range(1..4), rng.random_range(1..36)];
            let kinds = if rng.random_bool(0.2) { [Parallel, Serial] } else { ON_CPU };
            let program = mapped(&target(isa), &maps, extents, kinds);
            check_assembled(&program, isa, seed, &format!("seed {seed}, {isa}"));
        });
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_operation_is_assembled() {
    for isa in [Isa::Avx2, Isa::Avx512] {
        for (number, map) in every_operation().into_iter().enumerate() {
            let program = mapped(&target(isa), &[map], [64, 40], ON_CPU);
            check_assembled(&program, isa, number as u64, &format!("operation {number}, {isa}"));
        }
    }
}

#[test]
fn every_operation_is_written_in_c() {
    let program = mapped(&target(Isa::Avx2), &every_operation(), [16, 15], ON_CPU);
    let operands = operands(&program, 3);
    let output = match crate::common::c::run(&program, &target(Isa::Avx2), &operands) {
        Ok(output) => output,
        Err(reason) => return missing("cc", &reason),
    };
    assert_eq!(difference(&output, &interpret(&program, &operands).unwrap()), None, "{program}");
}

/// True for operations that CUDA kernels compute by instructions with other results for NaN, zeros
/// and in the last place.
fn is_instruction(map: &Expr) -> bool {
    matches!(map, Expr::Unary(UnaryOp::Exp2, _) | Expr::Binary(BinaryOp::MaxNumber, _))
}

#[test]
fn operations_by_instructions_are_near_the_interpreter_in_cuda() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let maps: Vec<Expr> = every_operation().into_iter().filter(is_instruction).collect();
    assert!(matches!(maps[..], [Expr::Unary(..), Expr::Binary(..)]));
    let program = mapped(&target, &maps, [8, 64], [Block, Thread]);
    let operands = operands(&program, 4);
    let built = match OnCpu::build(vec![program.clone()], |_, text| text) {
        Ok(built) => built,
        Err(reason) => return missing("c++", &reason),
    };
    let (found, wanted) = (built.run(0, &operands, false).unwrap(), interpret(&program, &operands).unwrap());
    for ((at, &found), &wanted) in found.indexed_iter().zip(&wanted) {
        // Denormal powers may be zero, and the larger of NaN and a number is the number.
        let agrees = match at[1] {
            0 => (found - wanted).abs() <= 4e-7 * wanted.abs() + f32::MIN_POSITIVE || found.is_nan() && wanted.is_nan(),
            _ => wanted.is_nan(),
        };
        assert!(agrees || found == wanted, "{found:e} instead of {wanted:e} at {at:?}\n{program}");
    }
}

#[test]
fn every_operation_is_written_in_cuda() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let maps: Vec<Expr> = every_operation().into_iter().filter(|map| !is_instruction(map)).collect();
    let program = mapped(&target, &maps, [8, 64], [Block, Thread]);
    let operands = operands(&program, 4);
    let built = match OnCpu::build(vec![program.clone()], |_, text| text) {
        Ok(built) => built,
        Err(reason) => return missing("c++", &reason),
    };
    let output = built.run(0, &operands, false).unwrap();
    assert_eq!(difference(&output, &interpret(&program, &operands).unwrap()), None, "{program}");
}

#[test]
fn every_operation_is_compiled_for_cuda() {
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(reason) => return missing("nvrtc", &reason),
    };
    let Some(&sm) = nvrtc.architectures.last() else { return missing("nvrtc", "it knows no architecture") };
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let program = mapped(&target, &every_operation(), [8, 64], [Block, Thread]);
    let source = autotune_codegen::gpu::generate(&program, GpuApi::Cuda { sm });
    assert_eq!(nvrtc.compile(&source, sm).map(|kernels| kernels.len()), Ok(1), "{source}");
}

#[test]
fn every_operation_is_written_in_opencl() {
    let device = match OpenCl::find() {
        Ok(device) => device,
        Err(reason) => return missing("opencl", &reason),
    };
    let target = Target::detect("opencl", None).unwrap();
    let program = mapped(&target, &every_operation(), [8, 64], [Block, Thread]);
    let operands = operands(&program, 5);
    let output = device.run(&program, &operands).unwrap();
    assert_eq!(difference(&output, &interpret(&program, &operands).unwrap()), None, "{program}");
}

/// Returns an operation on a sum's magnitude, times the sum.
fn map(op: UnaryOp, sum: &Expr) -> Expr {
    Expr::product(Expr::unary(op, Expr::unary(UnaryOp::Abs, sum.clone())), sum.clone())
}

#[cfg(target_arch = "x86_64")]
#[test]
fn any_map_may_follow_a_register_tile() {
    use crate::common::{machine, nests};
    use autotune_workloads::{Operands, max_rel_error};

    // Tiles leave two registers or more of 16.
    for (rows, lanes) in [(2, 8), (3, 11), (6, 16), (7, 16)] {
        // A sum near an integer may round to either side, so `Floor` is left out.
        for op in UnaryOp::ALL.into_iter().filter(|op| *op != UnaryOp::Floor) {
            let mut program =
                nests::tiled_matmul(&format!("matmul:m=9,n={},k=5,bias", 2 * lanes + 3), [rows, lanes, 5]);
            let output = program.find(autotune_ir::program::Role::Output).unwrap();
            let mut last = None;
            for stage in &mut program.stages {
                nests::for_each_store(&mut stage.body, &mut |store| {
                    if store.dst.buffer == output {
                        store.value = map(op, &store.value);
                        last = Some(());
                    }
                });
            }
            assert_eq!(last, Some(()));

            let code =
                assemble(&program, &target(Isa::Avx2)).unwrap_or_else(|e| panic!("{rows} x {lanes}, {op:?}: {e}"));
            if machine::runs(Isa::Avx2) {
                let operands = Operands::random(&program.spec, 1);
                let error =
                    max_rel_error(&machine::run(&program, &code, &operands), &interpret(&program, &operands).unwrap());
                assert!(error <= 1e-3, "{rows} x {lanes}, {op:?}: error {error}");
            }
        }
    }
}
