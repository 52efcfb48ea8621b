//! Generated CUDA C, built by a C++ compiler with `cuda_shim.h` and run on the CPU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use autotune_schedules::plan::TensorBox;
use autotune_schedules::program::{Role, When};
use autotune_schedules::tensor::from_layout;
use autotune_schedules::{GpuApi, KernelPlan, Operands, Program, codegen};
use libloading::Library;
use ndarray::ArrayD;
use tempfile::TempDir;

use super::contents;

/// Programs built together.
pub struct OnCpu {
    library: Library,
    plans: Vec<(KernelPlan, Program)>,
    _folder: TempDir,
}

/// The shim's `TensorMap`.
#[repr(C)]
struct Map {
    base: *mut c_void,
    rows_columns: [c_int; 2],
    box_rows_columns: [c_int; 2],
}

fn map(plan: &KernelPlan, one: &TensorBox, pointers: &[*mut c_void]) -> Map {
    let number = plan.buffers[..one.buffer].iter().filter(|b| b.global).count();
    let &[.., rows, columns] = &plan.buffers[one.buffer].shape[..] else { panic!("a box of no matrix") };
    let ints = |sizes: [usize; 2]| sizes.map(|size| size as c_int);
    Map { base: pointers[number], rows_columns: ints([rows, columns]), box_rows_columns: ints(one.shape) }
}

type Run = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_uint, c_int) -> *const c_char;

/// Elements behind each buffer that must not change.
const GUARD: u32 = 0xffc0_dead;

impl OnCpu {
    /// Builds the programs' kernels, each text as `edit` returns it; or says why there is no compiler.
    pub fn build(programs: Vec<Program>, edit: impl Fn(usize, String) -> String) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (source, library) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
        let mut text = "#include \"cuda_shim.h\"\n".to_string();
        let plans: Vec<_> = programs.into_iter().map(|program| (KernelPlan::of(&program), program)).collect();
        for (number, (plan, program)) in plans.iter().enumerate() {
            let kernels = edit(number, codegen::gpu::generate(program, GpuApi::Cuda { sm: 90 }));
            let kernels = kernels.replace("extern \"C\" ", "");
            let bytes = plan.stages.iter().filter_map(|s| s.launch).map(|l| l.shared_bytes).max().unwrap_or(0).max(16);
            let space = format!("alignas(1024) unsigned char shared[{bytes}];");
            writeln!(text, "namespace k{number} {{\n{space}\n{kernels}\n}}").unwrap();
            for (stage, of) in plan.stages.iter().enumerate() {
                let kernel = format!("[](void **p) {{ call(k{number}::{}, p); }}", of.symbol);
                let run =
                    format!("run_grid({kernel}, buffers, blocks, threads, k{number}::shared, {bytes}, backwards)");
                let head = format!("extern \"C\" const char *run_{number}_{stage}");
                writeln!(
                    text,
                    "{head}(void **buffers, unsigned blocks, unsigned threads, int backwards) {{ return {run}; }}"
                )
                .unwrap();
            }
        }
        fs::write(&source, text).map_err(|e| e.to_string())?;
        let compiler = env::var("CXX").unwrap_or_else(|_| "g++".into());
        let output = Command::new(&compiler)
            .args(["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common"))
            .arg(&source)
            .arg("-o")
            .arg(&library)
            .output()
            .map_err(|e| format!("{compiler}: {e}"))?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: the library has no initialisers but those of the shim's own variables.
        let library = unsafe { Library::new(&library) }.map_err(|e| e.to_string())?;
        Ok(Self { library, plans, _folder: folder })
    }

    /// The output of program `number`, its warps one after the other or the last one first; or what goes wrong.
    pub fn run(&self, number: usize, operands: &Operands, backwards: bool) -> Result<ArrayD<f32>, String> {
        let (plan, program) = &self.plans[number];
        let global: Vec<_> = plan.buffers.iter().filter(|b| b.global).collect();
        // Aligned like memory of a device.
        let mut memory: Vec<Vec<[u32; 4]>> = Vec::new();
        for buffer in &global {
            let mut words = buffer.dtype.words(&contents(buffer, operands));
            words.push(GUARD);
            memory.push(words.chunks(4).map(|c| std::array::from_fn(|i| c.get(i).copied().unwrap_or(GUARD))).collect());
        }
        let pointers: Vec<*mut c_void> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
        for when in [When::AheadOfTime, When::EveryRun] {
            for (stage, of) in plan.stages.iter().enumerate().filter(|(_, s)| s.when == when) {
                let launch = of.launch.ok_or("a stage without a launch")?;
                let mut maps: Vec<Map> = of.boxes.iter().map(|one| map(plan, one, &pointers)).collect();
                let mut arguments = pointers.clone();
                arguments.extend(maps.iter_mut().map(|map| std::ptr::from_mut(map).cast::<c_void>()));
                let symbol = format!("run_{number}_{stage}");
                // SAFETY: the function was generated with this type; the buffers are the plan's.
                let wrong = unsafe {
                    let run = self.library.get::<Run>(symbol.as_bytes()).map_err(|e| e.to_string())?;
                    let wrong = run(
                        arguments.as_mut_ptr(),
                        launch.blocks as u32,
                        launch.threads as u32,
                        c_int::from(backwards),
                    );
                    (!wrong.is_null()).then(|| CStr::from_ptr(wrong).to_string_lossy().into_owned())
                };
                wrong.map_or(Ok(()), Err)?;
            }
        }
        let mut output = None;
        for (buffer, memory) in global.iter().zip(&memory) {
            let len: usize = buffer.shape.iter().product();
            let words: Vec<u32> = memory.iter().flatten().copied().collect();
            if words[(len * buffer.dtype.bytes()).div_ceil(4)] != GUARD {
                return Err(format!("memory behind the {:?} buffer changed", buffer.role));
            }
            if buffer.role == Role::Output {
                output = Some((buffer.dtype.values(&words, len), buffer.layout));
            }
        }
        let (values, layout) = output.ok_or("no output")?;
        from_layout(&values, &program.workload.output_shape(), layout).map_err(|e| e.to_string())
    }
}
