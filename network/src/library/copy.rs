//! Code generation for strided copies.

use autotune_codegen::asm::x86::Integer::{Rax, Rcx, Rdi, Rsi, Rsp};
use autotune_codegen::asm::x86::{Condition, Routine};

use crate::cut::Strided;
use crate::strided::StridedLoop;

/// Maximum length in bytes of rows that are copied by unrolled moves.
const WRITTEN_OUT: i64 = 128;

/// Returns the number of 8-byte stack slots that a copy's loop counters need.
pub(super) fn slots(strided: &Strided) -> usize {
    strided.loops().map_or(0, |loops| loops.len())
}

/// Emits a copy of elements from rsi, at the first element that is read, to rdi. Loop counters are
/// in 8-byte slots from `[rsp + counters]` on. Clobbers rax, rcx, rsi and rdi.
///
/// Offsets must fit 32 bits.
pub(super) fn emit(routine: &mut Routine, strided: &Strided, element: usize, counters: i32) {
    if let Some(loops) = strided.loops() {
        emit_loops(routine, &loops, element as i64, counters);
    }
}

/// Emits nested loops; returns the bytes by which rsi and rdi advance.
fn emit_loops(routine: &mut Routine, loops: &[StridedLoop], element: i64, counter: i32) -> (i64, i64) {
    let (outer, inner) = match loops {
        [] => return emit_row(routine, element),
        [StridedLoop { count, read: 1, write: 1 }] => return emit_row(routine, element * *count as i64),
        [outer, inner @ ..] => (outer, inner),
    };
    let (count, is_innermost) = (outer.count as i64, inner.is_empty());
    let [read_bytes, write_bytes] = [outer.read as i64, outer.write as i64].map(|elements| element * elements);
    // The innermost loop counts in rcx, outer ones on the stack.
    routine.set(Rcx, count);
    if !is_innermost {
        routine.store(Rsp, counter, Rcx);
    }

    let top = routine.label_here();
    let (read, write) = emit_loops(routine, inner, element, counter + 8);
    // Inner loops have advanced the pointers by `read` and `write` already.
    advance(routine, read_bytes - read, write_bytes - write);
    if is_innermost {
        routine.add_value(Rcx, -1);
    } else {
        routine.add_to(Rsp, counter, -1);
    }
    routine.jump_if(Condition::NotEqual, top);
    (count * read_bytes, count * write_bytes)
}

/// Emits the advance of rsi and rdi.
fn advance(routine: &mut Routine, read: i64, write: i64) {
    for (register, bytes) in [(Rsi, read), (Rdi, write)] {
        if bytes != 0 {
            routine.add_value(register, bytes as i32);
        }
    }
}

/// Emits the copy of contiguous bytes; returns by how many bytes rsi and rdi advance. Clobbers rcx
/// only for more than one element.
fn emit_row(routine: &mut Routine, bytes: i64) -> (i64, i64) {
    if bytes > WRITTEN_OUT {
        routine.set(Rcx, bytes);
        routine.copy_bytes();
        return (bytes, bytes);
    }

    let mut at = 0;
    while at < bytes as i32 {
        at += match bytes as i32 - at {
            16.. => {
                routine.copy_16_bytes((Rdi, at), (Rsi, at));
                16
            }
            8.. => {
                routine.load(Rax, Rsi, at);
                routine.store(Rdi, at, Rax);
                8
            }
            4.. => {
                routine.load_half(Rax, Rsi, at);
                routine.store_half(Rdi, at, Rax);
                4
            }
            2.. => {
                routine.load_quarter(Rax, Rsi, at);
                routine.store_quarter(Rdi, at, Rax);
                2
            }
            _ => {
                routine.load_byte(Rax, Rsi, at);
                routine.store_byte(Rdi, at, Rax);
                1
            }
        };
    }

    // The moves above use offsets and leave the pointers in place.
    (0, 0)
}
