//! Shared parts of the integration tests. Other crates use some of them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod c;
#[path = "../../../workloads/tests/common/cases.rs"]
pub mod cases;
#[path = "../../../workloads/tests/common/convolutions.rs"]
pub mod convolutions;
#[cfg(unix)]
pub mod cuda_on_cpu;
#[path = "../../../workloads/tests/common/epilogues.rs"]
pub mod epilogues;
#[path = "../../../workloads/tests/common/golden.rs"]
pub mod golden;
#[cfg(unix)]
pub mod gpu_kernels;
pub mod instructions;
#[path = "../../../workloads/tests/common/long.rs"]
pub mod long;
#[cfg(target_arch = "x86_64")]
pub mod machine;
pub mod maps;
pub mod nests;
#[cfg(unix)]
pub mod nvrtc;
#[path = "../../../workloads/tests/common/odd_workloads.rs"]
pub mod odd_workloads;
#[cfg(unix)]
pub mod opencl;
#[path = "../../../workloads/tests/common/operators.rs"]
pub mod operators;
#[path = "../../../workloads/tests/common/pairs.rs"]
pub mod pairs;
pub mod pipelines;
#[path = "../../../workloads/tests/common/pointwise.rs"]
pub mod pointwise;
pub mod random_programs;
#[cfg(unix)]
pub mod shim;
pub mod spaces;
pub mod targets;
pub mod tiling;
pub mod variants;
#[path = "../../../workloads/tests/common/workloads.rs"]
pub mod workloads;

use std::io::Write;
use std::{env, io};

use autotune_ir::layout::to_layout;
use autotune_ir::plan::PlanBuffer;
use autotune_workloads::Operands;
pub use long::or_long;
pub use tiling::tiling;

/// Prints that a test cannot run here. Panics if `AUTOTUNE_REQUIRE` lists the tool.
pub fn missing(tool: &str, reason: &str) {
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != tool), "{tool} is required: {reason}");
    // The test harness captures `eprintln!` of tests that pass, so this writes to stderr directly.
    let _ = writeln!(io::stderr(), "skipped, {tool} is missing: {reason}");
}

/// Returns the initial content of a buffer: its operand, or NaN.
pub fn contents(buffer: &PlanBuffer, operands: &Operands) -> Vec<f32> {
    let values = operands.find(buffer.role).map(|tensor| to_layout(tensor, buffer.layout).unwrap());
    values.unwrap_or_else(|| vec![f32::NAN; buffer.shape.iter().product()])
}

/// Returns the initial content as 32-bit words in memory.
pub fn words(buffer: &PlanBuffer, operands: &Operands) -> Vec<f32> {
    let words = buffer.dtype.words(&contents(buffer, operands));
    words.into_iter().map(f32::from_bits).collect()
}

/// Returns the elements of a buffer. Asserts that the padding after the last element is unchanged.
pub fn elements(buffer: &PlanBuffer, words: &[f32]) -> Vec<f32> {
    let words: Vec<u32> = words.iter().map(|word| word.to_bits()).collect();
    let len = buffer.elements().unwrap();
    if buffer.dtype.bytes() == 2 && len % 2 == 1 {
        assert_eq!(words[len / 2] >> 16, 0, "a write behind buffer '{}'", buffer.name);
    }
    buffer.dtype.values(&words, len)
}
