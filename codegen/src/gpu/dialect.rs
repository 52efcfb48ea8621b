//! Where CUDA C and OpenCL C differ.

use super::{element, functions};
use autotune_ir::DType;
use autotune_ir::program::{Program, Scope};
use autotune_ir::target::GpuApi;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Cuda,
    OpenCl,
}

impl Dialect {
    pub(super) fn of(api: GpuApi) -> Self {
        match api {
            GpuApi::Cuda { .. } => Dialect::Cuda,
            GpuApi::OpenCl => Dialect::OpenCl,
        }
    }

    /// Functions that the kernels of a program call: the larger of two, which passes on a first operand that is not a number,
    /// and whatever takes assembly.
    pub(super) fn prelude(self, program: &Program) -> String {
        let qualifiers = match self {
            Dialect::Cuda => "static __device__ __forceinline__",
            Dialect::OpenCl => "static inline",
        };
        let own = match self {
            Dialect::Cuda => functions::of(program),
            Dialect::OpenCl => String::new(),
        };
        format!("{qualifiers} float max1(float a, float b) {{ return a < b ? b : a; }}\n{own}")
    }

    /// A pointer to a global buffer.
    pub(super) fn parameter(self, dtype: DType, name: &str, stored: bool) -> String {
        let constant = if stored { "" } else { "const " };
        let element = element::type_of(dtype);
        match self {
            Dialect::Cuda => format!("{constant}{element} *__restrict__ {name}"),
            Dialect::OpenCl => format!("__global {constant}{element} *restrict {name}"),
        }
    }

    /// The head of a kernel; `alone` if no other block is to be on the multiprocessor.
    pub(super) fn signature(self, symbol: &str, parameters: &str, threads: usize, alone: bool) -> String {
        match self {
            Dialect::Cuda => {
                let bounds = format!("__launch_bounds__({threads}{})", if alone { ", 1" } else { "" });
                format!("extern \"C\" __global__ void {bounds} {symbol}({parameters}) {{")
            }
            Dialect::OpenCl => {
                let size = format!("__attribute__((reqd_work_group_size({threads}, 1, 1)))");
                format!("__kernel {size} void {symbol}({parameters}) {{")
            }
        }
    }

    /// What comes before the shared buffers of a kernel. CUDA limits static shared memory to 48 KiB, so it is dynamic.
    pub(super) fn shared_memory(self, alignment: usize) -> Option<String> {
        match self {
            Dialect::Cuda => Some(format!("extern __shared__ __align__({alignment}) unsigned char shared[];")),
            Dialect::OpenCl => None,
        }
    }

    /// A shared buffer of `len` elements that begins at byte `start`.
    pub(super) fn shared_buffer(self, dtype: DType, name: &str, start: usize, len: usize) -> String {
        let element = element::type_of(dtype);
        match self {
            Dialect::Cuda => format!("{element} *const {name} = ({element} *)(shared + {start});"),
            Dialect::OpenCl => format!("__local {element} {name}[{len}] __attribute__((aligned(16)));"),
        }
    }

    pub(super) fn block_number(self) -> &'static str {
        match self {
            Dialect::Cuda => "blockIdx.x",
            Dialect::OpenCl => "get_group_id(0)",
        }
    }

    pub(super) fn thread_number(self) -> &'static str {
        match self {
            Dialect::Cuda => "threadIdx.x",
            Dialect::OpenCl => "get_local_id(0)",
        }
    }

    pub(super) fn barrier(self) -> &'static str {
        match self {
            Dialect::Cuda => "__syncthreads();",
            Dialect::OpenCl => "barrier(CLK_LOCAL_MEM_FENCE);",
        }
    }

    /// What ends a group of copies, and what waits for all but the latest `but`: nothing where copies are plain stores.
    pub(super) fn end_group(self) -> Option<&'static str> {
        (self == Dialect::Cuda).then_some("end_group();")
    }

    pub(super) fn await_copies(self, but: usize) -> Option<String> {
        (self == Dialect::Cuda).then(|| format!("await_copies<{but}>();"))
    }

    /// A vector in memory of 2, 4 or 8 values.
    pub(super) fn vector(self, dtype: DType, values: &[String]) -> String {
        let (words, vector) = (element::words(dtype, values), element::vector_type(dtype, values.len()));
        match (self, &words[..]) {
            (_, [word]) => word.clone(),
            (Dialect::Cuda, words) => format!("make_{vector}({})", words.join(", ")),
            (Dialect::OpenCl, words) => format!("({vector})({})", words.join(", ")),
        }
    }

    /// Type of a pointer to a vector in global or shared memory.
    pub(super) fn vector_pointer(self, dtype: DType, lanes: usize, scope: Scope, stored: bool) -> String {
        let space = match (self, scope) {
            (Dialect::Cuda, _) => "",
            (Dialect::OpenCl, Scope::Shared) => "__local ",
            (Dialect::OpenCl, _) => "__global ",
        };
        let constant = if stored { "" } else { "const " };
        format!("{constant}{space}{} *", element::vector_type(dtype, lanes))
    }
}
