//! Generated C against the reference, on random workloads and random configs.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;
use std::{env, fs};

use autotune_codegen::c;
use autotune_ir::layout::from_layout;
use autotune_ir::program::{Role, When};
use autotune_ir::{KernelPlan, Program, Target};
use autotune_schedules::{Config, Operands, ScheduleSpace, Workload, lower, max_rel_error, reference, tolerance};
use common::contents;
use common::workloads::{random_map_reduce, random_panel, random_winograd, random_workload, sample_winograd};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

type Entry = unsafe extern "C" fn(*const *mut f32, *mut u8, i64, i64);

/// Builds the program with the C compiler, runs every stage split at an odd place, and returns the output.
fn run_c(program: &Program, target: &Target, operands: &Operands) -> ndarray::ArrayD<f32> {
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
    let output = Command::new(compiler).args(flags).arg("-o").arg(&library).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plan = KernelPlan::of(program);
    let mut buffers: Vec<Vec<f32>> = plan.buffers.iter().map(|b| contents(b, operands)).collect();
    let pointers: Vec<*mut f32> = buffers.iter_mut().map(|b| b.as_mut_ptr()).collect();
    let mut local = vec![0u8; plan.local_bytes + 64];
    let local = local.as_mut_ptr().wrapping_add(local.as_ptr().align_offset(64));
    // SAFETY: the library was just built from a program that keeps within the buffers of its plan.
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
    from_layout(&buffers[output.0 as usize], &program.spec.find(Role::Output).unwrap().shape, layout).unwrap()
}

fn check(workload: &Workload, target: &Target, seed: u64, configs: impl Fn(&ScheduleSpace) -> Vec<Config>) {
    let space = ScheduleSpace::new(workload, target);
    let operands = Operands::random(workload.spec(), seed);
    let expected = reference(workload, &operands);
    for config in configs(&space) {
        assert!(space.contains(&config), "{workload}: {config} {:?}", lower(workload, target, &config).err());
        let program = lower(workload, target, &config).unwrap();
        let error = max_rel_error(&run_c(&program, target, &operands), &expected);
        assert!(error <= tolerance(workload, &config), "seed {seed}: {workload}\n{config}\nerror {error}\n{program}");
    }
}

#[test]
fn random_programs_agree_with_the_reference() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    (0..40u64).into_par_iter().for_each(|seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = random_workload(&mut rng);
        check(&workload, &target, seed, |space| {
            let mut rng = rng.clone();
            [space.default_config()]
                .into_iter()
                .chain((0..2).map(|_| space.sample(&mut rng).config().clone()))
                .collect()
        });
    });
}

#[test]
fn random_maps_and_reductions_agree_with_the_reference() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    (0..24u64).into_par_iter().for_each(|seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = random_map_reduce(&mut rng);
        check(&workload, &target, seed, |space| {
            vec![space.default_config(), space.sample(&mut rng.clone()).config().clone()]
        });
    });
}

#[test]
fn random_panels_agree_with_the_reference() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    (0..16u64).into_par_iter().for_each(|seed| {
        let (workload, config) = random_panel(&target, &mut ChaCha8Rng::seed_from_u64(seed));
        check(&workload, &target, seed, |_| vec![config.clone()]);
    });
}

#[test]
fn random_winograd_programs_agree_with_the_reference() {
    let target = Target::detect("cpu", Some(1)).unwrap();
    (0..8u64).into_par_iter().for_each(|seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = random_winograd(&mut rng, target.cpu().unwrap().lanes().max(8));
        check(&workload, &target, seed, |space| vec![sample_winograd(space, &mut rng.clone())]);
    });
}
