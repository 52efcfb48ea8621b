//! Matrix instructions of warps (`mma.sync`, operands by `ldmatrix`).

use super::Cuda;
use crate::flat_offset;
use crate::gpu::dialect::Printer;
use crate::gpu::element;
use crate::gpu::writer::GpuWriter;
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::instruction::{Fragments, MMA};
use autotune_ir::machine::gpu::WARP_THREADS;
use autotune_ir::program::{Access, Node};

pub(super) const PRINTER: Printer<Cuda> =
    Printer { instruction: &MMA, functions: |dtype, _| functions(dtype), print: |writer, body| writer.mma(body) };

pub(super) fn functions(dtype: DType) -> String {
    let product = match dtype {
        DType::F16 => include_str!("mma_f16.cu"),
        DType::Bf16 => include_str!("mma_bf16.cu"),
        _ => include_str!("mma_tf32.cu"),
    };
    [include_str!("matrices.cu"), product].concat()
}

impl GpuWriter<'_, Cuda> {
    /// Writes a warp's product of two matrices in shared memory:
    ///
    /// ```text
    /// mma { unrolled s, i, j, .. { acc[i, j, ..] += rows[..] * columns[..] } }
    ///   →  for s { for i { a[i] = ldmatrix(rows) };  for j { b[j] = ldmatrix(columns) };  for i, j { mma(acc[i, j], a[i], b[j]) } }
    /// ```
    ///
    /// Rows that the lanes hold in registers are only narrowed.
    fn mma(&mut self, body: &[Node]) {
        let Some(tile) = Fragments::of(body) else {
            self.unsupported("loop nest does not match the matrix instruction");
            return;
        };
        let [s, i, j, h, .., k] = tile.loops;
        let dtype = self.dtype(tile.columns);
        let (element, word) = (element::type_of(dtype), dtype.word());
        let unit = 16 / dtype.bytes();
        let (rows, columns) = (flat_offset(self.program, tile.rows), flat_offset(self.program, tile.columns));
        let along = |offset: &Affine, var: VarId| offset.coefficient(var);

        let held = self.program.buffer(tile.rows.buffer).lane_dims().map(|(_, dims)| dims);

        // Each lane's address, from lane 0's. `ldmatrix` loads four 8×8 matrices: each group of
        // eight lanes gives the addresses of the 16-byte rows of one matrix.
        let (row, row_step) = (along(&rows, h.var) / 8, along(&rows, k.var));
        let (rows_at, load_rows) = match (tile.rows_are_rows(), dtype.bytes()) {
            (true, _) => (format!("lane % 16 * {row} + lane / 16 * {unit}"), "load_matrices"),
            (false, 2) => {
                (format!("(lane % 8 + lane / 16 * 8) * {row_step} + lane / 8 % 2 * 8"), "load_matrices_transposed")
            }
            (false, _) => (format!("lane % 4 * {row_step} + lane / 4"), ""),
        };
        let rows_start = format!("{} + {rows_at}", self.start(tile.rows, &tile));

        let column = along(&columns, j.var) / 8;
        let step = along(&columns, k.var);
        let (columns_at, load) = match (tile.columns_are_rows(), dtype.bytes()) {
            (true, _) => (format!("(lane % 8 + lane / 16 * 8) * {column} + lane / 8 % 2 * {unit}"), "load_matrices"),
            (false, 2) => (format!("lane % 16 * {step} + lane / 16 * 8"), "load_matrices_transposed"),
            (false, _) => (format!("lane % 4 * {step} + lane / 4"), ""),
        };
        let columns_start = format!("{} + {columns_at}", self.start(tile.columns, &tile));

        let (is, js) = (i.extent, j.extent);
        let (rows_i, rows_s) = (along(&rows, i.var), along(&rows, s.var));
        let (columns_j, columns_s) = (along(&columns, j.var), along(&columns, s.var));
        let sums = &self.program.buffer(tile.store.dst.buffer).name;

        // A load of four 8×8 matrices gives one fragment of rows, or two of columns.
        let mut lines = vec![
            "{".to_string(),
            format!("  const int lane = threadIdx.x % {WARP_THREADS};"),
            format!("  const {element} *const columns = {columns_start};"),
            "  #pragma unroll".into(),
            format!("  for (int s = 0; s < {}; ++s) {{", s.extent),
            format!("    unsigned a[{is}][4], b[{}][4];", js / 2),
            "    #pragma unroll".into(),
        ];
        if held.is_none() {
            lines.insert(2, format!("  const {element} *const rows = {rows_start};"));
        }

        if let Some([_, tiles, halves, run]) = held {
            // Rows that the lanes hold have the distribution of sums: two tiles of eight columns
            // are the steps of an instruction.
            let rows = &self.program.buffer(tile.rows.buffer).name;
            let place = format!("{run}*({halves}*({tiles}*(i / 4) + 2*s + i / 2 % 2) + i % 2)");
            lines.push(format!("    for (int i = 0; i < {}; ++i)", 4 * is));
            lines.push(format!("      a[i / 4][i % 4] = pair_{word}({rows}[{place}], {rows}[{place} + 1]);"));
        } else if load_rows.is_empty() {
            // `ldmatrix` transposes 16-bit elements only, so transposed tf32 operands are loaded
            // one element at a time.
            lines.push(format!("    for (int i = 0; i < {}; ++i)", 4 * is));
            let place = format!("{rows_s}*s + {rows_i}*(i / 4) + 8*(i % 2) + {}*(i / 2 % 2)", 4 * row_step);
            lines.push(format!("      a[i / 4][i % 4] = __float_as_uint(rows[{place}]);"));
        } else {
            let place = format!("{rows_i}*i + {rows_s}*s");
            lines.push(format!("    for (int i = 0; i < {is}; ++i) {load_rows}(a[i], rows + {place});"));
        }
        lines.push("    #pragma unroll".into());
        if load.is_empty() {
            lines.push(format!("    for (int j = 0; j < {}; ++j)", 2 * js));
            let place = format!("{columns_s}*s + {}*(j % 2) + {columns_j}*(j / 2)", 4 * step);
            lines.push(format!("      b[j / 4][j % 4] = __float_as_uint(columns[{place}]);"));
        } else {
            let place = format!("{}*j + {columns_s}*s", 2 * columns_j);
            lines.push(format!("    for (int j = 0; j < {}; ++j) {load}(b[j], columns + {place});", js / 2));
        }

        // The hardware reads tf32 from the upper bits of f32: round instead of truncating.
        if dtype == DType::Tf32 {
            for (name, count) in [("a", 4 * is), ("b", 2 * js)] {
                lines.push("    #pragma unroll".into());
                lines.push(format!(
                    "    for (int i = 0; i < {count}; ++i) {name}[i / 4][i % 4] = to_tf32({name}[i / 4][i % 4]);"
                ));
            }
        }

        lines.extend([
            "    #pragma unroll".into(),
            format!("    for (int i = 0; i < {is}; ++i)"),
            "      #pragma unroll".into(),
            format!("      for (int j = 0; j < {js}; ++j)"),
            format!("        mma_{word}({sums} + 4*({js}*i + j), a[i], b[j / 2] + 2*(j % 2));"),
            "  }".into(),
            "}".into(),
        ]);
        self.lines(lines);
    }

    /// Returns the address of an operand's first element of the tile, for lane 0.
    pub(super) fn start(&self, access: &Access, tile: &Fragments) -> String {
        let loops = tile.loops.iter().chain(tile.digits.iter().flatten());
        let inner = loops.map(|l| l.var).chain(self.dialect.lanes.iter().flatten().copied());
        let start =
            inner.fold(flat_offset(self.program, access), |offset, var| offset.substitute(var, &Affine::default()));
        format!("{} + {}", self.program.buffer(access.buffer).name, self.affine(&start, 0))
    }
}
