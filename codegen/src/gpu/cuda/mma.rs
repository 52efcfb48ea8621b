//! Matrix instructions of warps (`mma.sync`, operands by `ldmatrix`).

use std::ptr;

use super::Cuda;
use super::hoist::split;
use crate::flat_offset;
use crate::gpu::dialect::Printer;
use crate::gpu::element;
use crate::gpu::writer::GpuWriter;
use autotune_ir::DType;
use autotune_ir::affine::Affine;
use autotune_ir::instruction::{Fragments, MMA};
use autotune_ir::machine::gpu::WARP_THREADS;
use autotune_ir::program::{Access, Loop, Node};

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

/// Loads of an operand's fragments by a lane.
struct LaneOperand {
    /// C type of its address.
    kind: String,
    /// Function that loads four matrices; empty if elements are loaded one at a time.
    load: &'static str,
    /// Address of the lane's first element, without terms that change in a loop.
    start: String,
    /// Terms that change in it, in the units of the address.
    varying: String,
}

impl LaneOperand {
    fn present(&self, start: &str) -> String {
        if self.varying == "0" { start.into() } else { format!("{start} + {}", self.varying) }
    }
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
        let [s, i, j, .., k] = tile.loops;
        let dtype = self.dtype(tile.columns);
        let (bytes, word) = (dtype.bytes() as i64, dtype.word());
        let held = self.program.buffer(tile.rows.buffer).lane_dims().map(|(_, dims)| dims);
        let [row_operand, column_operand] = self.lane_operands(&tile, "lane");
        let known = self.dialect.operands.iter().find(|known| ptr::eq(known.0, body.as_ptr()));
        let [known_rows, known_columns] = known.map_or([None, None], |known| known.1.each_ref().map(Some));
        let [rows_start, columns_start] = [(&row_operand, known_rows), (&column_operand, known_columns)]
            .map(|(operand, known)| operand.present(known.unwrap_or(&operand.start)));

        let (rows, columns) = (flat_offset(self.program, tile.rows), flat_offset(self.program, tile.columns));
        let along = |offset: &Affine, l: &Loop| offset.coefficient(l.var);
        let (is, js) = (i.extent, j.extent);
        let (rows_i, rows_s, row_step) = (along(&rows, i), along(&rows, s), along(&rows, k));
        let (columns_j, columns_s, step) = (along(&columns, j), along(&columns, s), along(&columns, k));
        let sums = &self.program.buffer(tile.store.dst.buffer).name;

        // A load of four 8×8 matrices gives one fragment of rows, or two of columns.
        let mut lines = vec![
            "{".to_string(),
            format!("  const int lane = threadIdx.x % {WARP_THREADS};"),
            format!("  const {} columns = {columns_start};", column_operand.kind),
            "  #pragma unroll".into(),
            format!("  for (int s = 0; s < {}; ++s) {{", s.extent),
            format!("    unsigned a[{is}][4], b[{}][4];", js / 2),
            "    #pragma unroll".into(),
        ];
        if held.is_none() {
            lines.insert(2, format!("  const {} rows = {rows_start};", row_operand.kind));
        }

