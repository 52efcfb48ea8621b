//! Execution provider of ONNX Runtime. A program registers this library, and a session with its
//! provider runs the parts of a model that autotune supports on autotune's kernels, and the rest on
//! ONNX Runtime's.
//!
//! | file | what it owns |
//! |---|---|
//! | `abi` | tables of functions that ONNX Runtime calls |
//! | `host` | calls of ONNX Runtime's functions |
//! | `factory` | the provider's name, devices and options |
//! | `provider` | choice of the supported parts, and their compilation |
//! | `part` | sessions of parts, from graphs and from contents of EPContext nodes |
//! | `tune` | tuning of parts by the command `autotune` |
//! | `context`, `context_node` | contents of EPContext nodes; the nodes |
//! | `compatibility` | machines and versions that compiled models are for |
//! | `exact` | nodes whose values networks keep |
//! | `partition` | groups of supported nodes that may become one |
//! | `folder` | models in temporary files, from which weights are mapped |
//! | `attribute` | attributes of ONNX Runtime's nodes |
//! | `graph` | parts of ONNX Runtime's graph as ONNX models |
//! | `trial` | check that a model's nodes are supported |
//! | `value` | descriptions and tensors of ONNX Runtime |
//! | `compute` | runs of a compiled part |
//! | `profile` | steps of runs in ONNX Runtime's profiles |

mod abi;
mod attribute;
mod compatibility;
mod compute;
mod context;
mod context_node;
mod exact;
mod factory;
mod folder;
mod graph;
mod host;
mod part;
mod partition;
mod profile;
mod provider;
mod trial;
mod tune;
mod value;

use std::ffi::c_char;

use ort_sys::{OrtApiBase, OrtLogger, OrtStatusPtr};

use abi::EpFactory;
use factory::Factory;
use host::Host;

/// Loops of kernels are made from trees of small nodes; the system's allocator would take almost
/// half of that time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Creates the factory of this library's provider. ONNX Runtime calls it when the library is
/// registered.
///
/// # Safety
///
/// The arguments are those of ONNX Runtime's `CreateEpApiFactoriesFn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEpFactories(
    _registered_name: *const c_char,
    base: *const OrtApiBase,
    _logger: *const OrtLogger,
    factories: *mut *mut EpFactory,
    most: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes its table of tables.
    let Some(host) = (unsafe { Host::of(base) }) else {
        // SAFETY: as above.
        return unsafe { host::too_early(base) };
    };
    host.guarded(|| {
        if factories.is_null() || count.is_null() || most == 0 {
            return Err("there is no room for a factory".into());
        }
        // SAFETY: ONNX Runtime passes memory for `most` pointers and a number.
        unsafe {
            factories.write(Factory::create(host));
            count.write(1);
        }
        Ok(())
    })
}

/// Releases a factory. ONNX Runtime calls it when the library is unregistered.
///
/// # Safety
///
/// The factory comes from [`CreateEpFactories`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut EpFactory) -> OrtStatusPtr {
    // SAFETY: as for this function.
    unsafe { Factory::release(factory) };
    OrtStatusPtr::default()
}
