//! Tests of generated code on operands that are aligned to their element size only.

use std::path::Path;
use std::process::Command;

use autotune_ir::layout::{from_layout, to_layout};
use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::{Artifact, Code, KernelPlan, Program, Target};
use autotune_runtime::{Cpu, Kernel, Runner, View, ViewMut};
use autotune_schedules::{ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const WORKLOADS: [&str; 3] = [
    "conv2d:c=16,h=9,w=11,o=48,k=3,p=1,bias,add,act=relu",
    "conv2d:c=5,h=8,w=8,o=7,k=3,s=2,p=1,bias",
    "matmul:m=19,n=40,k=33,bias,act=relu",
];

/// Runs a kernel on buffers that begin `offset` elements after a cache line.
fn check(artifact: &Artifact, workload: &Workload, tolerance: f64, offset: usize) {
    const LINE: usize = 16;
    let place = |elements: &[f32]| -> (Vec<f32>, usize) {
        let mut memory = vec![f32::NAN; elements.len() + 2 * LINE];
        let start = memory.as_ptr().align_offset(64) + offset;
        memory[start..start + elements.len()].copy_from_slice(elements);
        (memory, start)
    };
    let operands = Operands::random(workload.spec(), 7);
    let given = artifact.plan.buffers.iter().filter_map(|buffer| Some((buffer, operands.find(buffer.role)?)));
    let placed = given.map(|(buffer, tensor)| (buffer, place(&to_layout(tensor, buffer.layout).unwrap())));
    let placed: Vec<(&PlanBuffer, (Vec<f32>, usize))> = placed.collect();
    let views: Vec<View<'_>> = placed
        .iter()
        .map(|(buffer, (memory, start))| {
            let elements = &memory[*start..*start + buffer.elements().unwrap()];
            View::new(elements, &buffer.shape).in_layout(buffer.layout)
        })
        .collect();

    let output = artifact.plan.buffers.iter().find(|buffer| buffer.binding == Binding::Output).unwrap();
    let (mut memory, start) = place(&vec![f32::NAN; output.elements().unwrap()]);
    let elements = &mut memory[start..start + output.elements().unwrap()];
    let cpu = Cpu::new(2);
    // SAFETY: the code was generated for this plan and this processor.
    let mut runner = Runner::new(unsafe { Kernel::load(&cpu, artifact) }.unwrap(), cpu).unwrap();
    let mut outputs = [ViewMut::new(elements, &output.shape).in_layout(output.layout)];
    runner.run(&views, &mut outputs).unwrap();

    let result = from_layout(elements, workload.output_shape(), output.layout).unwrap();
    let error = max_rel_error(&result, &reference(workload, &operands));
    assert!(error <= tolerance, "{workload}, {offset} elements behind a line: error {error}");
}

/// Checks kernels of random schedules, compiled by `code`.
fn check_all(configs: usize, code: impl Fn(&Program, &Target) -> Option<Code>) {
    let target = Target::detect("cpu", Some(2)).unwrap();
    for (seed, text) in WORKLOADS.into_iter().enumerate() {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        for number in 0..configs {
            let config = if number == 0 { space.default_config() } else { space.sample(&mut rng).config().clone() };
            let program = lower(&workload, &target, &config).unwrap();
            let Some(code) = code(&program, &target) else { return };
            let artifact = Artifact { target: target.clone(), plan: KernelPlan::of(&program), code };
            for offset in [1, 7] {
                check(&artifact, &workload, tolerance(&workload, &config), offset);
            }
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn machine_code_runs_at_any_address() {
    check_all(25, |program, target| autotune_codegen::asm::assemble(program, target).ok().map(Code::Machine));
}

#[test]
fn compiled_c_runs_at_any_address() {
    let dir = tempfile::tempdir().unwrap();
    check_all(2, |program, target| Some(Code::Library(compile(program, target, dir.path())?)));
}

/// Tests outputs of 16-bit elements in the caller's memory, at an odd distance from a cache line;
/// checks that nothing next to them is written.
#[test]
#[cfg(target_arch = "x86_64")]
fn results_of_16_bits_are_handed_out_as_bits() {
    use autotune_ir::DType::{Bf16, F16, F32};
    use autotune_runtime::{KernelError, ViewMismatch};
    const UNTOUCHED: u16 = 0xbeef;
    let (target, cpu) = (Target::detect("cpu", Some(2)).unwrap(), Cpu::new(2));
    for (to, dtype) in [("f16", F16), ("bf16", Bf16)] {
        let workload: Workload = format!("pointwise:m=9,n=37,op=copy,to={to}").parse().unwrap();
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let program = lower(&workload, &target, &config).unwrap();
        let Ok(code) = autotune_codegen::asm::assemble(&program, &target) else { return };
        let artifact = Artifact { target: target.clone(), plan: KernelPlan::of(&program), code: Code::Machine(code) };
        // SAFETY: the code was generated for this plan and this processor.
        let mut runner = Runner::new(unsafe { Kernel::load(&cpu, &artifact) }.unwrap(), Cpu::new(2)).unwrap();

        let x: Vec<f32> = (0..9 * 37).map(|i| 0.37 * i as f32 - 50.0).collect();
        let (operands, shape) = ([View::new(&x, &[9, 37])], [9, 37]);
        for first in [1, 2, 31] {
            let mut y = vec![UNTOUCHED; first + x.len() + 31];
            let elements = &mut y[first..first + x.len()];
            runner.run(&operands, &mut [ViewMut::of_bits(elements, dtype, &shape)]).unwrap();
            let wanted: Vec<u16> = x.iter().map(|&x| dtype.words(&[x])[0] as u16).collect();
            assert_eq!(elements, wanted);
            assert!(y[..first].iter().chain(&y[first + x.len()..]).all(|&bits| bits == UNTOUCHED), "{to}, {first}");
        }

        let mut floats = vec![0.0; x.len()];
        let refused = runner.run(&operands, &mut [ViewMut::new(&mut floats, &shape)]).unwrap_err();
        let KernelError::Operand { misfit, .. } = refused else { panic!("{refused}") };
        assert_eq!(misfit, ViewMismatch::DType { found: F32, wanted: dtype });
    }
}

/// Compiles the program's C code; `None` if there is no C compiler.
fn compile(program: &Program, target: &Target, folder: &Path) -> Option<std::path::PathBuf> {
    let number = std::fs::read_dir(folder).unwrap().count();
    let (source, library) = (folder.join(format!("{number}.c")), folder.join(format!("{number}.so")));
    std::fs::write(&source, autotune_codegen::c::generate(program, target)).unwrap();
    let mut command = Command::new("cc");
    command.args(["-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-o"]).args([&library, &source]);
    match command.status() {
        Ok(status) => assert!(status.success()),
        Err(reason) => {
            let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
            assert!(required.split(',').all(|name| name != "cc"), "cc is required: {reason}");
            eprintln!("skipped, cc is missing: {reason}");
            return None;
        }
    }
    Some(library)
}