        if let Some([_, tiles, halves, run]) = held {
            // Rows that the lanes hold have the distribution of sums: two tiles of eight columns
            // are the steps of an instruction.
            let rows = &self.program.buffer(tile.rows.buffer).name;
            let place = format!("{run}*({halves}*({tiles}*(i / 4) + 2*s + i / 2 % 2) + i % 2)");
            lines.push(format!("    for (int i = 0; i < {}; ++i)", 4 * is));
            lines.push(format!("      a[i / 4][i % 4] = pair_{word}({rows}[{place}], {rows}[{place} + 1]);"));
        } else if row_operand.load.is_empty() {
            // `ldmatrix` transposes 16-bit elements only, so transposed tf32 operands are loaded
            // one element at a time.
            lines.push(format!("    for (int i = 0; i < {}; ++i)", 4 * is));
            let place = format!("{rows_s}*s + {rows_i}*(i / 4) + 8*(i % 2) + {}*(i / 2 % 2)", 4 * row_step);
            lines.push(format!("      a[i / 4][i % 4] = __float_as_uint(rows[{place}]);"));
        } else {
            let place = format!("{}*i + {}*s", bytes * rows_i, bytes * rows_s);
            lines.push(format!("    for (int i = 0; i < {is}; ++i) {}(a[i], rows + {place});", row_operand.load));
        }
        lines.push("    #pragma unroll".into());
        if column_operand.load.is_empty() {
            lines.push(format!("    for (int j = 0; j < {}; ++j)", 2 * js));
            let place = format!("{columns_s}*s + {}*(j % 2) + {columns_j}*(j / 2)", 4 * step);
            lines.push(format!("      b[j / 4][j % 4] = __float_as_uint(columns[{place}]);"));
        } else {
            let place = format!("{}*j + {}*s", bytes * 2 * columns_j, bytes * columns_s);
            lines.push(format!(
                "    for (int j = 0; j < {}; ++j) {}(b[j], columns + {place});",
                js / 2,
                column_operand.load
            ));
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

    /// Writes the parts of a product's addresses that do not change in the present loop, and
    /// returns their names, with the address of the product's nest.
    pub(super) fn hoisted_operands(&mut self, body: &[Node]) -> Option<(*const Node, [String; 2])> {
        let tile = Fragments::of(body)?;
        let lane = self.new_name("lane");
        self.line(&format!("const int {lane} = threadIdx.x % {WARP_THREADS};"));
        let operands = self.lane_operands(&tile, &lane);
        let names = ["rows", "columns"].map(|word| self.new_name(word));
        // Rows that the lanes hold have no address.
        let held = usize::from(self.program.buffer(tile.rows.buffer).lane_dims().is_some());
        for (LaneOperand { kind, load, start, .. }, name) in operands.iter().zip(&names).skip(held) {
            // The compiler must know that a pointer is to shared memory.
            let start = if load.is_empty() { start.clone() } else { format!("kept({start})") };
            self.line(&format!("const {kind} {name} = {start};"));
        }
        Some((body.as_ptr(), names))
    }

    /// Returns how a lane loads both operands. `ldmatrix` loads four 8×8 matrices: each group of
    /// eight lanes gives the addresses of the 16-byte rows of one matrix.
    fn lane_operands(&self, tile: &Fragments, lane: &str) -> [LaneOperand; 2] {
        let [_, _, j, h, .., k] = tile.loops;
        let bytes = self.dtype(tile.columns).bytes();
        let unit = 16 / bytes;
        let (rows, columns) = (flat_offset(self.program, tile.rows), flat_offset(self.program, tile.columns));
        let (row, row_step) = (rows.coefficient(h.var) / 8, rows.coefficient(k.var));
        let (rows_at, load_rows) = match (tile.rows_are_rows(), bytes) {
            (true, _) => (format!("{lane} % 16 * {row} + {lane} / 16 * {unit}"), "load_matrices"),
            (false, 2) => (
                format!("({lane} % 8 + {lane} / 16 * 8) * {row_step} + {lane} / 8 % 2 * 8"),
                "load_matrices_transposed",
            ),
            (false, _) => (format!("{lane} % 4 * {row_step} + {lane} / 4"), ""),
        };

        let (column, step) = (columns.coefficient(j.var) / 8, columns.coefficient(k.var));
        let (columns_at, load_columns) = match (tile.columns_are_rows(), bytes) {
            (true, _) => {
                (format!("({lane} % 8 + {lane} / 16 * 8) * {column} + {lane} / 8 % 2 * {unit}"), "load_matrices")
            }
            (false, 2) => (format!("{lane} % 16 * {step} + {lane} / 16 * 8"), "load_matrices_transposed"),
            (false, _) => (format!("{lane} % 4 * {step} + {lane} / 4"), ""),
        };
        [(tile.rows, rows_at, load_rows), (tile.columns, columns_at, load_columns)]
            .map(|(access, at, load)| self.lane_operand(tile, access, (&at, load)))
    }

    fn lane_operand(&self, tile: &Fragments, access: &Access, (at, load): (&str, &'static str)) -> LaneOperand {
        let dtype = self.dtype(access);
        let [fixed, varying] = split(&self.start_offset(access, tile), &self.dialect.varying);
        let start = format!("{} + {} + {at}", self.program.buffer(access.buffer).name, self.affine(&fixed, 0));
        let (kind, start, unit) = match load {
            "" => (format!("{} *", element::type_of(dtype)), start, 1),
            _ => ("SharedAddress".into(), format!("in_shared({start})"), dtype.bytes() as i64),
        };
        LaneOperand { kind, load, start, varying: self.affine(&(varying * unit), 0) }
    }

    /// Returns the address of an operand's first element of the tile, for lane 0.
    pub(super) fn start(&self, access: &Access, tile: &Fragments) -> String {
        let start = self.affine(&self.start_offset(access, tile), 0);
        format!("{} + {start}", self.program.buffer(access.buffer).name)
    }

    fn start_offset(&self, access: &Access, tile: &Fragments) -> Affine {
        let loops = tile.loops.iter().chain(tile.digits.iter().flatten());
        let inner = loops.map(|l| l.var).chain(self.dialect.lanes.iter().flatten().copied());
        inner.fold(flat_offset(self.program, access), |offset, var| offset.substitute(var, &Affine::default()))
    }
}
