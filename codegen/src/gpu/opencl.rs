//! The OpenCL C 1.2 dialect.

use super::dialect::Dialect;
use super::element;
use autotune_ir::DType;
use autotune_ir::launch::Launch;
use autotune_ir::program::{GpuGrid, Program, Scope, Stage};

pub(super) struct OpenCl;

impl Dialect for OpenCl {
    const BLOCK_NUMBER: &str = "get_group_id(0)";
    const THREAD_NUMBER: &str = "get_local_id(0)";
    const BARRIER: &str = "barrier(CLK_LOCAL_MEM_FENCE);";

    const FUNCTION: &str = "static inline";
    const MATH: [&str; 3] = ["sqrt", "floor", "fma"];

    const INFINITY: &str = "INFINITY";

    const CONVERTS_BY_FORMULAS: bool = true;

    fn new(_: &Program, _: &Stage, _: &GpuGrid, _: Launch) -> Self {
        Self
    }

    fn prelude(_: &Program) -> String {
        "static inline float max1(float a, float b) { return a < b ? b : a; }\n".into()
    }

    fn parameter(dtype: DType, name: &str, stored: bool) -> String {
        let constant = if stored { "" } else { "const " };
        format!("__global {constant}{} *restrict {name}", element::type_of(dtype))
    }

    fn signature(&self, symbol: &str, parameters: &str, threads: usize) -> String {
        let size = format!("__attribute__((reqd_work_group_size({threads}, 1, 1)))");
        format!("__kernel {size} void {symbol}({parameters}) {{")
    }

    fn shared_buffer(dtype: DType, name: &str, _: usize, len: usize) -> String {
        format!("__local {} {name}[{len}] __attribute__((aligned(16)));", element::type_of(dtype))
    }

    fn vector_of(vector: &str, words: &str) -> String {
        format!("({vector})({words})")
    }

    fn address_space(scope: Scope) -> &'static str {
        match scope {
            Scope::Shared => "__local ",
            Scope::Global | Scope::Local | Scope::Register | Scope::Warp => "__global ",
        }
    }
}
