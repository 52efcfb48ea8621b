//! Asynchronous copies to shared memory.

use std::ptr;

use super::Cuda;
use super::hoist::HoistedCopy;
use crate::gpu::dialect::Printer;
use crate::gpu::writer::GpuWriter;
use autotune_ir::instruction::{BOX_COPY, BoxCopy};
use autotune_ir::machine::gpu::WARP_THREADS;
use autotune_ir::plan::TensorBox;
use autotune_ir::program::{Access, InBounds, Node, Store, WarpRole};

pub(super) const PRINTER: Printer<Cuda> =
    Printer { instruction: &BOX_COPY, functions: |_, _| functions(), print: |writer, body| writer.copy_box(body) };

pub(super) fn functions() -> String {
    include_str!("boxes.cu").into()
}

impl Cuda {
    /// Returns statements that initialise the mbarriers of box copies.
    ///
    /// The mbarriers lie after the shared buffers, from byte `end` on.
    pub(super) fn begin_arrivals(&self, end: usize) -> Vec<String> {
        if self.slots == 0 {
            return Vec::new();
        }
        let (slots, warps) = (self.slots, self.block_threads / WARP_THREADS);
        let arrivals = format!("unsigned long long *const arrivals = (unsigned long long *)(shared + {end});");
        if !self.is_specialised {
            let begin = format!("begin_arrivals(arrivals, {slots}, 0, 0);");
            return vec![arrivals, "int issued = 0, awaited = 0;".into(), begin];
        }
        let releases = format!("unsigned long long *const releases = arrivals + {slots};");
        vec![arrivals, releases, format!("begin_arrivals(arrivals, {slots}, releases, {warps});")]
    }

    /// Returns the condition before a statement that a single thread executes for the block.
    fn single_thread_condition(&self) -> &'static str {
        // The producer's code runs in a single thread already.
        if self.role == Some(WarpRole::Producer) { "" } else { "if (threadIdx.x == 0) " }
    }
}

impl GpuWriter<'_, Cuda> {
    pub(super) fn copy_group(&mut self, body: &[Node]) {
        self.dialect.in_group = true;
        self.nodes(body);
        self.dialect.in_group = false;
        if self.dialect.slots == 0 {
            self.line("end_group();");
        } else {
            self.line(&format!(
                "{}end_boxes(&arrivals[issued % {}]);",
                self.dialect.single_thread_condition(),
                self.dialect.slots
            ));
            self.line("++issued;");
        }
    }

    pub(super) fn await_copies(&mut self, pending: usize) {
        self.line(&match self.dialect.slots {
            0 => format!("await_copies<{pending}>();"),
            slots => format!("await_boxes(arrivals, {slots}, awaited, issued - {pending});"),
        });
    }

    /// Writes a copy from global to shared memory as an asynchronous one.
    ///
    /// Returns false if the hardware has no such copy.
    pub(super) fn copy_async(&mut self, store: &Store) -> bool {
        let Some((bytes, from, when)) = self.async_copy(store) else { return false };
        let [to, from, there] = match self.dialect.hoisted.iter().find(|copy| ptr::eq(copy.store, store)) {
            Some(HoistedCopy { to, from, there, .. }) => [to, from, there].map(String::clone),
            None => {
                let there = self.conditions(when, 0).unwrap_or_else(|| "true".into());
                [self.address(&store.dst, 0), self.address(from, 0), there]
            }
        };
        self.line(&format!("copy_async<{bytes}>({to}, {from}, {there});"));
        true
    }

    /// Returns the bytes, the source and the conditions of an asynchronous copy of the lanes that
    /// are being written. Returns `None` if the hardware has no such copy: of another size, or not
    /// contiguous.
    pub(super) fn async_copy<'s>(&self, store: &'s Store) -> Option<(usize, &'s Access, &'s [InBounds])> {
        let (from, when) = store.copied()?;
        let contiguous = |access: &Access| self.vector.is_none_or(|v| v.lanes == 1 || self.is_contiguous(access, v));
        let bytes = self.vector.map_or(1, |v| v.lanes) * self.dtype(&store.dst).bytes();
        // `cp.async` exists for these sizes only.
        let exists = [4, 8, 16].contains(&bytes) && contiguous(&store.dst) && contiguous(from);
        exists.then_some((bytes, from, when))
    }

    /// Writes a TMA copy of a box:
    ///
    /// ```text
    /// box copy { shared[slot, ..] = matrix[..] }
    ///   →  if (threadIdx.x == 0) copy_box(map, shared + .., column, row, ..)
    /// ```
    fn copy_box(&mut self, body: &[Node]) {
        let map = |copy: &BoxCopy| self.dialect.boxes.iter().position(|known| *known == TensorBox::of(copy));
        let place = BoxCopy::of(body).and_then(|copy| Some((map(&copy)?, copy)));
        let Some((map, copy)) = place else {
            self.unsupported("loop nest does not match a box copy");
            return;
        };
        let to = Access { index: copy.origin(copy.to).into(), ..copy.to.clone() };
        let origin = copy.origin(copy.from);
        let [.., row, column] = &origin[..] else { return };
        let (row, column) = (self.affine(row, 0), self.affine(column, 0));
        let bytes = copy.shape().iter().product::<usize>() * self.dtype(&to).bytes();
        let arrival = format!("&arrivals[issued % {}]", self.dialect.slots);
        let (to, condition) = (self.address(&to, 0), self.dialect.single_thread_condition());
        self.line(&format!("{condition}copy_box(&map{map}, {to}, {column}, {row}, {arrival}, {bytes});"));
    }
}
