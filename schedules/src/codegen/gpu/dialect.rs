//! Where CUDA C and OpenCL C differ.

use crate::program::Scope;
use crate::target::GpuApi;

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

    /// The larger of two, which passes on a first operand that is not a number.
    pub(super) fn prelude(self) -> String {
        let qualifiers = match self {
            Dialect::Cuda => "static __device__ __forceinline__",
            Dialect::OpenCl => "static inline",
        };
        format!("{qualifiers} float max1(float a, float b) {{ return a < b ? b : a; }}\n")
    }

    /// A pointer to a global buffer.
    pub(super) fn parameter(self, name: &str, stored: bool) -> String {
        let constant = if stored { "" } else { "const " };
        match self {
            Dialect::Cuda => format!("{constant}float *__restrict__ {name}"),
            Dialect::OpenCl => format!("__global {constant}float *restrict {name}"),
        }
    }

    pub(super) fn signature(self, symbol: &str, parameters: &str, threads: usize) -> String {
        match self {
            Dialect::Cuda => {
                format!("extern \"C\" __global__ void __launch_bounds__({threads}) {symbol}({parameters}) {{")
            }
            Dialect::OpenCl => {
                let size = format!("__attribute__((reqd_work_group_size({threads}, 1, 1)))");
                format!("__kernel {size} void {symbol}({parameters}) {{")
            }
        }
    }

    /// What comes before the shared buffers of a kernel. CUDA limits static shared memory to 48 KiB, so it is dynamic.
    pub(super) fn shared_memory(self) -> Option<&'static str> {
        match self {
            Dialect::Cuda => Some("extern __shared__ __align__(16) float shared[];"),
            Dialect::OpenCl => None,
        }
    }

    /// A shared buffer of `len` elements, `start` elements behind the first.
    pub(super) fn shared_buffer(self, name: &str, start: usize, len: usize) -> String {
        match self {
            Dialect::Cuda => format!("float *const {name} = shared + {start};"),
            Dialect::OpenCl => format!("__local float {name}[{len}] __attribute__((aligned(16)));"),
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

    /// A vector of 2 or 4 values.
    pub(super) fn vector(self, values: &[String]) -> String {
        let (lanes, values) = (values.len(), values.join(", "));
        match self {
            Dialect::Cuda => format!("make_float{lanes}({values})"),
            Dialect::OpenCl => format!("(float{lanes})({values})"),
        }
    }

    /// Type of a pointer to a vector in global or shared memory.
    pub(super) fn vector_pointer(self, lanes: usize, scope: Scope, stored: bool) -> String {
        let space = match (self, scope) {
            (Dialect::Cuda, _) => "",
            (Dialect::OpenCl, Scope::Shared) => "__local ",
            (Dialect::OpenCl, _) => "__global ",
        };
        let constant = if stored { "" } else { "const " };
        format!("{constant}{space}float{lanes} *")
    }
}
