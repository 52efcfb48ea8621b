//! Runs generated C kernels in this process.

use std::process::Command;
use std::{env, fs};

use autotune_codegen::c;
use autotune_ir::layout::from_layout;
use autotune_ir::program::{Role, When};
use autotune_ir::{KernelPlan, Program, Target};
use autotune_workloads::Operands;
use ndarray::ArrayD;

use super::{elements, words};

type Entry = unsafe extern "C" fn(*const *mut f32, *mut u8, i64, i64);

/// Builds the program with the C compiler, runs every stage split at an odd task, and returns the
/// output. Fails with the reason if there is no compiler.
pub fn run(program: &Program, target: &Target, operands: &Operands) -> Result<ArrayD<f32>, String> {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("k.c"), dir.path().join("k.so"));
    fs::write(&source, c::generate(program, target)).unwrap();
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let flags = [
        "-O1",
        "-shared",
        "-fPIC",
        "-march=native",
        "-Wall",
        "-Werror",
        "-Wno-unused-variable",
        "-Wno-psabi",
        "-Wno-array-bounds",
    ];

    let output = Command::new(&compiler).args(flags).arg("-o").arg(&library).arg(&source).arg("-lm").output();
    let output = output.map_err(|e| format!("{compiler}: {e}"))?;
    assert!(output.status.success(), "{}\n{program}", String::from_utf8_lossy(&output.stderr));

    let plan = KernelPlan::of(program);
    let mut buffers: Vec<Vec<f32>> = plan.buffers.iter().map(|b| words(b, operands)).collect();
    let pointers: Vec<*mut f32> = buffers.iter_mut().map(|b| b.as_mut_ptr()).collect();
    let mut local = vec![0u8; plan.local_bytes + 64];
    let local = local.as_mut_ptr().wrapping_add(local.as_ptr().align_offset(64));
    // SAFETY: the library was just built from a program that stays within the buffers of its plan.
    unsafe {
        let library = libloading::Library::new(&library).unwrap();
        for when in [When::AheadOfTime, When::EveryRun] {
            for stage in plan.stages.iter().filter(|s| s.when == when) {
                let entry: libloading::Symbol<Entry> = library.get(stage.symbol.as_bytes()).unwrap();
                let (tasks, split) = (stage.tasks as i64, stage.tasks as i64 / 3);
                entry(pointers.as_ptr(), local, split, tasks);
                entry(pointers.as_ptr(), local, 0, split);
            }
        }
    }

    let output = program.find(Role::Output).unwrap();
    let layout = program.buffer(output).layout;
    let content = elements(&plan.buffers[output.0 as usize], &buffers[output.0 as usize]);
    Ok(from_layout(&content, &program.spec.find(Role::Output).unwrap().shape, layout).unwrap())
}
