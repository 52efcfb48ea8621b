//! C header of a library for CUDA devices.

use super::super::description::Described;
use super::super::header::{description, tensors_of};

/// Results of the library's functions, in the order of `driver.c`.
pub(super) const FAULTS: [(&str, &str); 8] = [
    ("OK", "done"),
    ("ERROR_WORKSPACE", "the workspace is NULL or not aligned to 64 bytes"),
    ("ERROR_DRIVER", "there is no CUDA driver (libcuda.so.1), or it lacks a function: install driver 525 or newer"),
    ("ERROR_DEVICE", "there is no CUDA device of the library's compute capability, or it refuses the library's code"),
    ("ERROR_MEMORY", "the device has too little free memory"),
    ("ERROR_NOT_INITIALISED", "the workspace was not initialised by this library"),
    ("ERROR_TENSOR", "a pointer to an input or an output is NULL"),
    ("ERROR_CUDA", "the CUDA driver reports an error; the context may be lost"),
];

/// First words of a header. `@NAME@` is the library's name, and `@PREFIX@` the name in capitals.
const TEXT: &str = r#"/* @NAME@: a network as a library, by autotune @VERSION@.
 *
 * Requires @INSTRUCTIONS@. The library needs the CUDA driver only, which it loads
 * at the first initialisation: of the calling thread's current context, else of the first device of this
 * compute capability. Any number of threads may run it at once, each with its own workspace:
 *
 *   void *workspace = aligned_alloc(64, (@NAME@_workspace_bytes() + 63) / 64 * 64);
 *   int error = @NAME@_init(workspace);
 *   if (error == @PREFIX@_OK) error = @NAME@_run(workspace, inputs, outputs, NULL, NULL);
 *   @NAME@_release(workspace);
 *
 * All tensors are row-major, in host memory and of float, including integers and truth values: an element is
 * the number, exact up to 2^24, or 1 for true and 0 for false.
 *
@TENSORS@ */

#ifndef @PREFIX@_H
#define @PREFIX@_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of @NAME@_init and @NAME@_run. */
enum {
@FAULTS@};

/* Message for a result; NULL for any other number. */
const char *@NAME@_error(int error);

/* Type of a function that libraries for CPUs take; not used here. */
typedef void (*@NAME@_parallel_for)(
    void *context, size_t count, void (*task)(void *argument, size_t i), void *argument);

/* Size of a workspace in bytes. A workspace serves one run at a time. */
size_t @NAME@_workspace_bytes(void);

/* Initialises a workspace, aligned to 64 bytes, for any number of runs: memory on the device for tensors, a
 * stream, and a recording of all launches. The first workspace also loads code and constants, which all share.
 * Makes the library's context the current one of the calling thread. */
int @NAME@_init(void *workspace);

/* Frees what a workspace has on the device; the last one also frees code and constants. */
void @NAME@_release(void *workspace);

/* Runs the network, and returns when the outputs are written. Reads inputs[0], .. and writes outputs[0], .., as
 * many elements of each as below. parallel_for and context are not used. */
int @NAME@_run(void *workspace, const float *const *inputs, float *const *outputs,
    @NAME@_parallel_for parallel_for, void *context);

/* Number of threads that the schedules are chosen for: 1. */
size_t @NAME@_threads(void);

/* Device that the library requires, in words. */
const char *@NAME@_instruction_set(void);

/* Number of inputs and outputs, and for each by its number: name, type ("f32", "i64" or "bool": the meaning
 * of the numbers), rank, shape, outermost extent first, and product of its extents. NULL or 0 for any other
 * number. */
@DESCRIPTION@
#ifdef __cplusplus
}
#endif

#endif
"#;

/// Returns the header of a library.
pub(super) fn header(name: &str, instructions: &str, tensors: &[Vec<Described>; 2]) -> String {
    let line = |(number, (word, meaning)): (usize, &(&str, &str))| {
        format!("    @PREFIX@_{word} = {number}, /* {meaning} */\n")
    };
    let values = [
        ("@FAULTS@", FAULTS.iter().enumerate().map(line).collect()),
        ("@DESCRIPTION@", description(false)),
        ("@INSTRUCTIONS@", instructions.into()),
        ("@VERSION@", env!("CARGO_PKG_VERSION").into()),
        ("@PREFIX@", name.to_uppercase()),
        ("@NAME@", name.into()),
        // Replaced last, as names of tensors may contain any text.
        ("@TENSORS@", tensors_of(tensors)),
    ];
    values.iter().fold(TEXT.into(), |text: String, (word, value): &(&str, String)| text.replace(word, value))
}
